// SPDX-License-Identifier: BSD-2-Clause
/* A driver's receive queue. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "drv/queue.h"

size_t drv_rx_bytes(unsigned num, uint32_t buf_len)
{
	return drv_ring_bytes(num) + num * drv_mem_round(buf_len);
}

int drv_rx_init(struct drv_rx *x, struct drv_mem *m, unsigned num, uint32_t buf_len)
{
	int rc = drv_ring_init(&x->r, m, num);

	x->buf_len = buf_len;
	x->bufs = calloc(num, sizeof(*x->bufs));
	if (rc < 0)
		return rc;
	if (x->bufs == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < num; i++) {
		x->bufs[i].addr = drv_mem_alloc(m, buf_len);
		if (x->bufs[i].addr == NULL ||
		    !drv_mem_gpa(m, x->bufs[i].addr, buf_len, &x->bufs[i].gpa))
			return -ENOMEM;
	}
	return 0;
}

void drv_rx_fini(struct drv_rx *x)
{
	drv_ring_fini(&x->r);
	free(x->bufs);
}

/* There is always room: one descriptor a buffer. */
static void post(struct drv_rx *x, struct drv_rx_buf *b)
{
	struct drvq_buf buf = { .addr = b->gpa, .len = x->buf_len };
	int rc = drvq_add(&x->r.q, &buf, 0, 1, b);

	assert(rc == 0);
	(void)rc;
}

int drv_rx_start(struct drv_rx *x, uint64_t features)
{
	int rc = drv_ring_start(&x->r, features);

	if (rc < 0)
		return rc;
	x->mergeable = (features >> VIRTIO_NET_F_MRG_RXBUF) & 1;
	for (unsigned i = 0; i < x->r.num; i++) {
		if (!x->bufs[i].held)
			post(x, &x->bufs[i]);
	}
	drv_ring_publish(&x->r);
	return 0;
}

/* Buffers of a frame are the ring's again. */
static void give_back(struct drv_rx *x, struct drv_rx_buf *b)
{
	for (; b != NULL; b = b->next) {
		assert(b->held);
		b->held = false;
		if (drv_ring_usable(&x->r))
			post(x, b);
	}
}

static void forget_frame(struct drv_rx *x)
{
	x->first = x->last = NULL;
	x->missing = 0;
}

void drv_rx_stop(struct drv_rx *x)
{
	drv_ring_stop(&x->r);
	give_back(x, x->first);
	forget_frame(x);
}

/* ---- frames that arrive ---- */

/* How many buffers the frame that begins in @b has; 0: not so many. */
static unsigned buffers_of(const struct drv_rx *x, const struct drv_rx_buf *b)
{
	struct virtio_net_hdr h;
	unsigned cnt;

	if (!x->mergeable)
		return 1;
	memcpy(&h, b->addr, sizeof(h));
	cnt = le16toh(h.num_buffers);
	return cnt <= x->r.num ? cnt : 0;
}

/* Gathers the buffers of the next frame; false: they have not all come. */
static bool gather(struct drv_rx *x)
{
	struct drvq_used used;

	while (x->first == NULL || x->missing > 0) {
		struct drv_rx_buf *b;

		if (!drv_ring_get(&x->r, &used))
			return false;
		b = used.token;
		b->len = used.len;
		b->next = NULL;
		b->held = true;
		if (x->first == NULL) {
			x->first = x->last = b;
			x->missing = b->len >= x->r.hdr_len ? buffers_of(x, b) : 0;
			if (x->missing == 0) {
				x->r.broken = true;
				return false;
			}
		} else {
			x->last->next = b;
			x->last = b;
		}
		x->missing--;
	}
	return true;
}

static unsigned count_pieces(const struct drv_rx *x)
{
	unsigned cnt = 0;

	for (const struct drv_rx_buf *b = x->first; b != NULL; b = b->next)
		cnt++;
	return cnt;
}

static void read_hdr(const struct drv_rx *x, struct uvhost_net_hdr *to)
{
	struct virtio_net_hdr h = { 0 };

	memcpy(&h, x->first->addr, x->r.hdr_len);
	*to = (struct uvhost_net_hdr){
		.flags = h.flags,
		.gso_type = h.gso_type,
		.hdr_len = le16toh(h.hdr_len),
		.gso_size = le16toh(h.gso_size),
		.csum_start = le16toh(h.csum_start),
		.csum_offset = le16toh(h.csum_offset),
	};
}

static bool is_malformed(const struct uvhost_frame *f)
{
	const struct uvhost_net_hdr *h = &f->hdr;

	if (f->len == 0)
		return true;
	if (h->gso_type != VIRTIO_NET_HDR_GSO_NONE &&
	    (h->gso_size == 0 || (h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) == 0))
		return true;
	return (h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0 &&
	       (uint32_t)h->csum_start + h->csum_offset + sizeof(uint16_t) > f->len;
}

/* The gathered frame as the caller sees it. */
static void describe(const struct drv_rx *x, struct uvhost_frame *f, struct iovec *iov)
{
	*f = (struct uvhost_frame){ .iov = iov, .token = x->first };
	read_hdr(x, &f->hdr);
	for (struct drv_rx_buf *b = x->first; b != NULL; b = b->next) {
		uint32_t skip = b == x->first ? x->r.hdr_len : 0;

		if (b->len == skip)
			continue; /* a header alone, then the frame */
		iov[f->iov_cnt++] =
			(struct iovec){ .iov_base = b->addr + skip, .iov_len = b->len - skip };
		f->len += b->len - skip;
	}
}

unsigned drv_rx_recv(struct drv_rx *x, struct uvhost_frame *frames, unsigned max, struct iovec *iov,
		     unsigned iov_max)
{
	unsigned n = 0, pieces = 0;
	uint64_t malformed = x->malformed;

	while (n < max && drv_ring_usable(&x->r) && gather(x)) {
		if (count_pieces(x) > iov_max - pieces)
			break;
		describe(x, &frames[n], &iov[pieces]);
		if (is_malformed(&frames[n])) {
			x->malformed++;
			give_back(x, x->first);
		} else {
			pieces += frames[n].iov_cnt;
			x->received++;
			x->bytes += frames[n].len;
			n++;
		}
		forget_frame(x);
	}
	if (x->malformed != malformed && drv_ring_usable(&x->r))
		drv_ring_publish(&x->r);
	return n;
}

void drv_rx_release(struct drv_rx *x, const struct uvhost_frame *frames, unsigned cnt)
{
	for (unsigned i = 0; i < cnt; i++)
		give_back(x, frames[i].token);
	if (drv_ring_usable(&x->r))
		drv_ring_publish(&x->r);
}
