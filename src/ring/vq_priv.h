/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the device's side share: vq.c is the verbs, the others have a layout each. */
#ifndef UVHOST_RING_VQ_PRIV_H
#define UVHOST_RING_VQ_PRIV_H

#include <errno.h>

#include "ring/vq.h"

/* ---- vq.c, for the layouts ---- */

/* A part of the ring in memory, or NULL with *@err -EFAULT or -EINVAL (misaligned). */
void *vq_map_part(const struct mem *mem, struct uva addr, size_t bytes, size_t align, int *err);
/* -EPROTO, for good. */
int vq_break(struct vq *vq);
/* IN_ORDER: notes that a chain is done before the oldest one is. */
void vq_set_done(struct vq *vq, uint16_t seq);
/* IN_ORDER: was the oldest chain done before its turn? It is then forgotten. */
bool vq_take_done(struct vq *vq);

/* ---- what each chain passes through ---- */

/* Begins a chain in the free room of @iovs; how many pieces it may have. */
static inline unsigned vq_chain_begin(const struct vq *vq, struct vq_chain *chain,
				      struct vq_iovs *iovs)
{
	unsigned first = iovs->used + 1; /* the one before is the chain's spare */

	*chain = (struct vq_chain){ .iov = iovs->iov + first, .seq = vq->avail_idx };
	return VQ_IOVS_MAX - first;
}

/* What a walk returned; -E2BIG: the chain has to wait for an empty @iovs. Else 0: it is taken. */
static inline int vq_chain_end(struct vq_chain *chain, struct vq_iovs *iovs, int walked)
{
	if (walked == -E2BIG && iovs->used > 0)
		return walked;
	if (walked < 0) {
		chain->err = (int16_t)walked;
		walked = 0;
	}
	iovs->used += 1 + (unsigned)walked;
	return 0;
}

/* ---- vq_chain.c ---- */

/*
 * Follows the descriptors from chain->head on and writes their pieces to chain->iov, at most @room.
 * Fills in the counts and lengths and returns the number of pieces; an error of vq_chain.err leaves
 * them alone. -E2BIG: @room is too small.
 */
int vq_split_walk(const struct vq *vq, struct vq_chain *chain, unsigned room);
/* The packed chain that comes next in the ring. */
struct vq_packed_span {
	uint16_t flags; /* of its first descriptor, as they were seen */
	uint16_t max;   /* descriptors that it can have */
	uint16_t cnt;   /* how many it has */
};

/*
 * The same for that chain. Fills in chain->head and span->cnt also beside an error; but -EPROTO: it has
 * more than span->max, so nobody knows where the next one is.
 */
int vq_packed_walk(const struct vq *vq, struct vq_chain *chain, unsigned room,
		   struct vq_packed_span *span);

/* ---- the layouts: vq_split.c, vq_packed.c ---- */

/* The verbs as vq.h has them. */
int vq_split_start(struct vq *vq, const struct vq_addr *addr);
int vq_packed_start(struct vq *vq, const struct vq_addr *addr);
uint32_t vq_packed_base(const struct vq *vq);
int vq_split_pending(struct vq *vq, unsigned max);
int vq_packed_pending(struct vq *vq, unsigned max);
int vq_split_pop(struct vq *vq, struct vq_chain *chains, unsigned max, struct vq_iovs *iovs);
int vq_packed_pop(struct vq *vq, struct vq_chain *chains, unsigned max, struct vq_iovs *iovs);
void vq_packed_unpop(struct vq *vq, unsigned cnt);
void vq_split_push(struct vq *vq, const struct vq_done *done, unsigned cnt);
void vq_packed_push(struct vq *vq, const struct vq_done *done, unsigned cnt);
void vq_split_flush(struct vq *vq);
void vq_packed_flush(struct vq *vq);
/* Of the driver's wish alone, behind the fence. */
bool vq_split_wants_notify(const struct vq *vq);
bool vq_packed_wants_notify(const struct vq *vq);
void vq_split_kick_off(struct vq *vq);
void vq_packed_kick_off(struct vq *vq);
/* The wish alone; the fence is the caller's. */
void vq_split_kick_on(struct vq *vq);
void vq_packed_kick_on(struct vq *vq);
bool vq_split_peek(const struct vq *vq);
bool vq_packed_peek(const struct vq *vq);

#endif
