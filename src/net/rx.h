/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receive: from the port to the guest's ring.
 *
 * DOC: one turn is rx_prepare -> [the entry] -> rx_harvest; net/rx.c is its page, the mirror of
 * net/tx.c. A port cannot be asked how large its next frame is, so a burst of reads goes into *slots*
 * of the worker's scratch, each with room for the largest; then exactly the buffers that each frame
 * needs are popped and filled (net/rx_deliver.c). The second copy is of bytes that are hot in the
 * cache, and one entry serves many frames.
 *
 * How many to read is a guess, from the sizes of the last burst's frames and buffers. Where it was
 * too high, frames find too few buffers and go to the queue's *backlog* (net/rx_backlog.c), which has
 * room for any burst. The port is not read before it is empty again. The queue then sleeps until the
 * guest has added buffers beyond those it has seen.
 */
#ifndef UVHOST_NET_RX_H
#define UVHOST_NET_RX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "net/queue.h"
#include "net/scratch.h"
#include "port/port.h"

#define RX_BURST_MIN 4
#define RX_BURST_MAX 64
/* A burst of large frames: they are copied out of the cache, and are one turn of the queue. */
#define RX_BURST_BYTES WORK_WEIGHT_BYTES

/* What a port held when a guest came is thrown away in this time; under a flood it never runs dry. */
#define RX_DISCARD_NS (20 * NSEC_PER_MSEC)

/* A frame in private memory, on its way to the guest. */
struct rx_frame {
	const void *data;
	uint32_t len;
	struct frame_offload off;
};

struct rx_backlog {
	char *memory; /* touched only when used */
	struct rx_frame frames[RX_BURST_MAX];
	unsigned first, cnt;
	uint32_t used; /* bytes of memory; both are filled from the start and reused when empty */
};

struct rx {
	struct work_src src;
	struct queue q;
	struct port *port;
	struct scratch *scratch;
	unsigned hdr_len;
	unsigned offloads; /* port_offload bits that the guest acked */
	bool mergeable;

	struct rx_backlog backlog;
	unsigned burst;      /* reads of the next entry, if all else allows */
	unsigned frame_len;  /* the largest of the last burst */
	unsigned buf_len;    /* of the last buffer filled */
	uint32_t never_need; /* that many bytes the guest's buffers did not hold, all together */
	bool starved;        /* waits for buffers, not for frames */
	bool deferred;       /* other queues had all slots of this round */
	bool discarding;     /* no guest yet: what the port has is from before it came */
	uint64_t discard_until_ns;

	unsigned slot_cnt; /* rooms that the port took in this entry */
};

int rx_init(struct rx *rx, struct worker *w, const char *device);
void rx_fini(struct rx *rx);

/* Between rounds. */

int rx_start(struct rx *rx, const struct queue_cfg *cfg);
void rx_stop(struct rx *rx);
/* The guest is gone: frames that wait for it are dropped. */
void rx_forget(struct rx *rx);
/* A guest is about to come: what the port holds by now is not for it. */
void rx_discard(struct rx *rx);

#endif
