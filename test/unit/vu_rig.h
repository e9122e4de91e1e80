/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tests of the vhost-user protocol share: the real front end against the real back end over
 * a socket pair. Only the device behind the back end is a double, which watches that nobody touches
 * a ring that it runs.
 */
#ifndef UVHOST_TEST_VU_RIG_H
#define UVHOST_TEST_VU_RIG_H

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

#define BIT(n)         (1ULL << (n))
#define RINGS          3
#define VIRTIO_BITS    (BIT(0) | BIT(5) | BIT(15) | BIT(16) | BIT(17) | BIT(29) | BIT(32))
#define PROTOCOL_BIT   BIT(VHOST_USER_F_PROTOCOL_FEATURES)
#define ACK_BIT        BIT(VHOST_USER_PROTOCOL_F_REPLY_ACK)
#define MEM_SIZE       (2ULL << 20)
#define MEM_UVA        0x7f0000000000ULL
#define UML_MEM_LEN    (8 + 2 * sizeof(struct vhost_user_region))
#define V              VHOST_USER_VERSION
#define V_NEED         (VHOST_USER_VERSION | VHOST_USER_FLAG_NEED_REPLY)
#define V_REPLY        (VHOST_USER_VERSION | VHOST_USER_FLAG_REPLY)
#define assert_ok(ret) assert_int_equal(ret, 0)

/* The device. assert(): it runs in the back end's thread, where cmocka's do not work. */

struct device {
	const struct vu_backend *b;
	unsigned running;
	struct vu_ring seen[RINGS]; /* as when it was started */
	const struct mem *mem;
	uint16_t pos[RINGS];
	bool defer;        /* quiesce takes a while */
	unsigned deferred; /* rings that it still takes a while for */
	bool refuse_features;
	unsigned quiesces, resumes, resets;
	uint64_t features;
	uint8_t config[12];
};

static inline void device_check(const struct device *d)
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

static inline int device_quiesce(void *ctx, unsigned rings)
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

static inline void device_resume(void *ctx)
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

static inline uint32_t device_position(void *ctx, unsigned ring)
{
	const struct device *d = ctx;

	assert(!(d->running & (1U << ring)));
	return d->pos[ring];
}

static inline int device_features(void *ctx, uint64_t acked)
{
	struct device *d = ctx;

	assert(d->running == 0);
	if (d->refuse_features)
		return -EINVAL;
	d->features = acked;
	return 0;
}

static inline void device_config(void *ctx, void *buf, unsigned len)
{
	const struct device *d = ctx;

	memcpy(buf, d->config, min_uint(len, sizeof(d->config)));
}

static inline void device_reset(void *ctx)
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
	int sock;         /* the back end's */
	int step;         /* what its last step said */
	unsigned answers; /* of the last call() */
	struct vu_msg answer;
	int event, memfd;
	bool threaded;
	pthread_t thread;
	pthread_mutex_t lock; /* of dev and b while the thread runs */
};

static inline void *rig_thread(void *arg)
{
	struct rig *r = arg;
	int step = VU_MORE;

	do {
		struct pollfd pfd = { .fd = r->sock, .events = POLLIN };

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

static inline void rig_open(struct rig *r, bool threaded)
{
	static const uint8_t config[12] = {
		0x52, 0x54, 0, 0x12, 0x34, 0x56, 1, 0, 1, 0, 0xdc, 0x05
	};
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

static inline void rig_close(struct rig *r)
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
static inline int serve(struct rig *r)
{
	do {
		r->step = vu_backend_step(&r->b);
	} while (r->step == VU_MORE);
	device_check(&r->dev);
	return r->step;
}

static inline void take_answers(struct rig *r)
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
static inline int call(struct rig *r, const struct call *c)
{
	struct vhost_user_hdr hdr = { .request = c->request, .flags = c->flags, .size = c->size };

	r->answers = 0;
	assert_ok(vu_frontend_send(&r->fe, &hdr, &c->p, c->fds, c->fd_cnt));
	serve(r);
	take_answers(r);
	return r->step;
}

/* One without descriptors that asks for an acknowledgement: what that says, or -ENOMSG. */
static inline int64_t ask(struct rig *r, uint32_t request, uint32_t size,
			  union vhost_user_payload p)
{
	struct call c = { .request = request, .flags = V_NEED, .size = size, .p = p };

	if (call(r, &c) < 0)
		return r->step;
	if (r->answers != 1 || r->answer.hdr.size != 8)
		return -ENOMSG;
	assert_int_equal(r->answer.hdr.flags, V_REPLY);
	assert_int_equal(r->answer.hdr.request, request);
	return (int64_t)r->answer.payload.u64;
}

static inline int64_t ask_u64(struct rig *r, uint32_t request, uint64_t value)
{
	return ask(r, request, 8, (union vhost_user_payload){ .u64 = value });
}

static inline int64_t ask_state(struct rig *r, uint32_t request, uint32_t idx, uint32_t num)
{
	return ask(r, request, 8, (union vhost_user_payload){ .state = { idx, num } });
}

static inline int64_t ask_addr(struct rig *r, struct vhost_user_vring_addr addr)
{
	return ask(r, VHOST_USER_SET_VRING_ADDR, sizeof(addr),
		   (union vhost_user_payload){ .addr = addr });
}

static inline int64_t ask_fd(struct rig *r, uint32_t request, uint64_t payload, int fd)
{
	struct call c = { .request = request,
			  .flags = V_NEED,
			  .size = 8,
			  .p.u64 = payload,
			  .fds = { fd },
			  .fd_cnt = fd < 0 ? 0 : 1 };

	if (request == VHOST_USER_SET_BACKEND_REQ_FD)
		c.size = 0;
	if (call(r, &c) < 0)
		return r->step;
	assert_int_equal(r->answers, 1);
	return (int64_t)r->answer.payload.u64;
}

/* What GET_VRING_BASE answers. */
static inline uint32_t base_of(struct rig *r, uint32_t idx)
{
	struct call c = { .request = VHOST_USER_GET_VRING_BASE,
			  .flags = V,
			  .size = 8,
			  .p.state = { .index = idx, .num = 77 } };

	assert_int_equal(call(r, &c), VU_INPUT);
	assert_int_equal(r->answers, 1);
	assert_int_equal(r->answer.hdr.size, 8);
	assert_int_equal(r->answer.payload.state.index, idx);
	return r->answer.payload.state.num;
}

static inline struct vhost_user_vring_addr ring_addr(uint32_t idx)
{
	uint64_t at = MEM_UVA + idx * 0x10000ULL;

	return (struct vhost_user_vring_addr){
		.index = idx, .desc = at, .avail = at + 0x4000, .used = at + 0x8000, .log = ~0ULL
	};
}

static const struct vhost_user_region whole = { .size = MEM_SIZE, .user_addr = MEM_UVA };

static inline int64_t ask_mem(struct rig *r, const struct vhost_user_region *regions,
			      const int *fds, uint32_t cnt)
{
	struct call c = { .request = VHOST_USER_SET_MEM_TABLE,
			  .flags = V_NEED,
			  .size = (uint32_t)(8 + cnt * sizeof(*regions)),
			  .p.mem.cnt = cnt,
			  .fd_cnt = cnt };

	memcpy(c.p.mem.regions, regions, cnt * sizeof(*regions));
	memcpy(c.fds, fds, cnt * sizeof(*fds));
	if (call(r, &c) < 0)
		return r->step;
	assert_int_equal(r->answers, 1);
	return (int64_t)r->answer.payload.u64;
}

/* A stepped rig with acknowledgements and memory. */
static inline void rig_ready(struct rig *r)
{
	rig_open(r, false);
	assert_ok(ask_u64(r, VHOST_USER_SET_PROTOCOL_FEATURES, vu_backend_protocol_features()));
	assert_ok(ask_mem(r, &whole, &r->memfd, 1));
}

static inline void rig_start_ring(struct rig *r, uint32_t idx, uint32_t base)
{
	assert_ok(ask_state(r, VHOST_USER_SET_VRING_NUM, idx, 256));
	assert_ok(ask_state(r, VHOST_USER_SET_VRING_BASE, idx, base));
	assert_ok(ask_addr(r, ring_addr(idx)));
	assert_ok(ask_fd(r, VHOST_USER_SET_VRING_CALL, idx, r->event));
	assert_ok(ask_fd(r, VHOST_USER_SET_VRING_KICK, idx, r->event));
	assert_true(r->dev.running & (1U << idx));
}

/* Open descriptors of the process. */
static inline int fd_count(void)
{
	struct dirent **names;
	int cnt = scandir("/proc/self/fd", &names, NULL, alphasort);

	assert_true(cnt > 0);
	for (int i = 0; i < cnt; i++)
		free(names[i]);
	free(names);
	return cnt;
}

static inline long rss_pages(void)
{
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	char line[128] = "", *second;

	assert_true(fd >= 0);
	assert_true(read(fd, line, sizeof(line) - 1) > 0);
	fd_close(&fd);
	second = strchr(line, ' ');
	assert_non_null(second);
	return strtol(second, NULL, 10);
}

/* Every test ends with the descriptors that it began with. */

static int rig_fds_before;

static inline int rig_setup(void **state)
{
	rig_fds_before = fd_count();
	return 0;
}

static inline int rig_teardown(void **state)
{
	return fd_count() == rig_fds_before ? 0 : -1;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

/* Once, before all tests. */
static inline void rig_init(void)
{
	signal(SIGPIPE, SIG_IGN);
	log_set_level(LOG_LEVEL_ERROR);
}

#endif
