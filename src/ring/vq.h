/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device's side of a virtqueue, split or packed.
 *
 * DOC: a virtqueue is used through verbs: pop and unpop take and give back, push and flush return,
 * notify asks whether the driver wants an interrupt, kick_off and kick_on whether we want kicks. The
 * layout is chosen once a verb, for a burst of chains; no caller knows which it is.
 * Every descriptor is read once, into private memory; what the driver writes later changes nothing.
 *
 * A *bad chain* (loop, address outside memory, wrong direction) comes out of pop with err set and no
 * pieces; its head is returned with length 0 like any other. A *bad ring* (an index that jumps, a
 * head that does not exist, a packed chain without an end) breaks the queue: pop returns -EPROTO and
 * nothing more is taken until the next vq_start().
 *
 * One thread uses a queue at a time. The other thread of the DOC essays on ordering is the guest.
 */
#ifndef UVHOST_RING_VQ_H
#define UVHOST_RING_VQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "mem/mem.h"
#include "wire/virtio_ring.h"

/* The largest ring that we serve; a chain has at most as many descriptors. */
#define VQ_NUM_MAX 1024

/* The parts of a ring; packed: the descriptor ring, the driver's and the device's event suppression. */
struct vq_addr {
	struct uva desc, avail, used;
};

/*
 * One descriptor chain. Its pieces are iov[0 .. out_cnt) to read and iov[out_cnt .. out_cnt+in_cnt)
 * to write; iov[-1] is free for whoever has to put a header in front.
 */
struct vq_chain {
	struct iovec *iov;
	uint16_t out_cnt, in_cnt;
	uint32_t out_len, in_len; /* bytes; a sum over UINT32_MAX is a bad chain */
	uint16_t head;            /* packed: the buffer ID */
	uint16_t seq;             /* position in the order of pops */
	int16_t err; /* 0; -EFAULT address, -ELOOP too many descriptors, -EINVAL direction or table,
		       * -EOVERFLOW a sum, -E2BIG more pieces than VQ_IOVS_MAX - 1 */
};

/* Room for the pieces of a burst of chains; the caller's, one burst a time. */
#define VQ_IOVS_MAX 4096
struct vq_iovs {
	unsigned used;
	struct iovec iov[VQ_IOVS_MAX];
};

struct vq_done {
	uint16_t head;
	uint16_t seq;
	uint32_t len; /* bytes written into the chain */
};

/* Where the chains of a packed ring are that were popped and not pushed: by their seq. */
struct vq_packed_chain {
	uint16_t place;
	uint16_t cnt; /* descriptors in the ring */
};

struct vq_split {
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
};

struct vq_packed {
	struct vring_packed_desc *desc;
	struct vring_packed_event *driver, *device; /* to read, to write */
	/* Places (wire/virtio_ring.h) of the counts of the same name in struct vq. */
	uint16_t avail, tried, used, flushed;
	uint16_t first_flags; /* of the first element that is not flushed */
	uint32_t unsignalled; /* descriptors of the chains that the driver has not been told of */
	struct vq_packed_chain chains[VQ_NUM_MAX];
};

struct vq {
	const struct mem *mem;
	uint32_t base; /* while it does not run: where it stands */
	uint16_t num;
	bool is_packed;
	bool event_idx, indirect, in_order;
	bool broken;
	bool kicks_off;
	bool signalled_valid;
	/* Chains, counted from some number on; split: the ring's free-running indexes. */
	uint16_t avail_idx;   /* next to pop */
	uint16_t avail_tried; /* how far pops got; unpop leaves it */
	uint16_t avail_seen; /* how many the driver had when we last looked; packed: that pop left over */
	uint16_t used_idx;     /* next to push; IN_ORDER: first that is not done */
	uint16_t used_flushed; /* published */
	uint16_t signalled;    /* published when we last told the driver, or it did not care */
	/* IN_ORDER: pushed, but an earlier one is not; by seq, modulo VQ_NUM_MAX. */
	uint16_t done_cnt;
	uint64_t done[VQ_NUM_MAX / 64];
	union {
		struct vq_split split;
		struct vq_packed packed;
	};
};

/*
 * Makes the ring ready to run at @base, from the acked feature bits, with kicks on. The used index is
 * taken from a split ring in memory, from @base for a packed one; a queue of ours had returned all that
 * it took, so where the two differ, the used index is the one to believe: the ring runs from there,
 * and 1 is returned.
 * Otherwise 0; -EFAULT: a part is outside memory or crosses a region; -EINVAL: misaligned, or @num is
 * 0, too large or, split, no power of two; -EPROTO: the ring's indexes contradict each other.
 */
int vq_start(struct vq *vq, const struct mem *mem, const struct vq_addr *addr, uint16_t num,
	     uint32_t base, uint64_t features);
/* Forgets the memory. Everything popped was pushed and flushed, or unpopped. */
void vq_stop(struct vq *vq);
static inline bool vq_running(const struct vq *vq)
{
	return vq->mem != NULL;
}
/*
 * What GET_VRING_BASE answers, and a later start begins at. Split: the next avail index to consume;
 * packed: the places of the next descriptor to pop (bits 0 to 15) and to use (16 to 31).
 */
uint32_t vq_base(const struct vq *vq);
/* A ring that does not run stands at @base. */
void vq_rest(struct vq *vq, uint32_t base);

/* Chains that wait to be popped, up to @max of them; -EPROTO when the ring is broken. */
int vq_pending(struct vq *vq, unsigned max);

/*
 * Takes up to @max chains, whose pieces go to @iovs (from iovs->used on), until the ring is empty or
 * @iovs is full. Returns how many; -EPROTO when the ring is broken and none was taken.
 */
int vq_pop(struct vq *vq, struct vq_chain *chains, unsigned max, struct vq_iovs *iovs);
/* After a pop that took fewer than it was to: did it leave chains that it had seen? */
static inline bool vq_left_over(const struct vq *vq)
{
	return !vq->broken && vq->avail_idx != vq->avail_seen;
}
/* Steps back over the @cnt chains popped last. */
void vq_unpop(struct vq *vq, unsigned cnt);

/* Returns chains, in any order; with IN_ORDER they reach the driver in the order of their pops. */
void vq_push(struct vq *vq, const struct vq_done *done, unsigned cnt);
/* Publishes what was pushed. */
void vq_flush(struct vq *vq);
/*
 * After a flush: does the driver want an interrupt for what it has not been told of? Always true the
 * first time after vq_start(): a signal from before may be lost. False: those chains count as told.
 * True: it stays so until vq_notified(), or until the driver has found them by itself.
 */
bool vq_wants_notify(struct vq *vq);
/* How many chains those are. */
static inline uint16_t vq_unnotified(const struct vq *vq)
{
	return vq->used_flushed - vq->signalled;
}
/* The interrupt is on its way. */
void vq_notified(struct vq *vq);

/* Asks the driver not to kick. */
void vq_kick_off(struct vq *vq);
/*
 * Asks for kicks; true: look again, there is something that no pop has got to. Chains that were
 * popped and unpopped do not count: whoever found them too few waits for more of them.
 */
bool vq_kick_on(struct vq *vq);

/* For the poll window: the same look as vq_kick_on()'s, without asking for anything. */
bool vq_peek(const struct vq *vq);

#endif
