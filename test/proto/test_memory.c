// SPDX-License-Identifier: BSD-2-Clause
/* The memory table on a live daemon (field case section C). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "lib/daemon.h"
#include "lib/guest.h"
#include "lib/neighbour.h"

static struct guest g;

static int set_regions(const struct vhost_user_region *regions, const int *fds, unsigned cnt)
{
	return vu_frontend_set_mem(&g.fe, regions, fds, cnt);
}

/* Field cases 44 and 200: a new table of the same memory, with more in it, and no new addresses. */
static void test_table_again(void **state)
{
	struct guest_cfg cfg = { .layout = GUEST_SEAM };
	struct vhost_user_region more[3];
	struct daemon d;
	int extra = memfd_create("extra", MFD_CLOEXEC);

	MUST(extra >= 0 && ftruncate(extra, 1 << 20) == 0);
	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	more[0] = g.regions[0];
	more[1] = g.regions[1];
	more[2] = (struct vhost_user_region){ .guest_addr = 1ULL << 40,
					      .size = 1 << 20,
					      .user_addr = 1ULL << 45 };
	for (unsigned i = 0; i < 30; i++) {
		int fds[] = { dup(g.memfd), dup(g.memfd), dup(extra) };

		for (unsigned j = 0; j < 20; j++)
			MUST(guest_send(&g, 300 + j, NULL, &g.hdr_len, 1));
		guest_kick(&g, GUEST_TX);
		OK(set_regions(more, fds, 2 + i % 2));
		for (unsigned j = 0; j < 3; j++)
			close(fds[j]);
		GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	}
	EQ(g.rings[GUEST_TX].chk.used_idx, 600);
	close(extra);
	guest_down(&g);
	daemon_stop(&d);
}

/* Field case 45: a table without the rings: they pause; with them: they go on from where they were. */
static void test_table_without_rings(void **state)
{
	struct vhost_user_region other = { .guest_addr = 1 << 20,
					   .size = 1 << 20,
					   .user_addr = 1 << 20 };
	struct neighbour *nb;
	struct daemon d;

	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	guest_up(&g, NULL, d.path[0]);
	for (unsigned i = 0; i < 20; i++) {
		guest_exchange(&g, 30, 300, 30);
		OK(set_regions(&other, &g.memfd, 1));
		for (unsigned j = 0; j < 20; j++)
			MUST(guest_send(&g, 400, NULL, NULL, 0));
		guest_publish(&g, GUEST_TX);
		OK(eventfd_write(g.rings[GUEST_TX].kick, 1));
		test_sleep_us(1000);
		EQ(guest_reap(&g), 0);
		guest_set_mem(&g);
		GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
	}
	MUST(neighbour_stop(nb) > 0);
	guest_down(&g);
	daemon_stop(&d);
}

/* Field case 48: the last of the regions is bad: all or nothing, and traffic goes on in the old ones. */
static void test_bad_region(void **state)
{
	struct guest_cfg cfg = { .layout = GUEST_HOLE };
	int pipes[2], ro, small = memfd_create("small", MFD_CLOEXEC);
	struct daemon d;

	OK(pipe2(pipes, O_CLOEXEC));
	MUST(ftruncate(small, 4096) == 0);
	ro = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	for (unsigned i = 0; i < 40; i++) {
		const int bad[] = { pipes[0], ro, small, small };
		struct vhost_user_region r[3] = {
			g.regions[0],
			g.regions[1],
			{ .guest_addr = 1ULL << 40, .size = 8192, .user_addr = 1ULL << 45 }
		};
		int fds[] = { g.memfd, g.memfd, bad[i % 4] };

		if (i % 4 == 3) {
			r[2].size = 4096;
			r[2].mmap_offset = 4096;
		}
		EQ(set_regions(r, fds, 3), -EREMOTEIO);
		guest_exchange(&g, 20, 500, 20);
		if (i % 5 == 0)
			guest_set_mem(&g);
	}
	EQ(daemon_count(&d, 0, "bad_messages"), 40);
	MUST(daemon_log_lines(&d, "refused") <= 20);
	close(pipes[0]);
	close(pipes[1]);
	close(ro);
	close(small);
	guest_down(&g);
	daemon_stop(&d);
}

/* Field case 51: one file, regions apart, addresses of both kinds the other way round. */
static void test_hole(void **state)
{
	struct guest_cfg cfg = { .layout = GUEST_HOLE, .tx_max = 9000, .rx_num = 128 };
	struct daemon d;

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	guest_exchange(&g, 1000, 1514, 60);
	guest_exchange(&g, 500, 9000, 8);
	guest_down(&g);
	daemon_stop(&d);
}

/* Field case 52 on the whole: 64 GiB, and the first frame soon after. */
static void test_huge(void **state)
{
	struct vhost_user_region r[2];
	int huge = memfd_create("huge", MFD_CLOEXEC), fds[2];
	uint64_t start;
	struct daemon d;

	MUST(ftruncate(huge, 64LL << 30) == 0);
	DAEMON_START(&d, "loop:");
	guest_make(&g, NULL);
	guest_refill(&g);
	guest_connect(&g, d.path[0]);
	guest_set_up(&g);
	r[0] = g.regions[0];
	r[1] = (struct vhost_user_region){ .guest_addr = 1ULL << 40,
					   .size = 64ULL << 30,
					   .user_addr = 1ULL << 45 };
	fds[0] = g.memfd;
	fds[1] = huge;
	start = clock_ns();
	OK(set_regions(r, fds, 2));
	guest_exchange(&g, 1, 100, 1);
	MUST(test_sanitized() || clock_ns() - start < 250 * NSEC_PER_MSEC);
	close(huge);
	guest_down(&g);
	daemon_stop(&d);
}

static atomic_bool stop_flood;

#define FLOOD_LEN 200

/* All frames are alike here; some are lost while a ring is disabled. */
static void check_frame(struct guest *from, const struct virtio_net_hdr *hdr, const uint8_t *frame,
			uint32_t len)
{
	uint8_t want[FLOOD_LEN];

	frame_fill(want, sizeof(want), 1);
	frame_swap(want);
	EQ(len, FLOOD_LEN);
	MUST(memcmp(want, frame, len) == 0);
	(*(unsigned *)from->ctx)++;
}

static void *flood(void *arg)
{
	uint8_t bytes[VIRTIO_NET_HDR_LEN + FLOOD_LEN] = { 0 };

	test_thread();
	frame_fill(bytes + VIRTIO_NET_HDR_LEN, FLOOD_LEN, 1);
	while (!atomic_load(&stop_flood)) {
		for (unsigned i = 0; i < 16; i++)
			guest_send_raw(&g, bytes, sizeof(bytes), &g.hdr_len, 1);
		guest_kick(&g, GUEST_TX);
		guest_pump(&g, 1);
	}
	return NULL;
}

static void disturb(unsigned i)
{
	static const uint32_t msgs[] = { VHOST_USER_SET_VRING_CALL, VHOST_USER_SET_VRING_KICK,
					 VHOST_USER_SET_VRING_ADDR, VHOST_USER_SET_VRING_ERR };

	switch (i % 8) {
	case 0:
	case 1:
		guest_set_mem(&g);
		break;
	case 2:
		guest_enable(&g, i / 8 % 2, false);
		guest_enable(&g, i / 8 % 2, true);
		break;
	case 3:
		OK(vu_frontend_set_u64(&g.fe, VHOST_USER_SET_FEATURES,
				       g.features | (i / 8 % 2 ? F_OFFLOADS : 0)));
		break;
	default:
		guest_ring_msg(&g, i / 8 % 2, msgs[i % 4]);
	}
}

/* Field case 46: every message that takes a ring away for a moment, under flood. */
static void test_stress(void **state)
{
	struct guest_cfg cfg = { .layout = GUEST_SEAM };
	unsigned cnt = 0, rounds = test_scale(6000);
	struct neighbour *nb;
	pthread_t thread;
	struct daemon d;

	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	guest_up(&g, &cfg, d.path[0]);
	g.on_frame = check_frame;
	g.ctx = &cnt;
	atomic_store(&stop_flood, false);
	OK(-pthread_create(&thread, NULL, flood, NULL));
	for (unsigned i = 0; i < rounds; i++)
		disturb(i);
	atomic_store(&stop_flood, true);
	pthread_join(thread, NULL);
	MUST(cnt > rounds / 10);
	guest_stop_ring(&g, GUEST_TX);
	guest_reap(&g);
	MUST(neighbour_stop(nb) > 0);
	guest_free(&g);
	daemon_stop(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_table_again), TEST(test_table_without_rings),
		TEST(test_bad_region),  TEST(test_hole),
		TEST(test_huge),        TEST(test_stress),
	};

	return TEST_BOTH(tests);
}
