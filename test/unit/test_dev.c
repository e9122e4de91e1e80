// SPDX-License-Identifier: BSD-2-Clause
/* Small parts of a device: offload names and features, MAC addresses. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "dev/features.h"
#include "dev/mac.h"
#include "port/port.h"
#include "wire/virtio_ring.h"

#define ALL_OFFLOADS 0xffu

static unsigned edit(const char *spec, unsigned offloads)
{
	unsigned required = 0;
	const char *bad;
	int len;

	assert_int_equal(features_edit_offloads(spec, &offloads, &required, &bad, &len), 0);
	return offloads;
}

static void test_edit(void **state)
{
	const unsigned tso_bits = PORT_HOST_TSO4 | PORT_HOST_TSO6 | PORT_HOST_ECN |
				  PORT_GUEST_TSO4 | PORT_GUEST_TSO6 | PORT_GUEST_ECN;
	unsigned offloads = 0, required = 0;
	const char *bad;
	int len;

	assert_int_equal(edit("", ALL_OFFLOADS), ALL_OFFLOADS);
	assert_int_equal(edit("-all", ALL_OFFLOADS), 0);
	assert_int_equal(edit("-tso", ALL_OFFLOADS), ALL_OFFLOADS & ~tso_bits);
	assert_int_equal(edit("-all,+host_csum,guest_csum", ALL_OFFLOADS) & ALL_OFFLOADS,
			 PORT_HOST_CSUM | PORT_GUEST_CSUM);
	assert_int_equal(features_edit_offloads("host_tso4", &offloads, &required, &bad, &len), 0);
	assert_int_equal(required, PORT_HOST_TSO4);
	assert_int_equal(features_edit_offloads("csum,-tsox", &offloads, &required, &bad, &len),
			 -EINVAL);
	assert_int_equal(len, 4);
	assert_memory_equal(bad, "tsox", 4);
	assert_int_equal(features_edit_offloads("-", &offloads, &required, &bad, &len), -EINVAL);
}

/* What is offered and acked comes back as the same offloads; nothing without what it builds on. */
static void test_features(void **state)
{
	for (unsigned o = 0; o <= ALL_OFFLOADS; o++) {
		uint64_t features = features_offered(o, false);
		unsigned back = features_offloads(features);

		assert_int_equal(back & ~o, 0);
		if ((o & PORT_GUEST_CSUM) == 0)
			assert_int_equal(
				back & (PORT_GUEST_TSO4 | PORT_GUEST_TSO6 | PORT_GUEST_ECN), 0);
		if ((o & PORT_HOST_CSUM) == 0)
			assert_int_equal(back & (PORT_HOST_TSO4 | PORT_HOST_TSO6 | PORT_HOST_ECN),
					 0);
		assert_int_equal(features_offered(back, false), features);
		assert_true(features >> VIRTIO_F_VERSION_1 & 1);
		assert_true(features >> VIRTIO_NET_F_CTRL_VQ & 1);
	}
	assert_int_equal(features_offloads(features_offered(ALL_OFFLOADS, true)), ALL_OFFLOADS);
	assert_true(features_offered(0, true) >> VIRTIO_NET_F_MTU & 1);
	assert_false(features_offered(0, false) >> VIRTIO_NET_F_MTU & 1);
}

static void test_mac(void **state)
{
	static const uint8_t want[] = { 0x52, 0x54, 0x00, 0x12, 0x34, 0x56 };
	static const char *const wrong[] = { "",
					     "52:54:00:12:34",
					     "52:54:00:12:34:56:78",
					     "52:54:00:12:34:5x",
					     "53:54:00:12:34:56",
					     "00:00:00:00:00:00",
					     "52-54-00-12-34-56" };
	uint8_t a[VIRTIO_NET_MAC_LEN], b[VIRTIO_NET_MAC_LEN];

	assert_true(mac_parse(a, "52:54:00:12:34:56"));
	assert_memory_equal(a, want, sizeof(want));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_false(mac_parse(a, wrong[i]));

	mac_for_name(a, "/run/vm1.sock");
	mac_for_name(b, "/run/vm1.sock");
	assert_memory_equal(a, b, sizeof(a));
	mac_for_name(b, "/run/vm2.sock");
	assert_memory_not_equal(a, b, sizeof(a));
	assert_int_equal(a[0] & 3, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_edit),
		cmocka_unit_test(test_features),
		cmocka_unit_test(test_mac),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
