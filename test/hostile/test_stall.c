// SPDX-License-Identifier: BSD-2-Clause
/* Guests and networks that would keep a worker to themselves: work without an end, or for nothing. */
#include <linux/if_packet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "lib/neighbour.h"
#include "port/net_ns.h"
#include "raw.h"

static struct guest g;
static struct daemon d;

/* ---- bad chains without an end ---- */

struct poster {
	struct guest_ring *ring;
	pthread_t thread;
	atomic_bool stop;
	uint64_t until; /* also when the test has failed */
};

#define NO_HEAD 0xffffffffU

/* Makes each head available again as soon as it stands in the used ring, published or not. */
static void *post_on(void *arg)
{
	struct poster *p = arg;
	struct guest_ring *r = p->ring;

	test_thread();
	for (uint16_t idx = 0; !atomic_load(&p->stop) && clock_ns() < p->until;) {
		struct vring_used_elem *back = &r->q.split.used->ring[idx & (r->num - 1)];

		if (le32_get(&back->id) == NO_HEAD)
			continue;
		le32_set(&back->id, NO_HEAD);
		idx++;
		le16_store(&r->q.split.avail->idx, (uint16_t)(idx + r->num), memory_order_release);
	}
	return NULL;
}

/* A receive ring of nothing but bad chains, which are back as fast as they are returned: the frame
 * that looks for a buffer in it ends its turn all the same. */
static void test_endless_bad_chains(void **state)
{
	static const struct raw_desc loop = { .flags = VRING_DESC_F_NEXT | VRING_DESC_F_WRITE };
	struct guest_cfg cfg = { .rx_num = 1024, .no_refill = true };
	static struct poster p; /* its thread outlives a test that fails */
	struct neighbour *nb;

	p.ring = &g.rings[GUEST_RX];
	p.until = clock_ns() + 5 * NSEC_PER_SEC;
	atomic_store(&p.stop, false);
	DAEMON_START(&d, "loop:", "loop:");
	nb = neighbour_start(d.path[1]);
	guest_up(&g, &cfg, d.path[0]);
	raw_desc(&p.ring->q.split.desc[0], &loop);
	for (unsigned i = 0; i < 1024; i++) {
		le16_set(&p.ring->q.split.avail->ring[i], 0);
		le32_set(&p.ring->q.split.used->ring[i].id, NO_HEAD);
	}
	le16_store(&p.ring->q.split.avail->idx, 1024, memory_order_release);
	OK(-pthread_create(&p.thread, NULL, post_on, &p));
	guest_flood(&g, 100, 60);
	/* Should the poster ever be too late, and the ring empty, it goes on from there. */
	for (unsigned i = 0; i < 500; i++) {
		test_sleep_us(1000);
		eventfd_write(p.ring->kick, 1);
	}
	MUST(neighbour_worst_ms(nb) < (test_sanitized() ? 2000 : 300));
	MUST(daemon_count(&d, 0, "rx.drops.bad_chain") > 2 * 1024); /* it went on */
	atomic_store(&p.stop, true);
	pthread_join(p.thread, NULL);
	MUST(neighbour_stop(nb) > 0);
	guest_free(&g);
	daemon_stop(&d);
}

/* ---- rings that are walked in vain ---- */

/* CPU time of @frames frames that @cnt receive buffers of a byte do not hold. */
static uint64_t cpu_of_lost(uint64_t features, unsigned cnt, unsigned frames)
{
	struct guest_cfg cfg = { .features = features, .rx_num = 1024, .no_refill = true };
	const uint32_t len = 1;
	uint64_t cpu;

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
	for (unsigned i = 0; i < cnt; i++)
		MUST(guest_post(&g, &len, 1));
	guest_kick(&g, GUEST_RX);
	cpu = daemon_cpu_ns(&d);
	for (unsigned i = 0; i < frames; i += 50) {
		guest_flood(&g, 50, 1400);
		GUEST_UNTIL(&g, guest_tx_done(&g));
		test_sleep_us(4000); /* loop: holds only so many */
	}
	daemon_count_wait(&d, 0, "rx.drops.too_big", frames);
	cpu = daemon_cpu_ns(&d) - cpu;
	guest_free(&g);
	daemon_stop(&d);
	return cpu;
}

/* A ring full of buffers that are too little together is found so once, not for each frame. */
static void test_never_enough(void **state)
{
	unsigned frames = test_sanitized() ? 1000 : 5000;
	uint64_t one = cpu_of_lost(F_PROTOCOL | F_VERSION_1, 1, frames);
	uint64_t full = cpu_of_lost(F_DEFAULT, 1024, frames);

	print_message("%s: %u lost frames: %llu us of CPU with 1 buffer, %llu us with 1024\n",
		      daemon_io, frames, (unsigned long long)one / 1000,
		      (unsigned long long)full / 1000);
	MUST(full < 5 * one);
}

/* ---- a flood on the network ---- */

#define FLOODERS 3

static atomic_bool stop_flood;

static void *flood(void *arg)
{
	uint8_t frame[60] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5 };
	int on = 1, sock = packet_open(arg, false);

	test_thread();
	MUST(sock >= 0);
	OK(setsockopt(sock, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)));
	while (!atomic_load(&stop_flood))
		send(sock, frame, sizeof(frame), MSG_DONTWAIT);
	close(sock);
	return NULL;
}

static unsigned arrived;

static void count_frame(struct guest *from, const struct virtio_net_hdr *hdr, const uint8_t *frame,
			uint32_t len)
{
	arrived++;
}

/* What a tap holds when a guest comes is thrown away; a tap that never runs dry does not keep the
 * guest without frames for it. */
static void test_flooded_start(void **state)
{
	char tap[] = "uvstall0";
	pthread_t threads[FLOODERS];

	DAEMON_START(&d, "tap:uvstall0");
	OK(if_set_up(tap, true));
	daemon_count_wait(&d, 0, "link", 1);
	atomic_store(&stop_flood, false);
	for (unsigned i = 0; i < FLOODERS; i++)
		OK(-pthread_create(&threads[i], NULL, flood, tap));
	for (unsigned i = 0; i < 10; i++) {
		guest_up(&g, NULL, d.path[0]);
		g.on_frame = count_frame;
		arrived = 0;
		GUEST_UNTIL(&g, arrived > 0);
		guest_free(&g);
	}
	atomic_store(&stop_flood, true);
	for (unsigned i = 0; i < FLOODERS; i++)
		pthread_join(threads[i], NULL);
	daemon_stop(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_endless_bad_chains),
		TEST(test_never_enough),
	};
	const struct CMUnitTest tap_tests[] = {
		TEST(test_flooded_start),
	};
	int failed = TEST_BOTH(tests);

	return netns_enter() ? failed + TEST_BOTH(tap_tests) : failed;
}
