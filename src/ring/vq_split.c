// SPDX-License-Identifier: BSD-2-Clause
/* The device's side of a split virtqueue (virtio 1.2, section 2.7). The DOC essay in vq.c says who
 * orders what. */
#include <assert.h>
#include <errno.h>

#include "base/util.h"
#include "ring/vq_priv.h"

int vq_split_start(struct vq *vq, const struct vq_addr *addr)
{
	struct vq_split *s = &vq->split;
	uint16_t num = vq->num, used_idx;
	int err = 0;

	if ((num & (num - 1)) != 0)
		return -EINVAL;
	s->desc = vq_map_part(vq->mem, addr->desc, VRING_DESC_BYTES(num), VRING_DESC_ALIGN, &err);
	s->avail =
		vq_map_part(vq->mem, addr->avail, VRING_AVAIL_BYTES(num), VRING_AVAIL_ALIGN, &err);
	s->used = vq_map_part(vq->mem, addr->used, VRING_USED_BYTES(num), VRING_USED_ALIGN, &err);
	if (err < 0)
		return err;
	used_idx = le16_get(&s->used->idx);
	if ((uint16_t)(le16_get(&s->avail->idx) - used_idx) > num)
		return -EPROTO;
	vq->avail_idx = vq->avail_tried = vq->avail_seen = used_idx;
	vq->used_idx = vq->used_flushed = vq->signalled = used_idx;
	/* 2.7.10.2: 0 for good with EVENT_IDX. What an earlier device left would suppress kicks. */
	le16_set(&s->used->flags, 0);
	if (vq->event_idx)
		le16_set(vring_avail_event(s->used, num), used_idx);
	return used_idx != (uint16_t)vq->base;
}

/* Reads how far the driver is. */
static int look(struct vq *vq)
{
	uint16_t idx, ahead, seen;

	if (vq->broken)
		return -EPROTO;
	/* Acquire: pairs with the driver's release of this index, in drvq_publish(). */
	idx = le16_load(&vq->split.avail->idx, memory_order_acquire);
	ahead = idx - vq->used_idx;
	seen = vq->avail_seen - vq->used_idx;
	/* 2.7.6.1: the index does not step back. And a ring of zeros that the SIGBUS handler put
	 * there is no ring. */
	if (ahead > vq->num || ahead < seen || mem_broken(vq->mem))
		return vq_break(vq);
	vq->avail_seen = idx;
	return 0;
}

int vq_split_pending(struct vq *vq, unsigned max)
{
	int ret = look(vq);

	return ret < 0 ? ret : (int)min_uint((uint16_t)(vq->avail_seen - vq->avail_idx), max);
}

int vq_split_pop(struct vq *vq, struct vq_chain *chains, unsigned max, struct vq_iovs *iovs)
{
	uint16_t mask = vq->num - 1;
	unsigned cnt = 0;

	/* The driver's index lies in a cache line that it keeps writing: it is left alone while what
	 * was seen before suffices. */
	if ((uint16_t)(vq->avail_seen - vq->avail_idx) < max && look(vq) < 0)
		return 0;
	while (cnt < max && vq->avail_idx != vq->avail_seen && iovs->used < VQ_IOVS_MAX) {
		uint16_t head = le16_get(&vq->split.avail->ring[vq->avail_idx & mask]);
		struct vq_chain *c = &chains[cnt];
		unsigned room;

		if (head >= vq->num) {
			vq_break(vq);
			break;
		}
		room = vq_chain_begin(vq, c, iovs);
		c->head = head;
		if (vq_chain_end(c, iovs, vq_split_walk(vq, c, room)) < 0)
			break;
		vq->avail_idx++;
		cnt++;
	}
	vq->avail_tried = vq->avail_idx;
	return (int)cnt;
}

/* Writes one element; the driver looks at it when the used index is past it. */
static void put_used(struct vq *vq, uint16_t idx, const struct vq_done *done)
{
	struct vring_used_elem *elem = &vq->split.used->ring[idx & (vq->num - 1)];

	le32_set(&elem->id, done->head);
	le32_set(&elem->len, done->len);
}

/*
 * 2.7.9: with IN_ORDER chains are used in the order in which they were made available. Each is written
 * to its own slot at once, as the driver looks only at what is published; the index waits for the
 * oldest.
 */
void vq_split_push(struct vq *vq, const struct vq_done *done, unsigned cnt)
{
	for (unsigned i = 0; i < cnt; i++) {
		assert(done[i].head < vq->num);
		if (!vq->in_order || done[i].seq == vq->used_idx) {
			put_used(vq, vq->used_idx++, &done[i]);
		} else {
			vq_set_done(vq, done[i].seq);
			put_used(vq, done[i].seq, &done[i]);
		}
		while (vq->done_cnt > 0 && vq_take_done(vq))
			vq->used_idx++;
	}
}

void vq_split_flush(struct vq *vq)
{
	/* Release: what the device wrote into the buffers and the used ring comes first. Pairs with
	 * the driver's acquire, in drvq_get(). */
	le16_store(&vq->split.used->idx, vq->used_idx, memory_order_release);
}

bool vq_split_wants_notify(const struct vq *vq)
{
	if (vq->event_idx)
		return vring_need_event(le16_get(vring_used_event(vq->split.avail, vq->num)),
					vq->used_flushed, vq->signalled);
	return !(le16_get(&vq->split.avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
}

void vq_split_kick_off(struct vq *vq)
{
	/* With EVENT_IDX there is nothing to write: the driver kicks when its index passes
	 * avail_event, and once it has, avail_event lies behind. One kick in 65,536 chains comes for
	 * nothing; a store here would cost the driver a cache miss each time. */
	if (vq->event_idx || vq->kicks_off)
		return;
	le16_set(&vq->split.used->flags, VRING_USED_F_NO_NOTIFY);
	vq->kicks_off = true;
}

void vq_split_kick_on(struct vq *vq)
{
	if (vq->event_idx) {
		le16_set(vring_avail_event(vq->split.used, vq->num), vq->avail_tried);
	} else if (vq->kicks_off) {
		le16_set(&vq->split.used->flags, 0);
		vq->kicks_off = false;
	}
}

bool vq_split_peek(const struct vq *vq)
{
	/* Relaxed: pop reads the index again before it believes anything behind it. */
	return le16_get(&vq->split.avail->idx) != vq->avail_tried;
}
