// SPDX-License-Identifier: BSD-2-Clause
/*
 * The device's side of a split virtqueue: one chain of descriptors (virtio 1.2, section 2.7.5).
 *
 * DOC: a walk counts descriptors, never bytes, so a loop of empty ones ends as soon as any other.
 * Each descriptor is read once, field by field, into a private copy that is checked and then used.
 */
#include "ring/vq_priv.h"

#include <errno.h>

#include "base/iov.h"
#include "base/util.h"

struct desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

/* What a walk has gathered so far. */
struct walk {
	const struct mem *mem;
	struct iovec *iov;
	unsigned room;
	unsigned out_cnt, in_cnt;
	unsigned empty; /* descriptors without bytes: no pieces, but work, and counted like those */
	uint64_t out_len, in_len; /* at most 2 * VQ_NUM_MAX lengths of 32 bits: cannot overflow */
	bool writable;            /* a descriptor to write was seen */
};

static struct desc read_desc(const struct vring_desc *d)
{
	return (struct desc){
		.addr = le64_get(&d->addr),
		.len = le32_get(&d->len),
		.flags = le16_get(&d->flags),
		.next = le16_get(&d->next),
	};
}

/* Adds the pieces of a buffer's descriptor. */
static int add_buffer(struct walk *w, const struct desc *d)
{
	unsigned cnt = w->out_cnt + w->in_cnt;
	bool write = (d->flags & VRING_DESC_F_WRITE) != 0;
	int ret;

	/* 2.7.4.2: what is writable comes after what is readable. */
	if (w->writable && !write)
		return -EINVAL;
	w->writable = write;
	/* No bytes are no piece, wherever the address points. */
	if (d->len == 0)
		return cnt + w->empty++ < w->room ? 0 : -E2BIG;
	if (cnt + w->empty >= w->room)
		return -E2BIG;
	ret = mem_pieces(w->mem, (struct gpa){ d->addr }, d->len, &w->iov[cnt],
			 w->room - cnt - w->empty);
	if (ret < 0)
		return ret;
	if (write) {
		w->in_cnt += (unsigned)ret;
		w->in_len += d->len;
	} else {
		w->out_cnt += (unsigned)ret;
		w->out_len += d->len;
	}
	return 0;
}

/* An indirect table: nearly always one aligned piece; the specification promises neither. */
struct table {
	struct iovec pieces[MEM_REGIONS_MAX];
	unsigned cnt;
	uint32_t entries;
};

static struct desc read_entry(const struct table *t, uint32_t i)
{
	struct iov_cursor c;
	struct vring_desc copy;
	char *base = t->pieces[0].iov_base;

	if (t->cnt == 1 && (uintptr_t)base % _Alignof(struct vring_desc) == 0)
		return read_desc((const struct vring_desc *)(void *)base + i);
	c = iov_cursor(t->pieces, t->cnt);
	iov_skip(&c, i * sizeof(copy));
	iov_read(&c, &copy, sizeof(copy));
	return read_desc(&copy);
}

/* The last descriptor of the ring's own refers to a table that holds the rest of the chain. */
static int walk_table(const struct vq *vq, struct walk *w, const struct desc *ref)
{
	struct table t;
	uint32_t i = 0, max;
	int ret;

	/* 2.7.5.3.1: the feature, no NEXT beside INDIRECT, and in the table no INDIRECT either.
	 * 2.7.5.3.2: WRITE means nothing here. */
	if (!vq->indirect || (ref->flags & VRING_DESC_F_NEXT) || ref->len == 0 ||
	    ref->len % sizeof(struct vring_desc) != 0)
		return -EINVAL;
	ret = mem_pieces(vq->mem, (struct gpa){ ref->addr }, ref->len, t.pieces, MEM_REGIONS_MAX);
	if (ret < 0)
		return ret;
	t.cnt = (unsigned)ret;
	t.entries = ref->len / sizeof(struct vring_desc);
	max = min_uint(t.entries, VQ_NUM_MAX);
	for (uint32_t n = 0; n < max; n++) {
		struct desc d = read_entry(&t, i);

		if (d.flags & VRING_DESC_F_INDIRECT)
			return -EINVAL;
		ret = add_buffer(w, &d);
		if (ret < 0 || !(d.flags & VRING_DESC_F_NEXT))
			return ret;
		if (d.next >= t.entries)
			return -EINVAL;
		i = d.next;
	}
	return -ELOOP;
}

/* 2.7.5.3.2: any number of plain descriptors, then, perhaps, one that refers to a table. */
static int walk_ring(const struct vq *vq, struct walk *w, uint16_t head)
{
	uint16_t i = head;
	int ret;

	for (unsigned n = 0; n < vq->num; n++) {
		struct desc d = read_desc(&vq->desc[i]);

		if (d.flags & VRING_DESC_F_INDIRECT)
			return walk_table(vq, w, &d);
		ret = add_buffer(w, &d);
		if (ret < 0 || !(d.flags & VRING_DESC_F_NEXT))
			return ret;
		if (d.next >= vq->num)
			return -EINVAL;
		i = d.next;
	}
	return -ELOOP;
}

int vq_chain_walk(const struct vq *vq, struct vq_chain *chain, unsigned room)
{
	struct walk w = { .mem = vq->mem, .iov = chain->iov, .room = room };
	int ret;

	ret = walk_ring(vq, &w, chain->head);
	if (ret < 0)
		return ret;
	if (w.out_len > UINT32_MAX || w.in_len > UINT32_MAX)
		return -EOVERFLOW;
	chain->out_cnt = (uint16_t)w.out_cnt;
	chain->in_cnt = (uint16_t)w.in_cnt;
	chain->out_len = (uint32_t)w.out_len;
	chain->in_len = (uint32_t)w.in_len;
	return (int)(w.out_cnt + w.in_cnt + w.empty);
}
