// SPDX-License-Identifier: BSD-2-Clause
/* Frames through loop:, byte by byte: every header, every layout, every set of ring features. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "lib/daemon.h"
#include "lib/guest.h"

#define FRAME_MAX 65549 /* 65,535 bytes of IP packet behind an Ethernet header */

static void run(const struct guest_cfg *cfg, void (*fn)(struct guest *g))
{
	static struct guest g;
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_up(&g, cfg, d.path[0]);
	fn(&g);
	guest_down(&g);
	daemon_stop(&d);
}

/* Frames of sizes around everything that is a limit somewhere. */
static void all_sizes(struct guest *g)
{
	static const uint32_t sizes[] = { 14,    15,    59,    60,    61,       64,   127,   128,
					  1513,  1514,  1515,  1518,  1522,     2035, 2036,  2037,
					  2048,  4083,  4084,  4085,  4096,     9018, 16384, 32768,
					  60000, 65535, 65536, 65548, FRAME_MAX };

	for (unsigned i = 0; i < ARRAY_SIZE(sizes) && sizes[i] <= g->cfg.tx_max; i++) {
		guest_exchange(g, 1, sizes[i], 1);
		guest_exchange(g, 5, sizes[i], 5);
	}
	/* A large one does not spoil the small ones behind it (field case 23's unwinding). */
	for (unsigned i = 0; i < 40; i++)
		guest_exchange(g, 1, i % 4 == 0 ? g->cfg.tx_max : 14 + i, 4);
}

/* Field cases 105 and 113: all header bytes of all sizes, mergeable. */
static void test_sizes_mergeable(void **state)
{
	struct guest_cfg cfg = { .rx_num = 128, .tx_num = 16, .tx_max = FRAME_MAX };

	run(&cfg, all_sizes);
	cfg.layout = GUEST_SEAM;
	run(&cfg, all_sizes);
	cfg.layout = GUEST_HOLE;
	cfg.features = F_DEFAULT | F_INDIRECT | F_EVENT_IDX;
	run(&cfg, all_sizes);
}

/* Without merging each buffer has room for the largest; the header is of 12 bytes all the same. */
static void test_sizes_big(void **state)
{
	struct guest_cfg cfg = { .features = F_PROTOCOL | F_VERSION_1,
				 .rx_num = 16,
				 .tx_num = 16,
				 .rx_buf = FRAME_MAX + VIRTIO_NET_HDR_LEN,
				 .tx_max = FRAME_MAX,
				 .layout = GUEST_SEAM };

	run(&cfg, all_sizes);
}

/* Field case 104: neither VERSION_1 nor MRG_RXBUF, a header of 10 bytes; MRG_RXBUF alone, of 12. */
static void test_sizes_legacy(void **state)
{
	struct guest_cfg cfg = { .features = F_PROTOCOL,
				 .rx_num = 16,
				 .tx_num = 16,
				 .rx_buf = FRAME_MAX + VIRTIO_NET_HDR_LEN_LEGACY,
				 .tx_max = FRAME_MAX };

	run(&cfg, all_sizes);
	cfg.features = F_PROTOCOL | F_MRG;
	cfg.rx_buf = 2048;
	cfg.rx_num = 64;
	run(&cfg, all_sizes);
}

static void splits(struct guest *g)
{
	for (uint32_t a = 0; a <= g->hdr_len; a++) {
		for (uint32_t b = a; b <= g->hdr_len; b++) {
			const uint32_t cuts[] = { a, b - a, g->hdr_len - b };

			MUST(guest_send(g, 100 + a, NULL, cuts, 3));
			/* The last piece holds the rest of the header and the frame's beginning. */
			MUST(guest_send(g, 100 + b, NULL, cuts, 2));
			guest_kick(g, GUEST_TX);
			GUEST_UNTIL(g, guest_rx_done(g) && guest_tx_done(g));
		}
	}
}

/* Field cases 6, 108 and 111: the header in every way of three pieces, also empty ones. */
static void test_header_splits(void **state)
{
	struct guest_cfg cfg = { 0 };

	run(&cfg, splits);
	cfg.features = F_DEFAULT | F_INDIRECT;
	run(&cfg, splits);
	cfg.features = F_PROTOCOL;
	run(&cfg, splits);
}

static void frame_cuts(struct guest *g)
{
	uint32_t len = 1500 + g->hdr_len;

	for (uint32_t at = 1; at < len; at += test_sanitized() ? 37 : 1) {
		uint32_t cuts[5] = { at };

		MUST(guest_send(g, 1500, NULL, cuts, 1));
		for (unsigned i = 0; i < ARRAY_SIZE(cuts); i++)
			cuts[i] = test_random() % (len / 5);
		MUST(guest_send(g, 1500, NULL, cuts, ARRAY_SIZE(cuts)));
		if (at % 8 != 0)
			continue;
		guest_kick(g, GUEST_TX);
		GUEST_UNTIL(g, guest_rx_done(g) && guest_tx_done(g));
	}
	guest_kick(g, GUEST_TX);
	GUEST_UNTIL(g, guest_rx_done(g) && guest_tx_done(g));
}

/* Field case 23: a frame cut at every one of its bytes, and at random into six. */
static void test_frame_cuts(void **state)
{
	struct guest_cfg cfg = { .layout = GUEST_SEAM };

	run(&cfg, frame_cuts);
	cfg.features = F_DEFAULT | F_INDIRECT | F_EVENT_IDX | F_IN_ORDER;
	run(&cfg, frame_cuts);
}

static void tiny_pieces(struct guest *g)
{
	uint32_t cuts[1024];

	for (unsigned i = 0; i < ARRAY_SIZE(cuts); i++)
		cuts[i] = 1;
	MUST(guest_send(g, 1023 - g->hdr_len, NULL, cuts, 1023));
	guest_kick(g, GUEST_TX);
	GUEST_UNTIL(g, guest_rx_done(g) && guest_tx_done(g));
	for (unsigned i = 0; i < ARRAY_SIZE(cuts); i++)
		cuts[i] = 64;
	cuts[0] = g->hdr_len;
	MUST(guest_send(g, 1023 * 64, NULL, cuts, 1024));
	guest_kick(g, GUEST_TX);
	GUEST_UNTIL(g, guest_rx_done(g) && guest_tx_done(g));
}

/* Field case 21: a frame in 1,024 pieces, of a byte and of 64 bytes. */
static void test_tiny_pieces(void **state)
{
	struct guest_cfg cfg = { .tx_num = 1024, .tx_max = 65535, .rx_num = 64 };

	run(&cfg, tiny_pieces);
	cfg.rx_buf = 100;
	cfg.rx_num = 1024;
	run(&cfg, tiny_pieces);
}

static void rx_layouts(struct guest *g)
{
	static const uint32_t layouts[][4] = {
		{ 12, 1514 },      { 10, 2, 1514 },  { 1526 },     { 1, 11, 1, 1513 },
		{ 4, 4, 4, 1514 }, { 12, 700, 814 }, { 13, 1513 }, { 11, 1, 1514 },
	};

	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(layouts); i++) {
			unsigned cnt = 0;

			while (cnt < 4 && layouts[i][cnt] > 0)
				cnt++;
			MUST(guest_post(g, layouts[i], cnt));
		}
		guest_kick(g, GUEST_RX);
		guest_exchange(g, ARRAY_SIZE(layouts), round % 2 == 0 ? 1514 : 60 + round, 8);
		EQ(check_out(&g->rings[GUEST_RX].chk), 0);
	}
}

/* Field case 108: receive buffers in any pieces, also the header's own. */
static void test_rx_layouts(void **state)
{
	static const uint64_t extra[] = { 0, F_INDIRECT, F_IN_ORDER, F_INDIRECT | F_EVENT_IDX };

	for (unsigned i = 0; i < ARRAY_SIZE(extra); i++) {
		struct guest_cfg cfg = { .features = F_PROTOCOL | F_VERSION_1 | extra[i],
					 .layout = GUEST_SEAM,
					 .no_refill = true };

		run(&cfg, rx_layouts);
		cfg.features |= F_MRG;
		run(&cfg, rx_layouts);
	}
}

static void merge_odd(struct guest *g)
{
	guest_exchange(g, 20, g->cfg.tx_max, 2);
	guest_exchange(g, 20, 14, 4);
	MUST(g->merged > 0);
}

/* Merging over buffers that are smaller than the header, and over a header's rest. */
static void test_merge_small(void **state)
{
	static const uint32_t bufs[] = { 12, 13, 20, 100, 1000 };

	for (unsigned i = 0; i < ARRAY_SIZE(bufs); i++) {
		struct guest_cfg cfg = { .rx_buf = bufs[i], .rx_num = 256, .tx_max = 1514 };

		run(&cfg, merge_odd);
	}
}

static void several(struct guest *g)
{
	unsigned num = g->cfg.tx_num < g->cfg.rx_num ? g->cfg.tx_num : g->cfg.rx_num;

	guest_exchange(g, 3 * num + 5, 60, num);
	guest_exchange(g, 2 * num + 1, 1514, num);
}

/* Every set of ring features, at every size. */
static void test_ring_features(void **state)
{
	static const uint16_t sizes[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024 };

	for (unsigned set = 0; set < 8; set++) {
		for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct guest_cfg cfg = { .features = F_DEFAULT, .layout = set % 3 };

			/* A quarter of the sizes each time, all of them over the sets. */
			if ((i + set) % 4 != 0 && test_sanitized())
				continue;
			cfg.features |= set & 1 ? F_INDIRECT : 0;
			cfg.features |= set & 2 ? F_EVENT_IDX : 0;
			cfg.features |= set & 4 ? F_IN_ORDER : 0;
			cfg.tx_num = cfg.rx_num = sizes[i];
			run(&cfg, several);
		}
	}
}

/* More than one descriptor each, so that heads and indexes part; both indexes wrap. */
static void long_run(struct guest *g)
{
	uint32_t cuts[] = { g->hdr_len, 20 };
	unsigned cnt = test_sanitized() ? 70000 : 200000, sent = 0;

	while (sent < cnt) {
		for (unsigned i = 0; i < 32 && sent < cnt; i++) {
			if (g->sent_idx - g->rcvd_idx >= 128)
				break;
			if (!guest_send(g, 60 + sent % 64, NULL, cuts, 1 + sent % 2))
				break;
			sent++;
		}
		guest_kick(g, GUEST_TX);
		if (g->sent_idx - g->rcvd_idx >= 96)
			MUST(guest_pump(g, test_patience_ms()));
		else
			guest_reap(g);
	}
	GUEST_UNTIL(g, guest_rx_done(g) && guest_tx_done(g));
}

/* Field case 94: past 65,536 on both rings, kicked and called by the rules only. */
static void test_long(void **state)
{
	static const uint64_t extra[] = { 0, F_EVENT_IDX, F_EVENT_IDX | F_INDIRECT | F_IN_ORDER };

	for (unsigned i = 0; i < ARRAY_SIZE(extra); i++) {
		struct guest_cfg cfg = { .features = F_DEFAULT | extra[i] };

		run(&cfg, long_run);
	}
}

static struct virtio_net_hdr header(uint8_t flags, uint8_t gso, uint16_t size)
{
	return (struct virtio_net_hdr){ .flags = flags,
					.gso_type = gso,
					.hdr_len = gso != 0 ? 54 : 0,
					.gso_size = size,
					.csum_start = flags & 1 ? 34 : 0,
					.csum_offset = flags & 1 ? 16 : 0 };
}

static void offload_trip(struct guest *g)
{
	const struct virtio_net_hdr hdrs[] = {
		header(0, 0, 0),
		header(VIRTIO_NET_HDR_F_NEEDS_CSUM, 0, 0),
		header(VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV4, 1448),
		header(VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_TCPV6, 1),
		header(VIRTIO_NET_HDR_F_NEEDS_CSUM,
		       VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN, 65000),
		header(VIRTIO_NET_HDR_F_NEEDS_CSUM,
		       VIRTIO_NET_HDR_GSO_TCPV6 | VIRTIO_NET_HDR_GSO_ECN, 1440),
	};

	for (unsigned i = 0; i < 5 * ARRAY_SIZE(hdrs); i++) {
		const struct virtio_net_hdr *h = &hdrs[i % ARRAY_SIZE(hdrs)];

		MUST(guest_send(g, i % 2 == 0 ? 60 + i : 30000 + i, h, &g->hdr_len, 1));
		guest_kick(g, GUEST_TX);
		if (i % 3 == 0)
			GUEST_UNTIL(g, guest_rx_done(g) && guest_tx_done(g));
	}
	GUEST_UNTIL(g, guest_rx_done(g) && guest_tx_done(g));
}

/* Field cases 122 and 120: what is asked for a frame goes with it, and with no other. */
static void test_offloads(void **state)
{
	struct guest_cfg cfg = {
		.features = F_DEFAULT | F_OFFLOADS, .rx_num = 128, .tx_num = 64, .tx_max = 31000
	};

	run(&cfg, offload_trip);
	cfg.features = F_PROTOCOL | F_OFFLOADS;
	cfg.rx_buf = 65600;
	cfg.rx_num = 16;
	run(&cfg, offload_trip);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_sizes_mergeable), TEST(test_sizes_big),
		TEST(test_sizes_legacy),    TEST(test_header_splits),
		TEST(test_frame_cuts),      TEST(test_tiny_pieces),
		TEST(test_rx_layouts),      TEST(test_merge_small),
		TEST(test_ring_features),   TEST(test_long),
		TEST(test_offloads),
	};

	return TEST_BOTH(tests);
}
