// SPDX-License-Identifier: BSD-2-Clause
/*
 * The driver's side of a split virtqueue (virtio 1.2, section 2.7). The DOC essay in vq_split.c says
 * who orders what.
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

/* Parts of different writers lie in cache lines of their own. */
#define PART_ALIGN 64

/*
 * Beside each descriptor: its successor in the list of the free ones or in its chain; and for the
 * first of a chain, what the chain is. cnt 0: no chain begins here.
 *
 * With IN_ORDER descriptors are used in ring order (2.7.5). The list begins as that circle; as chains
 * then also come back in this order, it stays one without being touched.
 */
struct drvq_slot {
	void *token;
	uint64_t added; /* drvq.published at that time */
	uint32_t capacity;
	uint16_t cnt;
	uint16_t last;
	uint16_t next;
};

static size_t part_end(size_t off, size_t bytes)
{
	return (off + bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

size_t drvq_ring_bytes(unsigned num, size_t *avail_off, size_t *used_off)
{
	*avail_off = part_end(0, VRING_DESC_BYTES(num));
	*used_off = part_end(*avail_off, VRING_AVAIL_BYTES(num));
	return part_end(*used_off, VRING_USED_BYTES(num));
}

int drvq_init(struct drvq *q, void *ring, unsigned num, uint64_t features,
	      const struct drvq_indirect *indirect)
{
	size_t avail_off, used_off;
	size_t bytes = drvq_ring_bytes(num, &avail_off, &used_off);

	assert(num > 0 && num <= VRING_SPLIT_NUM_MAX && (num & (num - 1)) == 0);
	memset(ring, 0, bytes);
	*q = (struct drvq){
		.desc = ring,
		.avail = (void *)((char *)ring + avail_off),
		.used = (void *)((char *)ring + used_off),
		.num = (uint16_t)num,
		.free_cnt = (uint16_t)num,
		.event_idx = (features >> VIRTIO_F_RING_EVENT_IDX) & 1,
		.in_order = (features >> VIRTIO_F_IN_ORDER) & 1,
	};
	if (indirect != NULL && ((features >> VIRTIO_F_RING_INDIRECT_DESC) & 1))
		q->indirect = *indirect;
	q->slots = calloc(num, sizeof(q->slots[0]));
	if (q->slots == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < num; i++)
		q->slots[i].next = (uint16_t)((i + 1) % num);
	return 0;
}

void drvq_fini(struct drvq *q)
{
	free(q->slots);
	q->slots = NULL;
}

/* Writes descriptor @d for @buf. */
static void put_desc(struct vring_desc *d, const struct drvq_buf *buf, uint16_t flags,
		     uint16_t next)
{
	le64_set(&d->addr, buf->addr.v);
	le32_set(&d->len, buf->len);
	le16_set(&d->flags, flags);
	le16_set(&d->next, next);
}

static uint16_t desc_flags(unsigned i, unsigned out_cnt, unsigned cnt)
{
	return (i < out_cnt ? 0 : VRING_DESC_F_WRITE) | (i + 1 < cnt ? VRING_DESC_F_NEXT : 0);
}

/* Lays the chain into the ring's own descriptors, from @head on; returns the last. */
static uint16_t add_direct(struct drvq *q, const struct drvq_buf *bufs, unsigned out_cnt,
			   unsigned cnt)
{
	uint16_t d = q->free_head;

	for (unsigned i = 0;; i++) {
		put_desc(&q->desc[d], &bufs[i], desc_flags(i, out_cnt, cnt), q->slots[d].next);
		if (i + 1 == cnt)
			return d;
		d = q->slots[d].next;
	}
}

/* Lays the chain into the table of @head (2.7.5.3). */
static void add_indirect(struct drvq *q, const struct drvq_buf *bufs, unsigned out_cnt,
			 unsigned cnt)
{
	size_t at = (size_t)q->free_head * q->indirect.max;
	struct vring_desc *table = q->indirect.desc + at;
	struct drvq_buf ref = {
		.addr = { q->indirect.gpa.v + at * sizeof(*table) },
		.len = (uint32_t)(cnt * sizeof(*table)),
	};

	for (unsigned i = 0; i < cnt; i++)
		put_desc(&table[i], &bufs[i], desc_flags(i, out_cnt, cnt), (uint16_t)(i + 1));
	put_desc(&q->desc[q->free_head], &ref, VRING_DESC_F_INDIRECT, 0);
}

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
	unsigned cnt = out_cnt + in_cnt, descs = cnt;
	uint16_t head = q->free_head, last = head;
	struct drvq_slot *slot = &q->slots[head];
	/* 2.7.5.3.1: also in a table, a chain is no longer than the ring. */
	bool indirect = cnt > 1 && cnt <= q->indirect.max && cnt <= q->num;

	assert(cnt > 0 && sum_len(bufs, cnt) <= UINT32_MAX);
	if (indirect)
		descs = 1;
	if (descs > q->free_cnt)
		return -ENOSPC;
	if (indirect)
		add_indirect(q, bufs, out_cnt, cnt);
	else
		last = add_direct(q, bufs, out_cnt, cnt);
	slot->token = token;
	slot->added = q->published;
	slot->capacity = sum_len(bufs + out_cnt, in_cnt);
	slot->cnt = (uint16_t)descs;
	slot->last = last;
	q->free_head = q->slots[last].next;
	q->free_cnt -= descs;
	le16_set(&q->avail->ring[q->avail_idx & (q->num - 1)], head);
	q->avail_idx++;
	return 0;
}

bool drvq_publish(struct drvq *q)
{
	uint16_t old_idx = q->kicked_idx, new_idx = q->avail_idx;

	if (new_idx == old_idx)
		return false;
	/* Release: descriptors, buffers and ring entries come first. Pairs with the device's acquire,
	 * in look(). */
	le16_store(&q->avail->idx, new_idx, memory_order_release);
	q->kicked_idx = new_idx;
	q->published++;
	/* Between the avail index and what the device asks for; its partner is the fence in
	 * vq_kick_on(), with or without EVENT_IDX (2.7.13.4.1). */
	atomic_thread_fence(memory_order_seq_cst);
	if (q->event_idx)
		return vring_need_event(le16_get(vring_avail_event(q->used, q->num)), new_idx,
					old_idx);
	return !(le16_get(&q->used->flags) & VRING_USED_F_NO_NOTIFY);
}

/* Takes the chain at @head out of the books. */
static int release(struct drvq *q, uint16_t head, uint32_t len, struct drvq_used *used)
{
	struct drvq_slot *slot = &q->slots[head];

	if (len > slot->capacity)
		return -EPROTO;
	*used = (struct drvq_used){ .token = slot->token, .len = len };
	q->free_cnt += slot->cnt;
	slot->cnt = 0;
	if (q->in_order) {
		q->oldest = q->slots[slot->last].next;
	} else {
		/* Last out, first in: its descriptors are still in the cache. */
		q->slots[slot->last].next = q->free_head;
		q->free_head = head;
	}
	q->used_idx++;
	return 1;
}

/* The chain that an element names: one that was published and is not back yet? */
static int get_any_order(struct drvq *q, uint32_t id, uint32_t len, struct drvq_used *used)
{
	if (id >= q->num || q->slots[id].cnt == 0 || q->slots[id].added == q->published)
		return -EPROTO;
	return release(q, (uint16_t)id, len, used);
}

/*
 * 2.7.9: the device may return a batch with one element for its last chain, in the slot of its first,
 * and step the index on by the size of the batch; the other chains are then used completely. How
 * many chains, at most @ready, does the element with @id stand for?
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

/* The next chain in order, which may be in the middle of a batch. */
static int get_in_order(struct drvq *q, unsigned ready, const struct vring_used_elem *elem,
			struct drvq_used *used)
{
	uint32_t len;
	int ret;

	if (q->batch_cnt == 0) {
		q->batch_len = le32_get(&elem->len);
		ret = batch_size(q, le32_get(&elem->id), ready);
		if (ret < 0)
			return ret;
		q->batch_cnt = (uint16_t)ret;
	}
	len = q->batch_cnt == 1 ? q->batch_len : q->slots[q->oldest].capacity;
	ret = release(q, q->oldest, len, used);
	if (ret > 0)
		q->batch_cnt--;
	return ret;
}

int drvq_get(struct drvq *q, struct drvq_used *used)
{
	/* Acquire: pairs with the device's release of this index, in vq_flush(). */
	uint16_t idx = le16_load(&q->used->idx, memory_order_acquire);
	const struct vring_used_elem *elem = &q->used->ring[q->used_idx & (q->num - 1)];
	uint16_t ready = idx - q->used_idx;

	/* More than it has; a step back looks the same. */
	if (ready > (uint16_t)(q->kicked_idx - q->used_idx))
		return -EPROTO;
	if (ready == 0)
		return 0;
	if (q->in_order)
		return get_in_order(q, ready, elem, used);
	return get_any_order(q, le32_get(&elem->id), le32_get(&elem->len), used);
}

unsigned drvq_out(const struct drvq *q)
{
	return (uint16_t)(q->avail_idx - q->used_idx);
}

void drvq_call_off(struct drvq *q)
{
	/* As in vq_kick_off(): with EVENT_IDX, used_event falls behind by itself. */
	if (!q->event_idx)
		le16_set(&q->avail->flags, VRING_AVAIL_F_NO_INTERRUPT);
}

bool drvq_call_on(struct drvq *q)
{
	if (q->event_idx)
		le16_set(vring_used_event(q->avail, q->num), q->used_idx);
	else
		le16_set(&q->avail->flags, 0);
	/* Between our wish and the used index; its partner is the fence in vq_wants_notify(). */
	atomic_thread_fence(memory_order_seq_cst);
	return le16_get(&q->used->idx) != q->used_idx;
}
