// SPDX-License-Identifier: BSD-2-Clause
/*
 * The vhost-user protocol: the real front end against the real back end over a socket pair. Only the
 * device behind the back end is a double, which watches that nobody touches a ring that it runs.
 *
 *	orders	what real front ends send, replayed call by call (the back end in a thread)
 *	rules	one property of one message each (the back end stepped by hand)
 *	abuse	every message in every wrong form; descriptors and memory must stay level
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"
#include "vu/backend.h"
#include "vu/frontend.h"

#define BIT(n)	       (1ULL << (n))
#define RINGS	       3
#define VIRTIO_BITS    (BIT(0) | BIT(5) | BIT(15) | BIT(16) | BIT(17) | BIT(29) | BIT(32))
#define PROTOCOL_BIT   BIT(VHOST_USER_F_PROTOCOL_FEATURES)
#define ACK_BIT	       BIT(VHOST_USER_PROTOCOL_F_REPLY_ACK)
#define MEM_SIZE       (2ULL << 20)
#define MEM_UVA	       0x7f0000000000ULL
#define UML_MEM_LEN    (8 + 2 * sizeof(struct vhost_user_region))
#define V	       VHOST_USER_VERSION
#define V_NEED	       (VHOST_USER_VERSION | VHOST_USER_FLAG_NEED_REPLY)
#define V_REPLY	       (VHOST_USER_VERSION | VHOST_USER_FLAG_REPLY)
#define assert_ok(ret) assert_int_equal(ret, 0)

/* The device. assert(): it runs in the back end's thread, where cmocka's do not work. */

struct device {
	const struct vu_backend *b;
	unsigned running;
	struct vu_ring seen[RINGS]; /* as when it was started */
	const struct mem *mem;
	uint16_t pos[RINGS];
	bool defer;		/* quiesce takes a while */
	unsigned deferred;	/* rings that it still takes a while for */
	bool refuse_features;
	unsigned quiesces, resumes, resets;
	uint64_t features;
	uint8_t config[12];
};

static void device_check(const struct device *d)
{
	for (unsigned i = 0; i < RINGS; i++) {
		const struct vu_ring *now = &d->b->rings[i], *was = &d->seen[i];

		if (!(d->running & (1U << i)))
			continue;
		assert(d->b->mem == d->mem);
		assert(now->num == was->num && now->base == was->base);
		assert(memcmp(&now->addr, &was->addr, sizeof(now->addr)) == 0);
		assert(now->addr_set && now->kick_set && now->enabled == was->enabled);
		assert(now->kick_fd == was->kick_fd && now->call_fd == was->call_fd);
		assert(now->err_fd == was->err_fd);
	}
}

static int device_quiesce(void *ctx, unsigned rings)
{
	struct device *d = ctx;

	device_check(d);
	assert(rings != 0 && (rings & ~d->running) == 0);
	d->quiesces++;
	if (d->defer) {
		d->deferred = rings;
		return -EINPROGRESS;
	}
	d->running &= ~rings;
	return 0;
}

static void device_resume(void *ctx)
{
	struct device *d = ctx;

	device_check(d);
	d->resumes++;
	for (unsigned i = 0; i < RINGS; i++) {
		if ((d->running & (1U << i)) || !vu_ring_runnable(d->b, i))
			continue;
		d->running |= 1U << i;
		d->seen[i] = d->b->rings[i];
		d->pos[i] = d->b->rings[i].base;
		d->mem = d->b->mem;
	}
}

static uint16_t device_position(void *ctx, unsigned ring)
{
	const struct device *d = ctx;

	assert(!(d->running & (1U << ring)));
	return d->pos[ring];
}

static int device_features(void *ctx, uint64_t acked)
{
	struct device *d = ctx;

	assert(d->running == 0);
	if (d->refuse_features)
		return -EINVAL;
	d->features = acked;
	return 0;
}

static void device_config(void *ctx, void *buf, unsigned len)
{
	const struct device *d = ctx;

	memcpy(buf, d->config, min_uint(len, sizeof(d->config)));
}

static void device_reset(void *ctx)
{
	struct device *d = ctx;

	assert(d->running == 0);
	d->features = 0;
	d->resets++;
}

static const struct vu_backend_ops device_ops = {
	.quiesce = device_quiesce,
	.resume = device_resume,
	.position = device_position,
	.features = device_features,
	.config = device_config,
	.reset = device_reset,
};

/* A connection with both its ends. */

struct rig {
	struct device dev;
	struct vu_backend b;
	struct vu_frontend fe;
	int sock;	   /* the back end's */
	int step;	   /* what its last step said */
	unsigned answers;  /* of the last call() */
	struct vu_msg answer;
	int event, memfd;
	bool threaded;
	pthread_t thread;
	pthread_mutex_t lock; /* of dev and b while the thread runs */
};

static void *rig_thread(void *arg)
{
	struct rig *r = arg;
	int step = VU_MORE;

	do {
		struct pollfd pfd = {.fd = r->sock, .events = POLLIN};

		if (step == VU_OUTPUT)
			pfd.events = POLLOUT;
		if (step != VU_MORE)
			poll(&pfd, 1, -1);
		pthread_mutex_lock(&r->lock);
		step = r->step = vu_backend_step(&r->b);
		pthread_mutex_unlock(&r->lock);
	} while (step >= 0);
	return NULL;
}

static void rig_open(struct rig *r, bool threaded)
{
	static const uint8_t config[12] = {0x52, 0x54, 0, 0x12, 0x34, 0x56, 1, 0, 1, 0, 0xdc, 0x05};
	struct vu_backend_cfg cfg = {
		.name = "test",
		.rings = RINGS,
		.features = VIRTIO_BITS,
		.ops = &device_ops,
		.ctx = &r->dev,
	};
	int sv[2];

	memset(r, 0, sizeof(*r));
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv));
	r->sock = sv[0];
	r->dev.b = &r->b;
	memcpy(r->dev.config, config, sizeof(config));
	vu_backend_init(&r->b, &cfg, r->sock);
	vu_frontend_init(&r->fe, sv[1], 10000);
	r->event = eventfd(0, EFD_CLOEXEC);
	r->memfd = memfd_create("guest", MFD_CLOEXEC);
	assert_true(r->event >= 0 && r->memfd >= 0);
	assert_ok(ftruncate(r->memfd, MEM_SIZE));
	pthread_mutex_init(&r->lock, NULL);
	r->threaded = threaded;
	if (threaded)
		assert_ok(pthread_create(&r->thread, NULL, rig_thread, r));
}

static void rig_close(struct rig *r)
{
	vu_frontend_close(&r->fe);
	if (r->threaded) {
		pthread_join(r->thread, NULL);
		assert_int_equal(r->step, -ECONNRESET);
	}
	r->dev.running = 0;
	vu_backend_fini(&r->b);
	fd_close(&r->sock);
	fd_close(&r->event);
	fd_close(&r->memfd);
	pthread_mutex_destroy(&r->lock);
}

/* Steps the back end as far as it goes, and takes its answers. */
static int serve(struct rig *r)
{
	do {
		r->step = vu_backend_step(&r->b);
	} while (r->step == VU_MORE);
	device_check(&r->dev);
	return r->step;
}

static void take_answers(struct rig *r)
{
	while (vu_channel_recv(&r->fe.ch) == 1) {
		r->answers++;
		r->answer = r->fe.ch.in;
		vu_msg_close(&r->fe.ch.in);
	}
}

struct call {
	uint32_t request, flags, size;
	union vhost_user_payload p;
	int fds[VU_MSG_FDS_MAX];
	unsigned fd_cnt;
};

/* One message by hand: what the back end's step says, the answers in r. */
static int call(struct rig *r, const struct call *c)
{
	struct vhost_user_hdr hdr = {.request = c->request, .flags = c->flags, .size = c->size};

	r->answers = 0;
	assert_ok(vu_frontend_send(&r->fe, &hdr, &c->p, c->fds, c->fd_cnt));
	serve(r);
	take_answers(r);
	return r->step;
}

/* One without descriptors that asks for an acknowledgement: what that says, or -ENOMSG. */
static int64_t ask(struct rig *r, uint32_t request, uint32_t size, union vhost_user_payload p)
{
	struct call c = {.request = request, .flags = V_NEED, .size = size, .p = p};

	if (call(r, &c) < 0)
		return r->step;
	if (r->answers != 1 || r->answer.hdr.size != 8)
		return -ENOMSG;
	assert_int_equal(r->answer.hdr.flags, V_REPLY);
	assert_int_equal(r->answer.hdr.request, request);
	return (int64_t)r->answer.payload.u64;
}

static int64_t ask_u64(struct rig *r, uint32_t request, uint64_t value)
{
	return ask(r, request, 8, (union vhost_user_payload){.u64 = value});
}

static int64_t ask_state(struct rig *r, uint32_t request, uint32_t idx, uint32_t num)
{
	return ask(r, request, 8, (union vhost_user_payload){.state = {idx, num}});
}

static int64_t ask_addr(struct rig *r, struct vhost_user_vring_addr addr)
{
	return ask(r, VHOST_USER_SET_VRING_ADDR, sizeof(addr),
		   (union vhost_user_payload){.addr = addr});
}

static int64_t ask_fd(struct rig *r, uint32_t request, uint64_t payload, int fd)
{
	struct call c = {.request = request,
			 .flags = V_NEED,
			 .size = 8,
			 .p.u64 = payload,
			 .fds = {fd},
			 .fd_cnt = fd < 0 ? 0 : 1};

	if (request == VHOST_USER_SET_BACKEND_REQ_FD)
		c.size = 0;
	if (call(r, &c) < 0)
		return r->step;
	assert_int_equal(r->answers, 1);
	return (int64_t)r->answer.payload.u64;
}

/* What GET_VRING_BASE answers. */
static uint32_t base_of(struct rig *r, uint32_t idx)
{
	struct call c = {.request = VHOST_USER_GET_VRING_BASE,
			 .flags = V,
			 .size = 8,
			 .p.state = {.index = idx, .num = 77}};

	assert_int_equal(call(r, &c), VU_INPUT);
	assert_int_equal(r->answers, 1);
	assert_int_equal(r->answer.hdr.size, 8);
	assert_int_equal(r->answer.payload.state.index, idx);
	return r->answer.payload.state.num;
}

static struct vhost_user_vring_addr ring_addr(uint32_t idx)
{
	uint64_t at = MEM_UVA + idx * 0x10000ULL;

	return (struct vhost_user_vring_addr){
		.index = idx, .desc = at, .avail = at + 0x4000, .used = at + 0x8000, .log = ~0ULL};
}

static const struct vhost_user_region whole = {.size = MEM_SIZE, .user_addr = MEM_UVA};

static int64_t ask_mem(struct rig *r, const struct vhost_user_region *regions, const int *fds,
		       uint32_t cnt)
{
	struct call c = {.request = VHOST_USER_SET_MEM_TABLE,
			 .flags = V_NEED,
			 .size = (uint32_t)(8 + cnt * sizeof(*regions)),
			 .p.mem.cnt = cnt,
			 .fd_cnt = cnt};

	memcpy(c.p.mem.regions, regions, cnt * sizeof(*regions));
	memcpy(c.fds, fds, cnt * sizeof(*fds));
	if (call(r, &c) < 0)
		return r->step;
	assert_int_equal(r->answers, 1);
	return (int64_t)r->answer.payload.u64;
}

/* A stepped rig with acknowledgements and memory. */
static void rig_ready(struct rig *r)
{
	rig_open(r, false);
	assert_ok(ask_u64(r, VHOST_USER_SET_PROTOCOL_FEATURES, vu_backend_protocol_features()));
	assert_ok(ask_mem(r, &whole, &r->memfd, 1));
}

static void rig_start_ring(struct rig *r, uint32_t idx, uint32_t base)
{
	assert_ok(ask_state(r, VHOST_USER_SET_VRING_NUM, idx, 256));
	assert_ok(ask_state(r, VHOST_USER_SET_VRING_BASE, idx, base));
	assert_ok(ask_addr(r, ring_addr(idx)));
	assert_ok(ask_fd(r, VHOST_USER_SET_VRING_CALL, idx, r->event));
	assert_ok(ask_fd(r, VHOST_USER_SET_VRING_KICK, idx, r->event));
	assert_true(r->dev.running & (1U << idx));
}

/* Open descriptors of the process. */
static int fd_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int cnt = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		cnt++;
	closedir(dir);
	return cnt;
}

static long rss_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size, rss;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld", &size, &rss), 2);
	fclose(f);
	return rss;
}

/* Orders. What runs at an end is looked at under the lock; a query that is answered comes first. */

static void expect_rings(struct rig *r, unsigned running, unsigned enabled)
{
	unsigned got = 0;
	uint64_t features;

	assert_ok(vu_frontend_get_u64(&r->fe, VHOST_USER_GET_FEATURES, &features));
	pthread_mutex_lock(&r->lock);
	for (unsigned i = 0; i < RINGS; i++)
		got |= (unsigned)r->b.rings[i].enabled << i;
	assert_int_equal(r->dev.running, running);
	assert_int_equal(got, enabled);
	assert_int_equal(r->b.bad_messages, 0);
	pthread_mutex_unlock(&r->lock);
}

static void request_empty(struct rig *r, uint32_t request)
{
	struct vhost_user_hdr hdr = {.request = request};

	assert_ok(vu_frontend_request(&r->fe, &hdr, NULL, NULL, 0));
}

static void request_req_fd(struct rig *r, int fd)
{
	struct vhost_user_hdr hdr = {.request = VHOST_USER_SET_BACKEND_REQ_FD};

	assert_ok(vu_frontend_request(&r->fe, &hdr, NULL, &fd, 1));
}

/* NUM, BASE, ADDR: no front end does it otherwise. */
static void setup_ring(struct rig *r, uint32_t idx, uint32_t num, uint32_t base)
{
	struct vhost_user_vring_addr addr = ring_addr(idx);

	assert_ok(vu_frontend_vring_state(&r->fe, VHOST_USER_SET_VRING_NUM, idx, num));
	assert_ok(vu_frontend_vring_state(&r->fe, VHOST_USER_SET_VRING_BASE, idx, base));
	assert_ok(vu_frontend_vring_addr(&r->fe, &addr));
}

/* drivers/virtio_uml.c of Linux 6.1: its driver's load, with the fixed size of its memory message. */
static void uml_load(struct rig *r, const int *call)
{
	struct vhost_user_mem mem = {.cnt = 1, .regions = {whole}};
	struct vhost_user_hdr hdr = {.request = VHOST_USER_SET_MEM_TABLE, .size = UML_MEM_LEN};
	struct vu_frontend *fe = &r->fe;
	uint8_t config[12];

	assert_ok(vu_frontend_set_u64(fe, VHOST_USER_SET_FEATURES, PROTOCOL_BIT | BIT(32)));
	/* For each byte of the MAC and each field it asks for all that is before, too. */
	for (uint32_t i = 1; i <= sizeof(config); i++)
		assert_ok(vu_frontend_get_config(fe, config, 0, i));
	assert_memory_equal(config, r->dev.config, sizeof(config));
	assert_ok(vu_frontend_request(fe, &hdr, &mem, &r->memfd, 1));
	for (uint32_t i = 0; i < RINGS; i++) {
		assert_ok(vu_frontend_vring_fd(fe, VHOST_USER_SET_VRING_CALL, i, call[1]));
		setup_ring(r, i, 256, 0);
	}
	for (uint32_t i = 0; i < RINGS; i++) {
		assert_ok(vu_frontend_vring_fd(fe, VHOST_USER_SET_VRING_KICK, i, r->event));
		assert_ok(vu_frontend_vring_state(fe, VHOST_USER_SET_VRING_ENABLE, i, 1));
	}
}

static void order_uml(void **state)
{
	uint64_t features;
	struct rig r;
	int pipes[2], call[2];

	rig_open(&r, true);
	assert_ok(pipe2(pipes, O_CLOEXEC));
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, call));
	request_empty(&r, VHOST_USER_SET_OWNER);
	assert_ok(vu_frontend_get_u64(&r.fe, VHOST_USER_GET_FEATURES, &features));
	assert_ok(vu_frontend_get_u64(&r.fe, VHOST_USER_GET_PROTOCOL_FEATURES, &features));
	features &= ACK_BIT | BIT(VHOST_USER_PROTOCOL_F_BACKEND_REQ) |
		    BIT(VHOST_USER_PROTOCOL_F_CONFIG);
	assert_ok(vu_frontend_set_protocol_features(&r.fe, features));
	request_req_fd(&r, pipes[1]);
	uml_load(&r, call);
	expect_rings(&r, 7, 7);

	/* Unload: disable all, in reverse, and one query; the memory is free then. */
	for (uint32_t i = RINGS; i-- > 0;)
		assert_ok(vu_frontend_vring_state(&r.fe, VHOST_USER_SET_VRING_ENABLE, i, 0));
	expect_rings(&r, 7, 0);
	/* Load again, over rings that were never stopped. */
	uml_load(&r, call);
	expect_rings(&r, 7, 7);
	rig_close(&r);
	for (int i = 0; i < 2; i++) {
		fd_close(&pipes[i]);
		fd_close(&call[i]);
	}
}

static void qemu_init(struct rig *r, bool enable)
{
	struct vu_frontend *fe = &r->fe;
	uint64_t v;

	assert_ok(vu_frontend_get_u64(fe, VHOST_USER_GET_FEATURES, &v));
	assert_true(v & PROTOCOL_BIT); /* 190 */
	assert_ok(vu_frontend_get_u64(fe, VHOST_USER_GET_PROTOCOL_FEATURES, &v));
	v &= BIT(VHOST_USER_PROTOCOL_F_MQ) | ACK_BIT | BIT(VHOST_USER_PROTOCOL_F_BACKEND_REQ) |
	     BIT(VHOST_USER_PROTOCOL_F_RESET_DEVICE);
	assert_ok(vu_frontend_set_protocol_features(fe, v));
	assert_ok(vu_frontend_get_u64(fe, VHOST_USER_GET_QUEUE_NUM, &v));
	assert_int_equal(v, 1);
	request_empty(r, VHOST_USER_SET_OWNER);
	assert_ok(vu_frontend_get_u64(fe, VHOST_USER_GET_FEATURES, &v));
	for (uint32_t i = 0; i < 2; i++) {
		assert_ok(vu_frontend_vring_fd(fe, VHOST_USER_SET_VRING_CALL, i, r->event));
		assert_ok(vu_frontend_vring_fd(fe, VHOST_USER_SET_VRING_ERR, i, r->event));
	}
	/* 191, 36: without SET_FEATURES, and for a second ring */
	for (uint32_t i = 0; enable && i < 2; i++)
		assert_ok(vu_frontend_vring_state(fe, VHOST_USER_SET_VRING_ENABLE, i, 1));
}

/* What "vhost start" of QEMU's net device sends; it has the control queue itself. */
static void qemu_start(struct rig *r, uint64_t features, uint32_t base)
{
	struct vu_frontend *fe = &r->fe;

	assert_ok(vu_frontend_set_u64(fe, VHOST_USER_SET_FEATURES, features));
	assert_ok(vu_frontend_set_mem(fe, &whole, &r->memfd, 1));
	for (uint32_t i = 0; i < 2; i++) {
		setup_ring(r, i, 1024, base);
		assert_ok(vu_frontend_vring_fd(fe, VHOST_USER_SET_VRING_KICK, i, r->event));
		assert_ok(vu_frontend_vring_fd(fe, VHOST_USER_SET_VRING_CALL, i, r->event));
	}
}

static void order_qemu(void **state)
{
	uint64_t features = PROTOCOL_BIT | BIT(32) | BIT(15);
	unsigned resumes;
	struct rig r;
	uint32_t base;

	rig_open(&r, true);
	qemu_init(&r, true); /* the probe connection ends here */
	expect_rings(&r, 0, 3);
	rig_close(&r);

	rig_open(&r, true);
	qemu_init(&r, true);
	qemu_start(&r, features, 0);
	expect_rings(&r, 3, 3);
	/* 64: SET_FEATURES at the end changes nothing and disturbs nothing */
	resumes = r.dev.resumes;
	assert_ok(vu_frontend_set_u64(&r.fe, VHOST_USER_SET_FEATURES, features));
	expect_rings(&r, 3, 3);
	assert_int_equal(r.dev.resumes, resumes);
	/* The guest reboots: stop, start. */
	for (uint32_t i = 0; i < 2; i++) {
		assert_ok(vu_frontend_vring_state(&r.fe, VHOST_USER_SET_VRING_ENABLE, i, 0));
		assert_ok(vu_frontend_get_vring_base(&r.fe, i, &base));
	}
	expect_rings(&r, 0, 0);
	request_empty(&r, VHOST_USER_RESET_DEVICE);
	qemu_start(&r, PROTOCOL_BIT, 5);
	for (uint32_t i = 0; i < 2; i++)
		assert_ok(vu_frontend_vring_state(&r.fe, VHOST_USER_SET_VRING_ENABLE, i, 1));
	expect_rings(&r, 3, 3);
	rig_close(&r);

	/* 61: one from before protocol features were acked */
	rig_open(&r, true);
	qemu_start(&r, BIT(15), 0);
	expect_rings(&r, 3, 7);
	rig_close(&r);
}

/* 29, 43: with the call descriptors of a driver that polls. */
static void virtio_user_start(struct rig *r, uint64_t features)
{
	struct vu_frontend *fe = &r->fe;

	request_empty(r, VHOST_USER_SET_OWNER);
	for (uint32_t i = 0; i < 2; i++)
		assert_ok(vu_frontend_vring_fd(fe, VHOST_USER_SET_VRING_CALL, i, -1));
	assert_ok(vu_frontend_set_u64(fe, VHOST_USER_SET_FEATURES, features));
	assert_ok(vu_frontend_set_mem(fe, &whole, &r->memfd, 1));
	for (uint32_t i = 0; i < 2; i++) {
		setup_ring(r, i, 256, 0);
		assert_ok(vu_frontend_vring_fd(fe, VHOST_USER_SET_VRING_KICK, i, r->event));
	}
	for (uint32_t i = 0; i < 2; i++)
		assert_ok(vu_frontend_vring_state(fe, VHOST_USER_SET_VRING_ENABLE, i, 1));
}

static void virtio_user_enable(struct rig *r, uint32_t enable)
{
	for (uint32_t i = 0; i < 2; i++)
		assert_ok(vu_frontend_vring_state(&r->fe, VHOST_USER_SET_VRING_ENABLE, i, enable));
}

/* DPDK's driver, its versions before and after they took up protocol features. */
static void order_virtio_user(void **state)
{
	static const uint64_t versions[] = {BIT(15), BIT(15) | BIT(32) | PROTOCOL_BIT};

	for (unsigned i = 0; i < ARRAY_SIZE(versions); i++) {
		bool protocol = versions[i] & PROTOCOL_BIT;
		uint32_t base;
		struct rig r;
		uint64_t v;

		rig_open(&r, true);
		request_empty(&r, VHOST_USER_SET_OWNER);
		assert_ok(vu_frontend_get_u64(&r.fe, VHOST_USER_GET_FEATURES, &v));
		if (protocol)
			assert_ok(vu_frontend_set_protocol_features(&r.fe, ACK_BIT));
		virtio_user_start(&r, versions[i]);
		expect_rings(&r, 3, protocol ? 3 : 7);
		/* Its memory grows while it runs. */
		virtio_user_enable(&r, 0);
		assert_ok(vu_frontend_set_mem(&r.fe, &whole, &r.memfd, 1));
		virtio_user_enable(&r, 1);
		expect_rings(&r, 3, protocol ? 3 : 7);
		/* Old ones stop with RESET_OWNER, new ones as QEMU does; then both start again. */
		virtio_user_enable(&r, 0);
		if (!protocol)
			request_empty(&r, VHOST_USER_RESET_OWNER);
		for (uint32_t q = 0; protocol && q < 2; q++)
			assert_ok(vu_frontend_get_vring_base(&r.fe, q, &base));
		expect_rings(&r, protocol ? 0 : 3, 0);
		virtio_user_start(&r, versions[i]);
		expect_rings(&r, 3, protocol ? 3 : 7);
		rig_close(&r);
	}
}

/* 61: no acknowledgements, no SET_VRING_ENABLE, memory last, a kick to be polled. */
static void order_minimal(void **state)
{
	struct rig r;

	rig_open(&r, true);
	assert_ok(vu_frontend_set_u64(&r.fe, VHOST_USER_SET_FEATURES, 0));
	assert_ok(vu_frontend_vring_fd(&r.fe, VHOST_USER_SET_VRING_KICK, 1, -1));
	setup_ring(&r, 1, 2, 0);
	expect_rings(&r, 0, 7);
	assert_ok(vu_frontend_set_mem(&r.fe, &whole, &r.memfd, 1));
	expect_rings(&r, 2, 7); /* 60: each ring starts alone */
	rig_close(&r);
}

/* 79, 83, 88: a thousand connections, all of them alike. */
static void order_reconnect(void **state)
{
	int before = fd_count();

	for (int i = 0; i < 1000; i++) {
		uint64_t features;
		struct rig r;

		rig_open(&r, true);
		assert_ok(vu_frontend_get_u64(&r.fe, VHOST_USER_GET_FEATURES, &features));
		assert_int_equal(features, VIRTIO_BITS | PROTOCOL_BIT);
		if (i % 10 == 0)
			qemu_start(&r, features, 0);
		rig_close(&r);
	}
	assert_int_equal(fd_count(), before);
}

static void order_connect_path(void **state)
{
	char dir[] = "/tmp/test_vu.XXXXXX";
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char longer[sizeof(addr.sun_path) + 1];
	struct vu_frontend fe;
	int fd;

	assert_non_null(mkdtemp(dir));
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/sock", dir);
	assert_int_equal(vu_frontend_connect(&fe, addr.sun_path, 100), -ENOENT);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_ok(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)));
	assert_int_equal(vu_frontend_connect(&fe, addr.sun_path, 100), -ECONNREFUSED);
	assert_ok(listen(fd, 1));
	assert_ok(vu_frontend_connect(&fe, addr.sun_path, 20));
	/* Nobody answers. */
	assert_int_equal(vu_frontend_wait(&fe), -ETIMEDOUT);
	fd_close(&fd);
	assert_int_equal(vu_frontend_wait(&fe), -ECONNRESET);
	vu_frontend_close(&fe);
	/* 205: a path that does not fit is said to be one */
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(vu_frontend_connect(&fe, longer, 100), -ENAMETOOLONG);
	assert_ok(unlink(addr.sun_path));
	assert_ok(rmdir(dir));
}

/* Rules */

static void rule_features(void **state)
{
	struct rig r;

	rig_ready(&r);
	/* 190, 82: what is not offered cannot be acked; LOG_ALL (26) is not */
	assert_int_not_equal(ask_u64(&r, VHOST_USER_SET_FEATURES, BIT(26)), 0);
	assert_false(r.b.features_set);
	assert_ok(ask_u64(&r, VHOST_USER_SET_FEATURES, PROTOCOL_BIT | BIT(32)));
	assert_int_equal(r.dev.features, PROTOCOL_BIT | BIT(32));
	rig_start_ring(&r, 0, 0);
	r.dev.pos[0] = 9;
	r.dev.quiesces = 0;
	/* 64 */
	assert_ok(ask_u64(&r, VHOST_USER_SET_FEATURES, PROTOCOL_BIT | BIT(32)));
	assert_int_equal(r.dev.quiesces, 0);
	/* Others while it runs: it goes on where it was. */
	assert_ok(ask_u64(&r, VHOST_USER_SET_FEATURES, PROTOCOL_BIT));
	assert_int_equal(r.dev.quiesces, 1);
	assert_int_equal(r.dev.running, 1);
	assert_int_equal(r.dev.pos[0], 9);
	/* The device has a say; then the old ones stay. */
	r.dev.refuse_features = true;
	assert_int_not_equal(ask_u64(&r, VHOST_USER_SET_FEATURES, 0), 0);
	assert_true(vu_acked(&r.b, VHOST_USER_F_PROTOCOL_FEATURES));
	assert_false(r.b.rings[0].enabled);
	assert_int_equal(r.dev.running, 1);
	rig_close(&r);
}

/* 37: protocol features at any time; once REPLY_ACK is acked each request is answered once. */
static void rule_protocol_features(void **state)
{
	uint64_t offered = vu_backend_protocol_features();
	struct rig r;

	rig_open(&r, false);
	assert_int_equal(offered, BIT(0) | BIT(3) | BIT(5) | BIT(9) | BIT(13));
	/* Nobody asked what there is; without REPLY_ACK the flag means nothing ... */
	assert_int_equal(ask_u64(&r, VHOST_USER_SET_FEATURES, 0), -ENOMSG);
	assert_true(r.b.features_set);
	/* ... but in the message that acks it, also when that is refused. */
	assert_int_not_equal(ask_u64(&r, VHOST_USER_SET_PROTOCOL_FEATURES, ~0ULL), 0);
	assert_int_equal(r.b.protocol_features, 0);
	assert_ok(ask_u64(&r, VHOST_USER_SET_PROTOCOL_FEATURES, offered));
	assert_ok(ask_u64(&r, VHOST_USER_SET_FEATURES, PROTOCOL_BIT));
	/* And in the one that takes it back. */
	assert_ok(ask_u64(&r, VHOST_USER_SET_PROTOCOL_FEATURES, 0));
	assert_int_equal(ask_u64(&r, VHOST_USER_SET_FEATURES, 0), -ENOMSG);
	rig_close(&r);
}

static void rule_enable(void **state)
{
	struct rig r;

	rig_ready(&r);
	for (uint32_t i = 0; i < RINGS; i++)
		rig_start_ring(&r, i, 0);
	/* 61: a kick enables nothing and, below, disables nothing */
	assert_false(r.b.rings[1].enabled);
	/* 36: no MQ needed */
	assert_ok(ask_u64(&r, VHOST_USER_SET_PROTOCOL_FEATURES, ACK_BIT));
	r.dev.pos[1] = 40;
	r.dev.quiesces = 0;
	assert_ok(ask_state(&r, VHOST_USER_SET_VRING_ENABLE, 1, 1));
	assert_true(r.b.rings[1].enabled && r.dev.seen[1].enabled);
	assert_int_equal(r.dev.pos[1], 40);
	assert_int_equal(r.dev.quiesces, 1);
	assert_ok(ask_state(&r, VHOST_USER_SET_VRING_ENABLE, 1, 1));
	assert_int_equal(r.dev.quiesces, 1);
	assert_int_not_equal(ask_state(&r, VHOST_USER_SET_VRING_ENABLE, 1, 2), 0);
	assert_ok(ask_fd(&r, VHOST_USER_SET_VRING_KICK, 1, r.event));
	assert_true(r.b.rings[1].enabled);
	/* RESET_OWNER disables and does not stop */
	assert_ok(ask(&r, VHOST_USER_RESET_OWNER, 0, (union vhost_user_payload){0}));
	assert_false(r.b.rings[1].enabled);
	assert_int_equal(r.dev.running, 7);
	rig_close(&r);
}

/* 63: the acknowledgement comes when the device is out of the ring, and nothing overtakes it. */
static void rule_pending(void **state)
{
	struct call enable = {.request = VHOST_USER_SET_VRING_ENABLE,
			      .flags = V_NEED,
			      .size = 8,
			      .p.state = {.index = 0, .num = 1}};
	struct call query = {.request = VHOST_USER_GET_FEATURES, .flags = V};
	struct vhost_user_hdr hdr = {.request = query.request, .flags = V};
	struct rig r;

	rig_ready(&r);
	rig_start_ring(&r, 0, 3);
	r.dev.defer = true;
	assert_int_equal(call(&r, &enable), VU_PENDING);
	assert_int_equal(r.answers, 0);
	assert_int_equal(r.dev.deferred, 1);
	assert_false(r.b.rings[0].enabled);
	assert_ok(vu_frontend_send(&r.fe, &hdr, NULL, NULL, 0));
	take_answers(&r);
	assert_int_equal(r.answers, 0);

	r.dev.running = 0;
	r.dev.pos[0] = 11;
	assert_int_equal(vu_backend_quiesced(&r.b), VU_INPUT);
	take_answers(&r);
	assert_int_equal(r.answers, 2);
	assert_int_equal(r.answer.hdr.request, VHOST_USER_GET_FEATURES);
	assert_true(r.b.rings[0].enabled);
	assert_int_equal(r.dev.running, 1);
	assert_int_equal(r.dev.pos[0], 11);

	/* The front end leaves meanwhile: what its message brought goes, too (rig_close). */
	enable = (struct call){.request = VHOST_USER_SET_VRING_CALL,
			       .flags = V_NEED,
			       .size = 8,
			       .fds = {r.event},
			       .fd_cnt = 1};
	assert_int_equal(call(&r, &enable), VU_PENDING);
	rig_close(&r);
}

/* 55, 56, 198: the position, as often as one asks; what never ran answers its base. */
static void rule_base(void **state)
{
	struct rig r;

	rig_ready(&r);
	assert_int_equal(base_of(&r, 2), 0);
	assert_ok(ask_state(&r, VHOST_USER_SET_VRING_BASE, 2, 0xffff));
	assert_int_equal(base_of(&r, 2), 0xffff);
	assert_int_not_equal(ask_state(&r, VHOST_USER_SET_VRING_BASE, 2, 0x10000), 0);
	assert_int_equal(base_of(&r, 2), 0xffff);

	rig_start_ring(&r, 0, 0);
	r.dev.pos[0] = 37;
	assert_int_equal(base_of(&r, 0), 37);
	assert_int_equal(r.dev.running, 0);
	assert_int_equal(base_of(&r, 0), 37);
	/* 67: kick and addresses are void; call stays */
	assert_int_equal(r.b.rings[0].kick_fd, -1);
	assert_true(r.b.rings[0].call_fd >= 0);
	assert_ok(ask_fd(&r, VHOST_USER_SET_VRING_KICK, 0, r.event));
	assert_int_equal(r.dev.running, 0);
	assert_ok(ask_addr(&r, ring_addr(0)));
	assert_int_equal(r.dev.running, 1);
	assert_int_equal(r.dev.pos[0], 37);
	rig_close(&r);
}

/* NUM and BASE stop a ring that runs, ADDR moves it, none touches its neighbour. */
static void rule_ring_changes(void **state)
{
	static const uint32_t bad[] = {0, 3, 255, VQ_NUM_MAX * 2, 32768, 65535, 0x10000, 0x10100, ~0U};
	struct rig r;

	rig_ready(&r);
	rig_start_ring(&r, 0, 0);
	rig_start_ring(&r, 1, 0);
	r.dev.quiesces = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) /* 18 */
		assert_int_not_equal(ask_state(&r, VHOST_USER_SET_VRING_NUM, 0, bad[i]), 0);
	assert_int_equal(r.dev.quiesces, 0);
	assert_int_equal(r.b.rings[0].num, 256);
	r.dev.pos[0] = 20;
	assert_ok(ask_addr(&r, ring_addr(0)));
	assert_int_equal(r.dev.running, 3);
	assert_int_equal(r.dev.pos[0], 20);
	assert_ok(ask_state(&r, VHOST_USER_SET_VRING_NUM, 0, 1));
	assert_int_equal(r.dev.running, 2);
	assert_int_equal(r.b.rings[0].base, 20);
	assert_ok(ask_state(&r, VHOST_USER_SET_VRING_BASE, 1, 4));
	assert_int_equal(r.dev.running, 0);
	assert_int_equal(r.b.rings[1].base, 4);
	/* Dirty logging is not offered. */
	assert_int_not_equal(ask_addr(&r, (struct vhost_user_vring_addr){.flags = 1}), 0);
	rig_close(&r);
}

/* 26, 199: an index counts with all its bits; bit 8 beside a descriptor is no part of it. */
static void rule_ring_index(void **state)
{
	static const uint32_t bad[] = {RINGS, 0xff, 0x100, 0x10000, 0x80000000, ~0U};
	struct rig r;

	rig_ready(&r);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		struct vhost_user_vring_addr addr = {.index = bad[i]};

		assert_int_equal(ask_state(&r, VHOST_USER_SET_VRING_NUM, bad[i], 256), ENXIO);
		assert_int_equal(ask_state(&r, VHOST_USER_SET_VRING_BASE, bad[i], 0), ENXIO);
		assert_int_equal(ask_state(&r, VHOST_USER_SET_VRING_ENABLE, bad[i], 1), ENXIO);
		assert_int_equal(ask_addr(&r, addr), ENXIO);
		for (uint32_t req = VHOST_USER_SET_VRING_KICK; req <= VHOST_USER_SET_VRING_ERR; req++)
			assert_int_equal(ask_fd(&r, req, bad[i], r.event),
					 bad[i] == VHOST_USER_VRING_NOFD ? 0 : ENXIO);
	}
	for (unsigned bit = 9; bit < 64; bit++)
		assert_int_equal(ask_fd(&r, VHOST_USER_SET_VRING_CALL, BIT(bit), r.event), ENXIO);
	assert_ok(ask_fd(&r, VHOST_USER_SET_VRING_CALL, VHOST_USER_VRING_NOFD | 2, -1));
	assert_int_equal(r.b.rings[0].call_fd, -1);
	rig_close(&r);
}

/* What an event may be sent through, and that each descriptor is closed once (29). */
static void rule_event_fds(void **state)
{
	uint64_t nofd = VHOST_USER_VRING_NOFD;
	int pipes[2], socks[2], file, before;
	struct rig r;

	rig_ready(&r);
	assert_ok(pipe2(pipes, O_CLOEXEC));
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	file = open("/dev/null", O_RDWR | O_CLOEXEC);
	before = fd_count();
	for (uint32_t req = VHOST_USER_SET_VRING_KICK; req <= VHOST_USER_SET_VRING_ERR; req++) {
		assert_ok(ask_fd(&r, req, 0, r.event));
		assert_ok(ask_fd(&r, req, 0, pipes[1]));
		assert_ok(ask_fd(&r, req, 0, socks[1]));
		assert_int_equal(fd_count(), before + 1);
		assert_int_equal(ask_fd(&r, req, 0, file), EBADF);
		assert_int_equal(ask_fd(&r, req, 0, r.memfd), EBADF);
		assert_int_equal(ask_fd(&r, req, 0, -1), EBADF);
		assert_int_equal(fd_count(), before + 1);
		assert_ok(ask_fd(&r, req, nofd, r.event));
		assert_int_equal(fd_count(), before);
		assert_ok(ask_fd(&r, req, nofd, -1));
	}
	assert_true(r.b.rings[0].kick_set);
	/* They were blocking. */
	assert_true(fcntl(r.event, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(pipes[1], F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(socks[1], F_GETFL) & O_NONBLOCK);
	fd_close(&file);
	for (int i = 0; i < 2; i++) {
		fd_close(&pipes[i]);
		fd_close(&socks[i]);
	}
	rig_close(&r);
}

static void rule_memory(void **state)
{
	struct vhost_user_region far = {.size = MEM_SIZE, .user_addr = 0x1000000, .guest_addr = 1 << 30};
	struct vhost_user_region pair[2] = {whole, far};
	struct rig r;
	const struct mem *mem;
	int fds[2];

	rig_ready(&r);
	rig_start_ring(&r, 0, 0);
	rig_start_ring(&r, 2, 0);
	fds[0] = fds[1] = r.memfd;
	/* 44, 200: a new table, no addresses: the rings go on with those that they have */
	r.dev.pos[0] = 8;
	mem = r.b.mem;
	assert_ok(ask_mem(&r, pair, fds, 2));
	assert_ptr_not_equal(r.b.mem, mem);
	assert_int_equal(r.dev.running, 5);
	assert_int_equal(r.dev.pos[0], 8);
	assert_int_equal(r.b.rings[0].addr.desc.v, MEM_UVA);
	/* 45: one that covers no ring is the device's trouble; with a good one it goes on */
	assert_ok(ask_mem(&r, &far, &r.memfd, 1));
	assert_int_equal(r.b.rings[0].base, 8);
	assert_ok(ask_mem(&r, &whole, &r.memfd, 1));
	assert_int_equal(r.dev.pos[0], 8);
	assert_int_equal(r.dev.running, 5);
	rig_close(&r);
}

/* 48: all or nothing, wherever the bad region is and whatever is bad about it. */
static void rule_memory_refused(void **state)
{
	struct vhost_user_region three[3];
	const struct mem *mem;
	int fds[3], pipes[2], before;
	struct rig r;

	rig_ready(&r);
	rig_start_ring(&r, 0, 0);
	assert_ok(pipe2(pipes, O_CLOEXEC));
	mem = r.b.mem;
	before = fd_count();
	for (int bad = 0; bad < 3; bad++) {
		for (int how = 0; how < 4; how++) {
			for (int i = 0; i < 3; i++) {
				three[i] = (struct vhost_user_region){.guest_addr = (uint64_t)i << 30,
								      .user_addr = (uint64_t)i << 30,
								      .size = MEM_SIZE};
				fds[i] = r.memfd;
			}
			if (how == 0)
				fds[bad] = pipes[0];
			else if (how == 1)
				three[bad].mmap_offset = 4096; /* past the end */
			else if (how == 2)
				three[bad].size = 0;
			else
				three[bad].guest_addr = ~0ULL; /* wraps */
			assert_int_not_equal(ask_mem(&r, three, fds, 3), 0);
			assert_ptr_equal(r.b.mem, mem);
			assert_int_equal(r.dev.running, 1);
			assert_int_equal(fd_count(), before);
		}
	}
	assert_ok(ask_mem(&r, &whole, &r.memfd, 1));
	fd_close(&pipes[0]);
	fd_close(&pipes[1]);
	rig_close(&r);
}

static void rule_memory_sizes(void **state)
{
	struct call c = {.request = VHOST_USER_SET_MEM_TABLE, .flags = V_NEED, .fd_cnt = 1};
	struct rig r;

	rig_ready(&r);
	c.p.mem = (struct vhost_user_mem){.cnt = 1, .regions = {whole}};
	c.fds[0] = r.memfd;
	for (c.size = 8; c.size <= sizeof(c.p.mem); c.size++) {
		assert_int_equal(call(&r, &c), VU_INPUT);
		assert_int_equal(r.answers, 1);
		assert_int_equal(r.answer.payload.u64 == 0, c.size >= 40);
	}
	/* As many regions as descriptors, and at least one. */
	c.size = sizeof(c.p.mem);
	c.p.mem.cnt = 2;
	assert_int_equal(call(&r, &c), VU_INPUT);
	assert_int_equal(r.answer.payload.u64, EBADF);
	c.p.mem.cnt = 0x80000001;
	assert_int_equal(call(&r, &c), VU_INPUT);
	assert_int_equal(r.answer.payload.u64, EBADF);
	c.p.mem.cnt = c.fd_cnt = 0;
	assert_int_equal(call(&r, &c), VU_INPUT);
	assert_int_equal(r.answer.payload.u64, EINVAL);
	rig_close(&r);
}

static void rule_config(void **state)
{
	struct call c = {.request = VHOST_USER_SET_CONFIG, .flags = V_NEED};
	struct rig r;
	uint8_t buf[VHOST_USER_CONFIG_MAX];

	rig_open(&r, true);
	assert_ok(vu_frontend_set_protocol_features(&r.fe, ACK_BIT));
	assert_ok(vu_frontend_get_config(&r.fe, buf, 0, 12));
	assert_memory_equal(buf, r.dev.config, 12);
	assert_ok(vu_frontend_get_config(&r.fe, buf, 6, 2));
	assert_memory_equal(buf, r.dev.config + 6, 2);
	/* Fields that the device has not are zero, up to what a message can hold. */
	memset(buf, 0xff, sizeof(buf));
	assert_ok(vu_frontend_get_config(&r.fe, buf, 0, sizeof(buf)));
	assert_memory_equal(buf, r.dev.config, 12);
	for (unsigned i = 12; i < sizeof(buf); i++)
		assert_int_equal(buf[i], 0);
	assert_ok(vu_frontend_get_config(&r.fe, buf, 255, 1));
	assert_int_equal(vu_frontend_get_config(&r.fe, buf, 255, 2), -EREMOTEIO);
	assert_int_equal(vu_frontend_get_config(&r.fe, buf, ~0U, 2), -EREMOTEIO);
	rig_close(&r);

	rig_ready(&r);
	c.p.config = (struct vhost_user_config){.size = 6};
	c.size = VHOST_USER_CONFIG_HDR_LEN + 6;
	for (c.p.config.flags = 0; c.p.config.flags < 2; c.p.config.flags++) {
		assert_int_equal(call(&r, &c), VU_INPUT);
		assert_int_equal(r.answers, 1);
		assert_int_equal(r.answer.payload.u64, EPERM);
	}
	/* The size beside the payload's own must fit; "empty" is the way to say no. */
	c.request = VHOST_USER_GET_CONFIG;
	for (c.size = 0; c.size <= sizeof(c.p.config); c.size++) {
		assert_int_equal(call(&r, &c), VU_INPUT);
		assert_int_equal(r.answers, 1);
		assert_int_equal(r.answer.hdr.size, c.size == 18 ? 18 : 0);
	}
	rig_close(&r);
}

/* The back end's one message, through whatever the front end gave. */
static void config_changed(int rd, int wr)
{
	struct vhost_user_hdr hdr;
	struct rig r;
	int ret, before, filler;

	rig_ready(&r);
	assert_ok(vu_backend_config_changed(&r.b)); /* no channel, nobody to tell */
	assert_int_equal(ask_fd(&r, VHOST_USER_SET_BACKEND_REQ_FD, 0, r.event), EBADF);
	assert_ok(ask_fd(&r, VHOST_USER_SET_BACKEND_REQ_FD, 0, wr));
	before = fd_count();
	assert_ok(ask_fd(&r, VHOST_USER_SET_BACKEND_REQ_FD, 0, wr));
	assert_int_equal(fd_count(), before);
	assert_ok(vu_backend_config_changed(&r.b));
	assert_int_equal(read(rd, &hdr, sizeof(hdr)), sizeof(hdr));
	assert_int_equal(hdr.request, VHOST_USER_BACKEND_CONFIG_CHANGE_MSG);
	assert_int_equal(hdr.flags, V);
	assert_int_equal(hdr.size, 0);

	/* Full, and the other side has made it blocking again. */
	assert_ok(fcntl(wr, F_SETFL, fcntl(wr, F_GETFL) & ~O_NONBLOCK));
	filler = 0;
	while ((ret = vu_backend_config_changed(&r.b)) == 0)
		filler++;
	assert_int_equal(ret, -EAGAIN);
	while (filler-- > 0)
		assert_int_equal(read(rd, &hdr, sizeof(hdr)), sizeof(hdr));
	assert_ok(vu_backend_config_changed(&r.b));

	/* Gone. */
	close(wr);
	close(rd);
	assert_int_equal(vu_backend_config_changed(&r.b), -EPIPE);
	assert_int_equal(r.b.req_fd, -1);
	assert_ok(vu_backend_config_changed(&r.b));
	rig_close(&r);
}

static void rule_config_changed(void **state)
{
	int fds[2];
	struct rig r;

	assert_ok(pipe2(fds, O_CLOEXEC));
	config_changed(fds[0], fds[1]);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	config_changed(fds[0], fds[1]);

	/* 197: both features must be acked */
	rig_ready(&r);
	assert_ok(pipe2(fds, O_CLOEXEC | O_NONBLOCK));
	assert_ok(ask_fd(&r, VHOST_USER_SET_BACKEND_REQ_FD, 0, fds[1]));
	assert_ok(ask_u64(&r, VHOST_USER_SET_PROTOCOL_FEATURES,
			  BIT(VHOST_USER_PROTOCOL_F_CONFIG)));
	assert_ok(vu_backend_config_changed(&r.b));
	assert_int_equal(read(fds[0], &r.answer, 1), -1);
	fd_close(&fds[0]);
	fd_close(&fds[1]);
	rig_close(&r);
}

static void rule_reset_device(void **state)
{
	struct rig r;

	rig_ready(&r);
	assert_ok(ask_u64(&r, VHOST_USER_SET_FEATURES, BIT(15)));
	rig_start_ring(&r, 0, 7);
	rig_start_ring(&r, 1, 7);
	assert_ok(ask(&r, VHOST_USER_RESET_DEVICE, 0, (union vhost_user_payload){0}));
	assert_int_equal(r.dev.resets, 1);
	assert_int_equal(r.dev.running, 0);
	assert_int_equal(r.b.features, 0);
	assert_false(r.b.features_set);
	assert_non_null(r.b.mem);
	/* 66: nothing of the rings survives */
	for (uint32_t i = 0; i < RINGS; i++) {
		assert_false(r.b.rings[i].enabled);
		assert_int_equal(r.b.rings[i].kick_fd, -1);
		assert_int_equal(base_of(&r, i), 0);
	}
	assert_ok(ask_u64(&r, VHOST_USER_SET_FEATURES, PROTOCOL_BIT));
	rig_start_ring(&r, 0, 0);
	rig_close(&r);
}

/* What is no message ends the connection; what is just unknown does not. */
static void rule_framing(void **state)
{
	static const struct {
		struct vhost_user_hdr hdr;
		int step;
		unsigned answers;
	} cases[] = {
		{{VHOST_USER_GET_FEATURES, V, 0}, VU_INPUT, 1},
		{{VHOST_USER_GET_FEATURES, 0, 0}, -EPROTO, 0},
		{{VHOST_USER_GET_FEATURES, 2, 0}, -EPROTO, 0},
		{{VHOST_USER_GET_FEATURES, 3, 0}, -EPROTO, 0},
		{{VHOST_USER_GET_FEATURES, V_REPLY, 0}, -EPROTO, 0},
		{{VHOST_USER_GET_FEATURES, V, 8}, -EPROTO, 0},
		{{VHOST_USER_GET_VRING_BASE, V, 4}, -EPROTO, 0},
		{{VHOST_USER_SET_OWNER, V_REPLY, 0}, VU_INPUT, 0},
		{{VHOST_USER_SET_OWNER, V, 8}, VU_INPUT, 0},
		{{VHOST_USER_SET_OWNER, V_NEED, 8}, VU_INPUT, 1},
		{{0, V, 0}, VU_INPUT, 0},
		{{0, V_NEED, 0}, VU_INPUT, 1},
		{{6, V_NEED, 16}, VU_INPUT, 1},
		{{0x80000001, V_NEED, 17}, VU_INPUT, 1},
		{{99, V, sizeof(union vhost_user_payload)}, VU_INPUT, 0},
	};
	static const uint32_t over[] = {sizeof(union vhost_user_payload) + 1, 0x80000000, ~0U};
	struct rig r;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct call c = {.request = cases[i].hdr.request,
				 .flags = cases[i].hdr.flags,
				 .size = cases[i].hdr.size};

		rig_ready(&r);
		assert_int_equal(call(&r, &c), cases[i].step);
		assert_int_equal(r.answers, cases[i].answers);
		assert_int_equal(r.b.bad_messages > 0, i > 0 && (r.step != -EPROTO || i > 3));
		rig_close(&r);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(over); i++) {
		struct vhost_user_hdr hdr = {.request = 99, .flags = V, .size = over[i]};

		rig_ready(&r);
		assert_int_equal(send(r.fe.fd, &hdr, sizeof(hdr), 0), sizeof(hdr));
		assert_int_equal(serve(&r), -EPROTO);
		rig_close(&r);
	}
	rig_ready(&r);
	assert_ok(shutdown(r.fe.fd, SHUT_WR));
	assert_int_equal(serve(&r), -ECONNRESET);
	rig_close(&r);
}

/* Messages in pieces of any size, and the back end looks after each. */
static void rule_pieces(void **state)
{
	struct vhost_user_vring_addr addr = ring_addr(1);
	struct vhost_user_hdr hdr = {VHOST_USER_SET_VRING_ADDR, V_NEED, sizeof(addr)};
	unsigned char bytes[4 * (sizeof(hdr) + sizeof(addr))];
	const size_t one = sizeof(hdr) + sizeof(addr);
	struct rig r;

	rig_ready(&r);
	for (unsigned i = 0; i < 4; i++) {
		memcpy(bytes + i * one, &hdr, sizeof(hdr));
		memcpy(bytes + i * one + sizeof(hdr), &addr, sizeof(addr));
	}
	for (size_t piece = 1; piece <= sizeof(bytes); piece++) {
		r.answers = 0;
		for (size_t at = 0; at < sizeof(bytes); at += piece) {
			size_t len = min_size(piece, sizeof(bytes) - at);

			assert_int_equal(send(r.fe.fd, bytes + at, len, 0), len);
			assert_int_equal(serve(&r), VU_INPUT);
			take_answers(&r);
			assert_int_equal(r.answers, (at + len) / one);
			assert_int_equal(r.answer.payload.u64, 0);
		}
	}
	rig_close(&r);
}

static void send_byte_fds(int sock, const void *byte, const int *fds, unsigned cnt)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(32 * sizeof(int))];
	} room = {.align = {.cmsg_len = CMSG_LEN(cnt * sizeof(int)),
			    .cmsg_level = SOL_SOCKET,
			    .cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)byte, .iov_len = 1};
	struct msghdr mh = {.msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = room.buf,
			    .msg_controllen = CMSG_SPACE(cnt * sizeof(int))};

	memcpy(CMSG_DATA(&room.align), fds, cnt * sizeof(int));
	assert_int_equal(sendmsg(sock, &mh, 0), 1);
}

/* Descriptors with any byte of a message are that message's; too many spoil it and nothing else. */
static void rule_pieces_fds(void **state)
{
	struct vhost_user_hdr hdr = {VHOST_USER_SET_VRING_CALL, V_NEED, 8};
	unsigned char bytes[20] = {0};
	int fds[32], before;
	struct rig r;

	rig_ready(&r);
	for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = r.event;
	memcpy(bytes, &hdr, sizeof(hdr));
	before = fd_count();
	for (unsigned with = 0; with < sizeof(bytes); with++) {
		for (unsigned cnt = 1; cnt <= ARRAY_SIZE(fds); cnt *= 2) {
			r.answers = 0;
			for (unsigned i = 0; i < sizeof(bytes); i++) {
				if (i == with)
					send_byte_fds(r.fe.fd, bytes + i, fds, cnt);
				else
					assert_int_equal(send(r.fe.fd, bytes + i, 1, 0), 1);
				assert_int_equal(serve(&r), VU_INPUT);
			}
			take_answers(&r);
			assert_int_equal(r.answers, 1);
			assert_int_equal(r.answer.payload.u64, cnt == 1 ? 0 : EBADF);
			assert_int_equal(fd_count(), before + 1);
		}
	}
	/* With each byte the full load; then half a message is left when the connection ends. */
	for (unsigned i = 0; i < sizeof(bytes) + 10; i++) {
		send_byte_fds(r.fe.fd, bytes + i % sizeof(bytes), fds, 32);
		assert_int_equal(serve(&r), VU_INPUT);
	}
	rig_close(&r);
}

/* 28: no free number for a descriptor: that message fails, what is open stays usable. */
static void rule_fd_limit(void **state)
{
	struct rlimit was, none;
	struct rig r;

	rig_ready(&r);
	assert_ok(getrlimit(RLIMIT_NOFILE, &was));
	none = was;
	none.rlim_cur = 0;
	assert_ok(setrlimit(RLIMIT_NOFILE, &none));
	assert_int_equal(ask_fd(&r, VHOST_USER_SET_VRING_CALL, 0, r.event), EBADF);
	assert_ok(ask_state(&r, VHOST_USER_SET_VRING_NUM, 0, 16));
	assert_ok(setrlimit(RLIMIT_NOFILE, &was));
	assert_ok(ask_fd(&r, VHOST_USER_SET_VRING_CALL, 0, r.event));
	rig_close(&r);
}

/* Many messages at once come one after the other, and a step handles a bounded number. */
static void rule_pipelined(void **state)
{
	unsigned steps = 0;
	struct rig r;

	rig_ready(&r);
	for (unsigned i = 0; i < 100; i++) {
		struct vhost_user_hdr hdr = {VHOST_USER_SET_VRING_BASE, V_NEED, 8};
		struct vhost_user_vring_state base = {.index = 1, .num = i};

		assert_ok(vu_frontend_send(&r.fe, &hdr, &base, NULL, 0));
		hdr = (struct vhost_user_hdr){VHOST_USER_SET_VRING_CALL, V, 8};
		assert_ok(vu_frontend_send(&r.fe, &hdr, &base, &r.event, 1));
	}
	r.answers = 0;
	do {
		r.step = vu_backend_step(&r.b);
		steps++;
	} while (r.step == VU_MORE);
	assert_int_equal(r.step, VU_INPUT);
	assert_in_range(steps, 5, 100);
	take_answers(&r);
	assert_int_equal(r.answers, 100);
	assert_int_equal(r.b.rings[1].base, 99);
	rig_close(&r);
}

/* A peer that never reads: its requests stop being read, and nothing is lost when it does. */
static void rule_unread_answers(void **state)
{
	struct call c = {.request = VHOST_USER_GET_CONFIG, .flags = V};
	struct vhost_user_hdr hdr = {.request = c.request, .flags = V};
	unsigned sent = 0;
	struct rig r;

	rig_ready(&r);
	r.fe.timeout_ms = 1;
	c.p.config.size = VHOST_USER_CONFIG_MAX;
	hdr.size = VHOST_USER_CONFIG_HDR_LEN + VHOST_USER_CONFIG_MAX;
	while (vu_frontend_send(&r.fe, &hdr, &c.p, NULL, 0) == 0) {
		sent++;
		serve(&r);
		assert_true(r.step == VU_INPUT || r.step == VU_OUTPUT);
	}
	assert_int_equal(serve(&r), VU_OUTPUT);
	assert_in_range(sent, 100, 100000);
	r.answers = 0;
	do {
		take_answers(&r);
	} while (serve(&r) == VU_OUTPUT);
	take_answers(&r);
	/* One that timed out was not sent or is whole by now. */
	assert_in_range(r.answers, sent, sent + 1);
	assert_int_equal(r.answer.hdr.size, hdr.size);
	rig_close(&r);
}

/* Abuse */

#define REQUESTS 48 /* more than exist */

/* A message that would be good for ring @idx, if there is one; its descriptors are left out. */
static struct call good_call(uint32_t request, uint32_t idx, uint64_t nofd)
{
	struct call c = {.request = request, .flags = V_NEED, .size = 8};

	switch (request) {
	case VHOST_USER_SET_FEATURES:
		c.p.u64 = PROTOCOL_BIT | BIT(32);
		break;
	case VHOST_USER_SET_PROTOCOL_FEATURES:
		c.p.u64 = vu_backend_protocol_features();
		break;
	case VHOST_USER_SET_MEM_TABLE:
		c.p.mem = (struct vhost_user_mem){.cnt = 1, .regions = {whole}};
		c.size = 40;
		break;
	case VHOST_USER_SET_VRING_NUM:
		c.p.state = (struct vhost_user_vring_state){idx, 256};
		break;
	case VHOST_USER_SET_VRING_BASE:
	case VHOST_USER_GET_VRING_BASE:
	case VHOST_USER_SET_VRING_ENABLE:
		c.p.state = (struct vhost_user_vring_state){idx, 1};
		break;
	case VHOST_USER_SET_VRING_ADDR:
		c.p.addr = ring_addr(0);
		c.p.addr.index = idx;
		c.size = sizeof(c.p.addr);
		break;
	case VHOST_USER_SET_VRING_KICK:
	case VHOST_USER_SET_VRING_CALL:
	case VHOST_USER_SET_VRING_ERR:
		c.p.u64 = idx | nofd;
		break;
	case VHOST_USER_GET_CONFIG:
	case VHOST_USER_SET_CONFIG:
		c.p.config.size = 6;
		c.size = VHOST_USER_CONFIG_HDR_LEN + 6;
		break;
	default:
		c.size = 0;
	}
	return c;
}

/* 37, 38: each message is answered exactly once if it asks for it, and its own reply is that answer. */
static void abuse_one_answer(void **state)
{
	struct rig r;
	int pipes[2];

	rig_ready(&r);
	assert_ok(pipe2(pipes, O_CLOEXEC));
	for (uint32_t request = 0; request < REQUESTS; request++) {
		struct call c = good_call(request, 1, 0);
		bool own = request == VHOST_USER_GET_FEATURES ||
			   request == VHOST_USER_GET_VRING_BASE ||
			   request == VHOST_USER_GET_PROTOCOL_FEATURES ||
			   request == VHOST_USER_GET_QUEUE_NUM || request == VHOST_USER_GET_CONFIG;

		c.fds[0] = request == VHOST_USER_SET_MEM_TABLE	     ? r.memfd :
			   request == VHOST_USER_SET_BACKEND_REQ_FD ? pipes[1] :
								      r.event;
		c.fd_cnt = request == VHOST_USER_SET_MEM_TABLE ||
			   request == VHOST_USER_SET_BACKEND_REQ_FD ||
			   (request >= VHOST_USER_SET_VRING_KICK &&
			    request <= VHOST_USER_SET_VRING_ERR);
		assert_int_equal(call(&r, &c), VU_INPUT);
		assert_int_equal(r.answers, 1);
		assert_int_equal(r.answer.hdr.request, request);
		assert_int_equal(r.answer.hdr.flags, V_REPLY);
		c.flags = V;
		assert_int_equal(call(&r, &c), VU_INPUT);
		assert_int_equal(r.answers, own ? 1 : 0);
		/* 39: and after one that fails the next is as good as ever */
		assert_ok(ask_u64(&r, VHOST_USER_SET_FEATURES, PROTOCOL_BIT));
	}
	fd_close(&pipes[0]);
	fd_close(&pipes[1]);
	rig_close(&r);
}

/* One wrong or right message; the connection is made anew when it ended. */
static void abuse_call(struct rig *r, const struct call *c, int before)
{
	call(r, c);
	assert_in_range(r->answers, 0, 1);
	if (r->step >= 0 && (c->flags & VHOST_USER_FLAG_NEED_REPLY))
		assert_int_equal(r->answers, 1);
	/* At most what the rings and the back end's channel hold. */
	assert_in_range(fd_count(), before, before + 3 * RINGS + 1);
	if (r->step < 0) {
		assert_int_equal(r->step, -EPROTO);
		rig_close(r);
		rig_ready(r);
	}
}

/* 26, 28, 29: every message x descriptors x NOFD x ring x size. */
static void abuse_matrix(void **state)
{
	static const unsigned fd_cnts[] = {0, 1, 8};
	static const uint32_t rings[] = {0, RINGS, 0xff, 0x100, 0x10000, 0x80000000};
	static const int sizes[] = {0, -1, 1, -8, 1000};
	const unsigned forms = ARRAY_SIZE(fd_cnts) * ARRAY_SIZE(rings) * ARRAY_SIZE(sizes) * 4;
	struct rig r;
	int before;

	rig_ready(&r);
	before = fd_count();
	for (uint32_t request = 0; request < REQUESTS; request++) {
		for (unsigned form = 0; form < forms; form++) {
			unsigned rest = form / 4;
			uint32_t ring = rings[rest % ARRAY_SIZE(rings)];
			struct call c = good_call(request, ring,
						  form & 1 ? VHOST_USER_VRING_NOFD : 0);
			int64_t size;

			rest /= ARRAY_SIZE(rings);
			size = (int64_t)c.size + sizes[rest % ARRAY_SIZE(sizes)];
			c.size = size < 0 ? 0 : (uint32_t)size;
			if (c.size > sizeof(c.p))
				c.size = sizeof(c.p);
			c.flags = form & 2 ? V_NEED : V;
			c.fd_cnt = fd_cnts[rest / ARRAY_SIZE(sizes)];
			for (unsigned i = 0; i < c.fd_cnt; i++)
				c.fds[i] = r.event;
			abuse_call(&r, &c, before);
		}
	}
	rig_close(&r);
}

static uint32_t rnd_state;

static uint32_t rnd(uint32_t below)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 17;
	rnd_state ^= rnd_state << 5;
	return rnd_state % below;
}

/* A message that is right in most places. */
static struct call random_call(const int *fds, unsigned fd_kinds)
{
	static const uint32_t indexes[] = {0, 1, 2, 3, 0x100, 0x10001, 0x80000000};
	uint32_t idx = indexes[rnd(8) ? rnd(3) : rnd(ARRAY_SIZE(indexes))];
	struct call c = good_call(rnd(50) ? rnd(36) : rnd(~0U), idx, rnd(4) ? 0 : 1U << rnd(12));

	if (rnd(4) == 0)
		((uint8_t *)&c.p)[rnd(48)] ^= (uint8_t)(1U << rnd(8));
	if (rnd(16) == 0) {
		for (unsigned i = 0; i < sizeof(c.p); i++)
			((uint8_t *)&c.p)[i] = (uint8_t)rnd(256);
	}
	if (rnd(16) == 0)
		c.size = rnd(sizeof(c.p) + 1);
	c.flags = rnd(2) ? V : V_NEED;
	if (rnd(64) == 0)
		c.flags = rnd(32);
	c.fd_cnt = rnd(4) ? rnd(2) : rnd(VU_MSG_FDS_MAX + 1);
	for (unsigned i = 0; i < c.fd_cnt; i++)
		c.fds[i] = fds[rnd(fd_kinds)];
	return c;
}

/* Random messages on a device that takes its time now and then. */
static void abuse_random(void **state)
{
	struct rig r;
	int fds[5], pipes[2], start, before;

	rnd_state = 0x5eed;
	start = fd_count();
	rig_ready(&r);
	assert_ok(pipe2(pipes, O_CLOEXEC));
	fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	before = fd_count();
	for (unsigned i = 0; i < 100000; i++) {
		struct call c;

		fds[1] = pipes[0];
		fds[2] = pipes[1];
		fds[3] = r.event;
		fds[4] = r.memfd;
		c = random_call(fds, ARRAY_SIZE(fds));
		r.dev.defer = rnd(8) == 0;
		r.dev.refuse_features = rnd(8) == 0;
		call(&r, &c);
		if (r.step == VU_PENDING && rnd(4) > 0) {
			r.dev.running &= ~r.dev.deferred;
			r.dev.pos[rnd(RINGS)] = (uint16_t)rnd(65536);
			r.step = vu_backend_quiesced(&r.b);
			assert_int_equal(r.step, VU_INPUT);
			take_answers(&r);
		}
		assert_in_range(r.answers, 0, 1);
		if (r.step != VU_INPUT) {
			rig_close(&r);
			rig_ready(&r);
		}
		if (i % 64 == 0)
			assert_in_range(fd_count(), before, before + 3 * RINGS + 1);
	}
	fd_close(&pipes[0]);
	fd_close(&pipes[1]);
	fd_close(&fds[0]);
	rig_close(&r);
	assert_int_equal(fd_count(), start);
}

/* Bytes that are no messages at all, in connections of any length. */
static void abuse_noise(void **state)
{
	struct rig r;

	rnd_state = 0xbad;
	for (unsigned i = 0; i < 2000; i++) {
		uint8_t noise[512];

		rig_ready(&r);
		for (unsigned at = 0; at < sizeof(noise); at++)
			noise[at] = (uint8_t)(rnd(3) ? 0 : rnd(32));
		for (unsigned at = 0; r.step >= 0 && at < sizeof(noise); at += 32) {
			assert_int_equal(send(r.fe.fd, noise + at, 32, 0), 32);
			serve(&r);
		}
		rig_close(&r);
	}
}

/* 30: no message allocates by being repeated. */
static void abuse_memory_flat(void **state)
{
	struct rig r;
	long before = 0;

	rig_ready(&r);
	for (unsigned i = 0; i < 100000; i++) {
		assert_ok(ask_state(&r, VHOST_USER_SET_VRING_NUM, i % RINGS, 1U << i % 10));
		if (i == 1000)
			before = rss_pages();
	}
	assert_in_range(rss_pages(), 0, before + 64);
	rig_close(&r);
}

/* Every test ends with the descriptors that it began with. */

static int fds_at_start;

static int count_fds(void **state)
{
	fds_at_start = fd_count();
	return 0;
}

static int compare_fds(void **state)
{
	return fd_count() == fds_at_start ? 0 : -1;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, count_fds, compare_fds)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(order_uml),	    TEST(order_qemu),
		TEST(order_virtio_user),    TEST(order_minimal),
		TEST(order_reconnect),	    TEST(order_connect_path),
		TEST(rule_features),	    TEST(rule_protocol_features),
		TEST(rule_enable),	    TEST(rule_pending),
		TEST(rule_base),	    TEST(rule_ring_changes),
		TEST(rule_ring_index),	    TEST(rule_event_fds),
		TEST(rule_memory),	    TEST(rule_memory_refused),
		TEST(rule_memory_sizes),    TEST(rule_config),
		TEST(rule_config_changed),  TEST(rule_reset_device),
		TEST(rule_framing),	    TEST(rule_pieces),
		TEST(rule_pieces_fds),	    TEST(rule_fd_limit),
		TEST(rule_pipelined),	    TEST(rule_unread_answers),
		TEST(abuse_one_answer),	    TEST(abuse_matrix),
		TEST(abuse_random),	    TEST(abuse_noise),
		TEST(abuse_memory_flat),
	};

	signal(SIGPIPE, SIG_IGN);
	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
