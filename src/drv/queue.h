/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The queues of a driver: a ring with its doorbells and its buffers.
 *
 * DOC: buffers outlive connections. A ring is laid anew for each back end; what an earlier one still
 * had is free again, and what the caller holds stays the caller's: frames received and not released,
 * tokens not taken yet.
 *
 * A back end that breaks the rules of the ring makes the queue *broken*: nothing is sent or received
 * until the driver has connected again.
 */
#ifndef UVHOST_DRV_QUEUE_H
#define UVHOST_DRV_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "drv/memory.h"
#include "ring/drvq.h"
#include "uvhost/driver.h"
#include "wire/virtio_net.h"

#define DRV_FRAME_MAX  (65535 + 14)
#define DRV_PIECES_MAX 64 /* of a frame, header included */

/* Without mergeable buffers a large frame has to fit into one of @rx_buf bytes: else there are none. */
static inline uint64_t drv_features_that_fit(uint64_t features, uint32_t rx_buf)
{
	uint64_t large = 1ULL << VIRTIO_NET_F_GUEST_TSO4 | 1ULL << VIRTIO_NET_F_GUEST_TSO6 |
			 1ULL << VIRTIO_NET_F_GUEST_ECN;

	if ((features >> VIRTIO_NET_F_MRG_RXBUF) & 1 ||
	    rx_buf >= DRV_FRAME_MAX + VIRTIO_NET_HDR_LEN)
		return features;
	return features & ~large;
}

/* What both directions have. */
struct drv_ring {
	struct drvq q;
	void *ring; /* in shared memory; so are the tables */
	struct drvq_indirect tables;
	unsigned num;
	int kick, call; /* eventfds, ours for good */
	unsigned hdr_len;
	bool running;
	bool broken;
	uint64_t kicks, interrupts;
};

/* Shared memory that drv_ring_init() takes. */
size_t drv_ring_bytes(unsigned num);
int drv_ring_init(struct drv_ring *r, struct drv_mem *m, unsigned num);
void drv_ring_fini(struct drv_ring *r);
/* An empty ring for a new back end. 0 or -ENOMEM. */
int drv_ring_start(struct drv_ring *r, uint64_t features);
void drv_ring_stop(struct drv_ring *r);
static inline bool drv_ring_usable(const struct drv_ring *r)
{
	return r->running && !r->broken;
}
/* Publishes, and kicks when the back end wants it. */
void drv_ring_publish(struct drv_ring *r);
/* As drvq_get(), but what is wrong breaks the ring: false, as if there were nothing. */
bool drv_ring_get(struct drv_ring *r, struct drvq_used *used);
/* True: look again. */
bool drv_ring_interrupts(struct drv_ring *r, bool on);

/* ---- transmit ---- */

#define DRV_SLOT 2048 /* bytes of frame that a slot holds */

struct drv_tx_frame {
	void *token;
	uint16_t next; /* free ones; or those that came back */
	uint16_t slot; /* the first of a copied frame's */
	bool copied;
	bool out;
};

struct drv_tx {
	struct drv_ring r;
	struct drv_mem *mem;
	char *hdrs;  /* a header for each frame */
	char *slots; /* a slot for each descriptor, behind the headers' room */
	struct drv_tx_frame *frames;
	uint16_t *slot_next;
	uint16_t free_frame, free_slot;
	unsigned slots_free;
	uint16_t back_first, back_last; /* by reference, back, not told yet */
	uint64_t sent, bytes, lost;
};

size_t drv_tx_bytes(unsigned num);
int drv_tx_init(struct drv_tx *t, struct drv_mem *m, unsigned num);
void drv_tx_fini(struct drv_tx *t);
int drv_tx_start(struct drv_tx *t, uint64_t features);
void drv_tx_stop(struct drv_tx *t);

int drv_tx_send(struct drv_tx *t, const struct uvhost_frame *frames, unsigned cnt);
int drv_tx_send_copy(struct drv_tx *t, const struct uvhost_frame *frames, unsigned cnt);
unsigned drv_tx_sent(struct drv_tx *t, void **tokens, unsigned max);

/* ---- receive ---- */

struct drv_rx_buf {
	char *addr;
	struct gpa gpa;
	uint32_t len;            /* that the device wrote */
	struct drv_rx_buf *next; /* of a frame */
	bool held;               /* the caller's, or of a frame that is not whole */
};

struct drv_rx {
	struct drv_ring r;
	uint32_t buf_len;
	bool mergeable;
	struct drv_rx_buf *bufs;
	/* A frame whose buffers have not all come, or that found no room. */
	struct drv_rx_buf *first, *last;
	unsigned missing;
	uint64_t received, bytes, malformed;
};

size_t drv_rx_bytes(unsigned num, uint32_t buf_len);
int drv_rx_init(struct drv_rx *x, struct drv_mem *m, unsigned num, uint32_t buf_len);
void drv_rx_fini(struct drv_rx *x);
int drv_rx_start(struct drv_rx *x, uint64_t features);
void drv_rx_stop(struct drv_rx *x);

unsigned drv_rx_recv(struct drv_rx *x, struct uvhost_frame *frames, unsigned max, struct iovec *iov,
		     unsigned iov_max);
void drv_rx_release(struct drv_rx *x, const struct uvhost_frame *frames, unsigned cnt);

#endif
