// SPDX-License-Identifier: BSD-2-Clause
/*
 * The device's side of a split virtqueue (virtio 1.2, section 2.7).
 *
 * DOC: who orders what. Two parties share a ring, and each publishes with one index:
 *
 *   driver: descriptors, avail ring   -> release avail idx ... acquire avail idx -> device reads them
 *   device: buffers, used ring        -> release used idx  ... acquire used idx  -> driver reads them
 *
 * And each asks the other for a signal before it sleeps. That takes a store and a load of different
 * words on each side, and only a full fence between the two makes sure that at least one of them
 * sees what the other stored (the pattern known as store buffering):
 *
 *   driver publishes a chain          device goes to sleep (vq_kick_on)
 *     store avail idx                   store avail_event or flags
 *     FENCE                             FENCE
 *     load avail_event or flags         load avail idx: changed? then look again
 *     wanted? then kick
 *
 * vq_wants_notify() and the driver's call_on are the same with the parts exchanged.
 *
 * The indexes of a queue are in this order, each at most @num ahead of the first:
 *
 *   used_flushed <= used_idx <= avail_idx <= avail_tried <= avail_seen
 *
 * A driver adds a chain only when it has a free descriptor, and it has at least one descriptor a
 * chain: its index is never more than @num ahead of what it got back. So the chains that we hold are
 * at most @num, and with IN_ORDER, where the nth chain popped is the nth in the used ring, each has a
 * slot there for itself from the moment when it is popped.
 */
#include "ring/vq.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "ring/vq_priv.h"

static bool is_aligned(const void *p, size_t align)
{
	return (uintptr_t)p % align == 0;
}

/* Finds the three parts in memory. */
static int map_ring(struct vq *vq, const struct mem *mem, const struct vq_addr *addr)
{
	vq->desc = mem_at_uva(mem, addr->desc, VRING_DESC_BYTES(vq->num));
	vq->avail = mem_at_uva(mem, addr->avail, VRING_AVAIL_BYTES(vq->num));
	vq->used = mem_at_uva(mem, addr->used, VRING_USED_BYTES(vq->num));
	if (vq->desc == NULL || vq->avail == NULL || vq->used == NULL)
		return -EFAULT;
	/* Here, not at the front end, is where an access would tear. */
	if (!is_aligned(vq->desc, VRING_DESC_ALIGN) || !is_aligned(vq->avail, VRING_AVAIL_ALIGN) ||
	    !is_aligned(vq->used, VRING_USED_ALIGN))
		return -EINVAL;
	return 0;
}

int vq_start(struct vq *vq, const struct mem *mem, const struct vq_addr *addr, uint16_t num,
	     uint16_t base, uint64_t features)
{
	uint16_t used_idx;
	int ret;

	assert(!vq_running(vq));
	if (num == 0 || num > VQ_NUM_MAX || (num & (num - 1)) != 0)
		return -EINVAL;
	*vq = (struct vq){
		.num = num,
		.event_idx = (features >> VIRTIO_F_RING_EVENT_IDX) & 1,
		.indirect = (features >> VIRTIO_F_RING_INDIRECT_DESC) & 1,
		.in_order = (features >> VIRTIO_F_IN_ORDER) & 1,
		.avail_idx = base, /* for vq_base(), should this fail */
	};
	ret = map_ring(vq, mem, addr);
	if (ret < 0)
		return ret;
	used_idx = le16_get(&vq->used->idx);
	if ((uint16_t)(le16_get(&vq->avail->idx) - used_idx) > num)
		return -EPROTO;
	vq->avail_idx = vq->avail_tried = vq->avail_seen = used_idx;
	vq->used_idx = vq->used_flushed = vq->signalled = used_idx;
	/* 2.7.10.2: 0 for good with EVENT_IDX. What an earlier device left would suppress kicks. */
	le16_set(&vq->used->flags, 0);
	if (vq->event_idx)
		le16_set(vring_avail_event(vq->used, num), used_idx);
	vq->mem = mem;
	return used_idx != base;
}

void vq_stop(struct vq *vq)
{
	assert(vq_running(vq));
	assert(vq->used_flushed == vq->used_idx && vq->used_idx == vq->avail_idx);
	vq->mem = NULL;
	vq->desc = NULL;
	vq->avail = NULL;
	vq->used = NULL;
}

static int break_ring(struct vq *vq)
{
	vq->broken = true;
	return -EPROTO;
}

/* Reads how far the driver is. */
static int look(struct vq *vq)
{
	uint16_t idx, ahead, seen;

	if (vq->broken)
		return -EPROTO;
	/* Acquire: pairs with the driver's release of this index, in drvq_publish(). */
	idx = le16_load(&vq->avail->idx, memory_order_acquire);
	ahead = idx - vq->used_idx;
	seen = vq->avail_seen - vq->used_idx;
	/* 2.7.6.1: the index does not step back. And a ring of zeros that the SIGBUS handler put
	 * there is no ring. */
	if (ahead > vq->num || ahead < seen || mem_broken(vq->mem))
		return break_ring(vq);
	vq->avail_seen = idx;
	return 0;
}

int vq_pending(struct vq *vq)
{
	int ret = look(vq);

	return ret < 0 ? ret : (uint16_t)(vq->avail_seen - vq->avail_idx);
}

/* Takes the chain at @head; -E2BIG when it has to wait for an empty @iovs. */
static int take(struct vq *vq, uint16_t head, struct vq_chain *chain, struct vq_iovs *iovs)
{
	unsigned first = iovs->used + 1; /* the one before is the chain's spare */
	int ret;

	*chain = (struct vq_chain){ .iov = iovs->iov + first, .head = head, .seq = vq->avail_idx };
	ret = vq_chain_walk(vq, chain, VQ_IOVS_MAX - first);
	if (ret == -E2BIG && iovs->used > 0)
		return ret;
	if (ret < 0) {
		chain->err = (int16_t)ret;
		ret = 0;
	}
	iovs->used = first + (unsigned)ret;
	return 0;
}

int vq_pop(struct vq *vq, struct vq_chain *chains, unsigned max, struct vq_iovs *iovs)
{
	uint16_t mask = vq->num - 1;
	unsigned cnt = 0;

	/* The driver's index lies in a cache line that it keeps writing: it is left alone while what
	 * was seen before suffices. */
	if (vq->broken || ((uint16_t)(vq->avail_seen - vq->avail_idx) < max && look(vq) < 0))
		return -EPROTO;
	while (cnt < max && vq->avail_idx != vq->avail_seen && iovs->used < VQ_IOVS_MAX) {
		uint16_t head = le16_get(&vq->avail->ring[vq->avail_idx & mask]);

		if (head >= vq->num) {
			break_ring(vq);
			break;
		}
		if (take(vq, head, &chains[cnt], iovs) < 0)
			break;
		vq->avail_idx++;
		cnt++;
	}
	vq->avail_tried = vq->avail_idx;
	return cnt == 0 && vq->broken ? -EPROTO : (int)cnt;
}

static uint64_t *done_word(struct vq *vq, uint16_t slot, uint64_t *bit)
{
	*bit = 1ULL << (slot % 64);
	return &vq->done[slot / 64];
}

void vq_unpop(struct vq *vq, unsigned cnt)
{
	assert(cnt <= (uint16_t)(vq->avail_idx - vq->used_idx));
	vq->avail_idx -= cnt;
}

/* Writes one element; the driver looks at it when the used index is past it. */
static void put_used(struct vq *vq, uint16_t slot, const struct vq_done *done)
{
	struct vring_used_elem *elem = &vq->used->ring[slot];

	le32_set(&elem->id, done->head);
	le32_set(&elem->len, done->len);
}

/*
 * 2.7.9: chains are used in the order in which they were made available. Each is written to its own
 * slot at once, as the driver looks only at what is published; the index waits for the oldest.
 */
static void push_in_order(struct vq *vq, const struct vq_done *done)
{
	uint16_t mask = vq->num - 1;
	uint64_t *word, bit;

	word = done_word(vq, done->seq & mask, &bit);
	assert((uint16_t)(done->seq - vq->used_idx) < (uint16_t)(vq->avail_idx - vq->used_idx));
	assert(!(*word & bit));
	*word |= bit;
	put_used(vq, done->seq & mask, done);
	while (*(word = done_word(vq, vq->used_idx & mask, &bit)) & bit) {
		*word &= ~bit;
		vq->used_idx++;
	}
}

void vq_push(struct vq *vq, const struct vq_done *done, unsigned cnt)
{
	uint16_t mask = vq->num - 1;

	assert(cnt <= (uint16_t)(vq->avail_idx - vq->used_idx));
	for (unsigned i = 0; i < cnt; i++) {
		assert(done[i].head < vq->num);
		if (vq->in_order)
			push_in_order(vq, &done[i]);
		else
			put_used(vq, vq->used_idx++ & mask, &done[i]);
	}
}

void vq_flush(struct vq *vq)
{
	if (vq->used_flushed == vq->used_idx)
		return;
	/* Release: what the device wrote into the buffers and the used ring comes first. Pairs with
	 * the driver's acquire, in drvq_get(). */
	le16_store(&vq->used->idx, vq->used_idx, memory_order_release);
	vq->used_flushed = vq->used_idx;
}

bool vq_wants_notify(struct vq *vq)
{
	bool wants;

	if (!vq->signalled_valid)
		return true;
	if (vq_unnotified(vq) == 0)
		return false;
	/* Between the used index and what the driver asks for; its partner is the fence in
	 * drvq_call_on(), with or without EVENT_IDX. */
	atomic_thread_fence(memory_order_seq_cst);
	if (vq->event_idx)
		wants = vring_need_event(le16_get(vring_used_event(vq->avail, vq->num)),
					 vq->used_flushed, vq->signalled);
	else
		wants = !(le16_get(&vq->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
	if (!wants)
		vq->signalled = vq->used_flushed;
	return wants;
}

void vq_notified(struct vq *vq)
{
	vq->signalled = vq->used_flushed;
	vq->signalled_valid = true;
}

void vq_kick_off(struct vq *vq)
{
	/* With EVENT_IDX there is nothing to write: the driver kicks when its index passes
	 * avail_event, and once it has, avail_event lies behind. One kick in 65,536 chains comes for
	 * nothing; a store here would cost the driver a cache miss each time. */
	if (vq->event_idx || vq->kicks_off)
		return;
	le16_set(&vq->used->flags, VRING_USED_F_NO_NOTIFY);
	vq->kicks_off = true;
}

bool vq_kick_on(struct vq *vq)
{
	if (vq->event_idx) {
		le16_set(vring_avail_event(vq->used, vq->num), vq->avail_tried);
	} else if (vq->kicks_off) {
		le16_set(&vq->used->flags, 0);
		vq->kicks_off = false;
	}
	/* Between our wish and the avail index; its partner is the fence in drvq_publish(). */
	atomic_thread_fence(memory_order_seq_cst);
	return vq_peek(vq);
}

bool vq_peek(const struct vq *vq)
{
	/* Nothing is ever taken from a broken ring, so there is nothing to look for. Relaxed: pop
	 * reads the index again before it believes anything behind it. */
	return !vq->broken && le16_get(&vq->avail->idx) != vq->avail_tried;
}
