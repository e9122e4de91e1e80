// SPDX-License-Identifier: BSD-2-Clause
/* The offloads of a frame, and the offloads that were agreed upon. */
#include "port/offload.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>

#include "base/util.h"

/* The bits of one direction are those of the other, moved. */
#define GUEST_SHIFT 4
#define DIRECTION   0xfU
static_assert(PORT_GUEST_CSUM == PORT_HOST_CSUM << GUEST_SHIFT, "the directions mirror each other");
static_assert(PORT_GUEST_ECN == PORT_HOST_ECN << GUEST_SHIFT, "the directions mirror each other");

static unsigned sane_direction(unsigned offloads)
{
	if ((offloads & PORT_HOST_CSUM) == 0)
		return 0;
	if ((offloads & (PORT_HOST_TSO4 | PORT_HOST_TSO6)) == 0)
		offloads &= ~(unsigned)PORT_HOST_ECN;
	return offloads;
}

unsigned offload_sane(unsigned offloads)
{
	return sane_direction(offloads & DIRECTION) |
	       sane_direction(offloads >> GUEST_SHIFT & DIRECTION) << GUEST_SHIFT;
}

unsigned offload_needs_host(const struct frame_offload *off)
{
	static const unsigned gso_bits[] = {
		[FRAME_GSO_NONE] = 0,
		[FRAME_GSO_TCP4] = PORT_HOST_TSO4,
		[FRAME_GSO_TCP6] = PORT_HOST_TSO6,
	};

	return (off->needs_csum ? PORT_HOST_CSUM : 0) | gso_bits[off->gso] |
	       (off->ecn ? PORT_HOST_ECN : 0);
}

unsigned offload_needs_guest(const struct frame_offload *off)
{
	return offload_needs_host(off) << GUEST_SHIFT;
}

void offload_to_hdr(struct virtio_net_hdr *hdr, const struct frame_offload *off)
{
	static const uint8_t gso_types[] = {
		[FRAME_GSO_NONE] = VIRTIO_NET_HDR_GSO_NONE,
		[FRAME_GSO_TCP4] = VIRTIO_NET_HDR_GSO_TCPV4,
		[FRAME_GSO_TCP6] = VIRTIO_NET_HDR_GSO_TCPV6,
	};

	*hdr = (struct virtio_net_hdr){
		.gso_type = gso_types[off->gso],
		.hdr_len = htole16(off->hdr_len),
		.gso_size = htole16(off->gso_size),
		.csum_start = htole16(off->csum_start),
		.csum_offset = htole16(off->csum_offset),
	};
	if (off->needs_csum)
		hdr->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
	else if (off->csum_valid)
		hdr->flags = VIRTIO_NET_HDR_F_DATA_VALID;
	if (off->ecn)
		hdr->gso_type |= VIRTIO_NET_HDR_GSO_ECN;
}

static int read_csum(struct frame_offload *off, const struct virtio_net_hdr *hdr, uint32_t len)
{
	off->needs_csum = (hdr->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0;
	off->csum_valid = (hdr->flags & VIRTIO_NET_HDR_F_DATA_VALID) != 0;
	if (!off->needs_csum)
		return 0;
	off->csum_start = le16toh(hdr->csum_start);
	off->csum_offset = le16toh(hdr->csum_offset);
	/* In 32 bits: the sum of what may be two guest-written u16 must not wrap. */
	return (uint32_t)off->csum_start + off->csum_offset + sizeof(uint16_t) > len ? -EPROTO : 0;
}

int offload_from_hdr(struct frame_offload *off, const struct virtio_net_hdr *hdr, uint32_t len)
{
	int rc;

	*off = (struct frame_offload){ 0 };
	rc = read_csum(off, hdr, len);
	if (rc < 0)
		return rc;
	switch (hdr->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_NONE:
		return 0;
	case VIRTIO_NET_HDR_GSO_TCPV4:
		off->gso = FRAME_GSO_TCP4;
		break;
	case VIRTIO_NET_HDR_GSO_TCPV6:
		off->gso = FRAME_GSO_TCP6;
		break;
	default:
		return -EOPNOTSUPP;
	}
	off->ecn = (hdr->gso_type & VIRTIO_NET_HDR_GSO_ECN) != 0;
	off->gso_size = le16toh(hdr->gso_size);
	off->hdr_len = (uint16_t)min_uint(le16toh(hdr->hdr_len), len); /* only a hint */
	/* Segments need a size, and their checksums. */
	return off->gso_size > 0 && off->needs_csum ? 0 : -EPROTO;
}
