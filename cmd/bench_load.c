// SPDX-License-Identifier: BSD-2-Clause
/* The load of uvhost bench: sends and receives probe frames. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/probe_frame.h"
#include "base/probe_track.h"
#include "base/util.h"
#include "bench.h"
#include "tap/tap_if.h"

#define BATCH      64
#define PIECES     (4 * BATCH)
#define FRAME_MAX  65549
#define CONNECT_NS (5 * NSEC_PER_SEC)
#define DRAIN_NS   (500 * NSEC_PER_MSEC) /* at the end, for what is still on its way */
#define LOOK_NS    NSEC_PER_MSEC         /* between looks at the connection */

/* A frame to send, in memory that the driver shares. */
struct buffer {
	struct iovec iov;
	char room[UVHOST_HEADROOM];
	uint8_t frame[];
};

/* What is counted between warm-up and end. */
struct counts {
	uint64_t returned, received, kicks, interrupts;
};

struct load {
	const struct bench_cfg *cfg;
	struct uvhost_driver *d;
	struct buffer **free_bufs; /* a stack */
	unsigned buf_cnt, free_cnt;
	uint64_t now, opened, first, begun, looked;
	uint64_t sent, returned, received, damaged, other;
	uint64_t seq[BENCH_FLOWS_MAX];
	struct probe_track *tracks; /* one a flow */
	uint8_t *flat;              /* a received frame in one piece */
	uint64_t backlog_sum, backlog_cnt;
	uint64_t rr_sent_ns, random;
	struct histogram *rtt;
	struct uvhost_queue *q; /* whose turn it is */
};

/* ---- frames ---- */

static void fill(struct load *l, struct buffer *b, struct uvhost_frame *f)
{
	unsigned flow = (unsigned)(l->sent % l->cfg->flows);
	const uint8_t macs[PROBE_MACS_LEN] = {
		/* Unicast, locally administered; the flow stands in both. */
		2, 0, 0, 1, (uint8_t)(flow >> 8), (uint8_t)flow,
		2, 0, 0, 2, (uint8_t)(flow >> 8), (uint8_t)flow,
	};

	memcpy(b->frame, macs, sizeof(macs));
	probe_write(b->frame, l->cfg->size, l->seq[flow]++);
	b->iov = (struct iovec){ .iov_base = b->frame, .iov_len = l->cfg->size };
	*f = (struct uvhost_frame){
		.iov = &b->iov, .iov_cnt = 1, .len = l->cfg->size, .headroom = true, .token = b
	};
	l->sent++;
}

static const uint8_t *flatten(struct load *l, const struct uvhost_frame *f)
{
	size_t at = 0;

	if (f->iov_cnt == 1)
		return f->iov[0].iov_base;
	for (unsigned i = 0; i < f->iov_cnt; at += f->iov[i++].iov_len)
		memcpy(l->flat + at, f->iov[i].iov_base, f->iov[i].iov_len);
	return l->flat;
}

static void check(struct load *l, const struct uvhost_frame *f)
{
	const uint8_t *frame = flatten(l, f);
	unsigned flow;
	uint64_t seq;

	switch (probe_read(frame, f->len, &seq)) {
	case PROBE_OTHER:
		l->other++;
		return;
	case PROBE_DAMAGED:
		l->damaged++;
		return;
	case PROBE_GOOD:
		break;
	}
	flow = (unsigned)frame[4] << 8 | frame[5];
	if (flow < BENCH_FLOWS_MAX)
		probe_track(&l->tracks[flow], seq);
	l->received++;
	if (l->cfg->mode == BENCH_RR) {
		histogram_add(l->rtt, clock_ns() - l->rr_sent_ns);
		l->rr_sent_ns = 0;
	}
}

/* ---- moving them ---- */

/* How many frames may go now. */
static unsigned allowed(const struct load *l)
{
	const struct bench_cfg *c = l->cfg;
	uint64_t back = c->mode == BENCH_TX ? l->returned : l->received;
	uint64_t cnt = min_uint(l->free_cnt, c->burst), out = l->sent - back;

	if (c->mode == BENCH_RX || (c->count != 0 && l->sent >= c->count))
		return 0;
	if (c->window != 0)
		cnt = out < c->window ? min_size(cnt, c->window - out) : 0;
	if (c->rate != 0) {
		uint64_t due = (uint64_t)((double)(l->now - l->begun) * 1e-9 * (double)c->rate);

		/* A whole burst or nothing, so that bursts are what they are called. */
		cnt = due >= l->sent + cnt ? cnt : 0;
	}
	return (unsigned)cnt;
}

/* So that this side and the other meet in every order. */
static void pause_at_random(struct load *l)
{
	uint64_t until;

	if (l->cfg->jitter_us == 0)
		return;
	l->random = l->random * 6364136223846793005ULL + 1442695040888963407ULL;
	until = clock_ns() + (l->random >> 33) % (l->cfg->jitter_us * NSEC_PER_USEC);
	while (clock_ns() < until)
		;
}

/* True: there was something to do. */
static bool send_some(struct load *l)
{
	struct uvhost_frame frames[BATCH];
	unsigned n = min_uint(allowed(l), BATCH);
	int sent;

	if (n == 0)
		return false;
	pause_at_random(l);
	l->rr_sent_ns = clock_ns();
	for (unsigned i = 0; i < n; i++)
		fill(l, l->free_bufs[--l->free_cnt], &frames[i]);
	sent = uvhost_queue_send(l->q, frames, n);
	/* What did not go goes back, with its number. */
	for (unsigned i = n; i > (unsigned)(sent > 0 ? sent : 0); i--) {
		l->free_bufs[l->free_cnt++] = frames[i - 1].token;
		l->sent--;
		l->seq[l->sent % l->cfg->flows]--;
	}
	return sent > 0;
}

static bool take_back(struct load *l)
{
	void *tokens[BATCH];
	unsigned n = uvhost_queue_sent(l->q, tokens, BATCH);

	for (unsigned i = 0; i < n; i++)
		l->free_bufs[l->free_cnt++] = tokens[i];
	l->returned += n;
	return n > 0;
}

static bool receive_some(struct load *l)
{
	struct uvhost_frame frames[BATCH];
	struct iovec pieces[PIECES];
	unsigned n = uvhost_queue_recv(l->q, frames, BATCH, pieces, PIECES);

	for (unsigned i = 0; i < n; i++)
		check(l, &frames[i]);
	if (n > 0)
		uvhost_queue_release(l->q, frames, n);
	return n > 0;
}

/* With nothing to do: sleeps on interrupts, or only looks at the connection now and then. */
static int rest(struct load *l, uint64_t until)
{
	struct pollfd pfd = { .fd = uvhost_driver_fd(l->d), .events = POLLIN };
	bool again = false;

	if (!l->cfg->sleep) {
		if (l->now - l->looked < LOOK_NS)
			return 0;
		l->looked = l->now;
		return uvhost_driver_process(l->d);
	}
	for (unsigned i = 0; i < l->cfg->queues; i++)
		again |= uvhost_queue_interrupts(uvhost_driver_queue(l->d, i),
						 UVHOST_INTERRUPT_RX | UVHOST_INTERRUPT_TX);
	/* A rate has to be kept, so not for long then. */
	if (!again && l->now < until)
		poll(&pfd, 1, l->cfg->rate != 0 ? 1 : (int)((until - l->now) / NSEC_PER_MSEC) + 1);
	return uvhost_driver_process(l->d);
}

static bool finished(const struct load *l)
{
	uint64_t count = l->cfg->count;

	if (count == 0)
		return false;
	if (l->cfg->mode == BENCH_RX)
		return l->received >= count;
	return l->returned >= count && (l->cfg->mode == BENCH_TX || l->received >= count);
}

/* Moves frames until @until or until all have passed; @send: also new ones. 0 or -errno. */
static int move(struct load *l, uint64_t until, bool send)
{
	int rc = 0;

	while ((l->now = clock_ns()) < until && rc == 0 && !finished(l)) {
		bool busy = false;

		for (unsigned i = 0; i < l->cfg->queues; i++) {
			l->q = uvhost_driver_queue(l->d, i);
			busy |= take_back(l);
			/* What the back end has not got to, before it gets more. */
			l->backlog_sum += l->buf_cnt - l->free_cnt;
			l->backlog_cnt++;
			busy |= receive_some(l);
			busy |= send && send_some(l);
		}
		if (l->first == 0 && (l->cfg->mode == BENCH_TX ? l->returned : l->received) > 0)
			l->first = clock_ns();
		if (!busy)
			rc = rest(l, until);
	}
	return rc;
}

/* ---- a run ---- */

static struct counts count(const struct load *l)
{
	struct counts c = { .returned = l->returned, .received = l->received };

	for (unsigned i = 0; i < l->cfg->queues; i++) {
		struct uvhost_queue_stats s;

		uvhost_queue_stats(uvhost_driver_queue(l->d, i), &s);
		c.kicks += s.kicks;
		c.interrupts += s.interrupts;
	}
	return c;
}

static void sum_up(const struct load *l, struct bench_result *res)
{
	res->sent = l->sent;
	res->damaged = l->damaged;
	res->other = l->other;
	for (unsigned i = 0; i < BENCH_FLOWS_MAX; i++) {
		const struct probe_track *t = &l->tracks[i];

		res->good += t->good;
		res->missing += t->missing;
		res->late += t->late;
		res->doubled += t->doubled;
		/* Frames of a flow behind the last that came. */
		if (l->cfg->mode == BENCH_LOOP || l->cfg->mode == BENCH_RR)
			res->missing += l->seq[i] - t->next;
	}
	uvhost_driver_info(l->d, &res->info);
}

static int measure(struct load *l, struct bench_result *res)
{
	uint64_t start = clock_ns(), from = start + (uint64_t)(l->cfg->warmup * 1e9);
	struct counts before, after;
	int rc;

	l->begun = start;
	rc = move(l, from, true);
	before = count(l);
	from = clock_ns();
	l->backlog_sum = l->backlog_cnt = 0;
	memset(l->rtt, 0, sizeof(*l->rtt));
	if (rc == 0)
		rc = move(l, from + (uint64_t)(l->cfg->seconds * 1e9), true);
	after = count(l);
	*res = (struct bench_result){
		.seconds = (double)(clock_ns() - from) * 1e-9,
		.setup_ns = l->first != 0 ? l->first - l->opened : 0,
		.tx_frames = after.returned - before.returned,
		.rx_frames = after.received - before.received,
		.kicks = after.kicks - before.kicks,
		.interrupts = after.interrupts - before.interrupts,
		.backlog = (double)l->backlog_sum / (double)(l->backlog_cnt + !l->backlog_cnt) /
			   l->buf_cnt,
		.rtt = *l->rtt,
	};
	if (rc == 0 && l->cfg->mode != BENCH_RX)
		rc = move(l, clock_ns() + DRAIN_NS, false);
	sum_up(l, res);
	return rc;
}

static int await_back_end(struct load *l)
{
	uint64_t until = clock_ns() + CONNECT_NS;
	struct uvhost_driver_info info;

	for (;;) {
		struct pollfd pfd = { .fd = uvhost_driver_fd(l->d), .events = POLLIN };

		uvhost_driver_info(l->d, &info);
		if (info.connected)
			return info.queue_pairs < l->cfg->queues ? -ENXIO : 0;
		if (clock_ns() > until)
			return info.last_error < 0 ? info.last_error : -ETIMEDOUT;
		poll(&pfd, 1, 100);
		uvhost_driver_process(l->d);
	}
}

static int prepare(struct load *l)
{
	const struct bench_cfg *c = l->cfg;

	l->buf_cnt = c->ring * c->queues;
	l->free_bufs = calloc(l->buf_cnt, sizeof(struct buffer *));
	l->tracks = calloc(BENCH_FLOWS_MAX, sizeof(*l->tracks));
	l->flat = malloc(FRAME_MAX + 1);
	l->rtt = calloc(1, sizeof(*l->rtt));
	if (l->free_bufs == NULL || l->tracks == NULL || l->flat == NULL || l->rtt == NULL)
		return -ENOMEM;
	for (; l->free_cnt < l->buf_cnt; l->free_cnt++) {
		struct buffer *b = uvhost_driver_alloc(l->d, sizeof(*b) + c->size);

		if (b == NULL)
			return -ENOMEM;
		l->free_bufs[l->free_cnt] = b;
	}
	return 0;
}

/* The kernel's vhost-net, and what is behind it. */
static int open_tap(struct uvhost_driver_cfg *dc, const char *name)
{
	bool persistent;
	int rc = tap_if_open();

	if (rc < 0)
		return rc;
	dc->tap_fd = rc;
	dc->vhost_net = "/dev/vhost-net";
	rc = tap_if_attach(dc->tap_fd, name, false, &persistent);
	if (rc < 0)
		fd_close(&dc->tap_fd);
	return rc;
}

int bench_run(const struct bench_cfg *cfg, struct bench_result *res, const char **what)
{
	struct uvhost_driver_cfg dc = UVHOST_DRIVER_CFG;
	struct load l = { .cfg = cfg, .opened = clock_ns() };
	int rc;

	dc.socket_path = cfg->socket_path;
	dc.listen = cfg->listen;
	dc.queue_pairs = cfg->queues;
	dc.rx_size = dc.tx_size = cfg->ring;
	dc.leave_out = cfg->leave_out;
	dc.hugepages = cfg->hugepages;
	/* Each allocation is rounded up to a cache line. */
	dc.pool_len = cfg->memory +
		      (size_t)cfg->ring * cfg->queues * (sizeof(struct buffer) + cfg->size + 64);
	if (cfg->kernel_tap != NULL) {
		*what = "cannot attach to the tap";
		rc = open_tap(&dc, cfg->kernel_tap);
		if (rc < 0)
			return rc;
	}
	*what = "cannot make a driver";
	rc = uvhost_driver_open(&l.d, &dc);
	if (rc < 0)
		goto out;
	rc = prepare(&l);
	if (rc == 0) {
		*what = cfg->kernel_tap != NULL ?
				"no /dev/vhost-net is to be had (modprobe vhost_net)" :
				"no back end is there, or not with so many queues";
		rc = await_back_end(&l);
	}
	if (rc == 0) {
		*what = "the back end has left";
		rc = measure(&l, res);
	}
	uvhost_driver_close(l.d);
	free(l.free_bufs);
	free(l.tracks);
	free(l.flat);
	free(l.rtt);
out:
	fd_close(&dc.tap_fd);
	return rc;
}
