// SPDX-License-Identifier: BSD-2-Clause
/* Descriptors that a front end sends to make somebody wait: the worker, or the control thread. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "lib/daemon.h"
#include "lib/guest.h"
#include "lib/neighbour.h"

#define PAGE 4096

static struct guest g;
static struct daemon d;

/* How long a new front end of device @i waits for its first answer. */
static unsigned answer_ms(unsigned i)
{
	uint64_t start = clock_ns(), features;
	struct vu_frontend fe;

	OK(vu_frontend_connect(&fe, d.path[i], (int)test_patience_ms()));
	OK(vu_frontend_get_u64(&fe, VHOST_USER_GET_FEATURES, &features));
	vu_frontend_close(&fe);
	return (unsigned)((clock_ns() - start) / NSEC_PER_MSEC);
}

static unsigned limit_ms(unsigned ms)
{
	return test_sanitized() ? 10 * ms : ms;
}

/* ---- what holds a lock while it waits for memory ---- */

static int uffd;

/* A page that does not arrive; NULL: not permitted here. */
static void *missing_page(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	void *page;

	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (uffd < 0)
		return NULL;
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(page != MAP_FAILED);
	reg.range.start = (uintptr_t)page;
	reg.range.len = PAGE;
	OK(ioctl(uffd, UFFDIO_API, &api));
	OK(ioctl(uffd, UFFDIO_REGISTER, &reg));
	return page;
}

static void let_arrive(void *page)
{
	struct uffdio_zeropage zero = { .range = { .start = (uintptr_t)page, .len = PAGE } };

	OK(ioctl(uffd, UFFDIO_ZEROPAGE, &zero));
	munmap(page, PAGE);
	close(uffd);
}

struct holder {
	int fd;
	void *page;
	pthread_t thread;
};

static void *hold_epoll(void *arg)
{
	struct holder *h = arg;

	epoll_wait(h->fd, h->page, 1, -1);
	return NULL;
}

static void *hold_pipe(void *arg)
{
	struct holder *h = arg;

	MUST(write(h->fd, h->page, PAGE) == PAGE);
	return NULL;
}

/* Offers @fd, whose lock somebody holds, as every kind of doorbell. */
static void offer_held(int fd, void *(*hold)(void *arg))
{
	struct holder h = { .fd = fd, .page = missing_page() };
	struct uffd_msg msg;
	struct neighbour *nb;

	if (h.page == NULL) {
		print_message("userfaultfd is not permitted here\n");
		skip();
	}
	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	guest_up(&g, NULL, d.path[0]);
	OK(-pthread_create(&h.thread, NULL, hold, &h));
	MUST(read(uffd, &msg, sizeof(msg)) == sizeof(msg)); /* it waits for its page */
	for (uint32_t req = VHOST_USER_SET_VRING_KICK; req <= VHOST_USER_SET_VRING_ERR; req++)
		EQ(vu_frontend_vring_fd(&g.fe, req, GUEST_TX, fd), -EREMOTEIO);
	test_sleep_us(200000);
	MUST(neighbour_worst_ms(nb) < limit_ms(200));
	guest_exchange(&g, 50, 100, 16);
	let_arrive(h.page);
	pthread_join(h.thread, NULL);
	guest_down(&g);
	MUST(neighbour_stop(nb) > 0);
	daemon_stop(&d);
}

static void test_held_epoll(void **state)
{
	int event = eventfd(1, EFD_CLOEXEC), fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = { .events = EPOLLIN };

	OK(epoll_ctl(fd, EPOLL_CTL_ADD, event, &ev));
	offer_held(fd, hold_epoll);
	close(fd);
	close(event);
}

static void test_held_pipe(void **state)
{
	int pipes[2];

	OK(pipe2(pipes, O_CLOEXEC | O_NONBLOCK));
	offer_held(pipes[1], hold_pipe);
	close(pipes[0]);
	close(pipes[1]);
}

/* ---- what takes long to close ---- */

#define LINGER_S 5
#define MANY     100U

/* A TCP socket that waits so many seconds when it is closed; *@sink is its other end. */
static int lingering(int *sink)
{
	const struct linger linger = { .l_onoff = 1, .l_linger = LINGER_S };
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(addr);
	const int room = 4096;
	static char bytes[65536];

	OK(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
	OK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)));

	OK(bind(listener, (struct sockaddr *)&addr, sizeof(addr)));
	OK(listen(listener, 1));
	OK(getsockname(listener, (struct sockaddr *)&addr, &len));
	OK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)));
	/* cppcheck-suppress nullPointer; nobody wants the peer's address */
	*sink = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	MUST(*sink >= 0);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	OK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	close(listener);
	return fd;
}

/* In a message that is read (@read), or behind one that ends the connection. */
static void linger_in(bool read)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_GET_FEATURES,
				      .flags = VHOST_USER_VERSION };
	const struct vhost_user_hdr bad = { .request = 1, .flags = 7 };
	struct vu_frontend fe;
	int fd, sink;

	DAEMON_START(&d, "loop:", "loop:");
	OK(vu_frontend_connect(&fe, d.path[0], (int)test_patience_ms()));
	fd = lingering(&sink);
	if (!read)
		OK(vu_frontend_send(&fe, &bad, NULL, NULL, 0));
	vu_frontend_send(&fe, &hdr, NULL, &fd, 1);
	close(fd);
	for (unsigned i = 0; i < 10; i++) {
		MUST(answer_ms(1) < limit_ms(500));
		test_sleep_us(20000);
	}
	vu_frontend_close(&fe);
	close(sink); /* which ends the lingering */
	daemon_stop(&d);
}

static void test_lingering(void **state)
{
	linger_in(true);
	linger_in(false);
}

/* More of them than may wait: the front end itself waits, and nobody else. */
static void test_many_lingering(void **state)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_SET_OWNER,
				      .flags = VHOST_USER_VERSION };
	int sinks[MANY], more;
	struct vu_frontend fe;
	unsigned before;

	DAEMON_START(&d, "loop:", "loop:");
	OK(vu_frontend_connect(&fe, d.path[0], (int)test_patience_ms()));
	before = daemon_fds(&d);
	for (unsigned i = 0; i < MANY; i++) {
		int fd = lingering(&sinks[i]);

		OK(vu_frontend_send(&fe, &hdr, NULL, &fd, 1));
		close(fd);
	}
	MUST(answer_ms(1) < limit_ms(500));
	more = (int)daemon_fds(&d) - (int)before;
	print_message("%s: of %u descriptors %d wait to be closed\n", daemon_io, MANY, more);
	MUST(more > 0 && more <= 70);
	for (unsigned i = 0; i < MANY; i++)
		close(sinks[i]);
	/* All are closed then, and the front end is listened to again. */
	daemon_count_wait(&d, 0, "bad_messages", MANY);
	vu_frontend_close(&fe);
	daemon_stop(&d);
}

/* ---- what keeps others out ---- */

/* A front end gives its own end of the connection away, and dies. */
static void test_own_end(void **state)
{
	pid_t pid;

	DAEMON_START(&d, "loop:");
	pid = fork();
	if (pid == 0) {
		struct vhost_user_hdr hdr = { .request = VHOST_USER_SET_BACKEND_REQ_FD };
		struct vu_frontend fe;

		if (vu_frontend_connect(&fe, d.path[0], (int)test_patience_ms()) < 0)
			_exit(1);
		vu_frontend_set_protocol_features(&fe, P_DEFAULT);
		if (vu_frontend_vring_fd(&fe, VHOST_USER_SET_VRING_CALL, 0, fe.fd) != -EREMOTEIO ||
		    vu_frontend_request(&fe, &hdr, NULL, &fe.fd, 1) != -EREMOTEIO)
			_exit(1);
		_exit(0);
	}
	MUST(pid > 0);
	{
		int status;

		EQ(waitpid(pid, &status, 0), pid);
		EQ(status, 0);
	}
	daemon_count_wait(&d, 0, "connected", 0);
	answer_ms(0);
	daemon_stop(&d);
}

/* ---- a flag that comes and goes ---- */

static atomic_bool stop_flipping;

static void *flip(void *arg)
{
	const int *fd = arg;

	while (!atomic_load(&stop_flipping))
		fcntl(*fd, F_SETFL, O_RDWR);
	return NULL;
}

/* O_NONBLOCK is cleared all the time on a full eventfd, which is made the call again and again: the
 * worker waits in it once a ring, then that front end is not wanted for a while. */
static void test_flipping(void **state)
{
	uint64_t until = clock_ns() + 2 * NSEC_PER_SEC;
	struct neighbour *nb;
	pthread_t thread;
	unsigned i = 0;
	int fd;

	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	guest_up(&g, NULL, d.path[0]);
	fd = eventfd(0, EFD_CLOEXEC);
	OK(eventfd_write(fd, UINT64_MAX - 1));
	atomic_store(&stop_flipping, false);
	OK(-pthread_create(&thread, NULL, flip, &fd));
	while (clock_ns() < until) {
		struct vu_frontend fe;

		while (vu_frontend_vring_fd(&g.fe, VHOST_USER_SET_VRING_CALL, i++ % 2, fd) == 0 &&
		       clock_ns() < until)
			;
		/* It tries to come back. */
		if (vu_frontend_connect(&fe, d.path[0], 100) == 0)
			vu_frontend_close(&fe);
		test_sleep_us(1000);
	}
	atomic_store(&stop_flipping, true);
	pthread_join(thread, NULL);
	print_message("%s: %u messages, stuck %u times, the neighbour's worst %u ms\n", daemon_io,
		      i, daemon_log_lines(&d, "made us wait"), neighbour_worst_ms(nb));
	MUST(daemon_log_lines(&d, "made us wait") <= 2);
	guest_free(&g);
	MUST(neighbour_stop(nb) > 0);
	close(fd);
	daemon_stop(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_held_epoll),     TEST(test_held_pipe), TEST(test_lingering),
		TEST(test_many_lingering), TEST(test_own_end),   TEST(test_flipping),
	};

	return TEST_BOTH(tests);
}
