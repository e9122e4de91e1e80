// SPDX-License-Identifier: BSD-2-Clause
/* A worker: one thread that runs the sources which are ready, in rounds. */
#include "work/worker.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

struct worker {
	struct work_config cfg;
	struct io *io;
	uint64_t now_ns;
	uint64_t round;
	struct list ready;                     /* runs from the head */
	struct list awake;                     /* in the order in which their windows end */
	struct list timers;                    /* the next one first */
	struct work_src *sel[WORK_ROUND_SRCS]; /* takes part in this round; NULL: removed in it */
	unsigned sel_cnt;
	_Atomic(struct work_msg *) inbox; /* many producers push, the worker takes all */
	atomic_bool stop;
	pthread_t thread;
	sem_t up;
	int up_err;
};

/* ---- sources ---- */

void work_src_init(struct work_src *src, struct worker *w, const struct work_ops *ops)
{
	*src = (struct work_src){ .ops = ops, .worker = w, .state = WORK_ASLEEP };
	list_init(&src->node);
}

static void set_state(struct work_src *src, enum work_state state, struct list *l)
{
	list_del(&src->node);
	src->state = state;
	if (l != NULL)
		list_add_tail(l, &src->node);
}

void work_src_ready(struct work_src *src)
{
	/* In the middle of its round it must not fall asleep over what has just come. */
	src->again = src->state == WORK_READY;
	if (!src->again)
		set_state(src, WORK_READY, &src->worker->ready);
}

void work_src_remove(struct work_src *src)
{
	struct worker *w = src->worker;

	for (unsigned i = 0; i < w->sel_cnt; i++) {
		if (w->sel[i] == src)
			w->sel[i] = NULL;
	}
	set_state(src, WORK_ASLEEP, NULL);
}

/* Asks to be woken; a source that finds work while it asks runs again instead. */
static void put_to_sleep(struct work_src *src)
{
	set_state(src, WORK_ASLEEP, NULL);
	if (src->ops->arm != NULL && src->ops->arm(src))
		work_src_ready(src);
}

/* The source has run dry: keep looking for the poll window, or sleep. */
static void turn_dry(struct worker *w, struct work_src *src)
{
	src->turn_frames = src->turn_bytes = 0;
	if (w->cfg.poll_ns > 0 && src->ops->peek != NULL) {
		src->awake_until_ns = w->now_ns + w->cfg.poll_ns;
		set_state(src, WORK_AWAKE, &w->awake);
	} else {
		put_to_sleep(src);
	}
}

static bool exceeds_weight(const struct worker *w, const struct work_src *src)
{
	return (w->cfg.weight_frames > 0 && src->turn_frames >= w->cfg.weight_frames) ||
	       (w->cfg.weight_bytes > 0 && src->turn_bytes >= w->cfg.weight_bytes);
}

static void look_at_awake(struct worker *w)
{
	list_for_each(node, next, &w->awake) {
		struct work_src *src = list_entry(node, struct work_src, node);

		if (src->ops->peek(src))
			work_src_ready(src);
		else if (w->now_ns >= src->awake_until_ns)
			put_to_sleep(src);
	}
}

/* ---- watches and timers ---- */

void work_watch_init(struct work_watch *ww, struct work_src *src, struct io_file *file,
		     uint32_t events, bool multishot)
{
	io_watch_init(&ww->io, file, events, multishot);
	ww->src = src;
}

static void collect_fired(struct worker *w)
{
	struct io_watch *fired;

	while ((fired = io_fired(w->io)) != NULL)
		work_src_ready(container_of(fired, struct work_watch, io)->src);
}

void work_timer_init(struct work_timer *t, struct work_src *src)
{
	*t = (struct work_timer){ .src = src };
	list_init(&t->node);
}

void work_timer_set(struct work_timer *t, uint64_t at_ns)
{
	struct list *timers = &t->src->worker->timers;
	struct list *before = timers;

	list_del(&t->node);
	t->at_ns = at_ns;
	while (before->prev != timers &&
	       list_entry(before->prev, struct work_timer, node)->at_ns > at_ns)
		before = before->prev;
	list_add_tail(before, &t->node);
}

void work_timer_stop(struct work_timer *t)
{
	list_del(&t->node);
}

static void expire_timers(struct worker *w)
{
	struct work_timer *t;

	while ((t = list_first(&w->timers, struct work_timer, node)) != NULL &&
	       t->at_ns <= w->now_ns) {
		list_del(&t->node);
		work_src_ready(t->src);
	}
}

/* ---- messages ---- */

/*
 * The push is a release, the take an acquire: what the poster wrote before is seen by fn. A post that
 * the worker's last look missed is followed by io_wake(), which ends the sleep or prevents it.
 */
void worker_post(struct worker *w, struct work_msg *msg)
{
	struct work_msg *head = atomic_load_explicit(&w->inbox, memory_order_relaxed);

	do {
		msg->next = head;
	} while (!atomic_compare_exchange_weak_explicit(&w->inbox, &head, msg, memory_order_release,
							memory_order_relaxed));
	io_wake(w->io);
}

static void run_messages(struct worker *w)
{
	struct work_msg *taken, *in_order = NULL;

	if (atomic_load_explicit(&w->inbox, memory_order_relaxed) == NULL)
		return;
	taken = atomic_exchange_explicit(&w->inbox, NULL, memory_order_acquire);
	while (taken != NULL) {
		struct work_msg *next = taken->next;

		taken->next = in_order;
		in_order = taken;
		taken = next;
	}
	while (in_order != NULL) {
		struct work_msg *msg = in_order;

		in_order = msg->next; /* before fn: it may free or reuse the message */
		msg->fn(msg);
	}
}

struct call_msg {
	struct work_msg msg;
	void (*fn)(void *arg);
	void *arg;
	sem_t done;
};

static void run_call(struct work_msg *msg)
{
	struct call_msg *call = container_of(msg, struct call_msg, msg);

	call->fn(call->arg);
	sem_post(&call->done);
}

void worker_call(struct worker *w, void (*fn)(void *arg), void *arg)
{
	struct call_msg call = { .msg.fn = run_call, .fn = fn, .arg = arg };

	sem_init(&call.done, 0, 0);
	worker_post(w, &call.msg);
	while (sem_wait(&call.done) < 0)
		assert(errno == EINTR);
	sem_destroy(&call.done);
}

/* ---- rounds ---- */

/* Selects sources at the start of their turn, or those in the middle of it, from the head. */
static void select_sources(struct worker *w, bool fresh)
{
	list_for_each(node, next, &w->ready) {
		struct work_src *src = list_entry(node, struct work_src, node);

		if (w->sel_cnt == WORK_ROUND_SRCS)
			return;
		if ((src->turn_frames == 0) == fresh)
			w->sel[w->sel_cnt++] = src;
	}
}

static void count_used(struct work_src *src, struct work_used used)
{
	src->turn_frames += used.frames;
	src->turn_bytes += used.bytes;
	src->more = used.more;
}

/*
 * Lets sources prepare while the round has room. Those at the start of their turn go first: a single
 * frame of theirs does not wait behind a burst of somebody who has been running. What does not fit
 * stays where it is in the list, and is at the head of the next round.
 */
static void prepare(struct worker *w)
{
	struct work_room room = { .frames = min_uint(IO_OPS_TURNS, io_room(w->io)),
				  .bytes = WORK_ROUND_BYTES };
	unsigned i;

	select_sources(w, true);
	select_sources(w, false);
	for (i = 0; i < w->sel_cnt && room.frames > 0 && room.bytes > 0; i++) {
		struct work_src *src = w->sel[i];
		struct work_used used;

		if (src == NULL)
			continue;
		src->again = false;
		used = src->ops->prepare(src, room);
		room.frames -= min_uint(used.frames, room.frames);
		room.bytes -= min_uint(used.bytes, room.bytes);
		if (w->sel[i] == NULL)
			continue; /* it removed itself */
		count_used(src, used);
	}
	w->sel_cnt = i;
}

static void harvest(struct worker *w)
{
	for (unsigned i = 0; i < w->sel_cnt; i++) {
		struct work_src *src = w->sel[i];

		if (src == NULL)
			continue;
		if (src->ops->harvest != NULL)
			count_used(src, src->ops->harvest(src));
		if (!src->more && !src->again) {
			turn_dry(w, src);
		} else if (exceeds_weight(w, src)) {
			src->turn_frames = src->turn_bytes = 0;
			set_state(src, WORK_READY, &w->ready);
		}
	}
	w->sel_cnt = 0;
}

/* How long the entry may sleep. */
static int64_t wait_time(const struct worker *w)
{
	uint64_t next_ns;

	if (w->sel_cnt > 0 || !list_empty(&w->ready) || !list_empty(&w->awake) ||
	    atomic_load_explicit(&w->inbox, memory_order_relaxed) != NULL ||
	    atomic_load_explicit(&w->stop, memory_order_relaxed))
		return 0;
	if (list_empty(&w->timers))
		return -1;
	next_ns = list_entry(w->timers.next, struct work_timer, node)->at_ns;
	return next_ns > w->now_ns ? (int64_t)(next_ns - w->now_ns) : 0;
}

int worker_run(struct worker *w)
{
	int rc = 0;

	while (rc == 0 && !atomic_load_explicit(&w->stop, memory_order_relaxed)) {
		w->round++;
		w->now_ns = clock_ns();
		run_messages(w);
		expire_timers(w);
		look_at_awake(w);
		prepare(w);
		rc = io_enter(w->io, wait_time(w));
		collect_fired(w);
		harvest(w);
	}
	if (rc < 0)
		log_error(w->cfg.name, "the I/O engine failed: error=%s", log_errname(rc));
	return rc;
}

void worker_stop(struct worker *w)
{
	atomic_store_explicit(&w->stop, true, memory_order_relaxed);
	io_wake(w->io);
}

/* ---- life ---- */

static struct worker *alloc_worker(const struct work_config *cfg)
{
	struct worker *w = calloc(1, sizeof(*w));

	if (w == NULL)
		return NULL;
	w->cfg = *cfg;
	list_init(&w->ready);
	list_init(&w->awake);
	list_init(&w->timers);
	w->now_ns = clock_ns();
	return w;
}

static int open_engine(struct worker *w)
{
	const char *why = NULL;
	int rc = io_new(&w->io, w->cfg.io, &why);

	if (rc == 0 && why != NULL)
		log_warn(w->cfg.name, "%s; using plain system calls", why);
	return rc;
}

int worker_new(struct worker **out, const struct work_config *cfg)
{
	struct worker *w = alloc_worker(cfg);
	int rc;

	if (w == NULL)
		return -ENOMEM;
	rc = open_engine(w);
	if (rc < 0) {
		free(w);
		return rc;
	}
	*out = w;
	return 0;
}

void worker_free(struct worker *w)
{
	run_messages(w); /* whoever waits for one is answered */
	io_free(w->io);
	free(w);
}

static void *thread_main(void *arg)
{
	struct worker *w = arg;

	w->up_err = open_engine(w);
	sem_post(&w->up);
	if (w->up_err == 0)
		worker_run(w);
	return NULL;
}

int worker_spawn(struct worker **out, const struct work_config *cfg)
{
	struct worker *w = alloc_worker(cfg);
	int rc;

	if (w == NULL)
		return -ENOMEM;
	sem_init(&w->up, 0, 0);
	rc = -pthread_create(&w->thread, NULL, thread_main, w);
	if (rc < 0)
		goto err_free;
	while (sem_wait(&w->up) < 0)
		assert(errno == EINTR);
	rc = w->up_err;
	if (rc < 0)
		goto err_join;
	pthread_setname_np(w->thread, cfg->name);
	*out = w;
	return 0;

err_join:
	pthread_join(w->thread, NULL);
err_free:
	sem_destroy(&w->up);
	free(w);
	return rc;
}

void worker_join(struct worker *w)
{
	worker_stop(w);
	pthread_join(w->thread, NULL);
	sem_destroy(&w->up);
	worker_free(w);
}

struct io *worker_io(struct worker *w)
{
	return w->io;
}

uint64_t worker_now(const struct worker *w)
{
	return w->now_ns;
}

uint64_t worker_round(const struct worker *w)
{
	return w->round;
}
