/* SPDX-License-Identifier: BSD-2-Clause */
/* Virtio features that can be left out by name, offloads aside: of a device, of a driver. */
#ifndef UVHOST_WIRE_FEATURE_NAMES_H
#define UVHOST_WIRE_FEATURE_NAMES_H

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "wire/virtio_net.h"
#include "wire/virtio_ring.h"

/* For help texts, in the order of the table. */
#define FEATURE_NAMES \
	"mrg_rxbuf indirect event_idx packed in_order ring_reset version_1 status ctrl_vq"

static const struct feature_name {
	const char *name;
	uint64_t bits; /* with what makes no sense without it */
} feature_names[] = {
	{ "mrg_rxbuf", 1ULL << VIRTIO_NET_F_MRG_RXBUF },
	{ "indirect", 1ULL << VIRTIO_F_RING_INDIRECT_DESC },
	{ "event_idx", 1ULL << VIRTIO_F_RING_EVENT_IDX },
	{ "packed", 1ULL << VIRTIO_F_RING_PACKED },
	{ "in_order", 1ULL << VIRTIO_F_IN_ORDER },
	{ "ring_reset", 1ULL << VIRTIO_F_RING_RESET },
	/* 6.1: packed rings, IN_ORDER and resets are of version 1 and later. */
	{ "version_1", 1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_F_RING_PACKED |
			       1ULL << VIRTIO_F_IN_ORDER | 1ULL << VIRTIO_F_RING_RESET },
	{ "status", 1ULL << VIRTIO_NET_F_STATUS },
	{ "ctrl_vq", 1ULL << VIRTIO_NET_F_CTRL_VQ | 1ULL << VIRTIO_NET_F_CTRL_RX },
};

/* Adds the bits of "-NAME,..." to *@bits. 0, or -EINVAL. */
static inline int feature_names_add(const char *spec, uint64_t *bits)
{
	do {
		size_t len = strcspn(spec, ","), i = 0,
		       cnt = sizeof(feature_names) / sizeof(*feature_names);

		while (i < cnt && !(*spec == '-' && strlen(feature_names[i].name) == len - 1 &&
				    memcmp(feature_names[i].name, spec + 1, len - 1) == 0))
			i++;
		if (i == cnt)
			return -EINVAL;
		*bits |= feature_names[i].bits;
		spec += len;
	} while (*spec++ == ',');
	return 0;
}

#endif
