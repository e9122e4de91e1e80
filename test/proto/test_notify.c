// SPDX-License-Identifier: BSD-2-Clause
/* Kicks, calls and stalls on a live daemon (field cases F), and too few receive buffers (97, 194). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"
#include "lib/daemon.h"
#include "lib/guest.h"
#include "lib/neighbour.h"
#include "port/net_ns.h"

static struct guest g;

static uint64_t deadline(void)
{
	return clock_ns() + test_patience_ms() * NSEC_PER_MSEC;
}

static unsigned calls_now(struct guest_ring *r)
{
	eventfd_t n = 0;

	return eventfd_read(r->call, &n) < 0 ? 0 : (unsigned)n;
}

static void wait_used(struct guest_ring *r, uint16_t idx)
{
	uint64_t until = deadline();

	while (le16_load(&r->q.split.used->idx, memory_order_acquire) != idx) {
		MUST(clock_ns() < until);
		test_sleep_us(50);
	}
}

/* Field case 90: a full ring, nothing received: the call comes. */
static void test_tx_only(void **state)
{
	static const uint64_t extra[] = { 0, F_EVENT_IDX, F_EVENT_IDX | F_IN_ORDER };

	for (unsigned i = 0; i < ARRAY_SIZE(extra); i++) {
		struct guest_cfg cfg = { .features = F_DEFAULT | extra[i] };
		struct daemon d;

		DAEMON_START(&d, "null:");
		guest_up(&g, &cfg, d.path[0]);
		for (unsigned j = 0; j < 50; j++) {
			guest_flood(&g, 256, 64);
			GUEST_UNTIL(&g, guest_tx_done(&g));
		}
		guest_down(&g);
		daemon_stop(&d);
	}
}

/* Field cases 91, 92, 94 and 201: single frames with random pauses; the driver sleeps after each. */
static void hand_offs(uint64_t features, const char *const *args)
{
	struct guest_cfg cfg = { .features = features };
	unsigned cnt = test_scale(100000);
	struct daemon d;

	daemon_start(&d, (const char *const[]){ "null:", NULL }, args);
	guest_up(&g, &cfg, d.path[0]);
	for (unsigned i = 0; i < cnt; i++) {
		uint64_t until = clock_ns() + test_random() % 2000;

		guest_flood(&g, 1, 64);
		/* As with one that does something else meanwhile, or sleeps at once. */
		while (i % 2 == 0 && clock_ns() < until)
			;
		if (i % 16 != 15)
			continue;
		GUEST_UNTIL(&g, guest_tx_done(&g));
	}
	GUEST_UNTIL(&g, guest_tx_done(&g));
	EQ(g.tx_back, cnt);
	guest_down(&g);
	daemon_stop(&d);
}

static void test_hand_offs(void **state)
{
	static const char *const poll[] = { "--poll-us", "20", NULL };

	hand_offs(F_DEFAULT, NULL);
	hand_offs(F_DEFAULT | F_EVENT_IDX, NULL);
	hand_offs(F_DEFAULT | F_EVENT_IDX | F_IN_ORDER, poll);
}

/* One batch of @cnt, with the event index @k behind the used index; does the call come? */
static void event_batch(unsigned cnt, unsigned k)
{
	struct guest_ring *r = &g.rings[GUEST_TX];
	uint16_t from = r->q.used_idx;

	calls_now(r);
	le16_set(vring_used_event(r->q.split.avail, r->num), (uint16_t)(from + k));
	guest_flood(&g, cnt, 64);
	wait_used(r, (uint16_t)(from + cnt));
	if (k < cnt) {
		struct pollfd pfd = { .fd = r->call, .events = POLLIN };

		EQ(poll(&pfd, 1, (int)test_patience_ms()), 1);
	} else {
		test_sleep_us(500);
		EQ(calls_now(r), 0);
	}
	guest_reap(&g);
}

/* Field case 93: a range, not equality; across the wrap; and once after a start in any case. */
static void test_event_index(void **state)
{
	struct guest_cfg cfg = { .features = F_DEFAULT | F_EVENT_IDX };
	struct guest_ring *r = &g.rings[GUEST_TX];
	struct daemon d;

	DAEMON_START(&d, "null:");
	guest_up(&g, &cfg, d.path[0]);
	for (unsigned k = 0; k < 12; k++)
		event_batch(8, k);
	while (r->q.used_idx < 65490) {
		guest_flood(&g, 70, 64);
		GUEST_UNTIL(&g, guest_tx_done(&g));
	}
	for (unsigned i = 0; i < 24; i++)
		event_batch(8, i % 12);
	guest_stop_ring(&g, GUEST_TX);
	guest_reap(&g);
	le16_set(vring_used_event(r->q.split.avail, r->num), (uint16_t)(r->q.used_idx + 1000));
	calls_now(r);
	guest_start_ring(&g, GUEST_TX);
	guest_flood(&g, 1, 64);
	wait_used(r, (uint16_t)(r->q.used_idx + 1));
	test_sleep_us(20000);
	MUST(calls_now(r) > 0);
	guest_reap(&g);
	event_batch(1, 1000);
	guest_down(&g);
	daemon_stop(&d);
}

/* Field case 95: three wait, the event index says that a kick was written, none comes; no call would
 * be due either. */
static void test_restored(void **state)
{
	struct guest_cfg cfg = { .features = F_DEFAULT | F_EVENT_IDX };
	struct guest_ring *r = &g.rings[GUEST_TX];
	struct daemon d;
	struct pollfd pfd;

	DAEMON_START(&d, "null:");
	guest_up(&g, &cfg, d.path[0]);
	guest_flood(&g, 7, 64);
	GUEST_UNTIL(&g, guest_tx_done(&g));
	EQ(guest_stop_ring(&g, GUEST_TX), 7);
	for (unsigned i = 0; i < 3; i++)
		MUST(guest_send_raw(&g, (char[80]){ 0 }, 80, NULL, 0));
	le16_set(vring_avail_event(r->q.split.used, r->num), 9);
	guest_publish(&g, GUEST_TX);
	le16_set(vring_used_event(r->q.split.avail, r->num), 6);
	calls_now(r);
	guest_start_ring(&g, GUEST_TX);
	pfd = (struct pollfd){ .fd = r->call, .events = POLLIN };
	EQ(poll(&pfd, 1, (int)test_patience_ms()), 1);
	wait_used(r, 10);
	/* And one when nothing waits: what was signalled before may be lost. */
	EQ(guest_stop_ring(&g, GUEST_TX), 10);
	calls_now(r);
	guest_start_ring(&g, GUEST_TX);
	EQ(poll(&pfd, 1, (int)test_patience_ms()), 1);
	guest_down(&g);
	daemon_stop(&d);
}

/* Replaces a ring's call by @fd. */
static void set_call(unsigned idx, int fd)
{
	OK(vu_frontend_vring_fd(&g.fe, VHOST_USER_SET_VRING_CALL, idx, fd));
}

/* A call descriptor that nobody reads, or that would block: frames still pass. */
static void stuck_call(int fd)
{
	struct guest_ring *tx = &g.rings[GUEST_TX], *rx = &g.rings[GUEST_RX];

	set_call(GUEST_TX, fd);
	set_call(GUEST_RX, fd);
	for (unsigned i = 0; i < 100; i++) {
		uint64_t until = deadline();

		drvq_call_on(&tx->q);
		drvq_call_on(&rx->q);
		for (unsigned j = 0; j < 4; j++)
			MUST(guest_send(&g, 100 + i, NULL, &g.hdr_len, 1));
		guest_kick(&g, GUEST_TX);
		while (!guest_rx_done(&g) || !guest_tx_done(&g)) {
			MUST(clock_ns() < until);
			guest_reap(&g);
			test_sleep_us(100);
		}
	}
	set_call(GUEST_TX, tx->call);
	set_call(GUEST_RX, rx->call);
	guest_exchange(&g, 50, 100, 16);
}

static void fill(int fd)
{
	char zeros[8] = { 0 };

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
}

static void clear_nonblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

/* Field case 101 and the design's section 3: every kind of call descriptor that is in the way. */
static void test_stuck_calls(void **state)
{
	int socks[2], event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct neighbour *nb;
	struct daemon d;

	OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	fill(socks[1]);
	OK(eventfd_write(event, UINT64_MAX - 1));
	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	guest_up(&g, NULL, d.path[0]);
	stuck_call(socks[1]);
	stuck_call(event);
	/* The receiver has set O_NONBLOCK; the sender clears it again. (An eventfd's sender is turned away
	 * for it: hostile/test_descriptors.c, test_flipping.) */
	set_call(GUEST_TX, socks[1]);
	clear_nonblock(socks[1]);
	stuck_call(socks[1]);
	/* Nobody is there. */
	close(socks[0]);
	stuck_call(socks[1]);
	close(socks[1]);
	close(event);
	MUST(neighbour_stop(nb) > 0);
	guest_down(&g);
	daemon_stop(&d);
}

/* Calls through a socket, as User-mode Linux wants them. */
static void test_socket_calls(void **state)
{
	struct pollfd pfd = { .events = POLLIN };
	struct daemon d;
	char buf[64];
	int call[2];

	DAEMON_START(&d, "loop:");
	OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, call));
	guest_up(&g, NULL, d.path[0]);
	set_call(GUEST_RX, call[1]);
	pfd.fd = call[0];
	for (unsigned i = 0; i < (test_sanitized() ? 2000 : 20000); i++) {
		MUST(guest_send(&g, 100, NULL, NULL, 0));
		guest_kick(&g, GUEST_TX);
		while (!guest_rx_done(&g)) {
			if (!drvq_call_on(&g.rings[GUEST_RX].q))
				EQ(poll(&pfd, 1, (int)test_patience_ms()), 1);
			if (pfd.revents != 0)
				MUST(read(call[0], buf, sizeof(buf)) > 0);
			pfd.revents = 0;
			guest_reap(&g);
		}
	}
	GUEST_UNTIL(&g, guest_tx_done(&g));
	guest_down(&g);
	close(call[0]);
	close(call[1]);
	daemon_stop(&d);
}

/* Frames that are sent one after the other: one call for several of them, and one for the last. */
static unsigned calls_for(unsigned frames)
{
	struct guest_ring *r = &g.rings[GUEST_TX];
	struct pollfd pfd = { .fd = r->call, .events = POLLIN };
	unsigned calls = 0;

	calls_now(r);
	drvq_call_on(&r->q);
	for (; frames > 0; frames--) {
		uint64_t until = deadline();
		uint16_t idx = le16_get(&r->q.split.used->idx) + 1;

		MUST(guest_send(&g, 64, NULL, NULL, 0));
		guest_kick(&g, GUEST_TX);
		while (le16_load(&r->q.split.used->idx, memory_order_acquire) != idx)
			MUST(clock_ns() < until);
		if (frames == 1)
			EQ(poll(&pfd, 1, (int)test_patience_ms()), 1);
		calls += calls_now(r);
		guest_reap(&g);
	}
	return calls;
}

static void test_calls_later(void **state)
{
	unsigned frames = 64, calls, tries = 0;
	struct guest_cfg cfg = { .features = F_DEFAULT };
	struct daemon d;

	DAEMON_START(&d, "null:");
	guest_up(&g, &cfg, d.path[0]);
	do {
		calls = calls_for(frames);
		MUST(calls > 0);
		tries++;
	} while (calls > frames / 2 && tries < 50); /* the machine may be slow */
	MUST(test_sanitized() || calls <= frames / 2);
	guest_down(&g);
	daemon_stop(&d);
}

/* ---- too few receive buffers ---- */

static void post(unsigned cnt, uint32_t len)
{
	for (unsigned i = 0; i < cnt; i++)
		MUST(guest_post(&g, &len, 1));
	guest_kick(&g, GUEST_RX);
}

/* Field cases 97, 194 and 195: 10 buffers of 4 KiB, a frame of 60,000 bytes, and no CPU. */
static void short_of(uint64_t extra, bool never)
{
	struct guest_cfg cfg = {
		.features = F_DEFAULT | extra, .tx_max = 60000, .rx_buf = 4096, .no_refill = true
	};
	uint64_t cpu, start;
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	post(10, 4096);
	MUST(guest_send(&g, 60000, NULL, NULL, 0));
	guest_kick(&g, GUEST_TX);
	GUEST_UNTIL(&g, guest_tx_done(&g));
	test_sleep_us(20000);
	cpu = daemon_cpu_ns(&d);
	test_sleep_us(500000);
	cpu = daemon_cpu_ns(&d) - cpu;
	if (cpu > 5 * NSEC_PER_MSEC)
		FAIL("waiting for buffers took %llu us of CPU in 500 ms",
		     (unsigned long long)cpu / 1000);
	EQ(check_used(&g.rings[GUEST_RX].chk), 0);
	if (never) {
		start = clock_ns();
		EQ(guest_stop_ring(&g, GUEST_RX), 0);
		MUST(test_sanitized() || clock_ns() - start < 300 * NSEC_PER_MSEC);
		guest_start_ring(&g, GUEST_RX);
	}
	post(1, 4096);
	test_sleep_us(5000);
	EQ(guest_reap(&g), 0);
	post(5, 4096);
	GUEST_UNTIL(&g, guest_rx_done(&g));
	EQ(g.merged, 1);
	guest_down(&g);
	daemon_stop(&d);
}

static void test_short_of_buffers(void **state)
{
	short_of(0, false);
	short_of(F_EVENT_IDX, true);
	short_of(F_EVENT_IDX | F_IN_ORDER, false);
}

/* Field case 194: 1,500 bytes over two buffers of 800; one only: held. */
static void test_two_buffers(void **state)
{
	struct guest_cfg cfg = { .rx_buf = 800, .no_refill = true };
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	for (unsigned i = 0; i < 20; i++) {
		post(1, 800);
		MUST(guest_send(&g, 1500, NULL, NULL, 0));
		guest_kick(&g, GUEST_TX);
		GUEST_UNTIL(&g, guest_tx_done(&g));
		test_sleep_us(2000);
		if (i % 2 == 0) {
			EQ(guest_stop_ring(&g, GUEST_RX), 2 * i);
			guest_start_ring(&g, GUEST_RX);
		}
		post(1, 800);
		GUEST_UNTIL(&g, guest_rx_done(&g));
	}
	EQ(g.merged, 20);
	guest_down(&g);
	daemon_stop(&d);
}

/* Small frames make the bursts long; then large ones find buffers for a few of them. None is lost. */
static void test_burst_of_large(void **state)
{
	struct guest_cfg cfg = { .tx_max = 65000, .no_refill = true };
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	for (unsigned i = 0; i < 8; i++) {
		post(64, 2048);
		for (unsigned j = 0; j < 64; j++)
			MUST(guest_send(&g, 100, NULL, NULL, 0));
		guest_kick(&g, GUEST_TX);
		GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	}
	for (unsigned i = 0; i < 60; i++)
		MUST(guest_send(&g, 65000, NULL, NULL, 0));
	guest_kick(&g, GUEST_TX);
	GUEST_UNTIL(&g, guest_tx_done(&g));
	while (!guest_rx_done(&g)) {
		unsigned before = g.rcvd_idx;

		post(64, 2048);
		GUEST_UNTIL(&g, g.rcvd_idx != before);
		while (guest_reap(&g) > 0)
			;
	}
	guest_down(&g);
	daemon_stop(&d);
}

/* Frames and buffers of all sizes, posted as they please; the ring stops now and then. None is lost. */
static void sizes_at_random(uint64_t extra)
{
	struct guest_cfg cfg = {
		.features = F_DEFAULT | extra, .tx_max = 65000, .rx_buf = 9000, .no_refill = true
	};
	uint64_t until;
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	for (unsigned i = 0; i < test_scale(3000); i++) {
		bool large = test_random() % 3 == 0;

		for (unsigned n = test_random() % 40; n > 0 && g.sent_idx - g.rcvd_idx < 100; n--)
			guest_send(&g, 60 + test_random() % (large ? 64940 : 1400), NULL, NULL, 0);
		guest_kick(&g, GUEST_TX);
		for (unsigned n = test_random() % 64; n > 0; n--) {
			/* The whole ring has room for the largest frame. */
			uint32_t len = 300 + test_random() % (test_random() % 2 ? 8700 : 200);

			guest_post(&g, &len, 1);
		}
		guest_kick(&g, GUEST_RX);
		if (i % 16 == 0) {
			unsigned idx = i % 32 == 0 ? GUEST_RX : GUEST_TX;

			guest_stop_ring(&g, idx);
			guest_start_ring(&g, idx);
		} else if (i % 16 == 8) {
			guest_enable(&g, GUEST_RX, false);
			guest_enable(&g, GUEST_RX, true);
		}
		guest_reap(&g);
	}
	until = deadline();
	while (!guest_rx_done(&g)) {
		MUST(clock_ns() < until);
		while (guest_post(&g, &(uint32_t){ 2048 }, 1))
			;
		guest_kick(&g, GUEST_RX);
		guest_pump(&g, 20);
	}
	GUEST_UNTIL(&g, guest_tx_done(&g));
	guest_down(&g);
	daemon_stop(&d);
}

static void test_sizes_at_random(void **state)
{
	sizes_at_random(0);
	sizes_at_random(F_EVENT_IDX | F_INDIRECT);
	sizes_at_random(F_EVENT_IDX | F_IN_ORDER);
}

/* Buffers that come while a frame finds too few: it waits for more of them, and is not too big. */
static void test_posted_late(void **state)
{
	struct guest_cfg cfg = { .rx_num = 1024, .no_refill = true };
	uint64_t until = clock_ns() + NSEC_PER_SEC;
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	g.on_frame = guest_ignore_frame;
	while (clock_ns() < until) {
		uint32_t len = 100;

		if (check_out(&g.rings[GUEST_TX].chk) < 32)
			guest_flood(&g, 32, 1514);
		for (unsigned i = 0; i < 64 && guest_post(&g, &len, 1); i++)
			guest_kick(&g, GUEST_RX);
		guest_reap(&g);
	}
	EQ(daemon_count(&d, 0, "rx.drops.too_big"), 0);
	guest_free(&g);
	daemon_stop(&d);
}

/* Field case 108: without merging, a frame that is larger than the next buffer is lost and counted. */
static void test_too_big(void **state)
{
	struct guest_cfg cfg = { .features = F_PROTOCOL | F_VERSION_1,
				 .tx_max = 9000,
				 .rx_buf = 4096 };
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	g.lossy = true;
	for (unsigned i = 0; i < 10; i++) {
		MUST(guest_send(&g, 9000, NULL, NULL, 0));
		MUST(guest_send(&g, 4084, NULL, NULL, 0));
		MUST(guest_send(&g, 4085, NULL, NULL, 0));
		MUST(guest_send(&g, 60, NULL, NULL, 0));
		guest_kick(&g, GUEST_TX);
		GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	}
	EQ(g.lost, 20);
	EQ(daemon_count(&d, 0, "rx.drops.too_big"), 20);
	guest_down(&g);
	daemon_stop(&d);
}

/* Field case 112: a bad buffer in the middle of a merge: those before it come back empty. */
static void test_bad_in_merge(void **state)
{
	struct guest_cfg cfg = { .tx_max = 8000, .no_refill = true };
	struct drvq_buf nowhere = { { 1ULL << 50 }, 2048 };
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	for (unsigned i = 0; i < 10; i++) {
		struct guest_ring *r = &g.rings[GUEST_RX];

		post(3, 2048);
		/* Read-only in one round, out of memory in the other. */
		OK(drvq_add(&r->q, &nowhere, i % 2, 1 - i % 2, guest_spare(r)));
		guest_take_spare(r);
		post(4, 2048);
		MUST(guest_send(&g, 8000, NULL, NULL, 0));
		guest_kick(&g, GUEST_TX);
		GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	}
	EQ(daemon_count(&d, 0, "rx.drops.bad_chain"), 10);
	guest_down(&g);
	daemon_stop(&d);
}

/* ---- a tap ---- */

static void broadcast(int sock, unsigned cnt)
{
	uint8_t frame[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5 };

	for (unsigned i = 0; i < cnt; i++)
		MUST(send(sock, frame, sizeof(frame), 0) == sizeof(frame));
}

static unsigned tap_frames;

static void count_frame(struct guest *from, const struct virtio_net_hdr *hdr, const uint8_t *frame,
			uint32_t len)
{
	EQ(len, 60);
	tap_frames++;
}

/* Field cases 162 and 195: a guest without buffers, a tap with broadcasts: no CPU; a stop at once;
 * then buffers, and what comes then arrives. */
static void test_tap_without_buffers(void **state)
{
	struct guest_cfg cfg = { .no_refill = true };
	uint64_t cpu, start;
	struct daemon d;
	int sock;

	DAEMON_START(&d, "tap:uvnotify0");
	OK(if_set_up("uvnotify0", true));
	sock = packet_open("uvnotify0", false);
	MUST(sock >= 0);
	guest_up(&g, &cfg, d.path[0]);
	broadcast(sock, 10);
	test_sleep_us(20000);
	cpu = daemon_cpu_ns(&d);
	for (unsigned i = 0; i < 100; i++) {
		broadcast(sock, 10);
		test_sleep_us(10000);
	}
	cpu = daemon_cpu_ns(&d) - cpu;
	if (cpu > 10 * NSEC_PER_MSEC)
		FAIL("1000 broadcasts in a second took %llu us of CPU",
		     (unsigned long long)cpu / 1000);
	start = clock_ns();
	EQ(guest_stop_ring(&g, GUEST_RX), 0);
	MUST(test_sanitized() || clock_ns() - start < 300 * NSEC_PER_MSEC);
	guest_start_ring(&g, GUEST_RX);
	tap_frames = 0;
	g.on_frame = count_frame;
	g.cfg.no_refill = false;
	guest_refill(&g);
	broadcast(sock, 5);
	GUEST_UNTIL(&g, tap_frames >= 5);
	close(sock);
	guest_down(&g);
	daemon_stop(&d);
}

/* Field case 197 for BACKEND_REQ and CONFIG: the link goes and comes, and the front end is told. */
static void test_link_told(void **state)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_SET_BACKEND_REQ_FD };
	struct guest_cfg cfg = { .protocol = P_DEFAULT | BIT(VHOST_USER_PROTOCOL_F_BACKEND_REQ) };
	struct virtio_net_config config;
	struct daemon d;
	int fds[2];

	DAEMON_START(&d, "tap:uvnotify1");
	OK(if_set_up("uvnotify1", true));
	daemon_count_wait(&d, 0, "link", 1);
	guest_up(&g, &cfg, d.path[0]);
	OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	OK(vu_frontend_request(&g.fe, &hdr, NULL, &fds[1], 1));
	close(fds[1]);
	for (unsigned i = 0; i < 6; i++) {
		struct pollfd pfd = { .fd = fds[0], .events = POLLIN };
		bool up = i % 2 == 1;

		OK(if_set_up("uvnotify1", up));
		EQ(poll(&pfd, 1, (int)test_patience_ms()), 1);
		EQ(read(fds[0], &hdr, sizeof(hdr)), sizeof(hdr));
		EQ(hdr.request, VHOST_USER_BACKEND_CONFIG_CHANGE_MSG);
		OK(vu_frontend_get_config(&g.fe, &config, 0, sizeof(config)));
		EQ(config.status & VIRTIO_NET_S_LINK_UP, up);
	}
	close(fds[0]);
	guest_down(&g);
	daemon_stop(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_tx_only),        TEST(test_hand_offs),        TEST(test_event_index),
		TEST(test_restored),       TEST(test_stuck_calls),      TEST(test_socket_calls),
		TEST(test_calls_later),    TEST(test_short_of_buffers), TEST(test_two_buffers),
		TEST(test_burst_of_large), TEST(test_sizes_at_random),  TEST(test_posted_late),
		TEST(test_too_big),        TEST(test_bad_in_merge),
	};
	const struct CMUnitTest tap_tests[] = {
		TEST(test_tap_without_buffers),
		TEST(test_link_told),
	};
	int failed = TEST_BOTH(tests);

	return netns_enter() ? failed + TEST_BOTH(tap_tests) : failed;
}
