// SPDX-License-Identifier: BSD-2-Clause
/* A queue: a virtqueue with its doorbells. */
#include "net/queue.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

#include "base/fd.h"

static struct io *queue_io(const struct queue *q)
{
	return worker_io(q->src->worker);
}

void queue_init(struct queue *q, struct work_src *src, const char *device, const char *which)
{
	memset(q, 0, sizeof(*q));
	q->src = src;
	snprintf(q->name, sizeof(q->name), "%.40s %s", device, which);
	work_timer_init(&q->poll, src);
	work_timer_init(&q->call_timer, src);
}

/* Adds a signal on @bell to the next entry; false: the array is full. */
static bool signal_bell(struct queue *q, struct io_file *bell)
{
	struct io_op *op = io_reserve(queue_io(q), 1);

	if (op == NULL)
		return false;
	op->file = bell;
	op->opcode = IO_OP_CALL;
	return true;
}

static void forget_call(struct queue *q)
{
	q->call_at_ns = 0;
	work_timer_stop(&q->call_timer);
}

static void call_driver(struct queue *q)
{
	q->call_owed = !signal_bell(q, &q->call);
	if (q->call_owed) {
		work_src_ready(q->src);
		return;
	}
	vq_notified(&q->vq);
	counter_add(&q->cnt.calls, 1);
	forget_call(q);
}

static int open_bell(struct queue *q, struct io_file *bell, int fd, bool *has)
{
	int rc;

	if (fd < 0)
		return 0;
	rc = io_file_add(queue_io(q), bell, fd);
	*has = rc == 0;
	return rc;
}

static int open_bells(struct queue *q, const struct queue_cfg *cfg)
{
	int rc = open_bell(q, &q->kick, cfg->kick_fd, &q->has_kick);

	if (rc == 0)
		rc = open_bell(q, &q->call, cfg->call_fd, &q->has_call);
	if (rc == 0)
		rc = open_bell(q, &q->err, cfg->err_fd, &q->has_err);
	if (rc == 0 && q->has_kick) {
		work_watch_init(&q->kick_watch, q->src, &q->kick, POLLIN, true);
		rc = io_watch_arm(queue_io(q), &q->kick_watch.io);
	}
	return rc;
}

static void close_bell(struct queue *q, struct io_file *bell, bool *has)
{
	if (*has)
		io_file_del(queue_io(q), bell);
	*has = false;
}

static void close_bells(struct queue *q)
{
	if (q->has_kick)
		io_watch_cancel(queue_io(q), &q->kick_watch.io);
	close_bell(q, &q->kick, &q->has_kick);
	close_bell(q, &q->call, &q->has_call);
	close_bell(q, &q->err, &q->has_err);
	q->call_owed = false;
	forget_call(q);
	work_timer_stop(&q->poll);
}

/* Was there a kick since the last look? For a disabled ring only: others are watched, not read. The
 * front end may have cleared O_NONBLOCK. */
static bool take_kick(struct queue *q)
{
	uint64_t cnt;
	struct iovec iov = { .iov_base = &cnt, .iov_len = sizeof(cnt) };

	return q->has_kick && preadv2(q->kick.fd, &iov, 1, -1, RWF_NOWAIT) == sizeof(cnt);
}

/* Begins to use the ring. */
static int run_ring(struct queue *q, const struct queue_cfg *cfg)
{
	int rc = vq_start(&q->vq, cfg->mem, &cfg->addr, cfg->num, cfg->base, cfg->features);

	if (rc > 0)
		log_limited(&q->limit, LOG_LEVEL_WARN, q->name,
			    "the front end's base is not the ring's used index: base=%#x used=%#x; "
			    "going on from the latter",
			    cfg->base, vq_base(&q->vq));
	return rc < 0 ? rc : 0;
}

/*
 * A disabled ring is *parked*: its doorbell is watched, its memory is not touched before a kick, for
 * it may be anything. User-mode Linux disables its rings and frees them, and the next messages after
 * that still find the old addresses here. Kicks from before are forgotten.
 */
static void park(struct queue *q, const struct queue_cfg *cfg)
{
	q->parked = true;
	q->cfg = *cfg;
	vq_rest(&q->vq, cfg->base);
	take_kick(q);
}

/* A kick on a disabled ring: what is in it is to be thrown away. */
static bool unpark(struct queue *q)
{
	if (!take_kick(q))
		return false;
	q->parked = run_ring(q, &q->cfg) < 0;
	return !q->parked;
}

int queue_start(struct queue *q, const struct queue_cfg *cfg)
{
	int rc = cfg->enabled ? run_ring(q, cfg) : 0;

	if (rc < 0)
		return rc;
	rc = open_bells(q, cfg);
	if (rc < 0) {
		close_bells(q);
		if (cfg->enabled)
			vq_stop(&q->vq);
		return rc;
	}
	q->started = true;
	q->enabled = cfg->enabled;
	q->broken_told = false;
	if (q->enabled) {
		if (q->has_call)
			call_driver(q);
		work_src_ready(q->src);
	} else {
		park(q, cfg);
	}
	return 0;
}

/* Did the last calls arrive? */
static void check_call(struct queue *q)
{
	if (!q->has_call || q->call.call_err == 0)
		return;
	log_limited(&q->limit, LOG_LEVEL_WARN, q->name, "cannot call the driver: error=%s",
		    log_errname(q->call.call_err));
	if (q->call.call_err == -ETIMEDOUT)
		q->stuck(q->ctx);
	close_bell(q, &q->call, &q->has_call);
}

void queue_stop(struct queue *q)
{
	if (!queue_started(q))
		return;
	if (queue_running(q))
		queue_publish(q);
	io_enter(queue_io(q), 0); /* a call may still be in the array */
	check_call(q);
	close_bells(q);
	if (queue_running(q))
		vq_stop(&q->vq);
	q->started = q->parked = false;
}

void queue_break(struct queue *q, const char *why)
{
	if (q->vq.broken && q->broken_told)
		return;
	log_limited(&q->limit, LOG_LEVEL_WARN, q->name, "%s; ignored until it is reset", why);
	q->vq.broken = q->broken_told = true;
	if (q->has_err)
		signal_bell(q, &q->err);
}

bool queue_usable(struct queue *q)
{
	if (!queue_running(q) && !(q->parked && unpark(q)))
		return false;
	if (q->vq.broken) {
		queue_break(q, "the guest broke its ring");
		return false;
	}
	if (mem_broken(q->vq.mem)) {
		queue_break(q, "the front end took guest memory away");
		return false;
	}
	check_call(q);
	if (q->call_owed && q->has_call)
		call_driver(q);
	else if (q->call_at_ns != 0 && worker_now(q->src->worker) >= q->call_at_ns)
		queue_publish(q);
	return true;
}

void queue_publish(struct queue *q)
{
	vq_flush(&q->vq);
	if (q->has_call && vq_wants_notify(&q->vq))
		call_driver(q);
	else
		forget_call(q);
}

void queue_publish_later(struct queue *q, unsigned max_cnt, uint64_t max_ns)
{
	vq_flush(&q->vq);
	if (!q->has_call || !vq_wants_notify(&q->vq)) {
		forget_call(q);
	} else if (vq_unnotified(&q->vq) >= max_cnt) {
		call_driver(q);
	} else if (q->call_at_ns == 0) {
		q->call_at_ns = worker_now(q->src->worker) + max_ns;
		work_timer_set(&q->call_timer, q->call_at_ns);
	}
}

bool queue_arm(struct queue *q)
{
	if (!queue_running(q) || q->vq.broken)
		return false;
	if (!q->has_kick)
		work_timer_set(&q->poll, worker_now(q->src->worker) + QUEUE_POLL_NS);
	return vq_kick_on(&q->vq);
}
