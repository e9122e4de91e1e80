// SPDX-License-Identifier: BSD-2-Clause
/* A well-behaved guest in a thread of its own. */
#include "neighbour.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "daemon.h"
#include "guest.h"

struct neighbour {
	struct guest guest;
	pthread_t thread;
	atomic_bool stop;
	atomic_uint done, worst_ms;
	atomic_ullong start_ns; /* of the exchange that goes on */
};

unsigned neighbour_worst_ms(const struct neighbour *nb)
{
	uint64_t ns = clock_ns() - atomic_load(&nb->start_ns);

	return max_uint(atomic_load(&nb->worst_ms), (unsigned)(ns / NSEC_PER_MSEC));
}

static void *neighbour_run(void *arg)
{
	struct neighbour *nb = arg;

	test_thread();
	while (!atomic_load(&nb->stop)) {
		atomic_store(&nb->start_ns, clock_ns());
		guest_exchange(&nb->guest, 16, 100 + atomic_load(&nb->done) % 1400, 16);
		atomic_store(&nb->worst_ms, neighbour_worst_ms(nb));
		atomic_fetch_add(&nb->done, 16);
		test_sleep_us(500);
	}
	return NULL;
}

struct neighbour *neighbour_start(const char *path)
{
	struct neighbour *nb = calloc(1, sizeof(*nb));
	struct guest_cfg cfg = { .features = F_DEFAULT | F_EVENT_IDX };

	MUST(nb != NULL);
	guest_up(&nb->guest, &cfg, path);
	atomic_store(&nb->start_ns, clock_ns());
	OK(-pthread_create(&nb->thread, NULL, neighbour_run, nb));
	return nb;
}

unsigned neighbour_stop(struct neighbour *nb)
{
	unsigned before = atomic_load(&nb->done), done;
	uint64_t deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;

	/* It still does, not only did. */
	while (atomic_load(&nb->done) == before) {
		if (clock_ns() > deadline)
			FAIL("the neighbour is stuck");
		test_sleep_us(500);
	}
	atomic_store(&nb->stop, true);
	pthread_join(nb->thread, NULL);
	done = atomic_load(&nb->done);
	EQ(nb->guest.rcvd_idx, done);
	guest_down(&nb->guest);
	free(nb);
	return done;
}
