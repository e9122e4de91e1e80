// SPDX-License-Identifier: BSD-2-Clause
/*
 * Every way to stop, with frames out: on a port that keeps them for a minute, and on one that hands
 * them back late and in disorder (field cases 63, 166, 195).
 *
 * Whatever ends the ring is answered within the drain deadline; by then each head is back, once; from
 * then on the guest's memory is its own; the device beside it notices nothing; the next front end is
 * served.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "lib/daemon.h"
#include "lib/guest.h"
#include "lib/neighbour.h"

#define DRAIN_MS 100
#define OUT      150 /* frames */

static const char *const ports[] = { "hold:ms=60000", "hold:ms=5,order=random",
				     "hold:ms=60000,order=random" };
/* With EVENT_IDX the driver sees how far the device is. */
static const uint64_t rings[] = { F_DEFAULT | F_EVENT_IDX,
				  F_DEFAULT | F_EVENT_IDX | F_IN_ORDER | F_INDIRECT };

static struct guest g;

/* Sends frames and waits until the device has taken all of them. */
static void send_out_of(struct guest *from, unsigned cnt)
{
	struct guest_ring *r = &from->rings[GUEST_TX];
	uint64_t deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;

	guest_flood(from, cnt, 200);
	while (le16_get(vring_avail_event(r->q.split.used, r->num)) != r->q.avail_idx) {
		MUST(clock_ns() < deadline);
		test_sleep_us(500);
	}
}

static void send_out(void)
{
	send_out_of(&g, OUT);
}

static void up(const struct daemon *d)
{
	guest_up(&g, &(struct guest_cfg){ .features = rings[0] }, d->path[0]);
}

static void stop_ring(void)
{
	uint32_t base;

	OK(vu_frontend_get_vring_base(&g.fe, GUEST_TX, &base));
	check_stopped(&g.rings[GUEST_TX].chk, base);
}

static void reset_device(void)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_RESET_DEVICE };

	OK(vu_frontend_request(&g.fe, &hdr, NULL, NULL, 0));
}

static void disable(void)
{
	guest_enable(&g, GUEST_TX, false);
}

static void change_memory(void)
{
	guest_set_mem(&g);
}

static void change_num(void)
{
	guest_ring_msg(&g, GUEST_TX, VHOST_USER_SET_VRING_NUM);
}

static void change_features(void)
{
	g.features ^= F_OFFLOADS;
	guest_ack(&g);
}

static const struct action {
	void (*run)(void);
	bool ends; /* the ring is not in use after it */
} actions[] = {
	{ stop_ring, true },      { reset_device, true }, { disable, true },
	{ change_memory, false }, { change_num, true },   { change_features, false },
};

static void check_time(uint64_t since, unsigned port)
{
	uint64_t ms = (clock_ns() - since) / NSEC_PER_MSEC;

	/* With slack for a machine that has other things to do. */
	if (ms > DRAIN_MS + (test_sanitized() ? 3000 : 400))
		FAIL("%s: answered after %llu ms", ports[port], (unsigned long long)ms);
}

static void run_action(const struct daemon *d, const struct action *a, unsigned port, uint64_t ring)
{
	struct guest_cfg cfg = { .features = ring };
	uint64_t start;

	guest_up(&g, &cfg, d->path[0]);
	send_out();
	start = clock_ns();
	a->run();
	check_time(start, port);
	guest_reap(&g);
	MUST(guest_tx_done(&g));
	EQ(g.tx_back, OUT);
	if (!a->ends) {
		/* It goes on. */
		send_out_of(&g, 20);
		stop_ring();
		guest_reap(&g);
		EQ(g.tx_back, OUT + 20);
	}
	OK(vu_frontend_get_vring_base(&g.fe, GUEST_RX, &(uint32_t){ 0 }));
	guest_scribble(&g);
	test_sleep_us(20000); /* longer than the port's 5 ms */
	guest_untouched(&g);
	guest_free(&g);
}

static void run_port(unsigned port, uint64_t ring)
{
	struct neighbour *nb;
	struct daemon d;

	DAEMON_START(&d, ports[port], "loop:");
	nb = neighbour_start(d.path[1]);
	for (unsigned i = 0; i < ARRAY_SIZE(actions); i++) {
		run_action(&d, &actions[i], port, ring);
		run_action(&d, &actions[i], port, ring);
	}
	MUST(neighbour_stop(nb) > 0);
	daemon_stop(&d);
}

static void test_actions(void **state)
{
	for (unsigned p = 0; p < ARRAY_SIZE(ports); p++) {
		for (unsigned r = 0; r < ARRAY_SIZE(rings); r++)
			run_port(p, rings[r]);
	}
}

/* Two stops at once take one deadline. */
static void test_two_devices(void **state)
{
	static struct guest other;
	uint64_t start;
	struct daemon d;

	DAEMON_START(&d, "hold:ms=60000", "hold:ms=60000");
	up(&d);
	guest_up(&other, &g.cfg, d.path[1]);
	send_out();
	send_out_of(&other, OUT);
	start = clock_ns();
	guest_disconnect(&g);
	guest_stop_ring(&other, GUEST_TX);
	check_time(start, 0);
	guest_free(&g);
	guest_down(&other);
	daemon_stop(&d);
}

/* The front end leaves, and takes its memory away while frames are out. */
static void test_disconnect(void **state)
{
	struct neighbour *nb;
	struct daemon d;

	for (unsigned p = 0; p < ARRAY_SIZE(ports); p++) {
		DAEMON_START(&d, ports[p], "loop:");
		nb = neighbour_start(d.path[1]);
		for (unsigned i = 0; i < 5; i++) {
			uint64_t start;

			up(&d);
			send_out();
			start = clock_ns();
			guest_disconnect(&g);
			daemon_count_wait(&d, 0, "connected", 0);
			check_time(start, p);
			guest_reap(&g);
			EQ(g.tx_back, OUT);
			guest_scribble(&g);
			test_sleep_us(10000);
			guest_untouched(&g);
			if (i % 2 == 0)
				OK(ftruncate(g.memfd, 0));
			guest_free(&g);
		}
		MUST(neighbour_stop(nb) > 0);
		daemon_stop(&d);
	}
}

/* A guest in a process of its own, which is killed. */
static pid_t fork_guest(const char *path)
{
	int sync[2];
	pid_t pid;
	char c;

	OK(pipe(sync));
	pid = fork();
	MUST(pid >= 0);
	if (pid == 0) {
		guest_up(&g, NULL, path);
		guest_flood(&g, OUT, 300);
		if (write(sync[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	close(sync[1]);
	MUST(read(sync[0], &c, 1) == 1);
	close(sync[0]);
	return pid;
}

static void test_killed(void **state)
{
	struct neighbour *nb;
	struct daemon d;

	for (unsigned p = 0; p < ARRAY_SIZE(ports); p++) {
		DAEMON_START(&d, ports[p], "loop:");
		for (unsigned i = 0; i < 5; i++) {
			pid_t pid = fork_guest(d.path[0]);

			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			nb = neighbour_start(d.path[1]);
			up(&d);
			send_out_of(&g, 10);
			guest_down(&g);
			MUST(neighbour_stop(nb) > 0);
		}
		daemon_stop(&d);
	}
}

/* SIGTERM while frames are out: the heads come back, the end comes soon. */
static void test_sigterm(void **state)
{
	struct daemon d;

	for (unsigned p = 0; p < ARRAY_SIZE(ports); p++) {
		uint64_t start;
		int status;

		DAEMON_START(&d, ports[p]);
		up(&d);
		send_out();
		start = clock_ns();
		kill(d.pid, SIGTERM);
		status = daemon_wait(&d, test_patience_ms());
		check_time(start, p);
		EQ(status, 0);
		guest_reap(&g);
		EQ(g.tx_back, OUT);
		guest_free(&g);
		daemon_forget(&d);
	}
}

/* SIGTERM, and a message that waits for the drain: both at once. */
static void test_sigterm_while_stopping(void **state)
{
	struct vhost_user_vring_state st = { .index = GUEST_TX };
	struct vhost_user_hdr hdr = { .request = VHOST_USER_GET_VRING_BASE,
				      .flags = VHOST_USER_VERSION,
				      .size = sizeof(st) };
	struct daemon d;

	DAEMON_START(&d, "hold:ms=60000");
	up(&d);
	send_out();
	OK(vu_frontend_send(&g.fe, &hdr, &st, NULL, 0));
	test_sleep_us(10000);
	kill(d.pid, SIGTERM);
	EQ(daemon_wait(&d, test_patience_ms()), 0);
	guest_reap(&g);
	EQ(g.tx_back, OUT);
	guest_free(&g);
	daemon_forget(&d);
}

/* In order although the port is not; every frame comes back in the end. */
static void test_disorder(void **state)
{
	static const uint64_t sets[] = { F_DEFAULT, F_DEFAULT | F_IN_ORDER,
					 F_DEFAULT | F_IN_ORDER | F_EVENT_IDX | F_INDIRECT };
	uint32_t cuts[] = { 12, 30, 5 };

	for (unsigned s = 0; s < ARRAY_SIZE(sets); s++) {
		struct guest_cfg cfg = { .features = sets[s] };
		struct daemon d;

		DAEMON_START(&d, "hold:ms=5,order=random");
		guest_up(&g, &cfg, d.path[0]);
		for (unsigned i = 0; i < test_scale(3000);) {
			if (guest_send_raw(&g, (uint8_t[200]){ 0 }, 200, cuts, i % 4)) {
				i++;
				continue;
			}
			guest_kick(&g, GUEST_TX);
			MUST(guest_pump(&g, test_patience_ms()));
		}
		guest_kick(&g, GUEST_TX);
		GUEST_UNTIL(&g, guest_tx_done(&g));
		EQ(daemon_count(&d, 0, "tx.frames"), test_scale(3000));
		guest_down(&g);
		daemon_stop(&d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_actions),  TEST(test_two_devices), TEST(test_disconnect),
		TEST(test_killed),   TEST(test_sigterm),     TEST(test_sigterm_while_stopping),
		TEST(test_disorder),
	};

	return TEST_BOTH(tests);
}
