// SPDX-License-Identifier: BSD-2-Clause
/* The virtio-net header: decoded and validated once, encoded once. */
#include "net/hdr.h"

#include <endian.h>
#include <string.h>

#include "base/iov.h"
#include "wire/virtio_ring.h"

/* An Ethernet header is the least that a frame can be. */
#define FRAME_MIN 14

unsigned hdr_len(uint64_t acked)
{
	uint64_t modern = 1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_NET_F_MRG_RXBUF;

	return (acked & modern) != 0 ? VIRTIO_NET_HDR_LEN : VIRTIO_NET_HDR_LEN_LEGACY;
}

/* The offload that a segmentation type asks of its receiver, 0 for an unknown one. */
static unsigned gso_offload(enum frame_gso gso, unsigned tso4, unsigned tso6)
{
	switch (gso) {
	case FRAME_GSO_TCP4:
		return tso4;
	case FRAME_GSO_TCP6:
		return tso6;
	case FRAME_GSO_NONE:
		break;
	}
	return 0;
}

static enum net_drop decode_gso(const struct virtio_net_hdr *h, struct frame *f, unsigned offloads)
{
	uint8_t type = h->gso_type & (uint8_t)~VIRTIO_NET_HDR_GSO_ECN;

	if (type == VIRTIO_NET_HDR_GSO_NONE)
		return DROP_NONE;
	if (type == VIRTIO_NET_HDR_GSO_TCPV4)
		f->off.gso = FRAME_GSO_TCP4;
	else if (type == VIRTIO_NET_HDR_GSO_TCPV6)
		f->off.gso = FRAME_GSO_TCP6;
	else
		return DROP_NOT_NEGOTIATED;
	f->off.ecn = (h->gso_type & VIRTIO_NET_HDR_GSO_ECN) != 0;
	if ((offloads & gso_offload(f->off.gso, PORT_HOST_TSO4, PORT_HOST_TSO6)) == 0 ||
	    (f->off.ecn && (offloads & PORT_HOST_ECN) == 0))
		return DROP_NOT_NEGOTIATED;
	f->off.gso_size = le16toh(h->gso_size);
	/* Segments need a size and their checksums; hdr_len is only a hint (5.1.6.2.1). */
	if (f->off.gso_size == 0 || !f->off.needs_csum)
		return DROP_BAD_HEADER;
	f->off.hdr_len = (uint16_t)min_uint(le16toh(h->hdr_len), f->len);
	return DROP_NONE;
}

static enum net_drop decode_csum(const struct virtio_net_hdr *h, struct frame *f, unsigned offloads)
{
	/* Whoever did not ack the offload owes complete checksums and a zero here (5.1.6.2.1). */
	if ((h->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) == 0)
		return DROP_NONE;
	if ((offloads & PORT_HOST_CSUM) == 0)
		return DROP_NOT_NEGOTIATED;
	f->off.needs_csum = true;
	f->off.csum_start = le16toh(h->csum_start);
	f->off.csum_offset = le16toh(h->csum_offset);
	/* In 32 bits: the sum of two guest-written u16 must not wrap. */
	if ((uint32_t)f->off.csum_start + f->off.csum_offset + sizeof(uint16_t) > f->len)
		return DROP_BAD_HEADER;
	return DROP_NONE;
}

enum net_drop hdr_decode(struct frame *f, unsigned len, unsigned offloads)
{
	struct virtio_net_hdr h = { 0 };
	struct iov_cursor c = iov_cursor(f->iov, f->iov_cnt);
	enum net_drop drop;

	f->off = (struct frame_offload){ 0 };
	if (f->len < len + FRAME_MIN)
		return DROP_BAD_HEADER;
	iov_read(&c, &h, len);
	f->iov_cnt = (uint16_t)iov_trim_front(&f->iov, f->iov_cnt, len);
	f->len -= len;
	if (f->len > VIRTIO_NET_FRAME_MAX)
		return DROP_TOO_BIG;
	drop = decode_csum(&h, f, offloads);
	if (drop == DROP_NONE)
		drop = decode_gso(&h, f, offloads);
	return drop;
}

enum net_drop hdr_receivable(const struct frame_offload *off, unsigned offloads)
{
	if (off->needs_csum && (offloads & PORT_GUEST_CSUM) == 0)
		return DROP_NOT_NEGOTIATED;
	if (off->gso != FRAME_GSO_NONE &&
	    (offloads & gso_offload(off->gso, PORT_GUEST_TSO4, PORT_GUEST_TSO6)) == 0)
		return DROP_NOT_NEGOTIATED;
	if (off->ecn && (offloads & PORT_GUEST_ECN) == 0)
		return DROP_NOT_NEGOTIATED;
	return DROP_NONE;
}

void hdr_encode(struct virtio_net_hdr *h, const struct frame_offload *off, uint16_t buffers)
{
	static const uint8_t gso_types[] = {
		[FRAME_GSO_NONE] = VIRTIO_NET_HDR_GSO_NONE,
		[FRAME_GSO_TCP4] = VIRTIO_NET_HDR_GSO_TCPV4,
		[FRAME_GSO_TCP6] = VIRTIO_NET_HDR_GSO_TCPV6,
	};

	*h = (struct virtio_net_hdr){ .num_buffers = htole16(buffers) };
	if (off->needs_csum) {
		h->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
		h->csum_start = htole16(off->csum_start);
		h->csum_offset = htole16(off->csum_offset);
	} else if (off->csum_valid) {
		h->flags = VIRTIO_NET_HDR_F_DATA_VALID;
	}
	if (off->gso != FRAME_GSO_NONE) {
		h->gso_type = gso_types[off->gso] | (off->ecn ? VIRTIO_NET_HDR_GSO_ECN : 0);
		h->gso_size = htole16(off->gso_size);
		h->hdr_len = htole16(off->hdr_len);
	}
}
