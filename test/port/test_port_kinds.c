// SPDX-License-Identifier: BSD-2-Clause
/* What each of null, loop and hold does beside the contract; how specs are read; probe frames. */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/probe_frame.h"
#include "base/util.h"

static struct frame frames[PORT_OUT_MAX];

static struct rig *start(const char *spec)
{
	struct rig *r = rig_new(spec, IO_AUTO);

	rig_up(r);
	return r;
}

static void stop(struct rig *r)
{
	rig_down(r);
	rig_free(r);
}

/* ---- specs ---- */

static void refused(const char *spec, const char *part)
{
	struct port *port = NULL;
	const char *err = NULL;

	/* Nothing that fails has anything to do with the control worker yet. */
	assert_int_equal(port_open(&port, spec, "dev0", NULL, &err), -EINVAL);
	assert_null(port);
	assert_non_null(err);
	if (strstr(err, part) == NULL)
		fail_msg("%s: \"%s\" does not say \"%s\"", spec, err, part);
}

static void test_bad_specs(void **state)
{
	static const char *const schemes[] = { "", "tap", "tapx", "tapp:x", "ta:x", "nul:", ":" };

	for (unsigned i = 0; i < ARRAY_SIZE(schemes); i++) {
		refused(schemes[i], "no such port");
		refused(schemes[i], "tap:NAME");
		refused(schemes[i], "hold:ms=N");
	}
	refused("null:x", "takes nothing");
	refused("null:check=1", "takes nothing");
	refused("loop:x", "no arguments");
	refused("hold:", "needs ms=N");
	refused("hold:order=fifo", "needs ms=N");
	refused("hold:ms", "number");
	refused("hold:ms=", "number");
	refused("hold:ms=x", "number");
	refused("hold:ms=-1", "number");
	refused("hold:ms=1x", "number");
	refused("hold:ms=86400001", "number");
	refused("hold:ms=99999999999999999999999", "number");
	refused("hold:ms=1,order=lifo", "fifo or random");
	refused("hold:ms=1,order", "fifo or random");
	refused("hold:ms=1,speed=2", "unknown key");
	refused("hold:ms=1,,", "unknown key");
}

/* ---- probe frames and null:check ---- */

static void test_probe_frame(void **state)
{
	uint8_t f[200];
	uint64_t seq;

	for (size_t len = PROBE_HEAD_LEN; len < sizeof(f); len++) {
		for (size_t i = 0; i < len; i++)
			f[i] = (uint8_t)i;
		probe_write(f, len, 1000 + len);
		assert_int_equal(probe_read(f, len, &seq), PROBE_GOOD);
		assert_int_equal(seq, 1000 + len);
		for (size_t bit = 8 * ((size_t)PROBE_MACS_LEN + 2); bit < len * 8; bit++) {
			f[bit / 8] ^= (uint8_t)(1 << bit % 8);
			assert_int_equal(probe_read(f, len, &seq), PROBE_DAMAGED);
			f[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		if (len > PROBE_HEAD_LEN)
			assert_int_equal(probe_read(f, len - 1, &seq), PROBE_DAMAGED);
	}
	assert_int_equal(probe_read(f, PROBE_HEAD_LEN - 1, &seq), PROBE_OTHER);
	f[PROBE_MACS_LEN] ^= 1;
	assert_int_equal(probe_read(f, 100, &seq), PROBE_OTHER);
}

static void do_check(struct rig *r, void *unused)
{
	for (unsigned i = 0; i < 8; i++) {
		if (i == 5)
			r->seq += 3; /* three are lost */
		frame_make(r, &frames[i], (uint16_t)i, 100, 3);
	}
	*((uint8_t *)frames[2].iov[2].iov_base) ^= 1;
	frames[7].iov = frames[1].iov;        /* an old one again */
	frame_make(r, &frames[8], 8, 20, 1);  /* of another kind */
	frame_make(r, &frames[9], 9, 100, 1); /* not the next: the last was not seen */
	frame_make(r, &frames[10], 10, 100, 1);
	send_frames(r, frames, 11);
	enter(r);
	take_sent(r, NULL);
}

static void test_null_check(void **state)
{
	/* The damaged one is a gap for the next. */
	static const bool bad[11] = { [2] = true, [3] = true, [5] = true, [7] = true, [9] = true };
	struct rig *r = start("null:check");

	rig_data(r, do_check, NULL);
	assert_int_equal(r->back, 11);
	for (unsigned i = 0; i < 11; i++)
		assert_int_equal(r->res[i], bad[i] ? -EBADMSG : 0);
	stop(r);
}

/* ---- loop ---- */

static void do_loop_full(struct rig *r, void *unused)
{
	for (unsigned i = 0; i < 100; i++)
		frame_make(r, &frames[i], (uint16_t)i, 65000, 1);
	send_frames(r, frames, 100);
	take_sent(r, NULL);
	r->ops->detach(r->port);
	EXPECT(r, r->ops->attach(r->port, r->data, &r->tx, &r->rx) == 0);
	frames_reset(r);
	for (unsigned i = 0; i < 1024; i++)
		frame_make(r, &frames[i], (uint16_t)(1000 + i), 60, 1);
	send_frames(r, frames, 1024);
	take_sent(r, NULL);
	frame_make(r, &frames[0], 5000, 60, 1);
	send_frames(r, frames, 1);
	take_sent(r, NULL);
}

static void test_loop_full(void **state)
{
	struct rig *r = start("loop:");

	rig_data(r, do_loop_full, NULL);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(r->res[i], i < (4 << 20) / 65000 ? 0 : -ENOBUFS);
	for (unsigned i = 0; i < 1024; i++)
		assert_int_equal(r->res[1000 + i], 0);
	assert_int_equal(r->res[5000], -ENOBUFS);
	stop(r);
}

/* Many lengths, or few that differ by a byte, so that places in the ring fit exactly or just not. */
static uint32_t loop_len(unsigned in, unsigned random)
{
	random >>= 8;
	if (in / 1000 % 2 == 0)
		return PROBE_HEAD_LEN + random % (random % 5 == 0 ? 65000 : 3000);
	return 32768 + random % 3;
}

/* Takes up to @n frames, which are whole and follow *@seq; returns how many. */
static unsigned take_looped(struct rig *r, unsigned n, uint64_t *seq)
{
	struct frame rooms[8];
	struct port_rcvd rcvd[8];
	uint64_t got = 0;

	for (unsigned i = 0; i < n; i++)
		room_make(r, &rooms[i], 0, PORT_ROOM, 1);
	n = r->ops->prep_recv(r->port, rooms, n);
	EXPECT(r, r->ops->done_recv(r->port, rcvd, 8) == n);
	for (unsigned i = 0; i < n; i++) {
		const void *bytes = rooms[i].iov[0].iov_base;

		EXPECT(r, rcvd[i].res > 0);
		EXPECT(r, probe_read(bytes, (size_t)rcvd[i].res, &got) == PROBE_GOOD);
		EXPECT(r, got == (*seq)++);
	}
	return n;
}

/* In and out at different speeds, so that the ring of bytes comes around, full and nearly empty. */
static void do_loop_wrap(struct rig *r, void *unused)
{
	unsigned in = 0, out = 0, random = 1, refused_cnt = 0;
	uint64_t seq = 0;

	while (out < 20000) {
		struct frame f;

		frames_reset(r);
		random = random * 1103515245 + 12345;
		frame_make(r, &f, 0, loop_len(in, random), 2);
		send_frames(r, &f, 1);
		take_sent(r, NULL);
		if (r->res[0] == 0)
			in++;
		else
			r->seq--; /* the next takes its number */
		refused_cnt += r->res[0] == -ENOBUFS;
		forget_sent(r);
		if (in / 3000 % 2 == 0 && (random >> 16) % 8 != 0)
			continue;
		out += take_looped(r, 1 + (random >> 20) % 8, &seq);
	}
	EXPECT(r, refused_cnt > 0);
}

static void test_loop_wrap(void **state)
{
	struct rig *r = start("loop:");

	rig_data(r, do_loop_wrap, NULL);
	stop(r);
}

static const struct frame_offload tso = {
	.needs_csum = true,
	.ecn = true,
	.gso = FRAME_GSO_TCP6,
	.gso_size = 1400,
	.hdr_len = 74,
	.csum_start = 54,
	.csum_offset = 16,
};

static void do_loop_set(struct rig *r, void *arg)
{
	EXPECT(r, r->ops->set_offload(r->port, *(unsigned *)arg) == 0);
}

static void do_loop_offload(struct rig *r, void *arg)
{
	int *res = arg;

	frame_make(r, &frames[0], 0, 5000, 1);
	frames[0].off = tso;
	send_frames(r, frames, 1);
	take_sent(r, NULL);
	*res = r->res[0];
	forget_sent(r);
}

static void do_loop_back(struct rig *r, void *unused)
{
	struct port_rcvd rcvd;

	room_make(r, &frames[0], 0, 6000, 1);
	EXPECT(r, r->ops->prep_recv(r->port, frames, 1) == 1);
	EXPECT(r, r->ops->done_recv(r->port, &rcvd, 1) == 1);
	EXPECT(r, rcvd.res == 5000);
	EXPECT(r, rcvd.off.needs_csum && rcvd.off.ecn && rcvd.off.gso == tso.gso);
	EXPECT(r, rcvd.off.gso_size == tso.gso_size && rcvd.off.hdr_len == tso.hdr_len);
	EXPECT(r, rcvd.off.csum_start == tso.csum_start);
	EXPECT(r, rcvd.off.csum_offset == tso.csum_offset);
}

static void test_loop_offload(void **state)
{
	const unsigned need = PORT_GUEST_CSUM | PORT_GUEST_TSO6 | PORT_GUEST_ECN;
	struct rig *r = start("loop:");

	for (unsigned bits = 0; bits < 256; bits++) {
		int res;

		rig_control(r, do_loop_set, &bits);
		rig_data(r, do_loop_offload, &res);
		assert_int_equal(res, (bits & need) == need ? 0 : -EOPNOTSUPP);
		if (res == 0)
			rig_data(r, do_loop_back, NULL);
	}
	stop(r);
}

/* ---- hold ---- */

static void do_hold(struct rig *r, void *unused)
{
	for (unsigned i = 0; i < 64; i++)
		frame_make(r, &frames[i], (uint16_t)i, 1500, i == 10 ? 19 : 2);
	send_frames(r, frames, 64);
	enter(r);
	take_sent(r, NULL);
	EXPECT(r, r->back == 1); /* the one with too many pieces */
	EXPECT(r, r->order[0] == 10);
}

static void hold(const char *spec, bool shuffled)
{
	struct rig *r = start(spec);
	uint64_t began_ns = clock_ns();
	bool in_order = true;

	rig_data(r, do_hold, NULL);
	wait_sent(r, 64);
	assert_true(clock_ns() - began_ns >= 29 * NSEC_PER_MSEC);
	for (unsigned i = 2; i < 64; i++)
		in_order &= r->order[i] > r->order[i - 1];
	assert_int_equal(in_order, !shuffled);
	stop(r);
}

static void test_hold_fifo(void **state)
{
	hold("hold:ms=30", false);
	hold("hold:order=fifo,ms=30", false);
}

static void test_hold_random(void **state)
{
	hold("hold:ms=30,order=random", true);
}

/* Practically never: nothing comes back, nothing wakes, and it can be ended at any time. */
static void test_hold_for_ever(void **state)
{
	struct rig *r = start("hold:ms=60000");

	rig_data(r, do_hold, NULL);
	rig_sleep_ms(50);
	rig_data(r, take_sent, NULL);
	assert_int_equal(r->back, 1);
	assert_int_equal(atomic_load(&r->tx_runs), 0);
	stop(r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_specs),     cmocka_unit_test(test_probe_frame),
		cmocka_unit_test(test_null_check),    cmocka_unit_test(test_loop_full),
		cmocka_unit_test(test_loop_wrap),     cmocka_unit_test(test_loop_offload),
		cmocka_unit_test(test_hold_fifo),     cmocka_unit_test(test_hold_random),
		cmocka_unit_test(test_hold_for_ever),
	};

	log_set_level(LOG_LEVEL_WARN);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]); /* with wildcards */
	return cmocka_run_group_tests_name("port kinds", tests, NULL, NULL);
}
