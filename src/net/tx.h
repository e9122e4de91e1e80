/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transmit: from the guest's ring to the port.
 *
 * DOC: one turn is tx_prepare -> [the entry] -> tx_harvest; net/tx.c is its page. Frames that the port
 * took are remembered by cookie until it hands them back; every other chain of the burst is returned
 * at once. Stopping takes no new frames, waits for those that are out until a deadline, then abandons
 * them.
 */
#ifndef UVHOST_NET_TX_H
#define UVHOST_NET_TX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "net/queue.h"
#include "net/scratch.h"
#include "port/port.h"

/* Frames that one entry takes; the fourth part of a smaller ring, so that the guest can refill it. */
#define TX_BURST 64

/*
 * A driver is told of frames that went out when there are this many (or a fourth of its ring), or when
 * the first of them went this long ago: an interrupt may cost a guest more than its frame, and whoever
 * is called for something else, like frames that came in, finds them meanwhile. Shorter than the 1 ms
 * of a flow that Linux lets a socket have in a NIC's queue before it waits (TCP small queues).
 */
#define TX_CALL_FRAMES 32
#define TX_CALL_NS     (250 * NSEC_PER_USEC)

struct tx_frame {
	uint16_t head, seq;
	uint32_t len;
	bool out; /* the port has it */
};

struct tx {
	struct work_src src;
	struct queue q;
	struct port *port;
	struct scratch *scratch;
	unsigned hdr_len;
	unsigned offloads; /* port_offload bits that the guest acked */

	struct tx_frame frames[VQ_NUM_MAX]; /* by cookie */
	uint16_t cookies[VQ_NUM_MAX];       /* free ones, a stack */
	unsigned cookie_cnt;
	unsigned out_cnt;
	bool took; /* in this round */

	bool stopping;
	bool finish_posted;
	struct work_timer deadline;
	struct work_msg finish;
	void (*stopped)(void *ctx); /* in the worker's thread */
	void *stopped_ctx;
};

void tx_init(struct tx *tx, struct worker *w, const char *device);

/* Between rounds. */

int tx_start(struct tx *tx, const struct queue_cfg *cfg);
/* True: stopped. False: frames are still out; tx->stopped will be called, at the latest a round after
 * @deadline_ns. */
bool tx_stop(struct tx *tx, uint64_t deadline_ns);

#endif
