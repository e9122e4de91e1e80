// SPDX-License-Identifier: BSD-2-Clause
/*
 * The contract of port.h, on every port that there is and with both engines.
 *
 * A new port gets a line in kinds[], and nothing else.
 */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "net_ns.h"

#define TAP "uvport0"

static const struct kind {
	const char *spec;
	bool tap, receives;
} kinds[] = {
	{ .spec = "tap:" TAP, .tap = true, .receives = true },
	{ .spec = "null:" },
	{ .spec = "null:check" },
	{ .spec = "loop:", .receives = true },
	{ .spec = "hold:ms=0" },
	{ .spec = "hold:ms=5" },
	{ .spec = "hold:ms=5,order=random" },
};

struct variant {
	const struct kind *kind;
	enum io_kind io;
};

struct bench {
	struct rig *r;
	const struct kind *kind;
	int sock; /* taps: the other side */
};

static struct frame frames[PORT_OUT_MAX + 1];

static int setup(void **state)
{
	const struct variant *v = *state;
	struct bench *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->kind = v->kind;
	b->sock = -1;
	b->r = rig_new(v->kind->spec, v->io);
	rig_up(b->r);
	if (v->kind->tap) {
		assert_int_equal(if_set_mtu(TAP, 65521), 0);
		assert_int_equal(if_set_up(TAP, true), 0);
		b->sock = packet_open(TAP, false);
		assert_true(b->sock >= 0);
	}
	*state = b;
	return 0;
}

static int teardown(void **state)
{
	struct bench *b = *state;

	rig_down(b->r);
	rig_free(b->r);
	if (b->sock >= 0)
		close(b->sock);
	free(b);
	return 0;
}

static struct rig *rig_of(void **state)
{
	return ((struct bench *)*state)->r;
}

/* ---- life ---- */

static void do_arm(struct rig *r, void *unused)
{
	EXPECT(r, !r->ops->arm_recv(r->port));
}

/* At once: whatever waited on the port has let go of it. */
static void test_reopen(void **state)
{
	struct rig *r = rig_of(state);
	unsigned before;

	rig_down(r);
	before = count_fds();
	for (unsigned i = 0; i < 100; i++) {
		rig_up(r);
		rig_data(r, do_arm, NULL);
		rig_down(r);
	}
	assert_int_equal(count_fds(), before);
}

static void test_attach_again(void **state)
{
	struct rig *r = rig_of(state);
	unsigned before = count_fds();

	for (unsigned i = 0; i < 100; i++) {
		rig_detach(r);
		rig_attach(r);
	}
	assert_int_equal(count_fds(), before);
}

static bool link_is_up(struct rig *r)
{
	return atomic_load(&r->link_up);
}

static bool link_is_down(struct rig *r)
{
	return !atomic_load(&r->link_up);
}

static void test_link(void **state)
{
	struct bench *b = *state;

	assert_true(rig_wait(link_is_up, b->r));
	if (!b->kind->tap) {
		assert_int_equal(atomic_load(&b->r->link_events), 0);
		return;
	}
	assert_int_equal(atomic_load(&b->r->link_events), 1);
	assert_int_equal(if_set_up(TAP, false), 0);
	assert_true(rig_wait(link_is_down, b->r));
	assert_int_equal(if_set_up(TAP, true), 0);
	assert_true(rig_wait(link_is_up, b->r));
	assert_int_equal(atomic_load(&b->r->link_events), 3);
}

static void do_offloads(struct rig *r, void *unused)
{
	unsigned caps = r->ops->caps(r->port);

	for (unsigned bits = 0; bits < 256; bits++) {
		int rc = r->ops->set_offload(r->port, bits);

		EXPECT(r, rc == ((bits & ~caps) == 0 ? 0 : -EOPNOTSUPP));
	}
	EXPECT(r, r->ops->set_offload(r->port, 256) == -EOPNOTSUPP);
	EXPECT(r, r->ops->set_offload(r->port, 0) == 0);
}

static void test_offloads(void **state)
{
	rig_control(rig_of(state), do_offloads, NULL);
}

/* ---- send ---- */

static void do_send(struct rig *r, void *arg)
{
	unsigned n = *(unsigned *)arg;

	for (unsigned i = 0; i < n; i++)
		frame_make(r, &frames[i], (uint16_t)(i * 61), 60 + i, 1 + i % 3);
	send_frames(r, frames, n);
	enter(r);
	take_sent(r, NULL);
}

static void send_many(void **state, unsigned n)
{
	struct rig *r = rig_of(state);

	for (unsigned round = 0; round < 3; round++) {
		rig_data(r, do_send, &n);
		wait_sent(r, n);
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(r->res[(uint16_t)(i * 61)], 0);
		forget_sent(r);
		frames_reset(r);
		/* A port that gives frames has queued them. */
		rig_detach(r);
		rig_attach(r);
		r->seq = 0;
	}
}

static void test_send_1(void **state)
{
	send_many(state, 1);
}

static void test_send_64(void **state)
{
	send_many(state, 64);
}

static void test_send_512(void **state)
{
	send_many(state, 512);
}

static void do_pieces(struct rig *r, void *unused)
{
	static const unsigned pieces[] = { 17, 18, 19, 1022, 1023, 1024, 1024 };

	for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
		frame_make(r, &frames[i], (uint16_t)i, pieces[i] * 64, pieces[i]);
	frame_make(r, &frames[7], 7, 1024, 1024);
	send_frames(r, frames, 8);
	enter(r);
}

static void do_large_pieces(struct rig *r, void *unused)
{
	frame_make(r, &frames[0], 0, 65000, 1024);
	/* Most of it in the first piece. */
	frames[0].iov[0].iov_len = 65000 - 1023;
	for (unsigned i = 1; i < 1024; i++)
		frames[0].iov[i] = (struct iovec){ r->bytes + r->bytes_used - 1024 + i, 1 };
	send_frames(r, frames, 1);
	enter(r);
}

static void test_large_pieces(void **state)
{
	struct rig *r = rig_of(state);

	for (unsigned round = 0; round < 5; round++) {
		rig_data(r, do_large_pieces, NULL);
		wait_sent(r, 1);
		assert_int_equal(r->res[0], 0);
		forget_sent(r);
	}
}

static void test_pieces(void **state)
{
	struct rig *r = rig_of(state);

	/* Twice: whatever room the first entry took is free again. */
	for (unsigned round = 0; round < 2; round++) {
		rig_data(r, do_pieces, NULL);
		wait_sent(r, 8);
		for (unsigned i = 0; i < 8; i++)
			assert_int_equal(r->res[i], 0);
		forget_sent(r);
	}
}

static void do_odd_frames(struct rig *r, void *unused)
{
	static const uint32_t lens[] = { 0, 1, 6, 13, 14, 65535, 65549, 65553, 65554, 70000, 60 };

	for (unsigned i = 0; i < ARRAY_SIZE(lens); i++)
		frame_make(r, &frames[i], (uint16_t)i, lens[i], lens[i] > 0);
	frame_make(r, &frames[11], 11, 70000, 1024);
	frame_make(r, &frames[12], 12, 3, 7); /* most pieces are empty */
	frame_make(r, &frames[13], 13, 60, 1);
	send_frames(r, frames, 14);
	enter(r);
}

static void test_odd_frames(void **state)
{
	struct rig *r = rig_of(state);

	rig_data(r, do_odd_frames, NULL);
	wait_sent(r, 14);
	for (unsigned i = 4; i <= 7; i++)
		assert_int_equal(r->res[i], 0);
}

/* Rounds in which nobody asks for results, up to the most that can be out; then all of them. */
static void do_no_harvest(struct rig *r, void *unused)
{
	for (unsigned i = 0; i < PORT_OUT_MAX; i++)
		frame_make(r, &frames[i], (uint16_t)i, 60, 1);
	for (unsigned i = 0; i < PORT_OUT_MAX; i += PORT_SENT_MAX) {
		send_frames(r, frames + i, PORT_SENT_MAX);
		enter(r);
	}
	frame_make(r, &frames[PORT_OUT_MAX], PORT_OUT_MAX, 60, 1);
	EXPECT(r, r->ops->prep_send(r->port, &frames[PORT_OUT_MAX], 1) == 0);
}

static void test_no_harvest(void **state)
{
	struct rig *r = rig_of(state);

	rig_data(r, do_no_harvest, NULL);
	wait_sent(r, PORT_OUT_MAX);
	for (unsigned i = 0; i < PORT_OUT_MAX; i++)
		assert_int_equal(r->res[i], 0);
}

/* Leaves room for three in the engine's array. */
static void do_full_array(struct rig *r, void *arg)
{
	struct io *io = worker_io(r->data);
	unsigned *taken = arg;
	struct io_file f;
	struct io_op *op;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	EXPECT(r, io_file_add(io, &f, fd) == 0);
	while (io_room(io) > 3) {
		op = io_reserve(io, 1);
		op->file = &f;
		op->opcode = IO_OP_CALL;
	}
	for (unsigned i = 0; i < 10; i++)
		frame_make(r, &frames[i], (uint16_t)i, 60, 1);
	*taken = r->ops->prep_send(r->port, frames, 10);
	EXPECT(r, *taken == 10 || *taken == 3);
	if (*taken == 3)
		EXPECT(r, r->ops->prep_send(r->port, frames + 3, 7) == 0);
	enter(r);
	take_sent(r, NULL);
	io_file_del(io, &f);
	close(fd);
}

static void test_full_array(void **state)
{
	struct rig *r = rig_of(state);
	unsigned taken;

	rig_data(r, do_full_array, &taken);
	wait_sent(r, taken);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(r->backs[i], i < taken);
}

/* Whatever is not back right after the entry must come with a wake-up of tx. */
static void test_tx_wakeup(void **state)
{
	struct rig *r = rig_of(state);
	unsigned n = 64;

	rig_data(r, do_send, &n);
	if (r->back < n) {
		rig_sleep_ms(50);
		assert_in_range(atomic_load(&r->tx_runs), 1, 2);
		rig_data(r, take_sent, NULL);
	}
	assert_int_equal(r->back, n);
	rig_sleep_ms(20);
	assert_in_range(atomic_load(&r->tx_runs), 0, 2);
}

/* ---- frames that are given up ---- */

static void do_send_out(struct rig *r, void *unused)
{
	for (unsigned i = 0; i < 128; i++)
		frame_make(r, &frames[i], (uint16_t)i, 1500, 2);
	send_frames(r, frames, 64);
	enter(r);
	send_frames(r, frames + 64, 64);
	enter(r);
}

static void do_abandon(struct rig *r, void *unused)
{
	r->ops->abandon(r->port);
	frames_unmap(r);
}

static void do_send_more(struct rig *r, void *unused)
{
	take_sent(r, NULL);
	EXPECT(r, r->back == 0);
	frames_remap(r);
	for (unsigned i = 0; i < 64; i++)
		frame_make(r, &frames[i], (uint16_t)(1000 + i), 60, 1);
	send_frames(r, frames, 64);
	enter(r);
	take_sent(r, NULL);
}

static void test_abandon(void **state)
{
	struct rig *r = rig_of(state);

	for (unsigned round = 0; round < 20; round++) {
		rig_data(r, do_send_out, NULL);
		rig_data(r, do_abandon, NULL);
		if (round == 0)
			rig_sleep_ms(20);
		rig_data(r, do_send_more, NULL);
		wait_sent(r, 64);
		for (unsigned i = 0; i < 64; i++)
			assert_int_equal(r->backs[1000 + i], 1);
		forget_sent(r);
		frames_reset(r);
	}
}

static void do_unmap(struct rig *r, void *unused)
{
	frames_unmap(r);
}

static void test_detach_with_frames(void **state)
{
	struct rig *r = rig_of(state);

	rig_data(r, do_send_out, NULL);
	rig_detach(r);
	rig_data(r, do_unmap, NULL);
	rig_sleep_ms(20);
	rig_attach(r);
	rig_data(r, do_send_more, NULL);
	wait_sent(r, 64);
}

static void test_close_with_frames(void **state)
{
	struct rig *r = rig_of(state);

	rig_data(r, do_send_out, NULL);
	rig_down(r);
	rig_data(r, do_unmap, NULL);
	rig_sleep_ms(20);
}

/* ---- receive ---- */

#define ROOM_LEN PORT_ROOM

static void do_recv_empty(struct rig *r, void *unused)
{
	struct port_rcvd rcvd[PORT_RCVD_MAX];
	unsigned n;

	for (unsigned i = 0; i < 8; i++)
		room_make(r, &frames[i], (uint16_t)i, 2000, 2);
	for (unsigned round = 0; round < 3; round++) {
		n = r->ops->prep_recv(r->port, frames, 8);
		EXPECT(r, n <= 8);
		enter(r);
		EXPECT(r, r->ops->done_recv(r->port, rcvd, PORT_RCVD_MAX) == 0);
	}
	for (unsigned at = 0; at < 8 * 2000; at++)
		EXPECT(r, r->bytes[at] == 0xa5);
	EXPECT(r, !r->ops->arm_recv(r->port));
	EXPECT(r, !r->ops->arm_recv(r->port));
}

static void test_recv_empty(void **state)
{
	struct rig *r = rig_of(state);

	rig_data(r, do_recv_empty, NULL);
	rig_sleep_ms(10);
	assert_int_equal(atomic_load(&r->rx_runs), 0);
}

/* Makes a frame arrive at the port. */
static void inject(struct bench *b, struct frame *f)
{
	struct rig *r = b->r;

	if (b->kind->tap) {
		EXPECT(r, send(b->sock, f->iov[0].iov_base, f->len, 0) == (ssize_t)f->len);
		return;
	}
	send_frames(r, f, 1);
	enter(r);
	take_sent(r, NULL);
	EXPECT(r, r->res[f->cookie] == 0);
	forget_sent(r);
}

static void expect_same(struct bench *b, const struct frame *sent, const struct frame *room,
			int32_t len)
{
	const uint8_t *want = sent->iov[0].iov_base, *got = room->iov[0].iov_base;
	struct rig *r = b->r;

	EXPECT(r, len == (int32_t)sent->len);
	if (b->kind->tap) {
		EXPECT(r, memcmp(want, got, sent->len) == 0);
		return;
	}
	EXPECT(r, memcmp(want, got + 6, 6) == 0);
	EXPECT(r, memcmp(want + 6, got, 6) == 0);
	EXPECT(r, memcmp(want + 12, got + 12, sent->len - 12) == 0);
}

/* Receives with up to @n rooms in an entry whatever comes, and compares it with sent[0 .. cnt). */
static void receive(struct bench *b, const struct frame *sent, unsigned cnt, unsigned n)
{
	static struct frame rooms[PORT_RCVD_MAX];
	struct port_rcvd rcvd[PORT_RCVD_MAX];
	struct rig *r = b->r;
	unsigned got = 0, taken, back;

	for (unsigned i = 0; i < n; i++)
		room_make(r, &rooms[i], (uint16_t)(100 + i), ROOM_LEN, 1 + i % 4);
	do {
		taken = r->ops->prep_recv(r->port, rooms, n);
		EXPECT(r, taken <= n);
		enter(r);
		/* In two parts. */
		back = r->ops->done_recv(r->port, rcvd, n / 2);
		back += r->ops->done_recv(r->port, rcvd + back, PORT_RCVD_MAX - back);
		EXPECT(r, back <= taken);
		for (unsigned i = 0; i < back; i++) {
			unsigned room = rcvd[i].cookie - 100u;

			EXPECT(r, room < taken && got < cnt);
			EXPECT(r, i == 0 || rcvd[i].cookie > rcvd[i - 1].cookie);
			if (room < taken && got < cnt)
				expect_same(b, &sent[got], &rooms[room], rcvd[i].res);
			got++;
		}
	} while (back > 0);
	EXPECT(r, got == cnt);
}

static const uint32_t recv_lens[] = { 14, 60, 61, 1514, 1518, 9018, 32768, 65534, 65535 };

static void do_recv(struct rig *r, void *arg)
{
	static const unsigned rooms[] = { 1, 2, 7, 64 };
	struct bench *b = arg;

	for (unsigned k = 0; k < ARRAY_SIZE(rooms); k++) {
		for (unsigned i = 0; i < 40; i++) {
			uint32_t len = i < 30 ? 60 + i : recv_lens[i % ARRAY_SIZE(recv_lens)];

			frame_make(r, &frames[i], (uint16_t)i, len, 1);
			inject(b, &frames[i]);
		}
		receive(b, frames, 40, rooms[k]);
		frames_reset(r);
	}
}

static void test_recv(void **state)
{
	struct bench *b = *state;

	if (b->kind->receives)
		rig_data(b->r, do_recv, b);
}

static void do_small_room(struct rig *r, void *arg)
{
	static const int32_t want[] = { -EMSGSIZE, 60, -EMSGSIZE, 60 };
	struct port_rcvd rcvd[PORT_RCVD_MAX];
	struct bench *b = arg;

	for (unsigned i = 0; i < 4; i++) {
		frame_make(r, &frames[i], (uint16_t)i, 60, 1);
		inject(b, &frames[i]);
	}
	room_make(r, &frames[0], 0, 59, 1);
	room_make(r, &frames[1], 1, 61, 1);
	room_make(r, &frames[2], 2, 0, 0);
	room_make(r, &frames[3], 3, ROOM_LEN, 1024); /* more pieces than the kernel takes */
	EXPECT(r, r->ops->prep_recv(r->port, frames, 4) == 4);
	enter(r);
	EXPECT(r, r->ops->done_recv(r->port, rcvd, PORT_RCVD_MAX) == 4);
	for (unsigned i = 0; i < 4; i++)
		EXPECT(r, rcvd[i].res == want[i]);
}

static void test_small_room(void **state)
{
	struct bench *b = *state;

	if (b->kind->receives)
		rig_data(b->r, do_small_room, b);
}

static void do_inject(struct rig *r, void *arg)
{
	frame_make(r, &frames[0], 0, 60, 1);
	inject(arg, &frames[0]);
}

static void do_take(struct rig *r, void *arg)
{
	receive(arg, frames, 1, 4);
}

static bool rx_ran(struct rig *r)
{
	return atomic_load(&r->rx_runs) > 0;
}

/* A frame that comes wakes rx; one that came before it was armed is seen. */
static void test_rx_wakeup(void **state)
{
	struct bench *b = *state;

	for (unsigned i = 0; b->kind->receives && i < 20; i++) {
		atomic_store(&b->r->rx_runs, 0);
		rig_data(b->r, do_arm, NULL);
		rig_data(b->r, do_inject, b);
		assert_true(rig_wait(rx_ran, b->r));
		rig_data(b->r, do_take, b);
		rig_sleep_ms(1);
		/* Once, or so: nobody has armed it again. */
		assert_in_range(atomic_load(&b->r->rx_runs), 1, 2);
	}
}

static void do_arm_late(struct rig *r, void *arg)
{
	do_inject(r, arg);
	if (r->ops->arm_recv(r->port))
		work_src_ready(&r->rx);
}

static void test_rx_arm_late(void **state)
{
	struct bench *b = *state;

	if (!b->kind->receives)
		return;
	rig_data(b->r, do_arm_late, b);
	assert_true(rig_wait(rx_ran, b->r));
	rig_data(b->r, do_take, b);
}

/* ---- the matrix ---- */

static const struct CMUnitTest cases[] = {
	cmocka_unit_test(test_reopen),
	cmocka_unit_test(test_attach_again),
	cmocka_unit_test(test_link),
	cmocka_unit_test(test_offloads),
	cmocka_unit_test(test_send_1),
	cmocka_unit_test(test_send_64),
	cmocka_unit_test(test_send_512),
	cmocka_unit_test(test_pieces),
	cmocka_unit_test(test_large_pieces),
	cmocka_unit_test(test_odd_frames),
	cmocka_unit_test(test_no_harvest),
	cmocka_unit_test(test_full_array),
	cmocka_unit_test(test_tx_wakeup),
	cmocka_unit_test(test_abandon),
	cmocka_unit_test(test_detach_with_frames),
	cmocka_unit_test(test_close_with_frames),
	cmocka_unit_test(test_recv_empty),
	cmocka_unit_test(test_recv),
	cmocka_unit_test(test_small_room),
	cmocka_unit_test(test_rx_wakeup),
	cmocka_unit_test(test_rx_arm_late),
};

#define VARIANTS_MAX (2 * ARRAY_SIZE(kinds))

/* Every port of the table is tested. */
static void test_no_port_forgotten(void **state)
{
	const struct port_ops *ops;

	for (unsigned n = 0; (ops = port_nth(n)) != NULL; n++) {
		bool found = false;

		for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
			size_t len = strlen(ops->scheme);

			found |= strncmp(kinds[i].spec, ops->scheme, len) == 0 &&
				 kinds[i].spec[len] == ':';
		}
		if (!found)
			fail_msg("kinds[] has no %s:", ops->scheme);
	}
}

static bool have_uring(void)
{
	const char *why;
	struct io *io;
	int rc = io_new(&io, IO_URING, &why);

	if (rc < 0) {
		printf("# skipping the engine uring (%s)\n", log_errname(rc));
		return false;
	}
	io_free(io);
	return true;
}

int main(int argc, char **argv)
{
	static struct variant variants[VARIANTS_MAX];
	static struct CMUnitTest tests[1 + VARIANTS_MAX * ARRAY_SIZE(cases)];
	static char names[ARRAY_SIZE(tests)][80];
	bool taps = netns_enter(), uring = have_uring();
	size_t n = 0;

	log_set_level(LOG_LEVEL_WARN);
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_no_port_forgotten);
	for (unsigned i = 0; i < VARIANTS_MAX; i++) {
		struct variant *v = &variants[i];

		v->kind = &kinds[i / 2];
		v->io = i % 2 == 0 ? IO_PLAIN : IO_URING;
		if ((v->kind->tap && !taps) || (v->io == IO_URING && !uring))
			continue;
		for (unsigned k = 0; k < ARRAY_SIZE(cases); k++) {
			snprintf(names[n], sizeof(names[n]), "%s %s %s", v->kind->spec,
				 v->io == IO_URING ? "uring" : "plain", cases[k].name);
			tests[n] = (struct CMUnitTest){ names[n], cases[k].test_func, setup,
							teardown, v };
			n++;
		}
	}
	if (argc > 1)
		cmocka_set_test_filter(argv[1]); /* with wildcards */
	return _cmocka_run_group_tests("port", tests, n, NULL, NULL);
}
