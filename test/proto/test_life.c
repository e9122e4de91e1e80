// SPDX-License-Identifier: BSD-2-Clause
/* A ring's life on a live daemon: started, stopped, disabled, reset, laid anew (field cases D and E). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "lib/daemon.h"
#include "lib/guest.h"
#include "lib/neighbour.h"

static struct guest g, g2;

static void up(struct daemon *d, const char *port, const struct guest_cfg *cfg)
{
	DAEMON_START(d, port);
	guest_up(&g, cfg, d->path[0]);
}

static void down(struct daemon *d)
{
	guest_down(&g);
	daemon_stop(d);
}

/* Nothing comes for this long. */
static void settle(void)
{
	test_sleep_us(test_sanitized() ? 100000 : 20000);
}

/* Field cases 55 and 198: a stop answers the avail position, twice the same, and goes on from there. */
static void test_base(void **state)
{
	struct daemon d;

	up(&d, "loop:", NULL);
	guest_exchange(&g, 37, 100, 37);
	EQ(guest_stop_ring(&g, GUEST_TX), 37);
	EQ(guest_stop_ring(&g, GUEST_TX), 37);
	EQ(guest_stop_ring(&g, GUEST_RX), 37);
	EQ(guest_stop_ring(&g, GUEST_RX), 37);
	guest_start_ring(&g, GUEST_RX);
	guest_start_ring(&g, GUEST_TX);
	guest_exchange(&g, 400, 100, 64);
	EQ(guest_stop_ring(&g, GUEST_TX), 437);
	down(&d);
}

/* Field case 56: receive buffers that wait for a frame are not taken. */
static void test_base_held(void **state)
{
	struct guest_cfg cfg = { .no_refill = true };
	uint32_t len = 2048;
	struct daemon d;

	up(&d, "loop:", &cfg);
	for (unsigned i = 0; i < 5; i++)
		MUST(guest_post(&g, &len, 1));
	guest_kick(&g, GUEST_RX);
	settle();
	EQ(guest_stop_ring(&g, GUEST_RX), 0);
	guest_start_ring(&g, GUEST_RX);
	guest_exchange(&g, 3, 100, 3);
	EQ(guest_stop_ring(&g, GUEST_RX), 3);
	down(&d);
}

/* Field cases 57 and 66: a ring that was laid anew begins at 0, after a stop or after a reset. */
static void new_rings(bool reset)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_RESET_DEVICE };
	struct daemon d;

	up(&d, "loop:", NULL);
	for (unsigned i = 0; i < 20; i++) {
		guest_exchange(&g, 37 + i, 100, 37);
		if (reset) {
			OK(vu_frontend_request(&g.fe, &hdr, NULL, NULL, 0));
		} else {
			guest_stop_ring(&g, GUEST_RX);
			guest_stop_ring(&g, GUEST_TX);
		}
		guest_reap(&g);
		guest_reset_ring(&g, GUEST_RX);
		guest_reset_ring(&g, GUEST_TX);
		guest_refill(&g);
		if (reset)
			guest_ack(&g);
		guest_start_ring(&g, GUEST_RX);
		guest_start_ring(&g, GUEST_TX);
	}
	down(&d);
}

static void test_new_rings(void **state)
{
	new_rings(false);
}

static void test_reset_device(void **state)
{
	new_rings(true);
}

/* Field case 58: the front end does not know where the rings are; they know. */
static void test_base_unknown(void **state)
{
	struct daemon d;

	up(&d, "loop:", NULL);
	guest_exchange(&g, 100, 100, 50);
	guest_stop_ring(&g, GUEST_TX);
	for (unsigned i = 0; i < 10; i++)
		MUST(guest_send(&g, 200, NULL, NULL, 0));
	guest_publish(&g, GUEST_TX);
	guest_ring_msg(&g, GUEST_TX, VHOST_USER_SET_VRING_ADDR);
	OK(vu_frontend_vring_state(&g.fe, VHOST_USER_SET_VRING_BASE, GUEST_TX, 0));
	guest_ring_msg(&g, GUEST_TX, VHOST_USER_SET_VRING_KICK);
	GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	EQ(daemon_count(&d, 0, "tx.frames"), 110);
	MUST(daemon_log_lines(&d, "base=0 used=0x64") == 1);
	down(&d);
}

/* Field case 61: without protocol features rings are enabled, and no message says so. */
static void test_no_protocol(void **state)
{
	struct guest_cfg cfg = { .features = F_VERSION_1 | F_MRG };
	struct daemon d;

	up(&d, "loop:", &cfg);
	guest_exchange(&g, 100, 100, 32);
	down(&d);
}

/* Field case 36: index 1 is a ring without MQ, too. */
static void test_no_mq(void **state)
{
	struct guest_cfg cfg = { .protocol = BIT(VHOST_USER_PROTOCOL_F_REPLY_ACK) };
	struct daemon d;

	up(&d, "loop:", &cfg);
	guest_exchange(&g, 100, 100, 32);
	down(&d);
}

/* Field cases 62 and 99: on a disabled ring frames are eaten on a kick; nothing spins. */
static void test_disabled_tx(void **state)
{
	uint64_t cpu;
	struct daemon d;

	up(&d, "loop:", NULL);
	guest_exchange(&g, 100, 100, 32);
	guest_enable(&g, GUEST_TX, false);
	guest_flood(&g, 10, 100);
	GUEST_UNTIL(&g, guest_tx_done(&g));
	EQ(daemon_count(&d, 0, "tx.drops.disabled"), 10);
	EQ(daemon_count(&d, 0, "tx.frames"), 100);
	for (unsigned i = 0; i < 10; i++) {
		guest_flood(&g, 100, 60);
		GUEST_UNTIL(&g, guest_tx_done(&g));
	}
	cpu = daemon_cpu_ns(&d);
	test_sleep_us(300000);
	MUST(daemon_cpu_ns(&d) - cpu < 10 * NSEC_PER_MSEC);
	guest_enable(&g, GUEST_TX, true);
	guest_exchange(&g, 100, 100, 32);
	EQ(daemon_count(&d, 0, "tx.frames"), 200);
	EQ(daemon_count(&d, 0, "rx.frames"), 200);
	down(&d);
}

/* Field case 62, the other direction: buffers are left alone, and a frame that waits costs nothing. */
static void test_disabled_rx(void **state)
{
	uint64_t cpu;
	struct daemon d;

	up(&d, "loop:", NULL);
	guest_exchange(&g, 10, 100, 10);
	guest_enable(&g, GUEST_RX, false);
	for (unsigned i = 0; i < 10; i++)
		MUST(guest_send(&g, 300, NULL, NULL, 0));
	guest_kick(&g, GUEST_TX);
	GUEST_UNTIL(&g, guest_tx_done(&g));
	eventfd_write(g.rings[GUEST_RX].kick, 1);
	cpu = daemon_cpu_ns(&d);
	test_sleep_us(300000);
	MUST(daemon_cpu_ns(&d) - cpu < 10 * NSEC_PER_MSEC);
	EQ(check_used(&g.rings[GUEST_RX].chk), 0);
	guest_enable(&g, GUEST_RX, true);
	GUEST_UNTIL(&g, guest_rx_done(&g));
	down(&d);
}

/* Field case 64: the same features once more, in the middle of it. */
static void test_features_again(void **state)
{
	struct daemon d;

	up(&d, "loop:", NULL);
	for (unsigned i = 0; i < 50; i++) {
		for (unsigned j = 0; j < 20; j++)
			MUST(guest_send(&g, 300, NULL, NULL, 0));
		guest_kick(&g, GUEST_TX);
		guest_ack(&g);
		GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	}
	EQ(daemon_count(&d, 0, "connected"), 1);
	down(&d);
}

/* Field case 67: what was a ring is the guest's again after a stop; kicks do not matter. */
static void test_garbage_after_stop(void **state)
{
	struct daemon d;

	up(&d, "loop:", NULL);
	for (unsigned i = 0; i < 20; i++) {
		guest_exchange(&g, 50, 100, 20);
		guest_stop_ring(&g, GUEST_RX);
		guest_stop_ring(&g, GUEST_TX);
		guest_reap(&g);
		guest_scribble(&g);
		eventfd_write(g.rings[GUEST_RX].kick, 1);
		eventfd_write(g.rings[GUEST_TX].kick, 1);
		test_sleep_us(2000);
		guest_untouched(&g);
		guest_reset_ring(&g, GUEST_RX);
		guest_reset_ring(&g, GUEST_TX);
		guest_refill(&g);
		guest_start_ring(&g, GUEST_RX);
		guest_start_ring(&g, GUEST_TX);
	}
	down(&d);
}

/* Garbage in a ring that does run: the device is broken, says so, and can be set up anew. */
static void test_garbage_while_running(void **state)
{
	struct neighbour *nb;
	struct daemon d;

	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	for (unsigned i = 0; i < 20; i++) {
		eventfd_t n;

		guest_up(&g, NULL, d.path[0]);
		guest_exchange(&g, 20, 100, 10);
		/* Not the used index: that is the device's own. */
		memset(g.rings[GUEST_TX].q.split.avail, 0xff, VRING_AVAIL_BYTES(256));
		memset(g.rings[GUEST_TX].q.split.desc, 0xff, VRING_DESC_BYTES(256));
		eventfd_write(g.rings[GUEST_TX].kick, 1);
		for (unsigned j = 0; j < 5000 && eventfd_read(g.rings[GUEST_TX].err, &n) < 0; j++)
			test_sleep_us(1000);
		EQ(n, 1);
		guest_free(&g);
	}
	MUST(neighbour_stop(nb) > 0);
	daemon_stop(&d);
}

/* Field case 71: id is the head's and len the whole chain's, for chains of one to five. */
static void test_used_elements(void **state)
{
	struct guest_cfg cfg = { .no_refill = true };
	struct daemon d;

	up(&d, "loop:", &cfg);
	for (unsigned i = 0; i < 100; i++) {
		uint32_t cuts[4] = { 12, 30, 7, 100 }, bufs[5] = { 12, 13, 400, 600, 700 };

		if (i % 5 == 0)
			bufs[0] = 1700;
		MUST(guest_post(&g, bufs, 1 + i % 5));
		if (i % 5 != 4)
			continue;
		guest_kick(&g, GUEST_RX);
		/* It is the largest buffer that holds it, or all. */
		MUST(guest_send(&g, 1500, NULL, cuts, i / 5 % 5));
		guest_kick(&g, GUEST_TX);
		GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	}
	down(&d);
}

/* Field case 74: buffers are there already, and no kick ever comes. */
static void test_no_kick(void **state)
{
	struct guest_cfg cfg = { .no_refill = true };
	uint32_t len = 2048;
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_make(&g, &cfg);
	for (unsigned i = 0; i < 20; i++)
		MUST(guest_post(&g, &len, 1));
	guest_publish(&g, GUEST_RX);
	for (unsigned i = 0; i < 20; i++)
		MUST(guest_send(&g, 99, NULL, NULL, 0));
	guest_publish(&g, GUEST_TX);
	guest_connect(&g, d.path[0]);
	guest_set_up(&g);
	GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	down(&d);
}

/* Field case 75: the kick comes before the ring is enabled. */
static void test_kick_before_enable(void **state)
{
	struct daemon d;

	up(&d, "loop:", NULL);
	guest_enable(&g, GUEST_TX, false);
	guest_stop_ring(&g, GUEST_TX);
	for (unsigned i = 0; i < 9; i++)
		MUST(guest_send(&g, 99, NULL, NULL, 0));
	guest_publish(&g, GUEST_TX);
	guest_ring_msg(&g, GUEST_TX, VHOST_USER_SET_VRING_ADDR);
	eventfd_write(g.rings[GUEST_TX].kick, 1);
	OK(vu_frontend_vring_fd(&g.fe, VHOST_USER_SET_VRING_KICK, GUEST_TX,
				g.rings[GUEST_TX].kick));
	guest_enable(&g, GUEST_TX, true);
	GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	EQ(daemon_count(&d, 0, "tx.frames"), 9);
	down(&d);
}

/* Field cases 79, 83 and 88: front ends come and go; features are the same for each. */
static void test_reconnect(void **state)
{
	uint64_t offered = 0;
	struct daemon d;
	long rss = 0;

	DAEMON_START(&d, "loop:");
	for (unsigned i = 0; i < test_scale(300); i++) {
		guest_up(&g, NULL, d.path[0]);
		MUST(i == 0 || g.offered == offered);
		offered = g.offered;
		guest_exchange(&g, 2, 100, 2);
		if (i == 10)
			rss = daemon_rss_kib(&d);
		if (i % 3 == 0)
			guest_free(&g); /* without a stop */
		else
			guest_down(&g);
	}
	/* Sanitizers keep freed memory for a while. */
	MUST(test_sanitized() || daemon_rss_kib(&d) - rss < 2048);
	MUST(daemon_log_lines(&d, "connected") < 100);
	daemon_stop(&d);
}

/* Field case 88: 10,000 connections, most without a word. */
static void test_many_connects(void **state)
{
	struct neighbour *nb;
	struct daemon d;

	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	for (unsigned i = 0; i < test_scale(10000); i++) {
		struct vu_frontend fe;
		int ret = vu_frontend_connect(&fe, d.path[0], 1000);

		OK(ret);
		if (i % 8 == 0)
			vu_frontend_get_u64(&fe, VHOST_USER_GET_FEATURES, &(uint64_t){ 0 });
		vu_frontend_close(&fe);
	}
	guest_up(&g, NULL, d.path[0]);
	guest_exchange(&g, 20, 100, 10);
	guest_down(&g);
	MUST(neighbour_stop(nb) > 0);
	MUST(daemon_log_lines(&d, "") < 300);
	daemon_stop(&d);
}

/* Field case 85: a second front end is turned away, the first does not notice. */
static void test_second_client(void **state)
{
	struct daemon d;

	up(&d, "loop:", NULL);
	for (unsigned i = 0; i < 50; i++) {
		struct vu_frontend fe;

		OK(vu_frontend_connect(&fe, d.path[0], (int)test_patience_ms()));
		EQ(vu_frontend_wait(&fe), -ECONNRESET);
		vu_frontend_close(&fe);
		guest_exchange(&g, 5, 100, 5);
	}
	down(&d);
}

/* Field case 193: kicks that arrive while the ring is stopped. */
static void test_kick_and_stop(void **state)
{
	struct daemon d;

	up(&d, "loop:", NULL);
	for (unsigned i = 0; i < test_scale(1000); i++) {
		for (unsigned j = 0; j < 8; j++)
			MUST(guest_send(&g, 100, NULL, NULL, 0));
		guest_publish(&g, GUEST_TX);
		eventfd_write(g.rings[GUEST_TX].kick, 1);
		eventfd_write(g.rings[GUEST_RX].kick, 1);
		guest_stop_ring(&g, GUEST_TX);
		eventfd_write(g.rings[GUEST_TX].kick, 1);
		guest_start_ring(&g, GUEST_TX);
		if (i % 2 == 0) {
			guest_stop_ring(&g, GUEST_RX);
			guest_start_ring(&g, GUEST_RX);
		}
		GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	}
	down(&d);
}

/* Field case 43: no call is ever set; field cases 29 and 199: and no kick but NOFD. */
static void test_polled(void **state)
{
	uint64_t deadline;
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_make(&g, NULL);
	guest_refill(&g);
	guest_connect(&g, d.path[0]);
	guest_get_features(&g);
	guest_protocol(&g);
	guest_ack(&g);
	guest_set_mem(&g);
	for (unsigned i = 0; i < 2; i++) {
		guest_ring_msg(&g, i, VHOST_USER_SET_VRING_NUM);
		guest_ring_msg(&g, i, VHOST_USER_SET_VRING_ADDR);
		OK(vu_frontend_vring_fd(&g.fe, VHOST_USER_SET_VRING_KICK, i, -1));
		if (i == 1)
			OK(vu_frontend_vring_fd(&g.fe, VHOST_USER_SET_VRING_CALL, i, -1));
		guest_enable(&g, i, true);
	}
	for (unsigned i = 0; i < 50; i++) {
		MUST(guest_send(&g, 100, NULL, NULL, 0));
		guest_publish(&g, GUEST_TX);
		deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;
		while (!guest_rx_done(&g) || !guest_tx_done(&g)) {
			MUST(clock_ns() < deadline);
			guest_reap(&g);
			test_sleep_us(100);
		}
	}
	down(&d);
}

/* Frames for the guest that was there before are not for this one. */
static void test_stale_frames(void **state)
{
	struct guest_cfg cfg = { .no_refill = true };
	struct daemon d;

	DAEMON_START(&d, "loop:");
	for (unsigned i = 0; i < 10; i++) {
		guest_up(&g, &cfg, d.path[0]);
		guest_flood(&g, 10, 100);
		GUEST_UNTIL(&g, guest_tx_done(&g));
		guest_down(&g);
		guest_up(&g, NULL, d.path[0]);
		guest_exchange(&g, 20, 200, 10);
		guest_down(&g);
		daemon_count_wait(&d, 0, "rx.drops.stale", 10 * (i + 1));
	}
	daemon_stop(&d);
}

/* Field cases 35 and 164: set-up and tear-down beside a device that is busy. */
static void test_beside(void **state)
{
	struct neighbour *nb;
	struct daemon d;

	DAEMON_START(&d, "null:", "loop:");
	nb = neighbour_start(d.path[1]);
	for (unsigned i = 0; i < test_scale(300); i++) {
		guest_up(&g2, NULL, d.path[0]);
		guest_flood(&g2, 200, 64);
		guest_free(&g2);
	}
	MUST(neighbour_stop(nb) > 100);
	daemon_stop(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_base),
		TEST(test_base_held),
		TEST(test_new_rings),
		TEST(test_reset_device),
		TEST(test_base_unknown),
		TEST(test_no_protocol),
		TEST(test_no_mq),
		TEST(test_disabled_tx),
		TEST(test_disabled_rx),
		TEST(test_features_again),
		TEST(test_garbage_after_stop),
		TEST(test_garbage_while_running),
		TEST(test_used_elements),
		TEST(test_no_kick),
		TEST(test_kick_before_enable),
		TEST(test_reconnect),
		TEST(test_many_connects),
		TEST(test_second_client),
		TEST(test_kick_and_stop),
		TEST(test_polled),
		TEST(test_beside),
		TEST(test_stale_frames),
	};

	return TEST_BOTH(tests);
}
