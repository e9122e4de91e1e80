// SPDX-License-Identifier: BSD-2-Clause
/*
 * Guests that break the rules (field cases of sections A, G and H), while another guest of the same
 * process exchanges frames and loses nothing.
 */
#include <endian.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "port/net_ns.h"
#include "lib/neighbour.h"
#include "raw.h"

#define NEXT     VRING_DESC_F_NEXT
#define WRITE    VRING_DESC_F_WRITE
#define INDIRECT VRING_DESC_F_INDIRECT
#define NOWHERE  0x10000ULL

static struct guest g;
static struct neighbour *nb;
static struct daemon d;

static void open_both(const char *port, const struct guest_cfg *cfg)
{
	DAEMON_START(&d, port, "loop:");
	nb = neighbour_start(d.path[1]);
	guest_up(&g, cfg, d.path[0]);
}

static void close_both(void)
{
	guest_free(&g);
	/* The device is as good as new. */
	guest_up(&g, NULL, d.path[0]);
	g.on_frame = guest_ignore_frame;
	guest_flood(&g, 100, 100);
	GUEST_UNTIL(&g, guest_tx_done(&g));
	guest_down(&g);
	MUST(neighbour_stop(nb) > 0);
	MUST(daemon_log_lines(&d, "") < 40); /* field case 178 */
	daemon_stop(&d);
}

/* ---- chains ---- */

/* A chain in descriptors 0 to 3, and what an indirect table at @table holds. GOOD stands for the
 * address of a good buffer, TABLE for that of the table, END for the end of memory, CROSS for a place
 * shortly before it. */
#define GOOD  1
#define TABLE 2
#define END   3
#define CROSS 4

struct bad_chain {
	const char *what;
	struct raw_desc desc[4];
	struct raw_desc table[3];
};

static const struct bad_chain tx_chains[] = {
	{ "1: a loop of one empty descriptor", { { GOOD, 0, NEXT, 0 } }, { { 0 } } },
	{ "1: a loop of two", { { GOOD, 0, NEXT, 1 }, { GOOD, 0, NEXT, 0 } }, { { 0 } } },
	{ "1: a loop with bytes", { { GOOD, 60, NEXT, 1 }, { GOOD, 60, NEXT, 1 } }, { { 0 } } },
	{ "3: a table's next behind it",
	  { { TABLE, 32, INDIRECT, 0 } },
	  { { GOOD, 40, NEXT, 7 }, { GOOD, 40, 0, 0 } } },
	{ "3: a table in a table", { { TABLE, 32, INDIRECT, 0 } }, { { TABLE, 32, INDIRECT, 0 } } },
	{ "3: a table of 8 bytes", { { TABLE, 8, INDIRECT, 0 } }, { { GOOD, 100, 0, 0 } } },
	{ "3: a table of 0 bytes", { { TABLE, 0, INDIRECT, 0 } }, { { GOOD, 100, 0, 0 } } },
	{ "3: a table of 24 bytes", { { TABLE, 24, INDIRECT, 0 } }, { { GOOD, 100, 0, 0 } } },
	{ "3: a table and a next",
	  { { TABLE, 32, INDIRECT | NEXT, 1 }, { GOOD, 60, 0, 0 } },
	  { { GOOD, 100, 0, 0 } } },
	{ "3: a table that loops",
	  { { TABLE, 32, INDIRECT, 0 } },
	  { { GOOD, 10, NEXT, 1 }, { GOOD, 10, NEXT, 0 } } },
	{ "4: a table outside memory", { { NOWHERE, 32, INDIRECT, 0 } }, { { 0 } } },
	{ "4: a buffer beyond the end", { { CROSS, 100, 0, 0 } }, { { 0 } } },
	{ "13: address nowhere", { { NOWHERE, 100, 0, 0 } }, { { 0 } } },
	{ "13: second buffer nowhere",
	  { { GOOD, 30, NEXT, 1 }, { NOWHERE, 100, 0, 0 } },
	  { { 0 } } },
	{ "14: address 0", { { 0, 100, 0, 0 } }, { { 0 } } },
	{ "14: address all ones", { { ~0ULL, 100, 0, 0 } }, { { 0 } } },
	{ "14: address at the end", { { END, 100, 0, 0 } }, { { 0 } } },
	{ "10: a buffer to write", { { GOOD, 100, WRITE, 0 } }, { { 0 } } },
	{ "10: one to write behind", { { GOOD, 100, NEXT, 1 }, { GOOD, 9, WRITE, 0 } }, { { 0 } } },
	{ "10: to read behind to write",
	  { { GOOD, 9, WRITE | NEXT, 1 }, { GOOD, 99, 0, 0 } },
	  { { 0 } } },
	{ "20: next is none", { { GOOD, 50, NEXT, 0xffff } }, { { 0 } } },
	{ "22: lengths over 32 bits",
	  { { GOOD, 0xffffffff, NEXT, 1 }, { GOOD, 0xffffffff, 0, 0 } },
	  { { 0 } } },
	{ "7: no bytes", { { GOOD, 0, 0, 0 } }, { { 0 } } },
	{ "7: a header only", { { GOOD, 12, 0, 0 } }, { { 0 } } },
	{ "6: a byte", { { GOOD, 1, 0, 0 } }, { { 0 } } },
	{ "6: no whole Ethernet header", { { GOOD, 25, 0, 0 } }, { { 0 } } },
};

static const struct bad_chain rx_chains[] = {
	{ "1: a loop of one empty descriptor", { { GOOD, 0, NEXT | WRITE, 0 } }, { { 0 } } },
	{ "1: a loop of two",
	  { { GOOD, 0, NEXT | WRITE, 1 }, { GOOD, 0, NEXT | WRITE, 0 } },
	  { { 0 } } },
	{ "3: a table's next behind it",
	  { { TABLE, 16, INDIRECT, 0 } },
	  { { GOOD, 2000, NEXT | WRITE, 9 } } },
	{ "4: beyond the end", { { CROSS, 2000, WRITE, 0 } }, { { 0 } } },
	{ "14: nowhere", { { NOWHERE, 2000, WRITE, 0 } }, { { 0 } } },
	{ "14: all ones", { { ~0ULL - 99, 2000, WRITE, 0 } }, { { 0 } } },
	{ "10: a buffer to read", { { GOOD, 2000, 0, 0 } }, { { 0 } } },
	{ "10: to read behind to write",
	  { { GOOD, 50, WRITE | NEXT, 1 }, { GOOD, 2000, 0, 0 } },
	  { { 0 } } },
	{ "7: no bytes", { { GOOD, 0, WRITE, 0 } }, { { 0 } } },
	{ "22: lengths over 32 bits",
	  { { GOOD, 0xffffffff, NEXT | WRITE, 1 }, { GOOD, 0xffffffff, WRITE, 0 } },
	  { { 0 } } },
};

static uint64_t place(uint64_t addr, uint64_t buf)
{
	switch (addr) {
	case GOOD:
		return buf;
	case TABLE:
		return buf + 8192;
	case CROSS:
		return GUEST_GPA + g.window_len - 50;
	case END:
		return GUEST_GPA + g.window_len;
	default:
		return addr;
	}
}

static void lay_chain(struct guest_ring *r, uint64_t buf, const struct bad_chain *c)
{
	struct vring_desc *table = guest_at(&g, buf + 8192);

	for (unsigned i = 0; i < ARRAY_SIZE(c->desc); i++) {
		struct raw_desc desc = c->desc[i];

		desc.addr = place(desc.addr, buf);
		raw_desc(&r->q.split.desc[i], &desc);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(c->table); i++) {
		struct raw_desc desc = c->table[i];

		desc.addr = place(desc.addr, buf);
		raw_desc(&table[i], &desc);
	}
}

static long long drops(const char *queue)
{
	static const char *const reasons[] = { "bad_chain", "bad_header", "too_big",
					       "not_negotiated", "port_error" };
	long long sum = 0;
	char key[64];

	for (unsigned i = 0; i < ARRAY_SIZE(reasons); i++) {
		snprintf(key, sizeof(key), "%s.drops.%s", queue, reasons[i]);
		sum += daemon_count(&d, 0, key);
	}
	return sum;
}

static void bad_tx_chains(const char *port)
{
	struct guest_cfg cfg = { .features = F_DEFAULT | F_INDIRECT };
	struct guest_ring *r = &g.rings[GUEST_TX];
	long long sum = 0;
	uint64_t buf;

	open_both(port, &cfg);
	buf = guest_alloc(&g, 16384, 4096);
	for (unsigned i = 0; i < ARRAY_SIZE(tx_chains); i++) {
		print_message("%s\n", tx_chains[i].what);
		lay_chain(r, buf, &tx_chains[i]);
		/* Field case 9: ten rings full; each head comes back, with length 0. */
		for (unsigned j = 0; j < (test_sanitized() ? 2 : 10); j++) {
			raw_avail(r, 0, r->num);
			raw_wait(r);
			sum += r->num;
		}
		EQ(drops("tx"), sum);
		/* And 1,000 good ones. */
		lay_chain(r, buf, &(struct bad_chain){ .desc = { { GOOD, 100, 0, 0 } } });
		for (unsigned j = 0; j < 4; j++) {
			raw_avail(r, 0, 250);
			raw_wait(r);
		}
	}
	EQ(daemon_count(&d, 0, "tx.frames"), 1000 * ARRAY_SIZE(tx_chains));
	close_both();
}

static void test_tx_chains(void **state)
{
	bad_tx_chains("null:");
}

/* Field case 3: without the feature a table is none, however good. */
static void test_indirect_not_acked(void **state)
{
	static const struct bad_chain c = { "",
					    { { TABLE, 16, INDIRECT, 0 } },
					    { { GOOD, 100, 0, 0 } } };
	struct guest_ring *r = &g.rings[GUEST_TX];

	open_both("null:", NULL);
	lay_chain(r, guest_alloc(&g, 16384, 4096), &c);
	raw_avail(r, 0, 200);
	raw_wait(r);
	EQ(daemon_count(&d, 0, "tx.drops.bad_chain"), 200);
	close_both();
}

/* Bad receive buffers in front of good ones: each is returned, the frame gets the good one. */
static void rx_chains_with(uint64_t features)
{
	struct guest_cfg cfg = { .features = features, .no_refill = true };
	struct guest_ring *rx = &g.rings[GUEST_RX];
	long long sum = 0;
	uint64_t buf;

	open_both("loop:", &cfg);
	rx->by_hand = true;
	buf = guest_alloc(&g, 16384, 4096);
	for (unsigned i = 0; i < ARRAY_SIZE(rx_chains); i++) {
		const struct raw_desc good = { buf, 2048, WRITE, 0 };

		lay_chain(rx, buf, &rx_chains[i]);
		raw_desc(&rx->q.split.desc[10], &good);
		for (unsigned j = 0; j < 30; j++) {
			raw_avail(rx, 0, 3);
			raw_avail(rx, 10, 1);
			sum += 3;
			guest_flood(&g, 1, 500);
			raw_wait(rx);
			GUEST_UNTIL(&g, guest_tx_done(&g));
		}
		EQ(daemon_count(&d, 0, "rx.drops.bad_chain"), sum);
		EQ(daemon_count(&d, 0, "rx.frames"), 30 * (i + 1));
	}
	close_both();
}

static void test_rx_chains(void **state)
{
	rx_chains_with(F_DEFAULT | F_INDIRECT);
	rx_chains_with(F_PROTOCOL | F_VERSION_1 | F_INDIRECT);
}

/* Field case 8: receive buffers of 6 bytes, without merging: too small for any frame. */
static void test_rx_tiny(void **state)
{
	struct guest_cfg cfg = { .features = F_PROTOCOL | F_VERSION_1, .rx_buf = 6 };

	open_both("loop:", &cfg);
	guest_flood(&g, 100, 100);
	GUEST_UNTIL(&g, guest_tx_done(&g));
	daemon_count_wait(&d, 0, "rx.drops.too_big", 100);
	EQ(check_used(&g.rings[GUEST_RX].chk), 0);
	close_both();
}

/* ---- headers ---- */

static void header_case(const struct virtio_net_hdr *hdr, const char *reason)
{
	uint8_t bytes[112] = { 0 };
	char key[64];
	long long before;

	snprintf(key, sizeof(key), reason != NULL ? "tx.drops.%s" : "tx.frames", reason);
	before = daemon_count(&d, 0, key);
	memcpy(bytes, hdr, sizeof(*hdr));
	for (unsigned i = 0; i < 100; i++)
		MUST(guest_send_raw(&g, bytes, sizeof(bytes), &g.hdr_len, i % 2));
	guest_kick(&g, GUEST_TX);
	GUEST_UNTIL(&g, guest_tx_done(&g));
	EQ(daemon_count(&d, 0, key), before + 100);
}

/* Field cases 8 and 19: headers that contradict themselves or the frame. */
static void test_headers(void **state)
{
	static const struct {
		struct virtio_net_hdr hdr;
		const char *reason;
	} cases[] = {
		{ { .flags = 1, .csum_start = 34, .csum_offset = 16 }, NULL },
		{ { .flags = 1, .csum_start = 100 }, "bad_header" },
		{ { .flags = 1, .csum_start = 99 }, "bad_header" },
		{ { .flags = 1, .csum_start = 98 }, NULL },
		{ { .flags = 1, .csum_start = 60000 }, "bad_header" },
		{ { .flags = 1, .csum_start = 65535, .csum_offset = 65535 }, "bad_header" },
		{ { .flags = 1, .csum_start = 34, .csum_offset = 65535 - 33 }, "bad_header" },
		{ { .gso_type = 1, .gso_size = 100, .hdr_len = 54 }, "bad_header" },
		{ { .flags = 1, .gso_type = 1, .csum_start = 34, .csum_offset = 16 },
		  "bad_header" },
		{ { .flags = 1, .gso_type = 4, .gso_size = 1, .csum_start = 34 }, NULL },
		{ { .flags = 1, .gso_type = 2, .gso_size = 9, .csum_start = 34 },
		  "not_negotiated" },
		{ { .flags = 1, .gso_type = 3, .gso_size = 9, .csum_start = 34 },
		  "not_negotiated" },
		{ { .flags = 1, .gso_type = 5, .gso_size = 9, .csum_start = 34 },
		  "not_negotiated" },
		{ { .flags = 1, .gso_type = 0x7f, .gso_size = 9, .csum_start = 34 },
		  "not_negotiated" },
		{ { .flags = 1, .gso_type = 1, .gso_size = 9, .hdr_len = 65535, .csum_start = 34 },
		  NULL },
		{ { .flags = 0x80 }, NULL },
		{ { .flags = 0xfe }, NULL },
		{ { .csum_start = 60000, .csum_offset = 60000, .num_buffers = 77 }, NULL },
	};
	struct guest_cfg cfg = { .features = F_DEFAULT | F_OFFLOADS };

	open_both("null:", &cfg);
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct virtio_net_hdr hdr = cases[i].hdr;

		hdr.csum_start = htole16(hdr.csum_start);
		hdr.csum_offset = htole16(hdr.csum_offset);
		hdr.gso_size = htole16(hdr.gso_size);
		hdr.hdr_len = htole16(hdr.hdr_len);
		header_case(&hdr, cases[i].reason);
	}
	close_both();
}

/* An offload that was not acked is not used, whatever is on offer. */
static void test_headers_not_acked(void **state)
{
	const struct virtio_net_hdr csum = { .flags = 1, .csum_start = htole16(34) };
	const struct virtio_net_hdr gso = {
		.flags = 1, .gso_type = 4, .gso_size = htole16(9), .csum_start = htole16(34)
	};
	struct guest_cfg cfg = { .features = F_DEFAULT };

	open_both("null:", &cfg);
	header_case(&csum, "not_negotiated");
	header_case(&gso, "not_negotiated");
	close_both();
}

/* ---- memory that changes ---- */

static atomic_bool stop_flipping;

static void *flip(void *arg)
{
	volatile uint8_t *hdr = arg;

	test_thread();
	while (!atomic_load(&stop_flipping)) {
		/* csum_start between 34 and 60000, gso_type between none and TCPv4. */
		hdr[6] = 34;
		hdr[7] = 0;
		hdr[1] = 0;
		hdr[6] = 0x60;
		hdr[7] = 0xea;
		hdr[1] = 1;
	}
	return NULL;
}

/* Field case 19: a header that changes while it is read, a million times. */
static void flipping(const char *port, unsigned frames)
{
	struct guest_cfg cfg = { .features = F_DEFAULT | F_OFFLOADS };
	struct guest_ring *r = &g.rings[GUEST_TX];
	unsigned cnt = test_scale(frames) / 250;
	struct raw_desc desc = { .len = 112 };
	pthread_t thread;
	long long passed;

	open_both(port, &cfg);
	desc.addr = guest_alloc(&g, 4096, 4096);
	raw_desc(&r->q.split.desc[0], &desc);
	((uint8_t *)guest_at(&g, desc.addr))[0] = 1;
	((uint8_t *)guest_at(&g, desc.addr))[4] = 60;
	atomic_store(&stop_flipping, false);
	OK(-pthread_create(&thread, NULL, flip, guest_at(&g, desc.addr)));
	for (unsigned i = 0; i < cnt; i++) {
		raw_avail(r, 0, 250);
		raw_wait(r);
	}
	atomic_store(&stop_flipping, true);
	pthread_join(thread, NULL);
	passed = daemon_count(&d, 0, "tx.frames");
	EQ(passed + drops("tx") + daemon_count(&d, 0, "tx.drops.port_down"), 250LL * cnt);
	close_both();
}

static void test_flipping(void **state)
{
	flipping("null:", 1000000);
}

static void test_flipping_tap(void **state)
{
	flipping("tap:uvguest0", 200000);
}

/* ---- rings ---- */

static void bad_index(unsigned ring, uint16_t jump)
{
	struct guest_ring *r = &g.rings[ring];
	uint16_t idx;

	guest_up(&g, NULL, d.path[0]);
	guest_exchange(&g, 20, 100, 20);
	idx = le16_get(&r->q.split.avail->idx);
	le16_set(&r->q.split.avail->idx, (uint16_t)(r->q.used_idx + jump));
	if (ring == GUEST_RX)
		guest_flood(&g, 1, 100);
	eventfd_write(r->kick, 1);
	raw_wait_broken(r);
	/* It stays away from the ring, also when the index is right again. */
	le16_set(&r->q.split.avail->idx, idx);
	eventfd_write(r->kick, 1);
	test_sleep_us(2000);
	EQ(check_used(&r->chk), 0);
	guest_free(&g);
}

/* Field case 11: an index that jumps ahead or back. */
static void test_bad_index(void **state)
{
	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	for (unsigned ring = GUEST_RX; ring <= GUEST_TX; ring++) {
		bad_index(ring, 257);
		bad_index(ring, 0x8000);
		bad_index(ring, 0xffff);
		bad_index(ring, 0xff00);
	}
	guest_up(&g, NULL, d.path[0]);
	close_both();
}

/* Field case 20 for split rings: a head that there is not; behind good ones, too. */
static void bad_head(unsigned ring, uint16_t head, unsigned good)
{
	struct guest_ring *r = &g.rings[ring];
	struct guest_cfg cfg = { .no_refill = true };
	struct raw_desc desc = { .len = 2048, .flags = ring == GUEST_RX ? WRITE : 0 };
	unsigned idx = 0;

	guest_up(&g, &cfg, d.path[0]);
	desc.addr = guest_alloc(&g, 2048, 64);
	raw_desc(&r->q.split.desc[0], &desc);
	for (; idx < good; idx++)
		le16_set(&r->q.split.avail->ring[idx], 0);
	le16_set(&r->q.split.avail->ring[idx++], head);
	le16_store(&r->q.split.avail->idx, (uint16_t)idx, memory_order_release);
	eventfd_write(r->kick, 1);
	if (ring == GUEST_RX)
		guest_flood(&g, good + 1, 100);
	raw_wait_broken(r);
	EQ(le16_get(&r->q.split.used->idx), good);
	guest_free(&g);
}

static void test_bad_head(void **state)
{
	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	for (unsigned ring = GUEST_RX; ring <= GUEST_TX; ring++) {
		bad_head(ring, 256, 0);
		bad_head(ring, 0xffff, 0);
		bad_head(ring, 0xffff, 5);
		bad_head(ring, 0x8000, 30);
	}
	guest_up(&g, NULL, d.path[0]);
	close_both();
}

/* ---- memory that goes away ---- */

static void truncate_under(bool rings_too)
{
	off_t left = rings_too ? 0 : (off_t)(4096 + g.rings[GUEST_RX].slots[0].gpa - GUEST_GPA);

	left = left / 4096 * 4096;
	guest_flood(&g, 200, 1400);
	test_sleep_us(test_random() % 300);
	OK(ftruncate(g.memfd, left));
	eventfd_write(g.rings[GUEST_TX].kick, 1);
	eventfd_write(g.rings[GUEST_RX].kick, 1);
	test_sleep_us(2000);
	if (rings_too || test_random() % 2 == 0)
		return;
	/* The front end goes on as if nothing had happened. */
	vu_frontend_get_vring_base(&g.fe, GUEST_TX, &(uint32_t){ 0 });
	guest_ring_msg(&g, GUEST_TX, VHOST_USER_SET_VRING_ADDR);
	vu_frontend_vring_fd(&g.fe, VHOST_USER_SET_VRING_KICK, GUEST_TX, g.rings[GUEST_TX].kick);
}

/* Design, section 8: the process lives, the device is broken, the neighbour loses nothing. */
static void truncation(const char *port)
{
	open_both(port, NULL);
	for (unsigned i = 0; i < test_scale(100); i++) {
		truncate_under(i % 2 == 0);
		guest_free(&g);
		guest_up(&g, NULL, d.path[0]);
	}
	MUST(daemon_log_lines(&d, "") < 40);
	close_both();
}

static void test_truncation(void **state)
{
	truncation("loop:");
	truncation("null:");
	truncation("hold:ms=1");
}

static void test_truncation_tap(void **state)
{
	truncation("tap:uvguest0");
}

/* Field case 178: a million bad chains, a few lines. */
static void test_log(void **state)
{
	struct guest_ring *r = &g.rings[GUEST_TX];
	static const struct bad_chain c = { "", { { NOWHERE, 100, 0, 0 } }, { { 0 } } };

	open_both("null:", NULL);
	lay_chain(r, guest_alloc(&g, 16384, 4096), &c);
	for (unsigned i = 0; i < test_scale(1000000) / 250; i++) {
		raw_avail(r, 0, 250);
		raw_wait(r);
	}
	MUST(daemon_log_lines(&d, "") < 20);
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_tx_chains), TEST(test_indirect_not_acked),
		TEST(test_rx_chains), TEST(test_rx_tiny),
		TEST(test_headers),   TEST(test_headers_not_acked),
		TEST(test_flipping),  TEST(test_bad_index),
		TEST(test_bad_head),  TEST(test_truncation),
		TEST(test_log),
	};
	const struct CMUnitTest tap_tests[] = {
		TEST(test_flipping_tap),
		TEST(test_truncation_tap),
	};
	int failed = TEST_BOTH(tests);

	return netns_enter() ? failed + TEST_BOTH(tap_tests) : failed;
}
