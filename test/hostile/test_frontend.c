// SPDX-License-Identifier: BSD-2-Clause
/*
 * Front ends that break the rules (field case section B), while a guest of another device of the same
 * process exchanges frames and loses nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "lib/daemon.h"
#include "lib/guest.h"
#include "lib/neighbour.h"

#define REQUESTS 45

static struct guest g;
static struct neighbour *nb;
static struct daemon d;
static struct vu_frontend fe;

static void open_daemon(void)
{
	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	fe.fd = -1;
}

static void close_daemon(void)
{
	if (fe.fd >= 0)
		vu_frontend_close(&fe);
	guest_up(&g, NULL, d.path[0]);
	guest_exchange(&g, 100, 100, 32);
	guest_down(&g);
	MUST(neighbour_stop(nb) > 0);
	MUST(daemon_log_lines(&d, "") < 60);
	daemon_stop(&d);
}

/* A connection to the first device, the old one or a new one when that was closed. */
static void connected(void)
{
	if (fe.fd >= 0)
		return;
	OK(vu_frontend_connect(&fe, d.path[0], (int)test_patience_ms()));
}

/* Sends anything; takes whatever answers are there; reconnects when the back end has had enough. */
static void send_any(const struct vhost_user_hdr *hdr, const void *payload, const int *fds,
		     unsigned fd_cnt)
{
	int ret;

	connected();
	ret = vu_frontend_send(&fe, hdr, payload, fds, fd_cnt);
	while (ret >= 0) {
		ret = vu_channel_recv(&fe.ch);
		if (ret <= 0)
			break;
		vu_msg_close(&fe.ch.in);
	}
	if (ret < 0)
		vu_frontend_close(&fe);
}

/* A last message that is answered: what was sent before has been dealt with. */
static void settle(void)
{
	uint64_t features;
	int ret;

	for (unsigned i = 0;; i++) {
		connected();
		ret = vu_frontend_get_u64(&fe, VHOST_USER_GET_FEATURES, &features);
		if (ret == 0)
			return;
		MUST(i < 1000);
		/* Answers of before. */
		if (ret != -EPROTO)
			vu_frontend_close(&fe);
	}
}

static uint32_t payload_size(uint32_t request)
{
	switch (request) {
	case VHOST_USER_SET_FEATURES:
	case VHOST_USER_SET_PROTOCOL_FEATURES:
	case VHOST_USER_SET_VRING_KICK:
	case VHOST_USER_SET_VRING_CALL:
	case VHOST_USER_SET_VRING_ERR:
	case VHOST_USER_SET_VRING_NUM:
	case VHOST_USER_SET_VRING_BASE:
	case VHOST_USER_GET_VRING_BASE:
	case VHOST_USER_SET_VRING_ENABLE:
		return 8;
	case VHOST_USER_SET_VRING_ADDR:
		return 40;
	case VHOST_USER_SET_MEM_TABLE:
		return 8 + 2 * 32;
	case VHOST_USER_GET_CONFIG:
	case VHOST_USER_SET_CONFIG:
		return 12 + 12;
	default:
		return 0;
	}
}

/* More descriptors than any message can have. */
static void send_many_fds(int fd, unsigned cnt)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_GET_FEATURES,
				      .flags = VHOST_USER_VERSION };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(64 * sizeof(int))];
	} room = { .align = { .cmsg_len = CMSG_LEN(cnt * sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { .iov_base = &hdr, .iov_len = sizeof(hdr) };
	struct msghdr mh = { .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = room.buf,
			     .msg_controllen = CMSG_SPACE(cnt * sizeof(int)) };

	connected();
	for (unsigned i = 0; i < cnt; i++)
		memcpy(CMSG_DATA(&room.align) + i * sizeof(int), &fd, sizeof(int));
	if (sendmsg(fe.fd, &mh, MSG_NOSIGNAL) < 0)
		vu_frontend_close(&fe);
}

/* Field case 28: each message with 0 to 8 descriptors, of right and wrong size, again and again. */
static void test_fd_flood(void **state)
{
	uint8_t payload[sizeof(union vhost_user_payload)] = { 0 };
	int fds[VU_MSG_FDS_MAX];
	unsigned rounds = test_scale(300);

	for (unsigned i = 0; i < VU_MSG_FDS_MAX; i++) {
		fds[i] = i % 2 == 0 ? eventfd(0, EFD_CLOEXEC) : memfd_create("x", MFD_CLOEXEC);
		MUST(fds[i] >= 0);
	}
	open_daemon();
	for (unsigned i = 0; i < rounds; i++) {
		for (uint32_t request = 0; request < REQUESTS; request++) {
			struct vhost_user_hdr hdr = { .request = request,
						      .flags = VHOST_USER_VERSION,
						      .size = payload_size(request) };

			if (i % 3 == 1)
				hdr.size = i % 16;
			send_any(&hdr, payload, fds, i % 2 == 0 ? VU_MSG_FDS_MAX : i % 9);
		}
		send_many_fds(fds[0], 9 + i % 50);
		if (i % 50 == 0) {
			settle();
			/* One ring each has a kick, a call and an error descriptor at most. */
			MUST(daemon_fds(&d) < d.fds + 100);
		}
	}
	for (unsigned i = 0; i < VU_MSG_FDS_MAX; i++)
		close(fds[i]);
	close_daemon();
}

/* Field case 26: every message with an index, with indexes that there are not. */
static void test_bad_index(void **state)
{
	static const uint32_t idxs[] = { 3,       0xff,       0x100,      0x101,     0x10000,
					 0x10001, 0x80000000, 0xffff0001, 0xffffffff };
	static const uint32_t requests[] = {
		VHOST_USER_SET_VRING_NUM,  VHOST_USER_SET_VRING_BASE, VHOST_USER_SET_VRING_ENABLE,
		VHOST_USER_SET_VRING_KICK, VHOST_USER_SET_VRING_CALL, VHOST_USER_SET_VRING_ERR
	};
	struct vhost_user_vring_addr addr = { 0 };

	open_daemon();
	guest_up(&g, NULL, d.path[0]);
	for (unsigned i = 0; i < ARRAY_SIZE(idxs); i++) {
		for (unsigned j = 0; j < ARRAY_SIZE(requests); j++) {
			bool fd = j >= 3 && (idxs[i] & VHOST_USER_VRING_NOFD) == 0;
			uint32_t req = requests[j];

			if (j >= 3 && idxs[i] >> 1 == VHOST_USER_VRING_NOFD >> 1)
				continue; /* NOFD for rings that there are */
			EQ(j < 3 ? vu_frontend_vring_state(&g.fe, req, idxs[i], 1) :
				   vu_frontend_vring_fd(&g.fe, req, idxs[i], fd ? g.memfd : -1),
			   -EREMOTEIO);
			guest_exchange(&g, 2, 100, 2);
		}
		addr.index = idxs[i];
		EQ(vu_frontend_vring_addr(&g.fe, &addr), -EREMOTEIO);
	}
	guest_exchange(&g, 100, 100, 32);
	guest_down(&g);
	close_daemon();
}

/* Field cases 18 and 30: sizes that are none are refused, the others cost nothing. */
static void test_bad_num(void **state)
{
	static const uint32_t nums[] = {
		0, 3, 255, 2048, 32768, 65535, 0x10000, 0x10100, 0xffffffff
	};
	long rss;

	open_daemon();
	guest_up(&g, NULL, d.path[0]);
	for (unsigned i = 0; i < ARRAY_SIZE(nums); i++) {
		EQ(vu_frontend_vring_state(&g.fe, VHOST_USER_SET_VRING_NUM, GUEST_TX, nums[i]),
		   -EREMOTEIO);
		guest_exchange(&g, 20, 100, 16);
	}
	rss = daemon_rss_kib(&d);
	for (unsigned i = 0; i < test_scale(20000); i++)
		OK(vu_frontend_vring_state(&g.fe, VHOST_USER_SET_VRING_NUM, GUEST_CTRL,
					   1u << i % 11));
	MUST(daemon_rss_kib(&d) - rss < (test_sanitized() ? 65536 : 1024));
	guest_exchange(&g, 20, 100, 16);
	guest_down(&g);
	close_daemon();
}

/* A message in pieces, half a message, a message too large, the wrong version. */
static void test_framing(void **state)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_GET_FEATURES,
				      .flags = VHOST_USER_VERSION };
	uint64_t features;

	open_daemon();
	for (unsigned i = 0; i < 20; i++) {
		connected();
		for (size_t at = 0; at < sizeof(hdr); at++) {
			EQ(send(fe.fd, (char *)&hdr + at, 1, MSG_NOSIGNAL), 1);
			test_sleep_us(50);
		}
		OK(vu_frontend_wait(&fe));
		EQ(fe.ch.in.hdr.size, 8);
		/* And half of one, in which it leaves. */
		EQ(send(fe.fd, &hdr, i % sizeof(hdr), MSG_NOSIGNAL), (ssize_t)(i % sizeof(hdr)));
		vu_frontend_close(&fe);
		connected();
		hdr.size = 0x7fffffff;
		EQ(send(fe.fd, &hdr, sizeof(hdr), MSG_NOSIGNAL), sizeof(hdr));
		EQ(vu_frontend_wait(&fe), -ECONNRESET);
		vu_frontend_close(&fe);
		hdr.size = 0;
		hdr.flags = 2;
		connected();
		EQ(send(fe.fd, &hdr, sizeof(hdr), MSG_NOSIGNAL), sizeof(hdr));
		EQ(vu_frontend_wait(&fe), -ECONNRESET);
		vu_frontend_close(&fe);
		hdr.flags = VHOST_USER_VERSION;
	}
	connected();
	OK(vu_frontend_get_u64(&fe, VHOST_USER_GET_FEATURES, &features));
	close_daemon();
}

/* It asks and never reads: it waits for itself, and nobody else does. */
static void test_never_reads(void **state)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_GET_FEATURES,
				      .flags = VHOST_USER_VERSION };
	unsigned sent = 0;
	uint64_t cpu;
	long rss;

	open_daemon();
	connected();
	rss = daemon_rss_kib(&d);
	while (send(fe.fd, &hdr, sizeof(hdr), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(hdr))
		sent++;
	MUST(sent > 100);
	MUST(daemon_rss_kib(&d) - rss < 4096);
	MUST(neighbour_stop(nb) > 0);
	test_sleep_us(50000);
	cpu = daemon_cpu_ns(&d);
	test_sleep_us(300000);
	MUST(daemon_cpu_ns(&d) - cpu < 5 * NSEC_PER_MSEC);
	nb = neighbour_start(d.path[1]);
	close_daemon();
}

static void random_payload(uint8_t *payload, uint32_t request)
{
	union vhost_user_payload *p = (void *)payload;

	for (unsigned i = 0; i < sizeof(*p); i++)
		payload[i] = (uint8_t)test_random();
	/* Mostly near to what is right: indexes that there are, addresses in memory. */
	if (test_random() % 4 == 0)
		return;
	p->state.index = test_random() % 4;
	p->state.num = test_random() % 4 == 0 ? test_random() % 2000 : 1u << test_random() % 11;
	if (request == VHOST_USER_SET_VRING_ENABLE)
		p->state.num = test_random() % 2;
	if (request == VHOST_USER_SET_VRING_ADDR) {
		p->addr.flags = 0;
		p->addr.desc = guest_uva(&g, GUEST_GPA + test_random() % 0x10000 / 16 * 16);
		p->addr.avail = guest_uva(&g, GUEST_GPA + test_random() % 0x10000 / 2 * 2);
		p->addr.used = guest_uva(&g, GUEST_GPA + test_random() % 0x10000 / 4 * 4);
	}
	if (request == VHOST_USER_SET_FEATURES)
		p->u64 = test_random() % 2 ? F_DEFAULT | F_OFFLOADS : F_DEFAULT | F_IN_ORDER;
	if (request == VHOST_USER_SET_PROTOCOL_FEATURES)
		p->u64 = P_DEFAULT;
	if (request >= VHOST_USER_SET_VRING_KICK && request <= VHOST_USER_SET_VRING_ERR)
		p->u64 = test_random() % 3 | (test_random() % 4 == 0 ? 0x100 : 0);
	if (request == VHOST_USER_SET_MEM_TABLE) {
		p->mem.cnt = 1;
		p->mem.regions[0] = g.regions[0];
	}
}

/* Random messages, most of them possible, on rings full of garbage. */
static void test_fuzz(void **state)
{
	uint8_t payload[sizeof(union vhost_user_payload)];
	unsigned cnt = test_scale(60000);

	test_seed(0x5eed);
	open_daemon();
	guest_make(&g, NULL);
	for (unsigned i = 0; i < cnt; i++) {
		uint32_t request = 1 + test_random() % 36;
		struct vhost_user_hdr hdr = { .request = request,
					      .flags = VHOST_USER_VERSION,
					      .size = payload_size(request) };
		const int fds[VU_MSG_FDS_MAX] = { request == VHOST_USER_SET_MEM_TABLE ?
							  g.memfd :
							  g.rings[i % 2].kick,
						  g.rings[0].call, g.rings[1].call };
		unsigned fd_cnt = request == VHOST_USER_SET_MEM_TABLE ||
				  (request >= VHOST_USER_SET_VRING_KICK &&
				   request <= VHOST_USER_SET_VRING_ERR);

		random_payload(payload, request);
		if (test_random() % 8 == 0)
			hdr.flags = test_random() % 16;
		if (test_random() % 32 == 0)
			hdr.size = test_random() % 64;
		if (test_random() % 32 == 0)
			fd_cnt = test_random() % 4;
		if (i % 64 == 0) {
			uint16_t *ring = guest_at(&g, GUEST_GPA);

			for (unsigned j = 0; j < 0x10000; j++)
				ring[j] = (uint16_t)(test_random() >> (test_random() % 16));
		}
		eventfd_write(g.rings[i % 2].kick, 1);
		hdr.size = hdr.size > sizeof(payload) ? 0 : hdr.size;
		send_any(&hdr, payload, fds, fd_cnt);
	}
	guest_free(&g);
	close_daemon();
}

/* Field case 41: no more descriptors; when there are some again, the next front end is served. */
static void test_out_of_fds(void **state)
{
	static struct guest guests[8];
	struct rlimit lim;

	DAEMON_START(&d, "loop:", "loop:", "loop:", "loop:", "loop:", "loop:", "loop:", "loop:");
	nb = neighbour_start(d.path[0]);
	lim.rlim_cur = lim.rlim_max = daemon_fds(&d) + 10;
	OK(prlimit(d.pid, RLIMIT_NOFILE, &lim, NULL) < 0 ? -errno : 0);
	for (unsigned round = 0; round < 3; round++) {
		struct vu_frontend fes[7];

		for (unsigned i = 0; i < 7; i++) {
			int event = eventfd(0, EFD_CLOEXEC);

			OK(vu_frontend_connect(&fes[i], d.path[1 + i], 100));
			for (unsigned j = 0; j < 3; j++) {
				vu_frontend_vring_fd(&fes[i], VHOST_USER_SET_VRING_CALL, j, event);
				vu_frontend_vring_fd(&fes[i], VHOST_USER_SET_VRING_ERR, j, event);
			}
			close(event);
		}
		test_sleep_us(20000);
		for (unsigned i = 0; i < 7; i++)
			vu_frontend_close(&fes[i]);
		/* At the latest after the back-off. */
		guest_up(&guests[0], NULL, d.path[7 - round]);
		guest_exchange(&guests[0], 20, 100, 16);
		guest_down(&guests[0]);
	}
	MUST(neighbour_stop(nb) > 0);
	MUST(daemon_log_lines(&d, "") < 200);
	daemon_stop(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_fd_flood),   TEST(test_bad_index),   TEST(test_bad_num),
		TEST(test_framing),    TEST(test_never_reads), TEST(test_fuzz),
		TEST(test_out_of_fds),
	};

	return TEST_BOTH(tests);
}
