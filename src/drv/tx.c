// SPDX-License-Identifier: BSD-2-Clause
/* A driver's transmit queue. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "base/util.h"
#include "drv/queue.h"

#define NONE     UINT16_MAX
#define HDR_ROOM 64 /* a cache line each */

static_assert(UVHOST_HEADROOM >= VIRTIO_NET_HDR_LEN, "the header fits into the headroom");

size_t drv_tx_bytes(unsigned num)
{
	return drv_ring_bytes(num) + (size_t)num * (HDR_ROOM + DRV_SLOT);
}

/* All free: the lists in order. */
static void reset_lists(struct drv_tx *t)
{
	for (unsigned i = 0; i < t->r.num; i++) {
		uint16_t next = i + 1 < t->r.num ? (uint16_t)(i + 1) : NONE;

		t->slot_next[i] = t->frames[i].next = next;
	}
	t->free_frame = t->free_slot = 0;
	t->slots_free = t->r.num;
	t->back_first = t->back_last = NONE;
}

int drv_tx_init(struct drv_tx *t, struct drv_mem *m, unsigned num)
{
	int rc = drv_ring_init(&t->r, m, num);

	t->mem = m;
	t->hdrs = drv_mem_alloc(m, (size_t)num * HDR_ROOM);
	t->slots = drv_mem_alloc(m, (size_t)num * DRV_SLOT);
	t->frames = calloc(num, sizeof(*t->frames));
	t->slot_next = calloc(num, sizeof(*t->slot_next));
	if (rc < 0)
		return rc;
	if (t->hdrs == NULL || t->slots == NULL || t->frames == NULL || t->slot_next == NULL)
		return -ENOMEM;
	reset_lists(t);
	return 0;
}

void drv_tx_fini(struct drv_tx *t)
{
	drv_ring_fini(&t->r);
	free(t->frames);
	free(t->slot_next);
}

int drv_tx_start(struct drv_tx *t, uint64_t features)
{
	return drv_ring_start(&t->r, features);
}

/* ---- frames that come back ---- */

static void free_frame(struct drv_tx *t, struct drv_tx_frame *f)
{
	f->next = t->free_frame;
	t->free_frame = (uint16_t)(f - t->frames);
}

static void free_slots(struct drv_tx *t, uint16_t slot)
{
	while (slot != NONE) {
		uint16_t next = t->slot_next[slot];

		t->slot_next[slot] = t->free_slot;
		t->free_slot = slot;
		t->slots_free++;
		slot = next;
	}
}

static void take_back(struct drv_tx *t, struct drv_tx_frame *f)
{
	uint16_t i = (uint16_t)(f - t->frames);

	f->out = false;
	if (f->copied) {
		free_slots(t, f->slot);
		free_frame(t, f);
		return;
	}
	f->next = NONE;
	if (t->back_first == NONE)
		t->back_first = i;
	else
		t->frames[t->back_last].next = i;
	t->back_last = i;
}

static void reap(struct drv_tx *t)
{
	struct drvq_used used;

	while (drv_ring_get(&t->r, &used))
		take_back(t, used.token);
}

unsigned drv_tx_sent(struct drv_tx *t, void **tokens, unsigned max)
{
	unsigned n = 0;

	if (drv_ring_usable(&t->r))
		reap(t);
	for (; n < max && t->back_first != NONE; n++) {
		struct drv_tx_frame *f = &t->frames[t->back_first];

		tokens[n] = f->token;
		t->back_first = f->next;
		free_frame(t, f);
	}
	return n;
}

void drv_tx_stop(struct drv_tx *t)
{
	if (!t->r.running)
		return;
	for (unsigned i = 0; i < t->r.num; i++) {
		if (t->frames[i].out) {
			t->lost++;
			take_back(t, &t->frames[i]);
		}
	}
	drv_ring_stop(&t->r);
}

/* ---- frames that go out ---- */

static void write_hdr(const struct drv_tx *t, void *at, const struct uvhost_net_hdr *from)
{
	const struct virtio_net_hdr h = {
		.flags = from->flags,
		.gso_type = from->gso_type,
		.hdr_len = htole16(from->hdr_len),
		.gso_size = htole16(from->gso_size),
		.csum_start = htole16(from->csum_start),
		.csum_offset = htole16(from->csum_offset),
	};

	memcpy(at, &h, t->r.hdr_len);
}

/* The chain of a frame that is used where it is; its length or -errno. */
static int lay_reference(const struct drv_tx *t, const struct uvhost_frame *f, char *hdr,
			 struct drvq_buf *bufs)
{
	unsigned n = 0, own = f->headroom ? 0 : 1;

	if (f->iov_cnt == 0 || f->iov_cnt + own > min_uint(DRV_PIECES_MAX, t->r.num))
		return -EMSGSIZE;
	if (own != 0) {
		write_hdr(t, hdr, &f->hdr);
		drv_mem_gpa(t->mem, hdr, t->r.hdr_len, &bufs[n].addr);
		bufs[n++].len = t->r.hdr_len;
	}
	for (unsigned i = 0; i < f->iov_cnt; i++) {
		char *at = f->iov[i].iov_base;
		size_t len = f->iov[i].iov_len;

		if (i == 0 && own == 0) {
			at -= t->r.hdr_len;
			len += t->r.hdr_len;
		}
		if (len > UINT32_MAX || !drv_mem_gpa(t->mem, at, len, &bufs[n].addr))
			return -EFAULT;
		if (i == 0 && own == 0)
			write_hdr(t, at, &f->hdr);
		bufs[n++].len = (uint32_t)len;
	}
	return (int)n;
}

/* Takes a frame's record and adds its chain; false: the ring or the records are used up. */
static bool add_frame(struct drv_tx *t, const struct uvhost_frame *f, const struct drvq_buf *bufs,
		      unsigned cnt)
{
	struct drv_tx_frame *rec = &t->frames[t->free_frame];

	if (drvq_add(&t->r.q, bufs, cnt, 0, rec) < 0)
		return false;
	t->free_frame = rec->next;
	rec->token = f->token;
	rec->copied = false;
	rec->out = true;
	t->sent++;
	t->bytes += f->len;
	return true;
}

int drv_tx_send(struct drv_tx *t, const struct uvhost_frame *frames, unsigned cnt)
{
	struct drvq_buf bufs[DRV_PIECES_MAX];
	unsigned n = 0;

	if (!drv_ring_usable(&t->r))
		return 0;
	reap(t);
	for (; n < cnt && t->free_frame != NONE; n++) {
		char *hdr = t->hdrs + (size_t)t->free_frame * HDR_ROOM;
		int pieces = lay_reference(t, &frames[n], hdr, bufs);

		if (pieces < 0 && n == 0)
			return pieces;
		if (pieces < 0 || !add_frame(t, &frames[n], bufs, (unsigned)pieces))
			break;
	}
	drv_ring_publish(&t->r);
	return (int)n;
}

/* ---- frames that are copied ---- */

/* Copies header and frame into @slots of them, linked from the first free one; the last. */
static uint16_t fill_slots(struct drv_tx *t, const struct uvhost_frame *f, unsigned slots,
			   struct drvq_buf *bufs)
{
	struct iov_cursor c = iov_cursor(f->iov, f->iov_cnt);
	uint16_t slot = t->free_slot;

	for (unsigned i = 0;; i++) {
		char *at = t->slots + (size_t)slot * DRV_SLOT;
		uint32_t hdr = i == 0 ? t->r.hdr_len : 0;

		if (i == 0)
			write_hdr(t, at, &f->hdr);
		drv_mem_gpa(t->mem, at, DRV_SLOT, &bufs[i].addr);
		bufs[i].len = hdr + (uint32_t)iov_read(&c, at + hdr, DRV_SLOT - hdr);
		if (i + 1 == slots)
			return slot;
		slot = t->slot_next[slot];
	}
}

static bool copy_frame(struct drv_tx *t, const struct uvhost_frame *f)
{
	unsigned slots = (t->r.hdr_len + f->len + DRV_SLOT - 1) / DRV_SLOT;
	struct drvq_buf bufs[DRV_PIECES_MAX];
	uint16_t record = t->free_frame, first = t->free_slot, last, rest;

	if (slots > t->slots_free)
		return false;
	last = fill_slots(t, f, slots, bufs);
	if (!add_frame(t, f, bufs, slots))
		return false;
	rest = t->slot_next[last];
	t->slot_next[last] = NONE;
	t->free_slot = rest;
	t->slots_free -= slots;
	t->frames[record].copied = true;
	t->frames[record].slot = first;
	return true;
}

int drv_tx_send_copy(struct drv_tx *t, const struct uvhost_frame *frames, unsigned cnt)
{
	unsigned n = 0;

	if (!drv_ring_usable(&t->r))
		return 0;
	reap(t);
	for (; n < cnt && t->free_frame != NONE; n++) {
		/* With fewer slots than it takes it would wait for ever. */
		if (frames[n].len == 0 || frames[n].len > DRV_FRAME_MAX ||
		    frames[n].len + t->r.hdr_len > (size_t)t->r.num * DRV_SLOT) {
			if (n == 0)
				return -EMSGSIZE;
			break;
		}
		if (!copy_frame(t, &frames[n]))
			break;
	}
	drv_ring_publish(&t->r);
	return (int)n;
}
