// SPDX-License-Identifier: BSD-2-Clause
/* The virtio-net header: what is accepted, what is refused, and that the way back is the same. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "net/hdr.h"
#include "port/offload.h"
#include "wire/virtio_ring.h"

#define ALL_OFFLOADS 0xffu
#define FRAME_LEN    200

/* Decodes @h in front of a frame of FRAME_LEN bytes. */
static enum net_drop decode(const struct virtio_net_hdr *h, unsigned offloads,
			    struct frame_offload *off)
{
	static unsigned char data[FRAME_LEN];
	struct virtio_net_hdr copy = *h;
	struct iovec iov[3] = { { 0 }, { &copy, sizeof(copy) }, { data, sizeof(data) } };
	struct frame f = { .iov = iov + 1, .iov_cnt = 2, .len = sizeof(copy) + sizeof(data) };
	enum net_drop drop = hdr_decode(&f, VIRTIO_NET_HDR_LEN, offloads);

	if (drop == DROP_NONE) {
		assert_int_equal(f.len, FRAME_LEN);
		assert_int_equal(f.iov_cnt, 1);
		assert_ptr_equal(f.iov->iov_base, data);
	}
	*off = f.off;
	return drop;
}

static struct virtio_net_hdr tso(void)
{
	return (struct virtio_net_hdr){ .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
					.gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
					.hdr_len = htole16(54),
					.gso_size = htole16(100),
					.csum_start = htole16(34),
					.csum_offset = htole16(16) };
}

static void test_length(void **state)
{
	assert_int_equal(hdr_len(0), 10);
	assert_int_equal(hdr_len(1ULL << VIRTIO_F_VERSION_1), 12);
	assert_int_equal(hdr_len(1ULL << VIRTIO_NET_F_MRG_RXBUF), 12);
}

static void test_plain_frame(void **state)
{
	struct virtio_net_hdr h = { .flags = 0x80, .num_buffers = 0xffff };
	struct frame_offload off;

	assert_int_equal(decode(&h, 0, &off), DROP_NONE);
	assert_false(off.needs_csum);
	assert_int_equal(off.gso, FRAME_GSO_NONE);
}

static void test_tso(void **state)
{
	struct virtio_net_hdr h = tso();
	struct frame_offload off;

	assert_int_equal(decode(&h, ALL_OFFLOADS, &off), DROP_NONE);
	assert_true(off.needs_csum);
	assert_int_equal(off.gso, FRAME_GSO_TCP4);
	assert_int_equal(off.gso_size, 100);
	assert_int_equal(off.hdr_len, 54);
	assert_int_equal(off.csum_start, 34);
	assert_int_equal(off.csum_offset, 16);

	/* hdr_len is a hint and is cut to the frame. */
	h.hdr_len = htole16(60000);
	assert_int_equal(decode(&h, ALL_OFFLOADS, &off), DROP_NONE);
	assert_int_equal(off.hdr_len, FRAME_LEN);
}

static void test_not_negotiated(void **state)
{
	struct virtio_net_hdr h = tso();
	struct frame_offload off;

	assert_int_equal(decode(&h, 0, &off), DROP_NOT_NEGOTIATED);
	assert_int_equal(decode(&h, PORT_HOST_CSUM, &off), DROP_NOT_NEGOTIATED);
	assert_int_equal(decode(&h, PORT_HOST_CSUM | PORT_HOST_TSO6, &off), DROP_NOT_NEGOTIATED);
	assert_int_equal(decode(&h, PORT_HOST_CSUM | PORT_HOST_TSO4, &off), DROP_NONE);
	h.gso_type |= VIRTIO_NET_HDR_GSO_ECN;
	assert_int_equal(decode(&h, PORT_HOST_CSUM | PORT_HOST_TSO4, &off), DROP_NOT_NEGOTIATED);
	assert_int_equal(decode(&h, ALL_OFFLOADS, &off), DROP_NONE);
	assert_true(off.ecn);
	h.gso_type = 3; /* UDP fragmentation: never offered */
	assert_int_equal(decode(&h, ALL_OFFLOADS, &off), DROP_NOT_NEGOTIATED);
}

/* Field cases 8 and 19: fields that contradict the frame. */
static void test_contradictions(void **state)
{
	static const struct {
		uint16_t start, offset;
		enum net_drop drop;
	} csums[] = {
		{ 0, 0, DROP_NONE },
		{ FRAME_LEN - 2, 0, DROP_NONE },
		{ FRAME_LEN - 18, 16, DROP_NONE },
		{ FRAME_LEN - 1, 0, DROP_BAD_HEADER },
		{ FRAME_LEN, 0, DROP_BAD_HEADER },
		{ 60000, 16, DROP_BAD_HEADER },
		{ 65535, 65535, DROP_BAD_HEADER },
		{ 0, 65535, DROP_BAD_HEADER },
	};
	struct virtio_net_hdr h = tso();
	struct frame_offload off;

	for (size_t i = 0; i < sizeof(csums) / sizeof(csums[0]); i++) {
		h.csum_start = htole16(csums[i].start);
		h.csum_offset = htole16(csums[i].offset);
		assert_int_equal(decode(&h, ALL_OFFLOADS, &off), csums[i].drop);
	}
	h = tso();
	h.gso_size = 0;
	assert_int_equal(decode(&h, ALL_OFFLOADS, &off), DROP_BAD_HEADER);
	h = tso();
	h.flags = 0;
	assert_int_equal(decode(&h, ALL_OFFLOADS, &off), DROP_BAD_HEADER);
}

/* Field case 6: chains of few bytes; the header in three pieces, cut anywhere. */
static void test_short_and_split(void **state)
{
	unsigned char buf[VIRTIO_NET_HDR_LEN + FRAME_LEN];
	struct virtio_net_hdr h = tso();

	for (unsigned len = 0; len <= sizeof(buf); len++) {
		struct iovec iov[2] = { { 0 }, { buf, len } };
		struct frame f = { .iov = iov + 1, .iov_cnt = len > 0, .len = len };
		enum net_drop drop;

		memset(buf, 0, sizeof(buf));
		drop = hdr_decode(&f, VIRTIO_NET_HDR_LEN, 0);
		assert_int_equal(drop, len < VIRTIO_NET_HDR_LEN + 14 ? DROP_BAD_HEADER : DROP_NONE);
	}
	memcpy(buf, &h, sizeof(h));
	for (unsigned a = 0; a <= VIRTIO_NET_HDR_LEN; a++) {
		for (unsigned b = a; b <= VIRTIO_NET_HDR_LEN; b++) {
			struct iovec iov[4] = {
				{ 0 }, { buf, a }, { buf + a, b - a }, { buf + b, sizeof(buf) - b }
			};
			struct frame f = { .iov = iov + 1, .iov_cnt = 3, .len = sizeof(buf) };

			assert_int_equal(hdr_decode(&f, VIRTIO_NET_HDR_LEN, ALL_OFFLOADS),
					 DROP_NONE);
			assert_int_equal(f.off.gso_size, 100);
			assert_ptr_equal(f.iov->iov_base, buf + VIRTIO_NET_HDR_LEN);
			assert_int_equal(f.iov->iov_len, FRAME_LEN);
		}
	}
}

static void test_too_big(void **state)
{
	static unsigned char buf[VIRTIO_NET_HDR_LEN + VIRTIO_NET_FRAME_MAX + 1];

	for (unsigned over = 0; over < 2; over++) {
		struct iovec iov[2] = { { 0 }, { buf, sizeof(buf) - 1 + over } };
		struct frame f = { .iov = iov + 1, .iov_cnt = 1, .len = (uint32_t)iov[1].iov_len };

		assert_int_equal(hdr_decode(&f, VIRTIO_NET_HDR_LEN, 0),
				 over ? DROP_TOO_BIG : DROP_NONE);
	}
}

/* What is encoded for the guest is what a decoder finds. */
static void test_encode(void **state)
{
	struct virtio_net_hdr in = tso(), out;
	struct frame_offload off;

	assert_int_equal(decode(&in, ALL_OFFLOADS, &off), DROP_NONE);
	hdr_encode(&out, &off, 3);
	in.num_buffers = htole16(3);
	assert_memory_equal(&in, &out, sizeof(in));

	hdr_encode(&out, &(struct frame_offload){ .csum_valid = true }, 1);
	assert_int_equal(out.flags, VIRTIO_NET_HDR_F_DATA_VALID);
	assert_int_equal(le16toh(out.num_buffers), 1);
}

static void test_needs(void **state)
{
	struct frame_offload off = { 0 };

	assert_int_equal(offload_needs_guest(&off), 0);
	off.csum_valid = true;
	assert_int_equal(offload_needs_guest(&off), 0);
	off.needs_csum = true;
	assert_int_equal(offload_needs_guest(&off), PORT_GUEST_CSUM);
	off.gso = FRAME_GSO_TCP6;
	off.ecn = true;
	assert_int_equal(offload_needs_guest(&off),
			 PORT_GUEST_CSUM | PORT_GUEST_TSO6 | PORT_GUEST_ECN);
	assert_int_equal(offload_needs_host(&off), PORT_HOST_CSUM | PORT_HOST_TSO6 | PORT_HOST_ECN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_length),
		cmocka_unit_test(test_plain_frame),
		cmocka_unit_test(test_tso),
		cmocka_unit_test(test_not_negotiated),
		cmocka_unit_test(test_contradictions),
		cmocka_unit_test(test_short_and_split),
		cmocka_unit_test(test_too_big),
		cmocka_unit_test(test_encode),
		cmocka_unit_test(test_needs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
