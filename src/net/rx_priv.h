/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the receive side share. */
#ifndef UVHOST_NET_RX_PRIV_H
#define UVHOST_NET_RX_PRIV_H

#include "net/rx.h"

/* ---- rx_deliver.c ---- */

enum rx_delivered {
	RX_DONE,    /* delivered, or dropped and counted */
	RX_NO_ROOM, /* the ring holds too few buffers now; nothing was taken */
};

/* Copies a frame into as many of the guest's buffers as it needs; unpublished. */
enum rx_delivered rx_deliver(struct rx *rx, struct rx_frame *f);

/* ---- rx_backlog.c ---- */

int rx_backlog_init(struct rx_backlog *b);
void rx_backlog_fini(struct rx_backlog *b);
static inline bool rx_backlog_empty(const struct rx_backlog *b)
{
	return b->cnt == 0;
}
/* Copies @f to the end; at most RX_BURST_MAX of them until it is empty again. */
void rx_backlog_add(struct rx_backlog *b, const struct rx_frame *f);
/* Delivers from the front while the ring has buffers; returns bytes, adds to *@frames. */
unsigned rx_backlog_deliver(struct rx *rx, unsigned *frames);
/* Empties it; returns how many frames were in it. */
unsigned rx_backlog_clear(struct rx_backlog *b);

#endif
