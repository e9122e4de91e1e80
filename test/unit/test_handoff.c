// SPDX-License-Identifier: BSD-2-Clause
/*
 * Driver and device in two threads, as they are in life: each sleeps whenever it has nothing to do and
 * is woken only when the other side was told that it must be. One missing fence, or one that stands in
 * the wrong place, and sooner or later both sleep (field cases 91 and 92).
 *
 * A bell is a counter, and sleeping is waiting for it to change, in memory at first: cheaper than an
 * eventfd, so more chances in a second, and without the barriers that a system call would add.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"
#include "ring_env.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SLOW 10
#endif
#endif
#if !defined(SLOW) && (defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__))
#define SLOW 10
#endif
#ifndef SLOW
#define SLOW 1
#endif

/* Chains of each of the runs, and the time after which a busy machine may stop at fewer; the first
 * 1,000 cross 65,535 -> 0. In a soak, 100 million in all. */
#define HANDOFFS      (500000 / SLOW)
#define HANDOFFS_NS   (8 * NSEC_PER_SEC)
#define HANDOFFS_SOAK 12500000
#define WATCHDOG_NS   (20 * NSEC_PER_SEC)
#define SPINS         1000
#define RING          4

struct bell {
	_Alignas(64) _Atomic uint32_t rung;
	_Atomic bool waiting;
};

struct handoff {
	struct env *env;
	struct bell kick, call;
	_Alignas(64) atomic_bool stuck;
	atomic_bool done;
	_Atomic unsigned bad;  /* payloads that were not what was sent */
	unsigned kicks, calls; /* rung */
};

static void ring_bell(struct bell *b)
{
	atomic_fetch_add(&b->rung, 1);
	if (atomic_load(&b->waiting))
		syscall(SYS_futex, &b->rung, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static unsigned heard(struct bell *b)
{
	return atomic_load_explicit(&b->rung, memory_order_acquire);
}

/* Sleeps until the bell has rung more often than @seen says; false: nobody will. */
static bool sleep_for(struct handoff *h, struct bell *b, unsigned seen)
{
	const struct timespec tick = { .tv_nsec = 100 * NSEC_PER_MSEC };
	uint64_t start;

	for (unsigned n = 0; n < SPINS; n++) {
		if (heard(b) != seen)
			return true;
	}
	start = clock_ns();
	atomic_store(&b->waiting, true);
	while (heard(b) == seen) {
		if (atomic_load(&h->stuck) || clock_ns() - start > WATCHDOG_NS) {
			atomic_store(&h->stuck, true);
			break;
		}
		syscall(SYS_futex, &b->rung, FUTEX_WAIT_PRIVATE, seen, &tick, NULL, 0);
	}
	atomic_store(&b->waiting, false);
	return heard(b) != seen;
}

/* A different one in each thread. */
static unsigned next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* Half of the time nothing, else up to some 2 us. */
static void delay(uint32_t *state)
{
	unsigned r = next_random(state);

	for (volatile unsigned n = r & 1 ? (r >> 1) % 1024 : 0; n > 0; n--)
		;
}

/* Reads what is to be read, writes what is to be written, and says how much of the latter. */
static uint32_t use(struct handoff *h, const struct vq_chain *c, uint64_t seq)
{
	uint64_t got = ~0ULL;
	struct iov_cursor cur = iov_cursor(c->iov, (unsigned)c->out_cnt + c->in_cnt);

	if (c->err != 0 || c->out_len + c->in_len != sizeof(seq)) {
		h->bad++;
	} else if (c->in_len > 0) {
		iov_write(&cur, &seq, sizeof(seq));
	} else {
		iov_read(&cur, &got, sizeof(got));
		h->bad += got != seq;
	}
	return c->in_len;
}

static void *device(void *arg)
{
	struct handoff *h = arg;
	struct env *e = h->env;
	uint32_t random = 0x1234567;
	uint64_t seq = 0;

	while (!atomic_load_explicit(&h->done, memory_order_relaxed)) {
		unsigned seen = heard(&h->kick);
		int cnt = env_pop(e, next_random(&random) % RING + 1);

		if (cnt < 0)
			break;
		if (cnt == 0) {
			if (!vq_kick_on(&e->dev) && !sleep_for(h, &h->kick, seen))
				break;
			vq_kick_off(&e->dev);
			continue;
		}
		for (int i = 0; i < cnt; i++) {
			env_push(e, &e->chains[i], use(h, &e->chains[i], seq));
			seq++;
		}
		vq_flush(&e->dev);
		if (env_notify(e)) {
			h->calls++;
			ring_bell(&h->call);
		}
		delay(&random);
	}
	return NULL;
}

/* A buffer of 8 bytes for each token; odd ones are to be written. */
static uint64_t *buf_of(struct env *e, uint64_t seq, struct drvq_buf *buf)
{
	*buf = (struct drvq_buf){ { BUF_GPA + seq % RING * 64 }, 8 };
	return env_ptr(e, buf->addr.v);
}

static bool send_one(struct handoff *h, uint64_t seq)
{
	struct drvq_buf buf;
	uint64_t *data = buf_of(h->env, seq, &buf);

	*data = seq;
	if (drvq_add(&h->env->drv, &buf, seq % 2 == 0, seq % 2 != 0, token_ptr(seq)) < 0)
		return false;
	if (drvq_publish(&h->env->drv)) {
		h->kicks++;
		ring_bell(&h->kick);
	}
	return true;
}

/* Takes what came back; it comes in the order of seq here. How many; none is 0. */
static unsigned reap(struct handoff *h, uint64_t seq)
{
	struct drvq_used used;
	struct drvq_buf buf;
	unsigned cnt = 0;
	int ret;

	while ((ret = drvq_get(&h->env->drv, &used)) == 1) {
		uint64_t *data = buf_of(h->env, seq, &buf);

		h->bad += token_num(used.token) != seq || *data != seq ||
			  used.len != (seq % 2 != 0 ? 8 : 0);
		seq++;
		cnt++;
	}
	h->bad += ret != 0;
	return cnt;
}

/* How many chains went there and back. */
static uint64_t drive(struct handoff *h)
{
	struct drvq *q = &h->env->drv;
	uint32_t random = 0x7654321;
	bool soak = getenv("UVHOST_SOAK") != NULL; /* NOLINT(concurrency-mt-unsafe) */
	uint64_t sent = 0, got = 0, total = soak ? HANDOFFS_SOAK : HANDOFFS,
		 end = soak ? UINT64_MAX : clock_ns() + HANDOFFS_NS;

	while (got < total && h->bad == 0) {
		unsigned seen = heard(&h->call), depth = next_random(&random) % RING + 1, cnt;

		while (sent < total && sent - got < depth && send_one(h, sent)) {
			sent++;
			delay(&random);
		}
		cnt = reap(h, got);
		got += cnt;
		if (sent > 1000 && sent % 64 == 0 && clock_ns() > end)
			total = sent;
		if (cnt > 0 || got == total)
			continue;
		if (!drvq_call_on(q) && !sleep_for(h, &h->call, seen))
			break;
		drvq_call_off(q);
	}
	return got;
}

static void run(uint64_t features)
{
	static struct handoff h;
	pthread_t thread;
	uint64_t cnt;

	memset(&h, 0, sizeof(h));
	h.env = env_new(RING, features);
	env_wind(h.env, 65000);
	assert_int_equal(pthread_create(&thread, NULL, device, &h), 0);
	cnt = drive(&h);
	atomic_store(&h.done, true);
	ring_bell(&h.kick);
	pthread_join(thread, NULL);
	assert_int_equal(h.bad, 0);
	assert_false(h.stuck);
	/* Both slept. */
	expect(h.kicks > 0 && h.calls > 0);
	print_message("%llu chains, %u kicks, %u calls\n", (unsigned long long)cnt, h.kicks,
		      h.calls);
	env_free(h.env);
}

static void test_flags(void **state)
{
	run(0);
}

static void test_event_idx(void **state)
{
	run(EVENT_IDX);
}

static void test_flags_in_order(void **state)
{
	run(IN_ORDER);
}

static void test_event_idx_in_order(void **state)
{
	run(EVENT_IDX | IN_ORDER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH_LAYOUTS(test_flags),
		BOTH_LAYOUTS(test_event_idx),
		BOTH_LAYOUTS(test_flags_in_order),
		BOTH_LAYOUTS(test_event_idx_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
