/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receive: from the port to the guest's ring.
 *
 * DOC: one turn is rx_prepare -> [the entry] -> rx_harvest; net/rx.c is its page, the mirror of
 * net/tx.c. A port cannot be asked how large its next frame is, so room is given in one of two ways:
 *
 * *slots* (net/rx_slots.c): a burst of reads into the worker's scratch, then exactly the buffers that
 * each frame needs are popped and filled. Small frames: the second copy is of bytes that are hot in
 * the cache, and one entry serves many.
 *
 * *direct* (net/rx_direct.c): one read straight into buffers with room for the largest frame. Large
 * frames: the copy that is saved costs more than the entry.
 *
 * A frame that finds too few buffers goes to the queue's *backlog*, and the port is not read before
 * the backlog is empty. The queue then sleeps until the guest has added buffers beyond those it has
 * seen.
 */
#ifndef UVHOST_NET_RX_H
#define UVHOST_NET_RX_H

#include <stdbool.h>
#include <stdint.h>

#include "net/queue.h"
#include "net/scratch.h"
#include "port/port.h"

/* Room for one largest frame and a few small ones; frames beyond it are dropped. */
#define RX_BACKLOG_BYTES  (96U << 10)
#define RX_BACKLOG_FRAMES 64

/* A frame of at least RX_LARGE bytes turns direct reads on; RX_SMALL_RUN smaller ones in a row off. */
#define RX_LARGE     4096
#define RX_SMALL_RUN 16

/* Chains that a direct read may span: the largest frame in buffers of 1.5 KiB, and some more. */
#define RX_DIRECT_CHAINS 64

#define RX_BURST_MIN 4
#define RX_BURST_MAX 64

/* A frame in private memory, on its way to the guest. */
struct rx_frame {
	const void *data;
	uint32_t len;
	struct frame_offload off;
};

struct rx_backlog {
	char *memory; /* touched only when used */
	struct rx_frame frames[RX_BACKLOG_FRAMES];
	unsigned first, cnt;
	uint32_t used; /* bytes of memory; it is filled from the start and reused when empty */
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
	bool direct;        /* large frames lately */
	unsigned small_run; /* frames below RX_LARGE since the last above */
	unsigned burst;     /* reads into slots of the next entry */
	bool starved;       /* waits for buffers, not for frames */
	bool deferred;      /* other queues had all slots of this round */
	bool discarding;    /* no guest yet: what the port has is from before it came */

	/* What this entry reads: rooms into slots from first_slot on, or one into chains. */
	unsigned slot_cnt, first_slot;
	unsigned chain_cnt; /* direct: popped for the room */
	struct vq_chain direct_chains[RX_DIRECT_CHAINS];
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
