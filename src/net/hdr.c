// SPDX-License-Identifier: BSD-2-Clause
/* The virtio-net header: decoded and validated once, encoded once. */
#include "net/hdr.h"

#include <endian.h>
#include <errno.h>

#include "base/iov.h"
#include "port/offload.h"
#include "wire/virtio_ring.h"

/* An Ethernet header is the least that a frame can be. */
#define FRAME_MIN 14

unsigned hdr_len(uint64_t acked)
{
	uint64_t modern = 1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_NET_F_MRG_RXBUF;

	return (acked & modern) != 0 ? VIRTIO_NET_HDR_LEN : VIRTIO_NET_HDR_LEN_LEGACY;
}

enum net_drop hdr_decode(struct frame *f, unsigned len, unsigned offloads)
{
	struct virtio_net_hdr h = { 0 };
	struct iov_cursor c = iov_cursor(f->iov, f->iov_cnt);
	int rc;

	if (f->len < len + FRAME_MIN)
		return DROP_BAD_HEADER;
	iov_read(&c, &h, len);
	f->iov_cnt = (uint16_t)iov_trim_front(&f->iov, f->iov_cnt, len);
	f->len -= len;
	if (f->len > VIRTIO_NET_FRAME_MAX)
		return DROP_TOO_BIG;
	rc = offload_from_hdr(&f->off, &h, f->len);
	f->off.csum_valid = false; /* nobody has verified what a guest says of itself */
	/* What the guest did not ack it may not use, well-formed or not (5.1.6.2.1). */
	if (rc == -EOPNOTSUPP || (offload_needs_host(&f->off) & ~offloads) != 0)
		return DROP_NOT_NEGOTIATED;
	return rc < 0 ? DROP_BAD_HEADER : DROP_NONE;
}

void hdr_encode(struct virtio_net_hdr *h, const struct frame_offload *off, uint16_t buffers)
{
	offload_to_hdr(h, off);
	h->num_buffers = htole16(buffers);
}
