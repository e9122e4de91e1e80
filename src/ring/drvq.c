// SPDX-License-Identifier: BSD-2-Clause
/*
 * The driver's side of a virtqueue: what both layouts have in common. The DOC essay in vq.c says who
 * orders what.
 *
 * DOC: what the device can write is never read back as if it were ours. The ring is shared memory
 * throughout, so the free descriptors, the chains and their lengths are kept in private slots, and
 * what the device returns is checked against those.
 */
#include "ring/drvq.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ring/drvq_priv.h"

/* Parts of different writers lie in cache lines of their own. */
#define PART_ALIGN 64

static size_t part_end(size_t off, size_t bytes)
{
	return (off + bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

size_t drvq_ring_bytes(unsigned num, size_t *avail_off, size_t *used_off)
{
	/* A packed ring's areas are smaller. */
	*avail_off = part_end(0, VRING_DESC_BYTES(num));
	*used_off = part_end(*avail_off, VRING_AVAIL_BYTES(num));
	return part_end(*used_off, VRING_USED_BYTES(num));
}

int drvq_init(struct drvq *q, void *ring, unsigned num, uint64_t features,
	      const struct drvq_indirect *indirect)
{
	size_t avail_off, used_off;

	*q = (struct drvq){
		.num = (uint16_t)num,
		.free_cnt = (uint16_t)num,
		.is_packed = (features >> VIRTIO_F_RING_PACKED) & 1,
		.event_idx = (features >> VIRTIO_F_RING_EVENT_IDX) & 1,
		.in_order = (features >> VIRTIO_F_IN_ORDER) & 1,
	};
	assert(num > 0 && num <= VRING_NUM_MAX && (q->is_packed || (num & (num - 1)) == 0));
	if (indirect != NULL && ((features >> VIRTIO_F_RING_INDIRECT_DESC) & 1))
		q->indirect = *indirect;
	q->slots = calloc(num, sizeof(q->slots[0]));
	if (q->slots == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < num; i++)
		q->slots[i].next = (uint16_t)((i + 1) % num);
	memset(ring, 0, drvq_ring_bytes(num, &avail_off, &used_off));
	if (q->is_packed)
		drvq_packed_init(q, ring);
	else
		drvq_split_init(q, ring);
	return 0;
}

void drvq_fini(struct drvq *q)
{
	free(q->slots);
	q->slots = NULL;
}

struct drvq_areas drvq_areas(const struct drvq *q)
{
	const struct drvq_packed *p = &q->packed;
	const struct drvq_split *s = &q->split;

	return q->is_packed ? (struct drvq_areas){ p->desc, p->driver, p->device } :
			      (struct drvq_areas){ s->desc, s->avail, s->used };
}

uint32_t drvq_base(const struct drvq *q)
{
	return q->is_packed ? VRING_PACKED_START << 16 | VRING_PACKED_START : 0;
}

/* ---- to the device ---- */

static uint32_t sum_len(const struct drvq_buf *bufs, unsigned cnt)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < cnt; i++)
		sum += bufs[i].len;
	/* 2.7.5.2 */
	assert(sum <= UINT32_MAX);
	return (uint32_t)sum;
}

int drvq_add(struct drvq *q, const struct drvq_buf *bufs, unsigned out_cnt, unsigned in_cnt,
	     void *token)
{
	const struct drvq_chain chain = { .bufs = bufs,
					  .out_cnt = out_cnt,
					  .cnt = out_cnt + in_cnt };
	/* 2.7.5.3.1: also in a table, a chain is no longer than the ring. */
	bool indirect = chain.cnt > 1 && chain.cnt <= q->indirect.max && chain.cnt <= q->num;
	unsigned descs = indirect ? 1 : chain.cnt;
	struct drvq_slot *slot = &q->slots[q->free_head];
	uint16_t last;

	assert(chain.cnt > 0 && sum_len(bufs, chain.cnt) <= UINT32_MAX);
	if (descs > q->free_cnt)
		return -ENOSPC;
	last = q->is_packed ? drvq_packed_add(q, &chain, indirect) :
			      drvq_split_add(q, &chain, indirect);
	slot->token = token;
	slot->added = q->published;
	slot->capacity = sum_len(bufs + out_cnt, in_cnt);
	slot->cnt = (uint16_t)descs;
	slot->last = last;
	q->free_head = q->slots[last].next;
	q->free_cnt -= descs;
	q->avail_idx++;
	return 0;
}

bool drvq_publish(struct drvq *q)
{
	uint16_t old_idx = q->kicked_idx;
	unsigned descs = 0;

	if (q->avail_idx == old_idx)
		return false;
	if (q->is_packed)
		descs = drvq_packed_publish(q);
	else
		drvq_split_publish(q);
	q->kicked_idx = q->avail_idx;
	q->published++;
	/* Between what was published and what the device asks for; its partner is the fence in
	 * vq_kick_on() (2.7.13.4.1, 2.8.21.3.1). */
	atomic_thread_fence(memory_order_seq_cst);
	return q->is_packed ? drvq_packed_wants_kick(q, descs) : drvq_split_wants_kick(q, old_idx);
}

/* ---- back from it ---- */

/* Takes the chain of slot @id out of the books. */
static int release(struct drvq *q, uint16_t id, uint32_t len, struct drvq_used *used)
{
	struct drvq_slot *slot = &q->slots[id];

	if (len > slot->capacity)
		return -EPROTO;
	*used = (struct drvq_used){ .token = slot->token, .len = len };
	q->free_cnt += slot->cnt;
	if (q->is_packed)
		q->packed.used = vring_packed_step(q->packed.used, slot->cnt, q->num);
	slot->cnt = 0;
	if (q->in_order) {
		q->oldest = q->slots[slot->last].next;
	} else {
		/* Last out, first in: its descriptors are still in the cache. */
		q->slots[slot->last].next = q->free_head;
		q->free_head = id;
	}
	q->used_idx++;
	return 1;
}

/* The chain that an element names: one that was published and is not back yet? */
static int get_any_order(struct drvq *q, const struct drvq_elem *elem, struct drvq_used *used)
{
	if (elem->id >= q->num || q->slots[elem->id].cnt == 0 ||
	    q->slots[elem->id].added == q->published)
		return -EPROTO;
	return release(q, (uint16_t)elem->id, elem->len, used);
}

/*
 * 2.7.9, 2.8.8: the device may return a batch with one element for its last chain, in the slot of its
 * first; the other chains are then used completely. How many chains, at most @ready, does the element
 * with @id stand for?
 */
static int batch_size(const struct drvq *q, uint32_t id, unsigned ready)
{
	uint16_t head = q->oldest;

	for (unsigned cnt = 1; cnt <= ready; cnt++) {
		if (head == id)
			return (int)cnt;
		head = q->slots[q->slots[head].last].next;
	}
	return -EPROTO;
}

/* The oldest chain, of the batch whose end the device has said. */
static int get_of_batch(struct drvq *q, struct drvq_used *used)
{
	uint32_t len = q->batch_cnt == 1 ? q->batch_len : q->slots[q->oldest].capacity;
	int ret = release(q, q->oldest, len, used);

	if (ret > 0)
		q->batch_cnt--;
	return ret;
}

int drvq_get(struct drvq *q, struct drvq_used *used)
{
	struct drvq_elem elem;
	unsigned ready;
	int ret;

	if (q->batch_cnt > 0)
		return get_of_batch(q, used);
	ret = q->is_packed ? drvq_packed_look(q, &elem, &ready) : drvq_split_look(q, &elem, &ready);
	if (ret <= 0)
		return ret;
	if (!q->in_order)
		return get_any_order(q, &elem, used);
	ret = batch_size(q, elem.id, ready);
	if (ret < 0)
		return ret;
	q->batch_cnt = (uint16_t)ret;
	q->batch_len = elem.len;
	return get_of_batch(q, used);
}

unsigned drvq_out(const struct drvq *q)
{
	return (uint16_t)(q->avail_idx - q->used_idx);
}

/* ---- signals ---- */

void drvq_call_off(struct drvq *q)
{
	if (q->is_packed)
		drvq_packed_call_off(q);
	else
		drvq_split_call_off(q);
}

bool drvq_call_on(struct drvq *q)
{
	struct drvq_elem elem;
	unsigned ready;

	if (q->is_packed)
		drvq_packed_call_on(q);
	else
		drvq_split_call_on(q);
	/* Between our wish and what the device publishes; its partner is the fence in
	 * vq_wants_notify(). */
	atomic_thread_fence(memory_order_seq_cst);
	if (q->batch_cnt > 0)
		return true;
	return (q->is_packed ? drvq_packed_look(q, &elem, &ready) :
			       drvq_split_look(q, &elem, &ready)) != 0;
}
