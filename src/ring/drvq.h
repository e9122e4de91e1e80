/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The driver's side of a virtqueue, split or packed: the mirror of vq.h.
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

struct drvq_split {
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
};

struct drvq_packed {
	struct vring_packed_desc *desc;
	struct vring_packed_event *driver, *device; /* to write, to read */
	/* Places (wire/virtio_ring.h): of the next add, of the first unpublished, of the next to get. */
	uint16_t avail, published, used;
	uint16_t first_flags; /* of the first unpublished descriptor */
};

struct drvq {
	uint16_t num;
	bool is_packed;
	bool event_idx, in_order;
	uint16_t free_head, free_cnt; /* the first free slot; descriptors */
	/* Chains, counted; split: the ring's free-running indexes. */
	uint16_t avail_idx;      /* of the next add, unpublished ones included */
	uint16_t kicked_idx;     /* published at the last kick decision */
	uint16_t used_idx;       /* next to get */
	uint64_t published;      /* calls that published something: dates the chains */
	struct drvq_slot *slots; /* split: one a descriptor; packed: one a buffer ID */
	struct drvq_indirect indirect;
	/* IN_ORDER: the oldest chain with the device; chains left of the batch that the device
	 * returned, and what it wrote into the last of them. */
	uint16_t oldest;
	uint16_t batch_cnt;
	uint32_t batch_len;
	union {
		struct drvq_split split;
		struct drvq_packed packed;
	};
};

/* Bytes that a ring of @num with all its parts needs, each part aligned, in either layout; offsets of
 * the driver's area (avail, driver event) and of the device's (used, device event). */
size_t drvq_ring_bytes(unsigned num, size_t *avail_off, size_t *used_off);

/*
 * Lays a new, empty ring at @ring (zeroed by this call). @features are the acked bits (RING_PACKED,
 * EVENT_IDX, INDIRECT_DESC, IN_ORDER count). @num is a power of two, packed: any number. @indirect is
 * NULL for none, and unused without INDIRECT_DESC. 0 or -ENOMEM.
 */
int drvq_init(struct drvq *q, void *ring, unsigned num, uint64_t features,
	      const struct drvq_indirect *indirect);
void drvq_fini(struct drvq *q);

/* Where its parts are: what SET_VRING_ADDR calls desc, avail and used. */
struct drvq_areas {
	const void *desc, *driver, *device;
};
struct drvq_areas drvq_areas(const struct drvq *q);
/* The base of a new ring, as vq_start() and SET_VRING_BASE take it. */
uint32_t drvq_base(const struct drvq *q);

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
