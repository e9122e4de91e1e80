// SPDX-License-Identifier: BSD-2-Clause
/*
 * The engines: one suite, run on each kind that is to be had here.
 *
 *	ops	reads, writes and calls, on files of every class; nothing stays in the kernel
 *	hostile	peers that clear O_NONBLOCK, fill files and close them
 *	watches	once and many times; cancelled at every moment
 *	sleep	wakes, timeouts, system calls
 *	setup	fall-back and restrictions
 *
 * Taps live in a network namespace of the test's own; frames reach and leave them through a packet
 * socket on the same interface.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"
#include "io/io.h"
#include "io/io_priv.h"

#define FRAME_TYPE 0x88b5 /* for experiments */
#define FRAME_LEN  80
#define TRAPS      30
#define BATCH      64
#define EVENT_FULL 0xfffffffffffffffeULL
#define MSEC       ((int64_t)NSEC_PER_MSEC)
/* No test may take a machine that is slow or watched by a sanitizer for a broken engine. */
#define PATIENCE_NS (3 * NSEC_PER_SEC)

/* The engine under test, new for each test. */
static struct io *io;

static const char *no_tap; /* why there are no taps, or NULL */

/* Helpers. */

static void add_file(struct io_file *f, int fd)
{
	assert_true(fd >= 0);
	assert_int_equal(io_file_add(io, f, fd), 0);
}

static void drop_file(struct io_file *f)
{
	io_file_del(io, f);
	close(f->fd);
}

static struct io_op *put(struct io_file *f, uint8_t opcode, const struct iovec *iov, unsigned cnt)
{
	struct io_op *op = io_reserve(io, 1);

	assert_non_null(op);
	op->file = f;
	op->opcode = opcode;
	op->iov = iov;
	op->iov_cnt = (uint16_t)cnt;
	return op;
}

static void enter(int64_t wait_ns)
{
	assert_int_equal(io_enter(io, wait_ns), 0);
}

static int32_t call(struct io_file *f)
{
	const struct io_op *op = put(f, IO_OP_CALL, NULL, 0);

	enter(0);
	return op->res;
}

static unsigned fired_cnt(void)
{
	unsigned n = 0;

	while (io_fired(io))
		n++;
	return n;
}

static int new_event(uint64_t count)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	assert_true(fd >= 0);
	if (count)
		assert_int_equal(eventfd_write(fd, count), 0);
	return fd;
}

static uint64_t event_count(int fd)
{
	uint64_t count = 0;

	assert_int_equal(eventfd_read(fd, &count), 0);
	return count;
}

static void new_pipe(int fd[2])
{
	assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
}

static void new_pair(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
}

static void fill(int fd)
{
	uint64_t one = 1;

	while (write(fd, &one, sizeof(one)) > 0)
		continue;
	assert_int_equal(errno, EAGAIN);
}

static void set_blocking(int fd)
{
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0);
}

/* Taps. */

struct tap {
	struct io_file file;
	int packet; /* the other side: what it sends is read from the tap, and the other way round */
};

static int open_tap(char name[IFNAMSIZ])
{
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	if (fd >= 0 && ioctl(fd, TUNSETIFF, &ifr))
		fd_close(&fd);
	memcpy(name, ifr.ifr_name, IFNAMSIZ);
	return fd;
}

/* A namespace of our own, without the kernel's own frames on new interfaces. */
static const char *prepare_taps(void)
{
	char name[IFNAMSIZ];
	FILE *f;
	int fd;

	if (unshare(CLONE_NEWNET))
		return "no permission to make a network namespace";
	f = fopen("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w");
	if (f) {
		fputs("1", f);
		fclose(f);
	}
	fd = open_tap(name);
	if (fd < 0)
		return "no permission to make a tap, or no /dev/net/tun";
	close(fd);
	return NULL;
}

static void tap_open(struct tap *t)
{
	struct sockaddr_ll addr = { .sll_family = AF_PACKET, .sll_protocol = htons(FRAME_TYPE) };
	struct ifreq ifr = { 0 };
	int fd;

	if (no_tap) {
		print_message("%s\n", no_tap);
		skip();
	}
	fd = open_tap(ifr.ifr_name);
	assert_true(fd >= 0);
	t->packet = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(FRAME_TYPE));
	assert_true(t->packet >= 0);
	assert_int_equal(ioctl(t->packet, SIOCGIFINDEX, &ifr), 0);
	addr.sll_ifindex = ifr.ifr_ifindex;
	ifr.ifr_flags = IFF_UP;
	assert_int_equal(ioctl(t->packet, SIOCSIFFLAGS, &ifr), 0);
	assert_int_equal(bind(t->packet, (struct sockaddr *)&addr, sizeof(addr)), 0);
	add_file(&t->file, fd);
}

static void tap_close(struct tap *t)
{
	drop_file(&t->file);
	close(t->packet);
}

static void make_frame(uint8_t frame[FRAME_LEN], unsigned nr)
{
	memset(frame, 0, FRAME_LEN);
	memset(frame, 0xff, ETH_ALEN);
	frame[12] = FRAME_TYPE >> 8;
	frame[13] = FRAME_TYPE & 0xff;
	frame[ETH_HLEN] = (uint8_t)nr;
	frame[FRAME_LEN - 1] = (uint8_t)~nr;
}

static void check_frame(const uint8_t *frame, ssize_t len, unsigned nr)
{
	uint8_t want[FRAME_LEN];

	make_frame(want, nr);
	assert_int_equal(len, FRAME_LEN);
	assert_memory_equal(frame, want, FRAME_LEN);
}

static void feed_tap(const struct tap *t, unsigned nr)
{
	uint8_t frame[FRAME_LEN];

	make_frame(frame, nr);
	assert_int_equal(send(t->packet, frame, sizeof(frame), 0), FRAME_LEN);
}

/* ops */

static void test_classes(void **state)
{
	static const char *const unfit[] = { "/", "/proc/self/exe" };
	struct io_file f;
	int fd[2];

	add_file(&f, new_event(0));
	assert_int_equal(f.class, IO_EVENT);
	drop_file(&f);
	new_pipe(fd);
	set_blocking(fd[1]);
	add_file(&f, fd[1]);
	assert_int_equal(f.class, IO_FILE);
	assert_true(fcntl(fd[1], F_GETFL) & O_NONBLOCK);
	drop_file(&f);
	close(fd[0]);
	new_pair(fd);
	add_file(&f, fd[0]);
	assert_int_equal(f.class, IO_SOCKET);
	drop_file(&f);
	close(fd[1]);
	for (unsigned i = 0; i < ARRAY_SIZE(unfit); i++) {
		fd[0] = open(unfit[i], O_RDONLY | O_CLOEXEC);
		assert_int_equal(io_file_add(io, &f, fd[0]), -EINVAL);
		close(fd[0]);
	}
	assert_int_equal(io_file_add(io, &f, -1), -EBADF);
}

static void read_empty_tap(struct tap *t)
{
	uint8_t buf[BATCH][2048];
	struct iovec iov[BATCH];
	struct io_op *ops[BATCH];

	memset(buf, 0xa5, sizeof(buf));
	for (unsigned i = 0; i < BATCH; i++) {
		iov[i] = (struct iovec){ buf[i], sizeof(buf[i]) };
		ops[i] = put(&t->file, IO_OP_READ, &iov[i], 1);
	}
	enter(0);
	for (unsigned i = 0; i < BATCH; i++)
		assert_int_equal(ops[i]->res, -EAGAIN);
	/* A read that had stayed would take this frame now. */
	feed_tap(t, 1);
	enter(0);
	for (unsigned i = 0; i < BATCH; i++)
		assert_int_equal(buf[i][0], 0xa5);
	ops[0] = put(&t->file, IO_OP_READ, &iov[0], 1);
	ops[1] = put(&t->file, IO_OP_READ, &iov[1], 1);
	enter(0);
	check_frame(buf[0], ops[0]->res, 1);
	assert_int_equal(ops[1]->res, -EAGAIN);
}

static void test_empty_tap(void **state)
{
	struct tap t;

	tap_open(&t);
	read_empty_tap(&t);
	tap_close(&t);
}

/* uring only: as on a kernel whose taps have no RWF_NOWAIT. */
static void test_empty_tap_cancel(void **state)
{
	uint64_t entries;
	struct io_watch w;
	struct tap t;

	tap_open(&t);
	t.file.nowait = false;
	entries = io->entries;
	read_empty_tap(&t);
	assert_int_equal(io->entries - entries, 2); /* each cancel was in time */
	/* The cancel that ends the reads must not end a watch. */
	io_watch_init(&w, &t.file, POLLIN, false);
	assert_int_equal(io_watch_arm(io, &w), 0);
	enter(0);
	put(&t.file, IO_OP_READ, &(struct iovec){ &(char){ 0 }, 1 }, 1);
	enter(0);
	enter(0);
	assert_null(io_fired(io));
	feed_tap(&t, 2);
	enter(PATIENCE_NS);
	assert_ptr_equal(io_fired(io), &w);
	tap_close(&t);
}

static void test_tap_frames(void **state)
{
	uint8_t frames[BATCH][FRAME_LEN], buf[2048];
	struct iovec iov[BATCH][2];
	struct io_op *ops[BATCH];
	struct tap t;

	tap_open(&t);
	for (unsigned i = 0; i < BATCH; i++) {
		const size_t cut = i % 2 ? FRAME_LEN : 20;

		make_frame(frames[i], i);
		iov[i][0] = (struct iovec){ frames[i], cut };
		iov[i][1] = (struct iovec){ frames[i] + cut, FRAME_LEN - cut };
		ops[i] = put(&t.file, IO_OP_WRITE, iov[i], i % 2 ? 1 : 2);
	}
	enter(0);
	for (unsigned i = 0; i < BATCH; i++) {
		assert_int_equal(ops[i]->res, FRAME_LEN);
		check_frame(buf, recv(t.packet, buf, sizeof(buf), 0), i);
	}
	for (unsigned i = 0; i < BATCH - 1; i++)
		feed_tap(&t, i);
	memset(frames, 0, sizeof(frames));
	for (unsigned i = 0; i < BATCH; i++)
		ops[i] = put(&t.file, IO_OP_READ, iov[i], i % 2 ? 1 : 2);
	enter(0);
	for (unsigned i = 0; i < BATCH - 1; i++)
		check_frame(frames[i], ops[i]->res, i);
	assert_int_equal(ops[BATCH - 1]->res, -EAGAIN);
	tap_close(&t);
}

/* The whole array, on two files in turn: without RWF_NOWAIT more entries than the ring has. */
static void test_full_array(void **state)
{
	struct io_op *ops[IO_OPS_MAX];
	struct iovec iov = { &(char){ 0 }, 1 };
	struct io_file f[2];
	int fd[2][2];

	for (unsigned i = 0; i < 2; i++) {
		new_pipe(fd[i]);
		add_file(&f[i], fd[i][0]);
		f[i].nowait = false;
	}
	assert_int_equal(write(fd[0][1], "x", 1), 1);
	assert_int_equal(io_room(io), IO_OPS_MAX);
	for (unsigned i = 0; i < IO_OPS_MAX; i++)
		ops[i] = put(&f[i % 2], IO_OP_READ, &iov, 1);
	assert_int_equal(io_room(io), 0);
	assert_null(io_reserve(io, 1));
	enter(0);
	assert_int_equal(io_room(io), IO_OPS_MAX);
	/* The results must survive what is prepared for the next entry. */
	assert_non_null(io_reserve(io, IO_OPS_MAX / 2));
	assert_int_equal(ops[0]->res, 1);
	for (unsigned i = 1; i < IO_OPS_MAX; i++)
		assert_int_equal(ops[i]->res, -EAGAIN);
	for (unsigned i = 0; i < 2; i++) {
		drop_file(&f[i]);
		close(fd[i][1]);
	}
}

static void test_call(void **state)
{
	struct io_file event, pipe_file, sock;
	char buf[64];
	int pipe_fd[2], sock_fd[2];

	new_pipe(pipe_fd);
	new_pair(sock_fd);
	add_file(&event, new_event(0));
	add_file(&pipe_file, pipe_fd[1]);
	add_file(&sock, sock_fd[0]);
	for (unsigned i = 0; i < 3; i++) {
		const struct io_op *ops[] = {
			put(&event, IO_OP_CALL, NULL, 0),
			put(&pipe_file, IO_OP_CALL, NULL, 0),
			put(&sock, IO_OP_CALL, NULL, 0),
		};

		enter(0);
		for (unsigned j = 0; j < ARRAY_SIZE(ops); j++)
			assert_int_equal(ops[j]->res, sizeof(uint64_t));
	}
	assert_int_equal(event_count(event.fd), 3);
	assert_int_equal(read(pipe_fd[0], buf, sizeof(buf)), 3 * sizeof(uint64_t));
	assert_int_equal(read(sock_fd[1], buf, sizeof(buf)), 3 * sizeof(uint64_t));
	drop_file(&event);
	drop_file(&pipe_file);
	drop_file(&sock);
	close(pipe_fd[0]);
	close(sock_fd[1]);
}

/* hostile */

static void test_call_full(void **state)
{
	struct io_file event, pipe_file, sock;
	int pipe_fd[2], sock_fd[2];

	new_pipe(pipe_fd);
	new_pair(sock_fd);
	fill(pipe_fd[1]);
	fill(sock_fd[0]);
	add_file(&event, new_event(EVENT_FULL));
	add_file(&pipe_file, pipe_fd[1]);
	add_file(&sock, sock_fd[0]);
	assert_int_equal(call(&event), -EAGAIN);
	assert_int_equal(call(&pipe_file), -EAGAIN);
	assert_int_equal(call(&sock), -EAGAIN);
	assert_int_equal(event.call_err | pipe_file.call_err | sock.call_err, 0);
	drop_file(&event);
	drop_file(&pipe_file);
	drop_file(&sock);
	close(pipe_fd[0]);
	close(sock_fd[1]);
}

static void test_call_closed(void **state)
{
	struct io_file pipe_file, sock;
	int pipe_fd[2], sock_fd[2];

	new_pipe(pipe_fd);
	new_pair(sock_fd);
	add_file(&pipe_file, pipe_fd[1]);
	add_file(&sock, sock_fd[0]);
	close(pipe_fd[0]);
	close(sock_fd[1]);
	/* SIGPIPE would end the test. */
	assert_int_equal(call(&pipe_file), -EPIPE);
	assert_int_equal(call(&sock), -EPIPE);
	assert_int_equal(pipe_file.call_err, -EPIPE);
	assert_int_equal(sock.call_err, -EPIPE);
	drop_file(&pipe_file);
	drop_file(&sock);
}

/* A front end clears O_NONBLOCK by mistake: its calls arrive all the same. */
static void test_call_cleared(void **state)
{
	struct io_file f;

	add_file(&f, new_event(0));
	set_blocking(f.fd);
	assert_int_equal(call(&f), sizeof(uint64_t));
	/* ... also when the entry sleeps. */
	set_blocking(f.fd);
	put(&f, IO_OP_CALL, NULL, 0);
	enter(MSEC);
	fd_set_nonblock(f.fd);
	assert_int_equal(event_count(f.fd), 2);
	drop_file(&f);
}

/* A front end clears O_NONBLOCK of a file that it has filled, to stop us. */
static void check_trap(struct io_file *f, struct io_file *good)
{
	const uint64_t start = clock_ns();
	const struct io_op *bad, *after;

	for (unsigned i = 0; i < TRAPS; i++) {
		set_blocking(f->fd);
		bad = put(f, IO_OP_CALL, NULL, 0);
		after = put(good, IO_OP_CALL, NULL, 0);
		enter(0);
		assert_true(bad->res == -EAGAIN || bad->res == -ETIMEDOUT);
		assert_int_equal(after->res, sizeof(uint64_t));
	}
	/* It blocked once or twice, not each time. */
	assert_true(clock_ns() - start < TRAPS / 2 * WATCHDOG_NS);
}

static void test_call_trap(void **state)
{
	struct io_file good, event, pipe_file;
	int fd[2];

	new_pipe(fd);
	fill(fd[1]);
	add_file(&good, new_event(0));
	add_file(&event, new_event(EVENT_FULL));
	add_file(&pipe_file, fd[1]);
	check_trap(&event, &good);
	check_trap(&pipe_file, &good);
	assert_int_equal(event_count(good.fd), 2 * TRAPS);
	drop_file(&good);
	drop_file(&event);
	drop_file(&pipe_file);
	close(fd[0]);
}

struct toggler {
	int fd;
	atomic_bool stop;
};

static void *toggle(void *arg)
{
	struct toggler *t = arg;

	while (!atomic_load(&t->stop)) {
		fcntl(t->fd, F_SETFL, O_RDWR);
		fcntl(t->fd, F_SETFL, O_RDWR | O_NONBLOCK);
	}
	return NULL;
}

/* ... and races with our putting it back: every entry ends in time all the same. */
static void test_call_race(void **state)
{
	const uint64_t end = clock_ns() + NSEC_PER_SEC / 2;
	struct toggler toggler = { 0 };
	pthread_t thread;
	struct io_file f;
	uint64_t start;

	add_file(&f, new_event(EVENT_FULL));
	toggler.fd = f.fd;
	assert_int_equal(pthread_create(&thread, NULL, toggle, &toggler), 0);
	do {
		int32_t res;

		start = clock_ns();
		res = call(&f);
		assert_true(res == -EAGAIN || res == -ETIMEDOUT);
		assert_true(clock_ns() - start < PATIENCE_NS);
	} while (start < end);
	atomic_store(&toggler.stop, true);
	pthread_join(thread, NULL);
	drop_file(&f);
}

/* watches */

static void test_kicks(void **state)
{
	struct io_watch w;
	struct io_file f;
	unsigned n = 0;

	add_file(&f, new_event(0));
	io_watch_init(&w, &f, POLLIN, true);
	assert_int_equal(io_watch_arm(io, &w), 0);
	enter(0);
	assert_null(io_fired(io));
	for (unsigned i = 0; i < 1000; i++)
		eventfd_write(f.fd, 1);
	for (unsigned i = 0; i < 10; i++) {
		enter(0);
		n += fired_cnt();
	}
	assert_in_range(n, 1, 3);
	/* It is never read and goes on firing. */
	for (unsigned i = 0; i < 3; i++) {
		eventfd_write(f.fd, 1);
		enter(PATIENCE_NS);
		assert_ptr_equal(io_fired(io), &w);
	}
	assert_int_equal(event_count(f.fd), 1003);
	io_watch_cancel(io, &w);
	drop_file(&f);
}

/* uring only: epoll shows nothing in memory. */
static void test_pending(void **state)
{
	struct io_watch w;
	struct io_file f;

	add_file(&f, new_event(0));
	io_watch_init(&w, &f, POLLIN, true);
	assert_int_equal(io_watch_arm(io, &w), 0);
	enter(0);
	assert_false(io_pending(io));
	eventfd_write(f.fd, 1);
	assert_true(io_pending(io));
	enter(0);
	assert_false(io_pending(io));
	assert_ptr_equal(io_fired(io), &w);
	io_watch_cancel(io, &w);
	drop_file(&f);
}

static void test_oneshot(void **state)
{
	struct io_watch w;
	struct io_file f;
	int fd[2];

	new_pipe(fd);
	add_file(&f, fd[0]);
	io_watch_init(&w, &f, POLLIN, false);
	assert_int_equal(io_watch_arm(io, &w), 0);
	enter(0);
	assert_int_equal(io_watch_arm(io, &w), 0); /* armed already */
	enter(0);
	assert_null(io_fired(io));
	assert_int_equal(write(fd[1], "x", 1), 1);
	enter(PATIENCE_NS);
	assert_ptr_equal(io_fired(io), &w);
	assert_null(io_fired(io));
	assert_int_equal(write(fd[1], "x", 1), 1);
	enter(MSEC);
	assert_null(io_fired(io));
	/* What is there when it is armed counts. */
	assert_int_equal(io_watch_arm(io, &w), 0);
	enter(PATIENCE_NS);
	assert_ptr_equal(io_fired(io), &w);
	/* An idle watch needs no cancel. */
	drop_file(&f);
	close(fd[1]);
}

/* Several watches of one file do not disturb each other. */
static void test_one_file(void **state)
{
	struct io_watch in, out, kick;
	struct io_file f;
	int fd[2];

	new_pair(fd);
	add_file(&f, fd[0]);
	io_watch_init(&in, &f, POLLIN, false);
	io_watch_init(&out, &f, POLLOUT, false);
	io_watch_init(&kick, &f, POLLIN, true);
	assert_int_equal(io_watch_arm(io, &in), 0);
	assert_int_equal(io_watch_arm(io, &out), 0);
	enter(PATIENCE_NS);
	assert_ptr_equal(io_fired(io), &out);
	assert_null(io_fired(io));
	assert_int_equal(write(fd[1], "x", 1), 1);
	enter(PATIENCE_NS);
	assert_ptr_equal(io_fired(io), &in);
	assert_int_equal(io_watch_arm(io, &in), 0);
	assert_int_equal(io_watch_arm(io, &kick), 0);
	enter(PATIENCE_NS);
	enter(0);
	assert_int_equal(fired_cnt(), 2);
	assert_false(in.armed);
	assert_true(kick.armed);
	assert_int_equal(io_watch_arm(io, &out), 0);
	io_watch_cancel(io, &kick);
	enter(PATIENCE_NS);
	assert_ptr_equal(io_fired(io), &out);
	assert_null(io_fired(io));
	drop_file(&f);
	close(fd[1]);
}

/* At which moment a watch is cancelled. */
enum moment { ARMED, SUBMITTED, IN_KERNEL, COLLECTED, MOMENTS };

static void cancel_at(enum moment moment, bool multishot)
{
	struct io_watch *w = malloc(sizeof(*w));
	struct io_file f, next_f;
	struct io_watch next;

	assert_non_null(w);
	add_file(&f, new_event(0));
	io_watch_init(w, &f, POLLIN, multishot);
	assert_int_equal(io_watch_arm(io, w), 0);
	if (moment >= SUBMITTED)
		enter(0);
	if (moment >= IN_KERNEL)
		eventfd_write(f.fd, 1);
	if (moment >= COLLECTED)
		enter(PATIENCE_NS);
	io_watch_cancel(io, w);
	free(w);
	assert_null(io_fired(io));
	/* What the kernel has to say about the first must not be taken for the next. */
	add_file(&next_f, new_event(0));
	io_watch_init(&next, &next_f, POLLIN, multishot);
	assert_int_equal(io_watch_arm(io, &next), 0);
	eventfd_write(f.fd, 1);
	enter(MSEC);
	assert_null(io_fired(io));
	eventfd_write(next_f.fd, 1);
	enter(PATIENCE_NS);
	assert_ptr_equal(io_fired(io), &next);
	assert_null(io_fired(io));
	io_watch_cancel(io, &next);
	drop_file(&f);
	drop_file(&next_f);
	enter(0);
	assert_null(io_fired(io));
}

static void test_cancel(void **state)
{
	for (int moment = ARMED; moment < MOMENTS; moment++) {
		cancel_at((enum moment)moment, false);
		cancel_at((enum moment)moment, true);
	}
}

/* More than the kernel completes in one go. */
static void test_many(void **state)
{
	struct io_watch w[200];
	struct io_file f[ARRAY_SIZE(w)];

	for (unsigned i = 0; i < ARRAY_SIZE(w); i++) {
		add_file(&f[i], new_event(0));
		io_watch_init(&w[i], &f[i], POLLIN, true);
		assert_int_equal(io_watch_arm(io, &w[i]), 0);
	}
	enter(0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(w); i++)
			eventfd_write(f[i].fd, 1);
		enter(0);
		assert_int_equal(fired_cnt(), ARRAY_SIZE(w));
	}
	for (unsigned i = 0; i < ARRAY_SIZE(w); i++) {
		io_watch_cancel(io, &w[i]);
		drop_file(&f[i]);
	}
	enter(0);
	assert_null(io_fired(io));
}

/* sleep */

static void *wake_later(void *arg)
{
	usleep(20000);
	io_wake(io);
	return NULL;
}

static void test_wake(void **state)
{
	const uint64_t start = clock_ns();
	pthread_t thread;

	/* Before the sleep, or in an entry that does not sleep: the next sleep ends. */
	io_wake(io);
	enter(-1);
	io_wake(io);
	enter(0);
	enter(-1);
	assert_null(io_fired(io));
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(pthread_create(&thread, NULL, wake_later, NULL), 0);
		enter(i % 2 ? -1 : (int64_t)PATIENCE_NS);
		pthread_join(thread, NULL);
	}
	assert_true(clock_ns() - start < PATIENCE_NS);
}

struct waker {
	atomic_uint seen;
	atomic_bool stop;
};

/* Wakes as soon as the last wake was seen: at every moment of an entry. */
static void *wake_often(void *arg)
{
	struct waker *w = arg;
	unsigned last = 0;

	io_wake(io);
	while (!atomic_load(&w->stop)) {
		const unsigned seen = atomic_load(&w->seen);

		if (seen == last)
			continue;
		last = seen;
		io_wake(io);
	}
	return NULL;
}

static void test_wake_race(void **state)
{
	struct waker w = { 0 };
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, wake_often, &w), 0);
	for (unsigned i = 1; i <= 2000; i++) {
		const uint64_t start = clock_ns();

		enter(PATIENCE_NS);
		assert_true(clock_ns() - start < PATIENCE_NS);
		atomic_store(&w.seen, i);
	}
	atomic_store(&w.stop, true);
	pthread_join(thread, NULL);
}

static void check_timeout(int64_t wait_ns)
{
	const uint64_t start = clock_ns();
	uint64_t took;

	enter(wait_ns);
	took = clock_ns() - start;
	assert_true(took >= (uint64_t)wait_ns);
	assert_true(took < (uint64_t)wait_ns + NSEC_PER_SEC);
}

static void test_timeout(void **state)
{
	check_timeout(1);
	check_timeout(300000);
	check_timeout(20 * MSEC);
}

/* The watchdog's tick does not end a sleep, and does not come again in it. */
static void test_watchdog_rests(void **state)
{
	struct io_file f;

	add_file(&f, new_event(0));
	put(&f, IO_OP_CALL, NULL, 0);
	check_timeout(3 * WATCHDOG_NS);
	assert_false(io->dog.ticking);
	drop_file(&f);
}

/* The entries of a short sleep after @calls calls: the fewest, as a tick may interrupt one. */
static uint64_t entries_to_sleep(struct io_file *f, unsigned calls)
{
	uint64_t entries, fewest = UINT64_MAX;

	for (unsigned try = 0; try < 10; try++) {
		for (unsigned i = 0; i < calls; i++)
			put(f, IO_OP_CALL, NULL, 0);
		entries = io->entries;
		enter(MSEC);
		entries = io->entries - entries;
		fewest = entries < fewest ? entries : fewest;
	}
	return fewest;
}

static void test_entries(void **state)
{
	struct io_watch w;
	struct io_file f;
	uint64_t entries;

	add_file(&f, new_event(0));
	enter(0);
	entries = io->entries;
	enter(0);
	/* There is nothing to do, and a ring sees that. */
	assert_int_equal(io->entries - entries, io_kind(io) == IO_URING ? 0 : 1);
	/* Calls and the sleep are one. */
	assert_int_equal(entries_to_sleep(&f, 2), 1);
	assert_int_equal(event_count(f.fd), 20);
	/* A cancelled watch does not disturb the sleep. */
	io_watch_init(&w, &f, POLLIN, true);
	assert_int_equal(io_watch_arm(io, &w), 0);
	enter(0);
	io_watch_cancel(io, &w);
	enter(0);
	assert_int_equal(entries_to_sleep(&f, 1), 1);
	drop_file(&f);
}

/* setup */

/* uring only. */
static void test_forbidden(void **state)
{
	struct io_file f;

	add_file(&f, new_event(0));
	assert_int_equal(uring_try(io, &f, IORING_OP_NOP), -EACCES);
	assert_int_equal(uring_try(io, &f, IORING_OP_OPENAT), -EACCES);
	assert_int_equal(uring_try(io, &f, IORING_OP_READ), -EINVAL); /* less than 8 bytes */
	drop_file(&f);
}

/* From here on @nr fails with @err in this process. */
static void forbid(unsigned nr, unsigned err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog prog = { .len = ARRAY_SIZE(code), .filter = code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		_exit(2);
}

/* Runs @fn in a process where @nr fails with @err. */
static void check_without(unsigned nr, unsigned err, bool (*fn)(unsigned err))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		forbid(nr, err);
		_exit(fn(err) ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static bool falls_back(unsigned err)
{
	const char *why = NULL, *none = NULL;

	if (io_new(&io, IO_AUTO, &why) || io_kind(io) != IO_PLAIN || !why)
		return false;
	if (err == EPERM && !strstr(why, "forbidden here (EPERM"))
		return false;
	io_free(io);
	return io_new(&io, IO_URING, &none) == -(int)err && !none;
}

static bool sleeps_well(unsigned err)
{
	const uint64_t start = clock_ns();
	const char *why;

	if (io_new(&io, IO_PLAIN, &why) || io_enter(io, MSEC + 1) || io_enter(io, 0))
		return false;
	if (clock_ns() - start <= NSEC_PER_MSEC)
		return false;
	io_wake(io);
	return !io_enter(io, -1);
}

static void test_fallback(void **state)
{
	check_without(SYS_io_uring_setup, EPERM, falls_back);
	check_without(SYS_io_uring_setup, ENOSYS, falls_back);
	check_without(SYS_io_uring_register, EPERM, falls_back);
	check_without(SYS_io_uring_enter, EPERM, falls_back);
}

static void test_coarse(void **state)
{
	check_without(SYS_epoll_pwait2, ENOSYS, sleeps_well);
}

/* Engines come and go; more than a thread may have registered at a time. */
static void test_engines(void **state)
{
	const enum io_kind kind = io_kind(io);
	struct io *more[24];
	const char *why;

	for (unsigned i = 0; i < ARRAY_SIZE(more); i++)
		assert_int_equal(io_new(&more[i], kind, &why), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(more); i++) {
		assert_int_equal(io_enter(more[i], 1), 0);
		io_free(more[i]);
	}
}

/* A freed engine lets go of the files that it had. */
static void test_lets_go(void **state)
{
	struct io *own = io;
	struct pollfd peer = { 0 };
	struct io_watch w;
	struct io_file f;
	const char *why;
	int fd[2];

	new_pipe(fd);
	assert_int_equal(io_new(&io, io_kind(own), &why), 0);
	add_file(&f, fd[1]);
	io_watch_init(&w, &f, POLLERR, false);
	assert_int_equal(io_watch_arm(io, &w), 0);
	enter(0);
	io_watch_cancel(io, &w);
	drop_file(&f);
	io_free(io);
	io = own;
	peer.fd = fd[0];
	assert_int_equal(poll(&peer, 1, PATIENCE_NS / NSEC_PER_MSEC), 1);
	assert_true(peer.revents & POLLHUP);
	close(fd[0]);
}

/* The suite on one kind. */

static int set_up(void **state)
{
	const enum io_kind *kind = *state;
	const char *why;

	return io_new(&io, *kind, &why);
}

static int tear_down(void **state)
{
	io_free(io);
	return 0;
}

#define ON(kind_, fn)                             \
	{                                         \
#fn, fn, set_up, tear_down, kind_ \
	}

static int run_suite(enum io_kind *kind)
{
	const struct CMUnitTest tests[] = {
		ON(kind, test_lets_go), /* while the thread's table of rings has room */
		ON(kind, test_classes),        ON(kind, test_empty_tap),
		ON(kind, test_tap_frames),     ON(kind, test_full_array),
		ON(kind, test_call),           ON(kind, test_call_full),
		ON(kind, test_call_closed),    ON(kind, test_call_cleared),
		ON(kind, test_call_trap),      ON(kind, test_call_race),
		ON(kind, test_kicks),          ON(kind, test_oneshot),
		ON(kind, test_one_file),       ON(kind, test_cancel),
		ON(kind, test_many),           ON(kind, test_wake),
		ON(kind, test_wake_race),      ON(kind, test_timeout),
		ON(kind, test_watchdog_rests), ON(kind, test_entries),
		ON(kind, test_engines),        ON(kind, test_lets_go),
	};

	print_message("%s:\n", *kind == IO_URING ? "uring" : "plain");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

static int run_uring(void)
{
	enum io_kind kind = IO_URING;
	const struct CMUnitTest tests[] = {
		ON(&kind, test_empty_tap_cancel),
		ON(&kind, test_pending),
		ON(&kind, test_forbidden),
	};

	return run_suite(&kind) + cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest setup[] = {
		cmocka_unit_test(test_fallback),
		cmocka_unit_test(test_coarse),
	};
	enum io_kind plain = IO_PLAIN;
	const char *why;
	int failed;

	no_tap = prepare_taps();
	failed = cmocka_run_group_tests(setup, NULL, NULL);
	failed += run_suite(&plain);
	if (io_new(&io, IO_AUTO, &why))
		return 1;
	io_free(io);
	if (why)
		print_message("uring: %s\n", why);
	else
		failed += run_uring();
	return failed;
}
