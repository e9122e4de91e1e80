/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the receive side share. */
#ifndef UVHOST_NET_RX_PRIV_H
#define UVHOST_NET_RX_PRIV_H

#include "net/rx.h"

/* ---- rx_slots.c ---- */

/* Gives the port up to @max slots; returns how many it took. */
unsigned rx_slots_prepare(struct rx *rx, unsigned max);
/* Delivers or keeps what came into them; returns the bytes received, adds to *@frames. */
unsigned rx_slots_harvest(struct rx *rx, unsigned *frames);

/* ---- rx_direct.c ---- */

/* Gives the port one room made of guest buffers; 0: the ring has no room for the largest frame. */
unsigned rx_direct_prepare(struct rx *rx);
unsigned rx_direct_harvest(struct rx *rx, unsigned *frames);

/* ---- rx_deliver.c ---- */

enum rx_delivered {
	RX_DONE,    /* delivered, or dropped and counted */
	RX_NO_ROOM, /* the ring holds too few buffers now; nothing was taken */
};

/* Copies a frame into as many of the guest's buffers as it needs; unpublished. */
enum rx_delivered rx_deliver(struct rx *rx, struct rx_frame *f);
/* Clears what the guest did not ask for; not DROP_NONE: it must not get this frame. */
enum net_drop rx_screen(const struct rx *rx, struct frame_offload *off);

/* ---- rx_backlog.c ---- */

int rx_backlog_init(struct rx_backlog *b);
void rx_backlog_fini(struct rx_backlog *b);
static inline bool rx_backlog_empty(const struct rx_backlog *b)
{
	return b->cnt == 0;
}
/* Copies @f to the end; false: there is no room. */
bool rx_backlog_add(struct rx_backlog *b, const struct rx_frame *f);
/* Delivers from the front while the ring has buffers; returns bytes, adds to *@frames. */
unsigned rx_backlog_deliver(struct rx *rx, unsigned *frames);
/* Empties it; returns how many frames were in it. */
unsigned rx_backlog_clear(struct rx_backlog *b);

#endif
