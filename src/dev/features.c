// SPDX-License-Identifier: BSD-2-Clause
/* Which virtio features a device offers, and which offloads of its port those stand for. */
#include "dev/features.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "port/offload.h"
#include "wire/virtio_net.h"
#include "wire/virtio_ring.h"

static const struct {
	const char *name;
	unsigned offload;
	unsigned feature;
} offload_table[] = {
	{ "host_csum", PORT_HOST_CSUM, VIRTIO_NET_F_CSUM },
	{ "host_tso4", PORT_HOST_TSO4, VIRTIO_NET_F_HOST_TSO4 },
	{ "host_tso6", PORT_HOST_TSO6, VIRTIO_NET_F_HOST_TSO6 },
	{ "host_ecn", PORT_HOST_ECN, VIRTIO_NET_F_HOST_ECN },
	{ "guest_csum", PORT_GUEST_CSUM, VIRTIO_NET_F_GUEST_CSUM },
	{ "guest_tso4", PORT_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO4 },
	{ "guest_tso6", PORT_GUEST_TSO6, VIRTIO_NET_F_GUEST_TSO6 },
	{ "guest_ecn", PORT_GUEST_ECN, VIRTIO_NET_F_GUEST_ECN },
};

static const struct {
	const char *name;
	unsigned offloads;
} offload_groups[] = {
	{ "csum", PORT_HOST_CSUM | PORT_GUEST_CSUM },
	{ "tso4", PORT_HOST_TSO4 | PORT_GUEST_TSO4 },
	{ "tso6", PORT_HOST_TSO6 | PORT_GUEST_TSO6 },
	{ "ecn", PORT_HOST_ECN | PORT_GUEST_ECN },
	{ "tso", PORT_HOST_TSO4 | PORT_HOST_TSO6 | PORT_HOST_ECN | PORT_GUEST_TSO4 |
			 PORT_GUEST_TSO6 | PORT_GUEST_ECN },
	{ "all", ~0U },
};

/* What works with every port. */
static const unsigned base_features[] = {
	VIRTIO_F_VERSION_1,
	VIRTIO_F_RING_INDIRECT_DESC,
	VIRTIO_F_RING_EVENT_IDX,
	VIRTIO_F_RING_PACKED,
	VIRTIO_F_IN_ORDER,
	VIRTIO_NET_F_MRG_RXBUF,
	VIRTIO_NET_F_MAC,
	VIRTIO_NET_F_STATUS,
	VIRTIO_NET_F_CTRL_VQ,
	VIRTIO_NET_F_CTRL_RX,
	/* A queue that is reset and set up again is one that the front end stops and starts (2.6.1). */
	VIRTIO_F_RING_RESET,
};

static bool same_name(const char *name, const char *s, size_t len)
{
	return strlen(name) == len && memcmp(name, s, len) == 0;
}

/* 0 for a name that there is not. */
static unsigned offloads_by_name(const char *s, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(offload_table); i++) {
		if (same_name(offload_table[i].name, s, len))
			return offload_table[i].offload;
	}
	for (size_t i = 0; i < ARRAY_SIZE(offload_groups); i++) {
		if (same_name(offload_groups[i].name, s, len))
			return offload_groups[i].offloads;
	}
	return 0;
}

int features_edit_offloads(const char *spec, unsigned *offloads, unsigned *required,
			   const char **bad, int *bad_len)
{
	while (*spec != '\0') {
		bool remove = *spec == '-';
		size_t len;
		unsigned set;

		spec += *spec == '-' || *spec == '+';
		len = strcspn(spec, ",");
		set = offloads_by_name(spec, len);
		if (set == 0) {
			*bad = spec;
			*bad_len = (int)len;
			return -EINVAL;
		}
		if (remove) {
			*offloads &= ~set;
		} else {
			*offloads |= set;
			*required |= set == ~0U ? 0 : set;
		}
		spec += len;
		spec += *spec == ',';
	}
	return 0;
}

uint64_t features_offered(unsigned offloads, bool mtu)
{
	uint64_t features = 0;

	offloads = offload_sane(offloads);
	for (size_t i = 0; i < ARRAY_SIZE(base_features); i++)
		features |= 1ULL << base_features[i];
	for (size_t i = 0; i < ARRAY_SIZE(offload_table); i++) {
		if (offloads & offload_table[i].offload)
			features |= 1ULL << offload_table[i].feature;
	}
	if (mtu)
		features |= 1ULL << VIRTIO_NET_F_MTU;
	return features;
}

unsigned features_offloads(uint64_t acked)
{
	unsigned offloads = 0;

	for (size_t i = 0; i < ARRAY_SIZE(offload_table); i++) {
		if ((acked >> offload_table[i].feature) & 1)
			offloads |= offload_table[i].offload;
	}
	return offload_sane(offloads);
}

const char *features_offload_name(unsigned offloads)
{
	for (size_t i = 0; i < ARRAY_SIZE(offload_table); i++) {
		if (offloads & offload_table[i].offload)
			return offload_table[i].name;
	}
	return "";
}
