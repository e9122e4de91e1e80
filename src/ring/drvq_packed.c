// SPDX-License-Identifier: BSD-2-Clause
/* The driver's side of a packed virtqueue (virtio 1.2, section 2.8): a chain is laid into the next places
 * of the ring, the flags of the first one that is unpublished are written last of all. */
#include <errno.h>

#include "ring/drvq_priv.h"

static struct vring_packed_desc *desc_at(const struct drvq *q, uint16_t place)
{
	return &q->packed.desc[vring_packed_pos(place)];
}

static void ask(struct drvq *q, unsigned flags, uint16_t place)
{
	le32_set(&q->packed.driver->place_flags, (uint32_t)flags << 16 | place);
}

void drvq_packed_init(struct drvq *q, void *ring)
{
	size_t driver_off, device_off;

	drvq_ring_bytes(q->num, &driver_off, &device_off);
	q->packed = (struct drvq_packed){
		.desc = ring,
		.driver = (void *)((char *)ring + driver_off),
		.device = (void *)((char *)ring + device_off),
		.avail = VRING_PACKED_START,
		.published = VRING_PACKED_START,
		.used = VRING_PACKED_START,
	};
}

static void put_desc(struct vring_packed_desc *d, const struct drvq_buf *buf, uint16_t id)
{
	le64_set(&d->addr, buf->addr.v);
	le32_set(&d->len, buf->len);
	le16_set(&d->id, id);
}

/* The next place in the ring; its flags wait if they would publish. */
static void put_next(struct drvq *q, const struct drvq_buf *buf, uint16_t id, uint16_t flags)
{
	struct drvq_packed *p = &q->packed;
	struct vring_packed_desc *d = desc_at(q, p->avail);

	flags |= vring_packed_avail(p->avail);
	put_desc(d, buf, id);
	if (p->avail == p->published)
		p->first_flags = flags;
	else
		le16_set(&d->flags, flags);
	p->avail = vring_packed_step(p->avail, 1, q->num);
}

/* Into a table (2.8.7). */
static void add_indirect(struct drvq *q, const struct drvq_chain *c)
{
	struct drvq_buf ref = { .len = (uint32_t)(c->cnt * sizeof(struct vring_packed_desc)) };
	struct vring_packed_desc *table = drvq_table(q, q->free_head, &ref.addr);

	for (unsigned i = 0; i < c->cnt; i++) {
		put_desc(&table[i], &c->bufs[i], 0);
		le16_set(&table[i].flags, drvq_write_flag(c, i));
	}
	put_next(q, &ref, q->free_head, VRING_DESC_F_INDIRECT);
}

uint16_t drvq_packed_add(struct drvq *q, const struct drvq_chain *c, bool indirect)
{
	if (indirect) {
		add_indirect(q, c);
		return q->free_head;
	}
	for (unsigned i = 0; i < c->cnt; i++)
		put_next(q, &c->bufs[i], q->free_head,
			 drvq_write_flag(c, i) | (i + 1 < c->cnt ? VRING_DESC_F_NEXT : 0));
	return q->free_head;
}

unsigned drvq_packed_publish(struct drvq *q)
{
	struct drvq_packed *p = &q->packed;
	unsigned descs = vring_packed_ahead(p->published, p->avail, q->num);

	/* Release: buffers and all other descriptors come first. Pairs with the device's acquire, in
	 * vq_packed.c's see(). */
	le16_store(&desc_at(q, p->published)->flags, p->first_flags, memory_order_release);
	p->published = p->avail;
	return descs;
}

bool drvq_packed_wants_kick(const struct drvq *q, unsigned descs)
{
	return vring_packed_need_event(le32_get(&q->packed.device->place_flags), q->event_idx,
				       q->packed.published, descs, q->num);
}

int drvq_packed_look(const struct drvq *q, struct drvq_elem *elem, unsigned *ready)
{
	const struct vring_packed_desc *d = desc_at(q, q->packed.used);
	/* Acquire: pairs with the device's release of these flags, in vq_packed_flush(). */
	uint16_t flags = le16_load(&d->flags, memory_order_acquire);

	if ((flags & VRING_PACKED_DESC_F_STATE) != vring_packed_used(q->packed.used))
		return 0;
	*ready = (uint16_t)(q->kicked_idx - q->used_idx);
	if (*ready == 0)
		return -EPROTO;
	/* 2.8.4: without WRITE the length means nothing. */
	*elem = (struct drvq_elem){ .id = le16_get(&d->id),
				    .len = flags & VRING_DESC_F_WRITE ? le32_get(&d->len) : 0 };
	return 1;
}

void drvq_packed_call_off(struct drvq *q)
{
	ask(q, VRING_PACKED_EVENT_DISABLE, 0);
}

void drvq_packed_call_on(struct drvq *q)
{
	if (q->event_idx)
		ask(q, VRING_PACKED_EVENT_DESC, q->packed.used);
	else
		ask(q, VRING_PACKED_EVENT_ENABLE, 0);
}
