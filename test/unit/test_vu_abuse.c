// SPDX-License-Identifier: BSD-2-Clause
/* The vhost-user protocol: every message in every wrong form; descriptors and memory stay level. */
#include "vu_rig.h"

#define REQUESTS 48 /* more than exist */

/* A message that would be good for ring @idx, if there is one; its descriptors are left out. */
static struct call good_call(uint32_t request, uint32_t idx, uint64_t nofd)
{
	struct call c = { .request = request, .flags = V_NEED, .size = 8 };

	switch (request) {
	case VHOST_USER_SET_FEATURES:
		c.p.u64 = PROTOCOL_BIT | BIT(32);
		break;
	case VHOST_USER_SET_PROTOCOL_FEATURES:
		c.p.u64 = vu_backend_protocol_features();
		break;
	case VHOST_USER_SET_MEM_TABLE:
		c.p.mem = (struct vhost_user_mem){ .cnt = 1, .regions = { whole } };
		c.size = 40;
		break;
	case VHOST_USER_SET_VRING_NUM:
		c.p.state = (struct vhost_user_vring_state){ idx, 256 };
		break;
	case VHOST_USER_SET_VRING_BASE:
	case VHOST_USER_GET_VRING_BASE:
	case VHOST_USER_SET_VRING_ENABLE:
		c.p.state = (struct vhost_user_vring_state){ idx, 1 };
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
	int socks[2];

	rig_ready(&r);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	for (uint32_t request = 0; request < REQUESTS; request++) {
		struct call c = good_call(request, 1, 0);
		bool own = request == VHOST_USER_GET_FEATURES ||
			   request == VHOST_USER_GET_VRING_BASE ||
			   request == VHOST_USER_GET_PROTOCOL_FEATURES ||
			   request == VHOST_USER_GET_QUEUE_NUM || request == VHOST_USER_GET_CONFIG;

		c.fds[0] = request == VHOST_USER_SET_MEM_TABLE      ? r.memfd :
			   request == VHOST_USER_SET_BACKEND_REQ_FD ? socks[1] :
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
	fd_close(&socks[0]);
	fd_close(&socks[1]);
	rig_close(&r);
}

/* One wrong or right message; the connection is made anew when it ended. */
static void abuse_call(struct rig *r, const struct call *c)
{
	call(r, c);
	assert_in_range(r->answers, 0, 1);
	if (r->step >= 0 && (c->flags & VHOST_USER_FLAG_NEED_REPLY))
		assert_int_equal(r->answers, 1);
	if (r->step < 0) {
		assert_int_equal(r->step, -EPROTO);
		rig_close(r);
		rig_ready(r);
	}
}

/* 26, 28, 29: every message x descriptors x NOFD x ring x size. */
static void abuse_matrix(void **state)
{
	static const unsigned fd_cnts[] = { 0, 1, 8 };
	static const uint32_t rings[] = { 0, RINGS, 0xff, 0x100, 0x10000, 0x80000000 };
	static const int sizes[] = { 0, -1, 1, -8, 1000 };
	const unsigned forms = ARRAY_SIZE(fd_cnts) * ARRAY_SIZE(rings) * ARRAY_SIZE(sizes) * 4;
	struct rig r;
	int before;

	rig_ready(&r);
	before = fd_count();
	for (uint32_t request = 0; request < REQUESTS; request++) {
		for (unsigned form = 0; form < forms; form++) {
			unsigned rest = form / 4;
			uint32_t ring = rings[rest % ARRAY_SIZE(rings)];
			struct call c =
				good_call(request, ring, form & 1 ? VHOST_USER_VRING_NOFD : 0);
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
			abuse_call(&r, &c);
			/* At most what the rings and the back end's channel hold. */
			if (form % 16 == 0)
				assert_in_range(fd_count(), before, before + 3 * RINGS + 1);
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
	static const uint32_t indexes[] = { 0, 1, 2, 3, 0x100, 0x10001, 0x80000000 };
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
	int fds[5], socks[2], start, before;

	rnd_state = 0x5eed;
	start = fd_count();
	rig_ready(&r);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	before = fd_count();
	for (unsigned i = 0; i < 100000; i++) {
		struct call c;

		fds[1] = socks[0];
		fds[2] = socks[1];
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
	fd_close(&socks[0]);
	fd_close(&socks[1]);
	fd_close(&fds[0]);
	rig_close(&r);
	assert_int_equal(fd_count(), start);
}

/* Bytes that are no messages at all, in connections of any length. */
static void abuse_noise(void **state)
{
	struct rig r;

	rnd_state = 0xbad;
	for (unsigned i = 0; i < 1000; i++) {
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(abuse_one_answer), TEST(abuse_matrix),      TEST(abuse_random),
		TEST(abuse_noise),      TEST(abuse_memory_flat),
	};

	rig_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
