// SPDX-License-Identifier: BSD-2-Clause
/*
 * The device's side of a virtqueue: one chain of descriptors (virtio 1.2, sections 2.7.5 and 2.8.5 to
 * 2.8.7).
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
	uint16_t flags;
	uint16_t next; /* packed: the buffer ID */
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

static struct desc read_split(const struct vring_desc *d)
{
	return (struct desc){
		.addr = le64_get(&d->addr),
		.len = le32_get(&d->len),
		.flags = le16_get(&d->flags),
		.next = le16_get(&d->next),
	};
}

static struct desc read_packed(const struct vring_packed_desc *d, uint16_t flags)
{
	return (struct desc){
		.addr = le64_get(&d->addr),
		.len = le32_get(&d->len),
		.flags = flags,
		.next = le16_get(&d->id),
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

static int open_table(const struct vq *vq, const struct desc *ref, struct table *t)
{
	int ret;

	/* 2.7.5.3.1, 2.8.19: the feature, and no NEXT beside INDIRECT. */
	if (!vq->indirect || (ref->flags & VRING_DESC_F_NEXT) || ref->len == 0 ||
	    ref->len % sizeof(struct vring_desc) != 0)
		return -EINVAL;
	ret = mem_pieces(vq->mem, (struct gpa){ ref->addr }, ref->len, t->pieces, MEM_REGIONS_MAX);
	if (ret < 0)
		return ret;
	t->cnt = (unsigned)ret;
	t->entries = ref->len / sizeof(struct vring_desc);
	return 0;
}

/* The entry where it is, or its copy where it is in pieces or not aligned. */
static const void *table_entry(const struct table *t, uint32_t i, struct vring_desc *copy)
{
	char *base = t->pieces[0].iov_base;
	struct iov_cursor c;

	if (t->cnt == 1 && (uintptr_t)base % _Alignof(struct vring_desc) == 0)
		return base + i * sizeof(*copy);
	c = iov_cursor(t->pieces, t->cnt);
	iov_skip(&c, i * sizeof(*copy));
	iov_read(&c, copy, sizeof(*copy));
	return copy;
}

/* The last descriptor of the ring's own refers to a table that holds the rest of the chain. */
static int walk_split_table(const struct vq *vq, struct walk *w, const struct desc *ref)
{
	struct vring_desc copy;
	struct table t;
	uint32_t i = 0, max;
	int ret = open_table(vq, ref, &t);

	if (ret < 0)
		return ret;
	max = min_uint(t.entries, VQ_NUM_MAX);
	for (uint32_t n = 0; n < max; n++) {
		struct desc d = read_split(table_entry(&t, i, &copy));

		/* 2.7.5.3.1: in the table no INDIRECT. */
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

/* 2.8.7: all of the table is the chain, in order; of the flags WRITE alone means something. */
static int walk_packed_table(const struct vq *vq, struct walk *w, const struct desc *ref)
{
	struct vring_desc copy;
	struct table t;
	int ret = open_table(vq, ref, &t);

	if (ret == 0 && t.entries > VQ_NUM_MAX)
		ret = -ELOOP;
	for (uint32_t i = 0; ret == 0 && i < t.entries; i++) {
		const struct vring_packed_desc *entry = table_entry(&t, i, &copy);
		struct desc d = read_packed(entry, le16_get(&entry->flags));

		ret = add_buffer(w, &d);
	}
	return ret;
}

/* 2.7.5.3.2: any number of plain descriptors, then, perhaps, one that refers to a table. */
static int walk_split_ring(const struct vq *vq, struct walk *w, uint16_t head)
{
	uint16_t i = head;
	int ret;

	for (unsigned n = 0; n < vq->num; n++) {
		struct desc d = read_split(&vq->split.desc[i]);

		if (d.flags & VRING_DESC_F_INDIRECT)
			return walk_split_table(vq, w, &d);
		ret = add_buffer(w, &d);
		if (ret < 0 || !(d.flags & VRING_DESC_F_NEXT))
			return ret;
		if (d.next >= vq->num)
			return -EINVAL;
		i = d.next;
	}
	return -ELOOP;
}

/* The walk's outcome, as vq_split_walk() returns it. */
static int finish(const struct walk *w, struct vq_chain *chain, int ret)
{
	if (ret < 0)
		return ret;
	if (w->out_len > UINT32_MAX || w->in_len > UINT32_MAX)
		return -EOVERFLOW;
	chain->out_cnt = (uint16_t)w->out_cnt;
	chain->in_cnt = (uint16_t)w->in_cnt;
	chain->out_len = (uint32_t)w->out_len;
	chain->in_len = (uint32_t)w->in_len;
	return (int)(w->out_cnt + w->in_cnt + w->empty);
}

int vq_split_walk(const struct vq *vq, struct vq_chain *chain, unsigned room)
{
	struct walk w = { .mem = vq->mem, .iov = chain->iov, .room = room };

	return finish(&w, chain, walk_split_ring(vq, &w, chain->head));
}

int vq_packed_walk(const struct vq *vq, struct vq_chain *chain, unsigned room,
		   struct vq_packed_span *span)
{
	struct walk w = { .mem = vq->mem, .iov = chain->iov, .room = room };
	unsigned pos = vring_packed_pos(vq->packed.avail);
	int ret = 0;

	for (unsigned n = 1;; n++) {
		const struct vring_packed_desc *at = &vq->packed.desc[pos];
		struct desc d = read_packed(at, n == 1 ? span->flags : le16_get(&at->flags));

		/* Also of a bad chain the end has to be found. 2.8.19: a chain has nothing beside a
		 * table. */
		if (ret == 0 && (d.flags & VRING_DESC_F_INDIRECT))
			ret = n == 1 ? walk_packed_table(vq, &w, &d) : -EINVAL;
		else if (ret == 0)
			ret = add_buffer(&w, &d);
		if (!(d.flags & VRING_DESC_F_NEXT)) {
			chain->head = d.next;
			span->cnt = (uint16_t)n;
			return finish(&w, chain, ret);
		}
		if (n == span->max)
			return -EPROTO;
		pos = pos + 1 < vq->num ? pos + 1 : 0;
	}
}
