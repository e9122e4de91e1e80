// SPDX-License-Identifier: BSD-2-Clause
/* The driver's side of a split virtqueue (virtio 1.2, section 2.7). */
#include <errno.h>

#include "ring/drvq_priv.h"

void drvq_split_init(struct drvq *q, void *ring)
{
	size_t avail_off, used_off;

	drvq_ring_bytes(q->num, &avail_off, &used_off);
	q->split = (struct drvq_split){
		.desc = ring,
		.avail = (void *)((char *)ring + avail_off),
		.used = (void *)((char *)ring + used_off),
	};
}

static void put_desc(struct vring_desc *d, const struct drvq_buf *buf, uint16_t flags,
		     uint16_t next)
{
	le64_set(&d->addr, buf->addr.v);
	le32_set(&d->len, buf->len);
	le16_set(&d->flags, flags);
	le16_set(&d->next, next);
}

static uint16_t desc_flags(const struct drvq_chain *c, unsigned i)
{
	return drvq_write_flag(c, i) | (i + 1 < c->cnt ? VRING_DESC_F_NEXT : 0);
}

/* Into the ring's own descriptors; returns the last. */
static uint16_t add_direct(struct drvq *q, const struct drvq_chain *c)
{
	uint16_t d = q->free_head;

	for (unsigned i = 0;; i++) {
		put_desc(&q->split.desc[d], &c->bufs[i], desc_flags(c, i), q->slots[d].next);
		if (i + 1 == c->cnt)
			return d;
		d = q->slots[d].next;
	}
}

/* Into a table (2.7.5.3). */
static void add_indirect(struct drvq *q, const struct drvq_chain *c)
{
	struct drvq_buf ref = { .len = (uint32_t)(c->cnt * sizeof(struct vring_desc)) };
	struct vring_desc *table = drvq_table(q, q->free_head, &ref.addr);

	for (unsigned i = 0; i < c->cnt; i++)
		put_desc(&table[i], &c->bufs[i], desc_flags(c, i), (uint16_t)(i + 1));
	put_desc(&q->split.desc[q->free_head], &ref, VRING_DESC_F_INDIRECT, 0);
}

uint16_t drvq_split_add(struct drvq *q, const struct drvq_chain *c, bool indirect)
{
	uint16_t last = q->free_head;

	if (indirect)
		add_indirect(q, c);
	else
		last = add_direct(q, c);
	le16_set(&q->split.avail->ring[q->avail_idx & (q->num - 1)], q->free_head);
	return last;
}

void drvq_split_publish(struct drvq *q)
{
	/* Release: descriptors, buffers and ring entries come first. Pairs with the device's acquire,
	 * in vq_split.c's look(). */
	le16_store(&q->split.avail->idx, q->avail_idx, memory_order_release);
}

bool drvq_split_wants_kick(const struct drvq *q, uint16_t old_idx)
{
	if (q->event_idx)
		return vring_need_event(le16_get(vring_avail_event(q->split.used, q->num)),
					q->avail_idx, old_idx);
	return !(le16_get(&q->split.used->flags) & VRING_USED_F_NO_NOTIFY);
}

int drvq_split_look(const struct drvq *q, struct drvq_elem *elem, unsigned *ready)
{
	const struct vring_used_elem *e = &q->split.used->ring[q->used_idx & (q->num - 1)];
	/* Acquire: pairs with the device's release of this index, in vq_split_flush(). */
	uint16_t idx = le16_load(&q->split.used->idx, memory_order_acquire);

	*ready = (uint16_t)(idx - q->used_idx);
	/* More than it has; a step back looks the same. */
	if (*ready > (uint16_t)(q->kicked_idx - q->used_idx))
		return -EPROTO;
	if (*ready == 0)
		return 0;
	*elem = (struct drvq_elem){ .id = le32_get(&e->id), .len = le32_get(&e->len) };
	return 1;
}

void drvq_split_call_off(struct drvq *q)
{
	/* As in vq_split_kick_off(): with EVENT_IDX, used_event falls behind by itself. */
	if (!q->event_idx)
		le16_set(&q->split.avail->flags, VRING_AVAIL_F_NO_INTERRUPT);
}

void drvq_split_call_on(struct drvq *q)
{
	if (q->event_idx)
		le16_set(vring_used_event(q->split.avail, q->num), q->used_idx);
	else
		le16_set(&q->split.avail->flags, 0);
}
