// SPDX-License-Identifier: BSD-2-Clause
/* A test rig for ports: a port with the two threads that it lives in. */
#include "rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/probe_frame.h"
#include "base/util.h"

void rig_failed(struct rig *r, const char *file, int line, const char *what)
{
	if (r->failure[0] == '\0')
		snprintf(r->failure, sizeof(r->failure), "%s:%d: %s", file, line, what);
}

static void check(struct rig *r)
{
	if (r->failure[0] != '\0')
		fail_msg("%s (%s)", r->failure, r->spec);
}

/* ---- threads ---- */

struct call {
	struct rig *r;
	void (*fn)(struct rig *r, void *arg);
	void *arg;
};

static void run(void *arg)
{
	struct call *c = arg;

	c->fn(c->r, c->arg);
}

void rig_data(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg)
{
	struct call c = { r, fn, arg };

	worker_call(r->data, run, &c);
	check(r);
}

void rig_control(struct rig *r, void (*fn)(struct rig *r, void *arg), void *arg)
{
	struct call c = { r, fn, arg };

	worker_call(r->control, run, &c);
	check(r);
}

void rig_sleep_ms(unsigned ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

bool rig_wait(bool (*cond)(struct rig *r), struct rig *r)
{
	for (unsigned i = 0; i < 2000; i++) {
		if (cond(r))
			return true;
		rig_sleep_ms(1);
	}
	return cond(r);
}

static struct work_used tx_prepare(struct work_src *src, struct work_room room)
{
	atomic_fetch_add(&container_of(src, struct rig, tx)->tx_runs, 1);
	return (struct work_used){ 0 };
}

static struct work_used rx_prepare(struct work_src *src, struct work_room room)
{
	atomic_fetch_add(&container_of(src, struct rig, rx)->rx_runs, 1);
	return (struct work_used){ 0 };
}

static const struct work_ops tx_ops = { .prepare = tx_prepare };
static const struct work_ops rx_ops = { .prepare = rx_prepare };

struct rig *rig_new(const char *spec, enum io_kind io)
{
	struct work_config control_cfg = { .name = "control", .io = io };
	struct work_config data_cfg = { .name = "data", .io = io };
	struct rig *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->spec = spec;
	r->io = io;
	r->bytes = mmap(NULL, RIG_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(r->bytes != MAP_FAILED);
	assert_int_equal(worker_spawn(&r->control, &control_cfg), 0);
	assert_int_equal(worker_spawn(&r->data, &data_cfg), 0);
	return r;
}

void rig_free(struct rig *r)
{
	worker_join(r->data);
	worker_join(r->control);
	munmap(r->bytes, RIG_BYTES);
	free(r);
}

/* ---- the port's life ---- */

static void on_link(void *ctx, bool up)
{
	struct rig *r = ctx;

	atomic_fetch_add(&r->link_events, 1);
	atomic_store(&r->link_up, up);
}

struct opening {
	const char *err;
	int rc;
};

static void do_open(struct rig *r, void *arg)
{
	struct port_events events = { .link = on_link, .ctx = r };
	struct opening *o = arg;

	o->rc = port_open(&r->port, r->spec, "dev0", r->control, &o->err);
	if (o->rc < 0)
		return;
	r->ops = r->port->ops;
	atomic_store(&r->link_up, r->ops->link(r->port, &events));
}

int rig_open(struct rig *r, const char **err)
{
	struct opening o = { .err = NULL };

	rig_control(r, do_open, &o);
	*err = o.err;
	return o.rc;
}

static void do_close(struct rig *r, void *arg)
{
	r->ops->close(r->port);
	r->port = NULL;
}

void rig_close(struct rig *r)
{
	rig_control(r, do_close, NULL);
}

static void attach_data(void *arg)
{
	struct rig *r = arg;

	work_src_init(&r->tx, r->data, &tx_ops);
	work_src_init(&r->rx, r->data, &rx_ops);
	EXPECT(r, r->ops->attach(r->port, r->data, &r->tx, &r->rx) == 0);
}

static void do_attach(struct rig *r, void *arg)
{
	worker_call(r->data, attach_data, r);
}

void rig_attach(struct rig *r)
{
	rig_control(r, do_attach, NULL);
	r->attached = true;
}

static void detach_data(void *arg)
{
	struct rig *r = arg;

	r->ops->detach(r->port);
	work_src_remove(&r->tx);
	work_src_remove(&r->rx);
}

static void do_detach(struct rig *r, void *arg)
{
	worker_call(r->data, detach_data, r);
}

void rig_detach(struct rig *r)
{
	rig_control(r, do_detach, NULL);
	r->attached = false;
}

void rig_up(struct rig *r)
{
	const char *err;

	if (rig_open(r, &err) < 0)
		fail_msg("%s: %s", r->spec, err);
	rig_attach(r);
}

void rig_down(struct rig *r)
{
	if (r->attached)
		rig_detach(r);
	if (r->port != NULL)
		rig_close(r);
}

/* ---- frames ---- */

static uint8_t *take_bytes(struct rig *r, uint32_t len)
{
	uint8_t *p = r->bytes + r->bytes_used;

	r->bytes_used += len;
	EXPECT(r, r->bytes_used <= RIG_BYTES);
	return p;
}

static void cut_pieces(struct rig *r, struct frame *f, void *bytes, unsigned pieces)
{
	size_t each = pieces > 0 ? f->len / pieces : 0;

	f->iov = &r->iovs[r->iovs_used + 1];
	r->iovs_used += pieces + 1;
	EXPECT(r, r->iovs_used <= RIG_IOVS);
	f->iov_cnt = (uint16_t)pieces;
	for (unsigned i = 0; i < pieces; i++)
		f->iov[i] = (struct iovec){ (uint8_t *)bytes + i * each, each };
	if (pieces > 0)
		f->iov[pieces - 1].iov_len = f->len - each * (pieces - 1);
}

void frame_make(struct rig *r, struct frame *f, uint16_t cookie, uint32_t len, unsigned pieces)
{
	static const uint8_t macs[PROBE_MACS_LEN] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2 };
	uint8_t *p = take_bytes(r, len);

	for (uint32_t i = 0; i < len; i++)
		p[i] = i < sizeof(macs) ? macs[i] : (uint8_t)(i * 7ul + r->seq);
	if (len >= PROBE_HEAD_LEN)
		probe_write(p, len, r->seq++);
	*f = (struct frame){ .cookie = cookie, .len = len };
	cut_pieces(r, f, p, pieces);
}

void room_make(struct rig *r, struct frame *f, uint16_t cookie, uint32_t len, unsigned pieces)
{
	uint8_t *p = take_bytes(r, len);

	memset(p, 0xa5, len);
	*f = (struct frame){ .cookie = cookie, .len = len };
	cut_pieces(r, f, p, pieces);
}

void frames_reset(struct rig *r)
{
	r->bytes_used = 0;
	r->iovs_used = 0;
}

/* Fresh memory in place of what there is. */
static void map_bytes(struct rig *r, int prot)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	const void *p = mmap(r->bytes, RIG_BYTES, prot, flags, -1, 0);

	EXPECT(r, p == r->bytes);
}

void frames_unmap(struct rig *r)
{
	map_bytes(r, PROT_NONE);
	memset(r->iovs, 0, sizeof(r->iovs));
	frames_reset(r);
}

void frames_remap(struct rig *r)
{
	map_bytes(r, PROT_READ | PROT_WRITE);
}

void send_frames(struct rig *r, struct frame *frames, unsigned n)
{
	for (unsigned i = 0; i < n; i += PORT_SENT_MAX) {
		unsigned part = min_uint(n - i, PORT_SENT_MAX);

		EXPECT(r, r->ops->prep_send(r->port, frames + i, part) == part);
	}
}

void enter(struct rig *r)
{
	EXPECT(r, io_enter(worker_io(r->data), 0) == 0);
}

void take_sent(struct rig *r, void *unused)
{
	struct port_sent sent[7]; /* fewer than there are, and odd */
	unsigned n;

	do {
		n = r->ops->done_send(r->port, sent, ARRAY_SIZE(sent));
		EXPECT(r, n <= ARRAY_SIZE(sent));
		for (unsigned i = 0; i < n; i++) {
			EXPECT(r, r->backs[sent[i].cookie]++ == 0);
			EXPECT(r, sent[i].res <= 0);
			r->res[sent[i].cookie] = sent[i].res;
			r->order[r->back++] = sent[i].cookie;
		}
	} while (n == ARRAY_SIZE(sent));
}

void forget_sent(struct rig *r)
{
	r->back = 0;
	memset(r->backs, 0, sizeof(r->backs));
}

void wait_sent(struct rig *r, unsigned n)
{
	for (unsigned i = 0; i < 2000 && r->back < n; i++) {
		rig_data(r, take_sent, NULL);
		if (r->back < n)
			rig_sleep_ms(1);
	}
	if (r->back != n)
		fail_msg("%s: %u frames back, not %u", r->spec, r->back, n);
}

unsigned count_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}
