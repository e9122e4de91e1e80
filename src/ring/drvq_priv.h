/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the driver's side share: drvq.c is the verbs, the others have a layout each. */
#ifndef UVHOST_RING_DRVQ_PRIV_H
#define UVHOST_RING_DRVQ_PRIV_H

#include "ring/drvq.h"

/*
 * A slot for each descriptor (split) or buffer ID (packed): its successor in the list of the free ones or,
 * split, in its chain; and for the one that names a chain, what the chain is. cnt 0: it names none.
 *
 * With IN_ORDER they are used in ring order (2.7.5). The list begins as that circle; as chains then
 * also come back in this order, it stays one without being touched.
 */
struct drvq_slot {
	void *token;
	uint64_t added; /* drvq.published at that time */
	uint32_t capacity;
	uint16_t cnt; /* descriptors in the ring */
	uint16_t last;
	uint16_t next;
};

/* What the device returned: the chain @id, or with IN_ORDER all up to it. */
struct drvq_elem {
	uint32_t id, len;
};

/* A chain to add: @bufs, of which the first @out_cnt of @cnt are readable. */
struct drvq_chain {
	const struct drvq_buf *bufs;
	unsigned out_cnt, cnt;
};

static inline uint16_t drvq_write_flag(const struct drvq_chain *c, unsigned i)
{
	return i < c->out_cnt ? 0 : VRING_DESC_F_WRITE;
}

/* The table that belongs to slot @id. */
static inline void *drvq_table(const struct drvq *q, uint16_t id, struct gpa *gpa)
{
	size_t at = (size_t)id * q->indirect.max;

	gpa->v = q->indirect.gpa.v + at * sizeof(struct vring_desc);
	return q->indirect.desc + at;
}

/* ---- the layouts: drvq_split.c, drvq_packed.c ---- */

void drvq_split_init(struct drvq *q, void *ring);
void drvq_packed_init(struct drvq *q, void *ring);
/* Lays the chain into the ring, for slot free_head, or @indirect into its table and a reference into
 * the ring; returns the last slot that it takes. Unpublished. */
uint16_t drvq_split_add(struct drvq *q, const struct drvq_chain *c, bool indirect);
uint16_t drvq_packed_add(struct drvq *q, const struct drvq_chain *c, bool indirect);
void drvq_split_publish(struct drvq *q);
unsigned drvq_packed_publish(struct drvq *q); /* how many descriptors */
/* Behind the fence: does the device want a kick for what was just published: since @old_idx, or @descs
 * descriptors? */
bool drvq_split_wants_kick(const struct drvq *q, uint16_t old_idx);
bool drvq_packed_wants_kick(const struct drvq *q, unsigned descs);
/* The element at used_idx. 1, 0: none, -EPROTO: more than the device has. @ready: how many chains it
 * may stand for. */
int drvq_split_look(const struct drvq *q, struct drvq_elem *elem, unsigned *ready);
int drvq_packed_look(const struct drvq *q, struct drvq_elem *elem, unsigned *ready);
void drvq_split_call_off(struct drvq *q);
void drvq_packed_call_off(struct drvq *q);
void drvq_split_call_on(struct drvq *q);
void drvq_packed_call_on(struct drvq *q);

#endif
