// SPDX-License-Identifier: BSD-2-Clause
/* The worker: rounds, turns and their weights, windows, timers, messages. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "work/worker.h"

#define TRACE_MAX 4096

/* A source that takes @step frames of @frame_bytes a round until @left is used up. */
struct probe {
	struct work_src src;
	char id;
	unsigned step, frame_bytes, left;
	unsigned prepared, harvested, armed, peeked;
	bool hide;            /* peek() sees nothing */
	unsigned more_at_arm; /* frames that turn up when it arms */
	struct worker *stop_when_dry;
	struct probe *remove; /* in its prepare() */
};

/* The order of all prepare() calls. */
static char trace[TRACE_MAX];
static unsigned trace_len;

static struct probe *to_probe(struct work_src *src)
{
	return container_of(src, struct probe, src);
}

static struct work_used probe_prepare(struct work_src *src, struct work_room room)
{
	struct probe *p = to_probe(src);
	unsigned n = min_uint(min_uint(p->step, p->left), room.frames);

	if (trace_len < TRACE_MAX)
		trace[trace_len++] = p->id;
	p->prepared++;
	if (p->remove != NULL)
		work_src_remove(&p->remove->src);
	p->left -= n;
	return (struct work_used){ .frames = n, .bytes = n * p->frame_bytes, .more = n > 0 };
}

static struct work_used probe_harvest(struct work_src *src)
{
	struct probe *p = to_probe(src);

	p->harvested++;
	if (p->left == 0 && p->stop_when_dry != NULL)
		worker_stop(p->stop_when_dry);
	return (struct work_used){ .more = p->left > 0 };
}

static bool probe_peek(struct work_src *src)
{
	struct probe *p = to_probe(src);

	p->peeked++;
	return p->left > 0 && !p->hide;
}

static bool probe_arm(struct work_src *src)
{
	struct probe *p = to_probe(src);

	p->armed++;
	p->left += p->more_at_arm;
	p->more_at_arm = 0;
	return p->left > 0;
}

static const struct work_ops probe_ops = {
	.prepare = probe_prepare,
	.harvest = probe_harvest,
	.peek = probe_peek,
	.arm = probe_arm,
};

static struct worker *new_worker(struct work_config cfg)
{
	struct worker *w;

	cfg.name = "test";
	cfg.io = IO_PLAIN;
	assert_int_equal(worker_new(&w, &cfg), 0);
	trace_len = 0;
	return w;
}

static void add_probe(struct worker *w, struct probe *p)
{
	work_src_init(&p->src, w, &probe_ops);
	work_src_ready(&p->src);
}

/* How often @id prepares in a row, at most, from the @from-th call on. */
static unsigned longest_run(char id, unsigned from)
{
	unsigned run = 0, longest = 0;

	for (unsigned i = from; i < trace_len; i++) {
		run = trace[i] == id ? run + 1 : 0;
		longest = max_uint(longest, run);
	}
	return longest;
}

/* Two sources that need all the room of a round: turns alternate at the packet weight. */
static void test_packet_weight(void **state)
{
	struct worker *w = new_worker((struct work_config){ .weight_frames = 1024 });
	struct probe a = { .id = 'a', .step = 512, .left = 16 * 512, .stop_when_dry = NULL };
	struct probe b = { .id = 'b', .step = 512, .left = 16 * 512, .stop_when_dry = w };

	add_probe(w, &a);
	add_probe(w, &b);
	assert_int_equal(worker_run(w), 0);
	assert_true(longest_run('a', 0) <= 2);
	assert_true(longest_run('b', 0) <= 3);
	assert_int_equal(b.left, 0);
	assert_true(a.left <= 4 * 512);
	worker_free(w);
}

static void test_byte_weight(void **state)
{
	struct worker *w = new_worker((struct work_config){ .weight_bytes = 512 * 1024 });
	struct probe a = { .id = 'a', .step = 16, .frame_bytes = 65536, .left = 400 };
	struct probe b = {
		.id = 'b', .step = 16, .frame_bytes = 65536, .left = 400, .stop_when_dry = w
	};

	add_probe(w, &a);
	add_probe(w, &b);
	assert_int_equal(worker_run(w), 0);
	/* 1 MiB is a whole round: each turn is one round. */
	assert_int_equal(longest_run('a', 0), 1);
	worker_free(w);
}

/* Without a weight the first one keeps the head as long as it has work. */
static void test_no_weight(void **state)
{
	struct worker *w = new_worker((struct work_config){ 0 });
	struct probe a = { .id = 'a', .step = 512, .left = 20 * 512 };
	struct probe b = { .id = 'b', .step = 512, .left = 20 * 512, .stop_when_dry = w };

	add_probe(w, &a);
	add_probe(w, &b);
	assert_int_equal(worker_run(w), 0);
	assert_true(longest_run('a', 0) >= 19);
	worker_free(w);
}

/* Who begins a turn prepares before who is in the middle of one. */
static void test_fresh_first(void **state)
{
	struct worker *w = new_worker((struct work_config){ .weight_frames = 4096 });
	struct probe big = { .id = 'B', .step = 64, .left = 640, .stop_when_dry = w };
	struct probe small = { .id = 's', .step = 1, .left = 1 };

	add_probe(w, &big);
	add_probe(w, &small);
	assert_int_equal(worker_run(w), 0);
	assert_memory_equal(trace, "BsB", 3);
	worker_free(w);
}

static void test_arm_looks_again(void **state)
{
	struct worker *w = new_worker((struct work_config){ 0 });
	struct probe p = { .id = 'p', .step = 1, .left = 1, .more_at_arm = 1 };
	struct probe last = { .id = 'z', .step = 1, .left = 3, .stop_when_dry = w };

	add_probe(w, &p);
	add_probe(w, &last);
	assert_int_equal(worker_run(w), 0);
	assert_int_equal(p.left, 0);
	assert_true(p.armed >= 1);
	assert_true(p.prepared >= 2);
	worker_free(w);
}

static void test_poll_window(void **state)
{
	struct worker *w = new_worker((struct work_config){ .poll_ns = 2 * NSEC_PER_MSEC });
	struct probe p = { .id = 'p', .step = 1, .left = 1 };
	struct probe end = { .id = 'z', .stop_when_dry = w };
	struct work_timer t;

	add_probe(w, &p);
	work_src_init(&end.src, w, &probe_ops);
	/* It has nothing: its first harvest, when the window is long over, stops the worker. */
	work_timer_init(&t, &end.src);
	work_timer_set(&t, clock_ns() + 20 * NSEC_PER_MSEC);
	assert_int_equal(worker_run(w), 0);
	assert_true(p.peeked > 10);
	assert_int_equal(p.armed, 1);
	worker_free(w);
}

static void test_timers_in_order(void **state)
{
	struct worker *w = new_worker((struct work_config){ 0 });
	struct probe a = { .id = 'a' }, b = { .id = 'b' }, c = { .id = 'c', .stop_when_dry = w };
	struct probe *all[] = { &a, &b, &c };
	struct work_timer ta, tb, tc;
	uint64_t start = clock_ns();

	for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
		work_src_init(&all[i]->src, w, &probe_ops);
	work_timer_init(&ta, &a.src);
	work_timer_init(&tb, &b.src);
	work_timer_init(&tc, &c.src);
	work_timer_set(&tc, start + 15 * NSEC_PER_MSEC);
	work_timer_set(&ta, start + 5 * NSEC_PER_MSEC);
	work_timer_set(&tb, start + 10 * NSEC_PER_MSEC);
	work_timer_set(&ta, start + 6 * NSEC_PER_MSEC);
	assert_int_equal(worker_run(w), 0);
	assert_true(clock_ns() - start >= 15 * NSEC_PER_MSEC);
	assert_int_equal(trace_len, 3);
	assert_memory_equal(trace, "abc", 3);
	assert_false(work_timer_pending(&ta));
	worker_free(w);
}

/* A source takes another one, and itself, out of the round that both are in. */
static void test_remove_in_round(void **state)
{
	struct worker *w = new_worker((struct work_config){ 0 });
	struct probe a = { .id = 'a', .step = 1, .left = 1 };
	struct probe b = { .id = 'b', .step = 1, .left = 1 };
	struct probe self = { .id = 's', .step = 1, .left = 1 };
	struct probe end = { .id = 'z', .step = 1, .left = 2, .stop_when_dry = w };

	add_probe(w, &a);
	add_probe(w, &b);
	add_probe(w, &self);
	add_probe(w, &end);
	a.remove = &b;
	self.remove = &self;
	assert_int_equal(worker_run(w), 0);
	assert_int_equal(b.prepared, 0);
	assert_int_equal(self.prepared, 1);
	assert_int_equal(self.harvested, 0);
	worker_free(w);
}

/* ---- messages from other threads ---- */

struct count_msg {
	struct work_msg msg;
	unsigned *seen;
	unsigned nth;
};

static void count(struct work_msg *msg)
{
	struct count_msg *m = container_of(msg, struct count_msg, msg);

	assert_int_equal(*m->seen, m->nth);
	(*m->seen)++;
}

static void bump(void *arg)
{
	(*(unsigned *)arg)++;
}

static void test_messages(void **state)
{
	struct work_config cfg = { .name = "test", .io = IO_AUTO };
	static struct count_msg msgs[1000];
	unsigned seen = 0, calls = 0;
	struct worker *w;

	assert_int_equal(worker_spawn(&w, &cfg), 0);
	for (unsigned i = 0; i < ARRAY_SIZE(msgs); i++) {
		msgs[i] = (struct count_msg){ .msg.fn = count, .seen = &seen, .nth = i };
		worker_post(w, &msgs[i].msg);
	}
	for (unsigned i = 0; i < 1000; i++)
		worker_call(w, bump, &calls);
	/* Calls queue up behind messages, and have returned. */
	assert_int_equal(seen, ARRAY_SIZE(msgs));
	assert_int_equal(calls, 1000);
	worker_join(w);
}

/* An idle worker uses no processor time. */
static void test_idle(void **state)
{
	struct work_config cfg = { .name = "test", .io = IO_AUTO, .poll_ns = 20 * NSEC_PER_USEC };
	struct timespec before, after;
	struct worker *w;
	unsigned calls = 0;

	assert_int_equal(worker_spawn(&w, &cfg), 0);
	worker_call(w, bump, &calls);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	usleep(300000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	assert_true((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec <
		    5000000);
	worker_join(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packet_weight),   cmocka_unit_test(test_byte_weight),
		cmocka_unit_test(test_no_weight),       cmocka_unit_test(test_fresh_first),
		cmocka_unit_test(test_arm_looks_again), cmocka_unit_test(test_poll_window),
		cmocka_unit_test(test_timers_in_order), cmocka_unit_test(test_remove_in_round),
		cmocka_unit_test(test_messages),        cmocka_unit_test(test_idle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
