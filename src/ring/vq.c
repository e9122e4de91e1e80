// SPDX-License-Identifier: BSD-2-Clause
/*
 * The device's side of a virtqueue: what both layouts have in common.
 *
 * DOC: who orders what. Two parties share a ring, and each publishes with one store, of an index
 * (split) or of the flags of a descriptor (packed):
 *
 *   driver: descriptors   -> release what makes them available ... acquire it -> device reads them
 *   device: buffers, used -> release what makes them used      ... acquire it -> driver reads them
 *
 * And each asks the other for a signal before it sleeps. That takes a store and a load of different
 * words on each side, and only a full fence between the two makes sure that at least one of them
 * sees what the other stored (the pattern known as store buffering):
 *
 *   driver publishes a chain          device goes to sleep (vq_kick_on)
 *     store index or flags              store what kicks it wants
 *     FENCE                             FENCE
 *     load what kicks are wanted        load index or flags: changed? then look again
 *     wanted? then kick
 *
 * vq_wants_notify() and the driver's call_on are the same with the parts exchanged.
 *
 * The counts of a queue are in this order, each at most @num ahead of the first:
 *
 *   used_flushed <= used_idx <= avail_idx <= avail_tried <= avail_seen
 *
 * A driver adds a chain only when it has a free descriptor, and it has at least one descriptor a
 * chain: it is never more than @num chains ahead of what it got back. So the chains that we hold are
 * at most @num, and with IN_ORDER, where the nth chain popped is the nth one used, each has a place
 * in the ring for itself from the moment when it is popped.
 */
#include "ring/vq.h"

#include <assert.h>
#include <errno.h>

#include "ring/vq_priv.h"

/* ---- what the layouts share ---- */

void *vq_map_part(const struct mem *mem, struct uva addr, size_t bytes, size_t align, int *err)
{
	void *at = mem_at_uva(mem, addr, bytes);

	if (at == NULL)
		*err = -EFAULT;
	else if ((uintptr_t)at % align != 0)
		*err = -EINVAL; /* here, not at the front end, is where an access would tear */
	else
		return at;
	return NULL;
}

int vq_break(struct vq *vq)
{
	vq->broken = true;
	return -EPROTO;
}

static uint64_t *done_word(struct vq *vq, uint16_t seq, uint64_t *bit)
{
	*bit = 1ULL << (seq % 64);
	return &vq->done[seq % VQ_NUM_MAX / 64];
}

void vq_set_done(struct vq *vq, uint16_t seq)
{
	uint64_t bit, *word = done_word(vq, seq, &bit);

	assert((uint16_t)(seq - vq->used_idx) < (uint16_t)(vq->avail_idx - vq->used_idx));
	assert(!(*word & bit));
	*word |= bit;
	vq->done_cnt++;
}

bool vq_take_done(struct vq *vq)
{
	uint64_t bit, *word = done_word(vq, vq->used_idx, &bit);

	if (!(*word & bit))
		return false;
	*word &= ~bit;
	vq->done_cnt--;
	return true;
}

/* ---- life ---- */

int vq_start(struct vq *vq, const struct mem *mem, const struct vq_addr *addr, uint16_t num,
	     uint32_t base, uint64_t features)
{
	int ret;

	assert(!vq_running(vq));
	*vq = (struct vq){
		.mem = mem,
		.base = base,
		.num = num,
		.is_packed = (features >> VIRTIO_F_RING_PACKED) & 1,
		.event_idx = (features >> VIRTIO_F_RING_EVENT_IDX) & 1,
		.indirect = (features >> VIRTIO_F_RING_INDIRECT_DESC) & 1,
		.in_order = (features >> VIRTIO_F_IN_ORDER) & 1,
	};
	ret = num == 0 || num > VQ_NUM_MAX ? -EINVAL :
	      vq->is_packed                ? vq_packed_start(vq, addr) :
					     vq_split_start(vq, addr);
	if (ret < 0)
		vq->mem = NULL;
	return ret;
}

void vq_rest(struct vq *vq, uint32_t base)
{
	*vq = (struct vq){ .base = base };
}

uint32_t vq_base(const struct vq *vq)
{
	if (!vq_running(vq))
		return vq->base;
	return vq->is_packed ? vq_packed_base(vq) : vq->avail_idx;
}

void vq_stop(struct vq *vq)
{
	assert(vq_running(vq));
	assert(vq->used_flushed == vq->used_idx && vq->used_idx == vq->avail_idx);
	vq_rest(vq, vq_base(vq));
}

/* ---- to take, to return ---- */

int vq_pending(struct vq *vq, unsigned max)
{
	return vq->is_packed ? vq_packed_pending(vq, max) : vq_split_pending(vq, max);
}

int vq_pop(struct vq *vq, struct vq_chain *chains, unsigned max, struct vq_iovs *iovs)
{
	int cnt;

	if (vq->broken)
		return -EPROTO;
	cnt = vq->is_packed ? vq_packed_pop(vq, chains, max, iovs) :
			      vq_split_pop(vq, chains, max, iovs);
	return cnt == 0 && vq->broken ? -EPROTO : cnt;
}

void vq_unpop(struct vq *vq, unsigned cnt)
{
	assert(cnt <= (uint16_t)(vq->avail_idx - vq->used_idx));
	vq->avail_idx -= cnt;
	if (vq->is_packed)
		vq_packed_unpop(vq, cnt);
}

void vq_push(struct vq *vq, const struct vq_done *done, unsigned cnt)
{
	assert(cnt <= (uint16_t)(vq->avail_idx - vq->used_idx));
	if (vq->is_packed)
		vq_packed_push(vq, done, cnt);
	else
		vq_split_push(vq, done, cnt);
}

void vq_flush(struct vq *vq)
{
	if (vq->used_flushed == vq->used_idx)
		return;
	if (vq->is_packed)
		vq_packed_flush(vq);
	else
		vq_split_flush(vq);
	vq->used_flushed = vq->used_idx;
}

/* ---- signals ---- */

/* The driver has been told of all that is published, or does not want to be. */
static void forget_unnotified(struct vq *vq)
{
	vq->signalled = vq->used_flushed;
	if (vq->is_packed)
		vq->packed.unsignalled = 0;
}

bool vq_wants_notify(struct vq *vq)
{
	bool wants;

	if (!vq->signalled_valid)
		return true;
	if (vq_unnotified(vq) == 0)
		return false;
	/* Between what was published and what the driver asks for; its partner is the fence in
	 * drvq_call_on(). */
	atomic_thread_fence(memory_order_seq_cst);
	wants = vq->is_packed ? vq_packed_wants_notify(vq) : vq_split_wants_notify(vq);
	if (!wants)
		forget_unnotified(vq);
	return wants;
}

void vq_notified(struct vq *vq)
{
	forget_unnotified(vq);
	vq->signalled_valid = true;
}

void vq_kick_off(struct vq *vq)
{
	if (vq->is_packed)
		vq_packed_kick_off(vq);
	else
		vq_split_kick_off(vq);
}

bool vq_kick_on(struct vq *vq)
{
	if (vq->is_packed)
		vq_packed_kick_on(vq);
	else
		vq_split_kick_on(vq);
	/* Between our wish and what the driver publishes; its partner is the fence in
	 * drvq_publish(). */
	atomic_thread_fence(memory_order_seq_cst);
	return vq_peek(vq);
}

bool vq_peek(const struct vq *vq)
{
	/* Nothing is ever taken from a broken ring, so there is nothing to look for. */
	return !vq->broken && (vq->is_packed ? vq_packed_peek(vq) : vq_split_peek(vq));
}
