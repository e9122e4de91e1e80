// SPDX-License-Identifier: BSD-2-Clause
/*
 * The device's side of a packed virtqueue (virtio 1.2, section 2.8). The DOC essay in vq.c says who
 * orders what.
 *
 * DOC: descriptors and used elements lie in one ring, and the flags of each say whose it is. A chain
 * fills as many places as it has descriptors; its one used element stands in the first of as many
 * places, so both sides must know each chain's size. The flags of the first element of a batch are
 * what publishes it: the driver, which looks at the places in their order, does not get to the
 * others before.
 */
#include <assert.h>
#include <errno.h>

#include "base/util.h"
#include "ring/vq_priv.h"

static bool place_ok(const struct vq *vq, uint16_t place)
{
	return vring_packed_pos(place) < vq->num;
}

static struct vring_packed_desc *desc_at(const struct vq *vq, uint16_t place)
{
	return &vq->packed.desc[vring_packed_pos(place)];
}

static void ask(struct vq *vq, unsigned flags, uint16_t place)
{
	le32_set(&vq->packed.device->place_flags, (uint32_t)flags << 16 | place);
}

/*
 * Has nothing passed through this ring? In its first lap a descriptor is untouched or available; when
 * the wrap counter is 0 for the first time, each has been available and some have been used.
 */
static bool is_fresh(const struct vq *vq)
{
	for (unsigned i = 0; i < vq->num; i++) {
		if (le16_get(&vq->packed.desc[i].flags) & VRING_PACKED_DESC_F_USED)
			return false;
	}
	return true;
}

/*
 * The places that the base stands for. A front end that knows of the next chain only says nothing of
 * the other place (DPDK): all was returned. One that says 0 whatever the layout (User-mode Linux) means
 * a fresh ring, which begins with wrap counters of 1 (2.8.1).
 */
static void read_base(const struct vq *vq, uint16_t *avail, uint16_t *used)
{
	*avail = (uint16_t)vq->base;
	*used = (uint16_t)(vq->base >> 16);
	if (vq->base == 0 && is_fresh(vq))
		*avail = VRING_PACKED_START;
	if (*used == 0)
		*used = *avail;
}

int vq_packed_start(struct vq *vq, const struct vq_addr *addr)
{
	struct vq_packed *p = &vq->packed;
	const size_t event = sizeof(struct vring_packed_event);
	uint16_t avail, used;
	int err = 0;

	p->desc = vq_map_part(vq->mem, addr->desc, vq->num * sizeof(*p->desc),
			      VRING_PACKED_DESC_ALIGN, &err);
	p->driver = vq_map_part(vq->mem, addr->avail, event, VRING_PACKED_EVENT_ALIGN, &err);
	p->device = vq_map_part(vq->mem, addr->used, event, VRING_PACKED_EVENT_ALIGN, &err);
	if (err < 0)
		return err;
	read_base(vq, &avail, &used);
	if (!place_ok(vq, avail) || !place_ok(vq, used) ||
	    vring_packed_ahead(used, avail, vq->num) > vq->num)
		return -EPROTO;
	p->avail = p->tried = p->used = p->flushed = used;
	ask(vq, VRING_PACKED_EVENT_ENABLE, 0);
	return used != avail;
}

uint32_t vq_packed_base(const struct vq *vq)
{
	return vq->packed.avail | (uint32_t)vq->packed.used << 16;
}

/* Is there an available descriptor? */
static bool see(const struct vq *vq, uint16_t place, uint16_t *flags)
{
	/* Acquire: pairs with the driver's release of these flags, in drvq_publish(). */
	*flags = le16_load(&desc_at(vq, place)->flags, memory_order_acquire);
	return (*flags & VRING_PACKED_DESC_F_STATE) == vring_packed_avail(place);
}

int vq_packed_pending(struct vq *vq, unsigned max)
{
	uint16_t place = vq->packed.avail, flags;
	unsigned cnt = 0;

	if (vq->broken || mem_broken(vq->mem))
		return vq_break(vq);
	for (unsigned n = 0; n < vq->num && cnt < max && see(vq, place, &flags); n++) {
		cnt += !(flags & VRING_DESC_F_NEXT);
		place = vring_packed_step(place, 1, vq->num);
	}
	return (int)cnt;
}

/* Takes the chain whose first descriptor has @flags; -E2BIG as vq_chain_end(), -EPROTO. */
static int take(struct vq *vq, uint16_t flags, struct vq_chain *chain, struct vq_iovs *iovs)
{
	struct vq_packed *p = &vq->packed;
	struct vq_packed_chain *at = &p->chains[vq->avail_idx % VQ_NUM_MAX];
	unsigned room = vq_chain_begin(vq, chain, iovs);
	/* A driver has no more than the ring's descriptors, and we hold some. */
	unsigned max = vq->num - vring_packed_ahead(p->used, p->avail, vq->num);
	struct vq_packed_span span = { .flags = flags, .max = (uint16_t)max };
	int ret = max == 0 ? -EPROTO : vq_packed_walk(vq, chain, room, &span);

	if (ret == -EPROTO)
		return vq_break(vq);
	ret = vq_chain_end(chain, iovs, ret);
	if (ret < 0)
		return ret;
	*at = (struct vq_packed_chain){ .place = p->avail, .cnt = span.cnt };
	p->avail = vring_packed_step(p->avail, span.cnt, vq->num);
	vq->avail_idx++;
	return 0;
}

int vq_packed_pop(struct vq *vq, struct vq_chain *chains, unsigned max, struct vq_iovs *iovs)
{
	unsigned cnt = 0;
	bool left = false;
	uint16_t flags;

	/* A ring of zeros that the SIGBUS handler put there is no ring. */
	if (mem_broken(vq->mem))
		vq_break(vq);
	while (cnt < max && !vq->broken && see(vq, vq->packed.avail, &flags)) {
		left = iovs->used >= VQ_IOVS_MAX || take(vq, flags, &chains[cnt], iovs) < 0;
		if (left)
			break;
		cnt++;
	}
	vq->packed.tried = vq->packed.avail;
	vq->avail_tried = vq->avail_idx;
	vq->avail_seen = vq->avail_idx + left;
	return (int)cnt;
}

void vq_packed_unpop(struct vq *vq, unsigned cnt)
{
	if (cnt > 0)
		vq->packed.avail = vq->packed.chains[vq->avail_idx % VQ_NUM_MAX].place;
}

/* Writes one element, except for the flags of the first that is not published. */
static void put_used(struct vq *vq, uint16_t place, const struct vq_done *done)
{
	struct vring_packed_desc *d = desc_at(vq, place);
	uint16_t flags = vring_packed_used(place) | (done->len > 0 ? VRING_DESC_F_WRITE : 0);

	le16_set(&d->id, done->head);
	le32_set(&d->len, done->len);
	if (place == vq->packed.flushed)
		vq->packed.first_flags = flags;
	else
		le16_set(&d->flags, flags);
}

/* The oldest chain, or in any order some chain, which was that many descriptors, is used. */
static void step_used(struct vq *vq, uint16_t seq)
{
	struct vq_packed *p = &vq->packed;

	p->used = vring_packed_step(p->used, p->chains[seq % VQ_NUM_MAX].cnt, vq->num);
	vq->used_idx++;
}

/* With IN_ORDER a chain's element stands where the chain did, and is written there at once; the driver
 * gets there when all before it are used. */
void vq_packed_push(struct vq *vq, const struct vq_done *done, unsigned cnt)
{
	for (unsigned i = 0; i < cnt; i++) {
		if (!vq->in_order || done[i].seq == vq->used_idx) {
			put_used(vq, vq->packed.used, &done[i]);
			step_used(vq, done[i].seq);
		} else {
			vq_set_done(vq, done[i].seq);
			put_used(vq, vq->packed.chains[done[i].seq % VQ_NUM_MAX].place, &done[i]);
		}
		while (vq->done_cnt > 0 && vq_take_done(vq))
			step_used(vq, vq->used_idx);
	}
}

void vq_packed_flush(struct vq *vq)
{
	struct vq_packed *p = &vq->packed;

	/* Release: the buffers, the other elements and the rest of this one come first. Pairs with the
	 * driver's acquire, in drvq_get(). */
	le16_store(&desc_at(vq, p->flushed)->flags, p->first_flags, memory_order_release);
	p->unsignalled += vring_packed_ahead(p->flushed, p->used, vq->num);
	p->flushed = p->used;
}

bool vq_packed_wants_notify(const struct vq *vq)
{
	const struct vq_packed *p = &vq->packed;

	return vring_packed_need_event(le32_get(&p->driver->place_flags), vq->event_idx, p->flushed,
				       p->unsignalled, vq->num);
}

void vq_packed_kick_off(struct vq *vq)
{
	if (vq->kicks_off)
		return;
	ask(vq, VRING_PACKED_EVENT_DISABLE, 0);
	vq->kicks_off = true;
}

void vq_packed_kick_on(struct vq *vq)
{
	if (vq->event_idx)
		ask(vq, VRING_PACKED_EVENT_DESC, vq->packed.tried);
	else if (vq->kicks_off)
		ask(vq, VRING_PACKED_EVENT_ENABLE, 0);
	vq->kicks_off = false;
}

bool vq_packed_peek(const struct vq *vq)
{
	uint16_t flags;

	return see(vq, vq->packed.tried, &flags);
}
