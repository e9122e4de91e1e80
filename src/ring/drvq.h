/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The driver's side of a virtqueue: the mirror of vq.h.
 *
 * The caller owns the buffers and knows their guest-physical addresses; a queue hands a token back
 * with each. Everything that comes from the device is checked: it is as little trusted here as the
 * guest is there. One thread uses a queue at a time.
 */
#ifndef UVHOST_RING_DRVQ_H
#define UVHOST_RING_DRVQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/mem.h"
#include "wire/virtio_ring.h"

struct drvq_buf {
	struct gpa addr;
	uint32_t len;
};

struct drvq_used {
	void *token;
	uint32_t len; /* bytes that the device wrote */
};

/* Room for indirect tables in shared memory: one of @max descriptors for each of the ring's. */
struct drvq_indirect {
	struct vring_desc *desc;
	struct gpa gpa;
	uint16_t max;
};

struct drvq {
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t num;
	uint16_t free_head, free_cnt;
	uint16_t avail_idx;  /* of the next add, unpublished ones included */
	uint16_t kicked_idx; /* published at the last kick decision */
	uint16_t used_idx;   /* next to get */
	bool event_idx, in_order;
	uint64_t published;      /* calls that published something: dates the chains */
	struct drvq_slot *slots; /* one a descriptor */
	struct drvq_indirect indirect;
	/* IN_ORDER: the oldest chain with the device; chains left of the batch that the device
	 * returned, and what it wrote into the last of them. */
	uint16_t oldest;
	uint16_t batch_cnt;
	uint32_t batch_len;
};

/* Bytes that a ring of @num with all its parts needs, each part aligned; offsets of avail and used. */
size_t drvq_ring_bytes(unsigned num, size_t *avail_off, size_t *used_off);

/*
 * Lays a new, empty ring at @ring (zeroed by this call). @features are the acked bits (EVENT_IDX,
 * INDIRECT_DESC, IN_ORDER count). @indirect is NULL for none, and unused without INDIRECT_DESC. 0 or
 * -ENOMEM.
 */
int drvq_init(struct drvq *q, void *ring, unsigned num, uint64_t features,
	      const struct drvq_indirect *indirect);
void drvq_fini(struct drvq *q);

/* Adds a chain of @out_cnt readable, then @in_cnt writable buffers, at least one and at most 2^32 - 1
 * bytes in total; unpublished until drvq_publish(). 0, or -ENOSPC. */
int drvq_add(struct drvq *q, const struct drvq_buf *bufs, unsigned out_cnt, unsigned in_cnt,
	     void *token);
/* Publishes what was added; true: the device wants a kick for it. */
bool drvq_publish(struct drvq *q);
/* The next used chain: 1, 0: none, -EPROTO: the device returned a chain that it does not have, one
 * twice, more bytes than fit, or out of order with IN_ORDER. */
int drvq_get(struct drvq *q, struct drvq_used *used);
/* Chains that were added and not got back. */
unsigned drvq_out(const struct drvq *q);

void drvq_call_off(struct drvq *q);
/* Asks for an interrupt at the next used chain; true: look again. */
bool drvq_call_on(struct drvq *q);

#endif
