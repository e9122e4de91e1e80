// SPDX-License-Identifier: BSD-2-Clause
/* The vhost-user protocol: one rule a test, the back end stepped by hand. */
#include "vu_rig.h"

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
	assert_ok(ask(&r, VHOST_USER_RESET_OWNER, 0, (union vhost_user_payload){ 0 }));
	assert_false(r.b.rings[1].enabled);
	assert_int_equal(r.dev.running, 7);
	rig_close(&r);
}

/* 63: the acknowledgement comes when the device is out of the ring, and nothing overtakes it. */
static void rule_pending(void **state)
{
	struct call enable = { .request = VHOST_USER_SET_VRING_ENABLE,
			       .flags = V_NEED,
			       .size = 8,
			       .p.state = { .index = 0, .num = 1 } };
	struct call query = { .request = VHOST_USER_GET_FEATURES, .flags = V };
	struct vhost_user_hdr hdr = { .request = query.request, .flags = V };
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
	enable = (struct call){ .request = VHOST_USER_SET_VRING_CALL,
				.flags = V_NEED,
				.size = 8,
				.fds = { r.event },
				.fd_cnt = 1 };
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
	static const uint32_t bad[] = { 0,       3,       255, VQ_NUM_MAX * 2, 32768, 65535,
					0x10000, 0x10100, ~0U };
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
	assert_int_not_equal(ask_addr(&r, (struct vhost_user_vring_addr){ .flags = 1 }), 0);
	rig_close(&r);
}

/* 26, 199: an index counts with all its bits; bit 8 beside a descriptor is no part of it. */
static void rule_ring_index(void **state)
{
	static const uint32_t bad[] = { RINGS, 0xff, 0x100, 0x10000, 0x80000000, ~0U };
	struct rig r;

	rig_ready(&r);
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		struct vhost_user_vring_addr addr = { .index = bad[i] };

		assert_int_equal(ask_state(&r, VHOST_USER_SET_VRING_NUM, bad[i], 256), ENXIO);
		assert_int_equal(ask_state(&r, VHOST_USER_SET_VRING_BASE, bad[i], 0), ENXIO);
		assert_int_equal(ask_state(&r, VHOST_USER_SET_VRING_ENABLE, bad[i], 1), ENXIO);
		assert_int_equal(ask_addr(&r, addr), ENXIO);
		for (uint32_t req = VHOST_USER_SET_VRING_KICK; req <= VHOST_USER_SET_VRING_ERR;
		     req++)
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
	int pipes[2], socks[2], inet, file, before;
	struct rig r;

	rig_ready(&r);
	assert_ok(pipe2(pipes, O_CLOEXEC));
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	inet = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	file = open("/dev/null", O_RDWR | O_CLOEXEC);
	before = fd_count();
	for (uint32_t req = VHOST_USER_SET_VRING_KICK; req <= VHOST_USER_SET_VRING_ERR; req++) {
		assert_ok(ask_fd(&r, req, 0, r.event));
		assert_int_equal(ask_fd(&r, req, 0, pipes[1]), EBADF);
		assert_int_equal(ask_fd(&r, req, 0, inet), EBADF);
		/* Of User-mode Linux. */
		assert_int_equal(ask_fd(&r, req, 0, socks[1]),
				 req == VHOST_USER_SET_VRING_CALL ? 0 : EBADF);
		if (req == VHOST_USER_SET_VRING_CALL)
			assert_true(fcntl(r.b.rings[0].call_fd, F_GETFD) & FD_CLOEXEC);
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
	assert_true(fcntl(socks[1], F_GETFL) & O_NONBLOCK);
	fd_close(&inet);
	fd_close(&file);
	for (int i = 0; i < 2; i++) {
		fd_close(&pipes[i]);
		fd_close(&socks[i]);
	}
	rig_close(&r);
}

static void rule_memory(void **state)
{
	struct vhost_user_region far = { .size = MEM_SIZE,
					 .user_addr = 0x1000000,
					 .guest_addr = 1 << 30 };
	struct vhost_user_region pair[2] = { whole, far };
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
				three[i] =
					(struct vhost_user_region){ .guest_addr = (uint64_t)i << 30,
								    .user_addr = (uint64_t)i << 30,
								    .size = MEM_SIZE };
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
	struct call c = { .request = VHOST_USER_SET_MEM_TABLE, .flags = V_NEED, .fd_cnt = 1 };
	struct rig r;

	rig_ready(&r);
	c.p.mem = (struct vhost_user_mem){ .cnt = 1, .regions = { whole } };
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
	c.p.mem.cnt = 1;
	c.fds[1] = r.memfd;
	c.fd_cnt = 2;
	assert_int_equal(call(&r, &c), VU_INPUT);
	assert_int_equal(r.answer.payload.u64, EBADF);
	c.p.mem.cnt = c.fd_cnt = 0;
	assert_int_equal(call(&r, &c), VU_INPUT);
	assert_int_equal(r.answer.payload.u64, EINVAL);
	rig_close(&r);
}

static void rule_config(void **state)
{
	struct call c = { .request = VHOST_USER_SET_CONFIG, .flags = V_NEED };
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
	c.p.config = (struct vhost_user_config){ .size = 6 };
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

	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	config_changed(fds[0], fds[1]);

	/* 197: both features must be acked */
	rig_ready(&r);
	assert_ok(pipe2(fds, O_CLOEXEC));
	assert_int_equal(ask_fd(&r, VHOST_USER_SET_BACKEND_REQ_FD, 0, fds[1]), EBADF);
	fd_close(&fds[0]);
	fd_close(&fds[1]);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	assert_ok(ask_fd(&r, VHOST_USER_SET_BACKEND_REQ_FD, 0, fds[1]));
	assert_ok(ask_u64(&r, VHOST_USER_SET_PROTOCOL_FEATURES, BIT(VHOST_USER_PROTOCOL_F_CONFIG)));
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
	assert_ok(ask(&r, VHOST_USER_RESET_DEVICE, 0, (union vhost_user_payload){ 0 }));
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
		{ { VHOST_USER_GET_FEATURES, V, 0 }, VU_INPUT, 1 },
		{ { VHOST_USER_GET_FEATURES, 0, 0 }, -EPROTO, 0 },
		{ { VHOST_USER_GET_FEATURES, 2, 0 }, -EPROTO, 0 },
		{ { VHOST_USER_GET_FEATURES, 3, 0 }, -EPROTO, 0 },
		{ { VHOST_USER_GET_FEATURES, V_REPLY, 0 }, -EPROTO, 0 },
		{ { VHOST_USER_GET_FEATURES, V, 8 }, -EPROTO, 0 },
		{ { VHOST_USER_GET_VRING_BASE, V, 4 }, -EPROTO, 0 },
		{ { VHOST_USER_SET_OWNER, V_REPLY, 0 }, VU_INPUT, 0 },
		{ { VHOST_USER_SET_OWNER, V, 8 }, VU_INPUT, 0 },
		{ { VHOST_USER_SET_OWNER, V_NEED, 8 }, VU_INPUT, 1 },
		{ { 0, V, 0 }, VU_INPUT, 0 },
		{ { 0, V_NEED, 0 }, VU_INPUT, 1 },
		{ { 6, V_NEED, 16 }, VU_INPUT, 1 },
		{ { 0x80000001, V_NEED, 17 }, VU_INPUT, 1 },
		{ { 99, V, sizeof(union vhost_user_payload) }, VU_INPUT, 0 },
	};
	static const uint32_t over[] = { sizeof(union vhost_user_payload) + 1, 0x80000000, ~0U };
	struct rig r;

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct call c = { .request = cases[i].hdr.request,
				  .flags = cases[i].hdr.flags,
				  .size = cases[i].hdr.size };

		rig_ready(&r);
		assert_int_equal(call(&r, &c), cases[i].step);
		assert_int_equal(r.answers, cases[i].answers);
		assert_int_equal(r.b.bad_messages > 0, i > 0 && (r.step != -EPROTO || i > 3));
		rig_close(&r);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(over); i++) {
		struct vhost_user_hdr hdr = { .request = 99, .flags = V, .size = over[i] };

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
	struct vhost_user_hdr hdr = { VHOST_USER_SET_VRING_ADDR, V_NEED, sizeof(addr) };
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

static void send_byte_fds(int sock, void *byte, const int *fds, unsigned cnt)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(32 * sizeof(int))];
	} room = { .align = { .cmsg_len = CMSG_LEN(cnt * sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { .iov_base = byte, .iov_len = 1 };
	struct msghdr mh = { .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = room.buf,
			     .msg_controllen = CMSG_SPACE(cnt * sizeof(int)) };

	memcpy(CMSG_DATA(&room.align), fds, cnt * sizeof(int));
	assert_int_equal(sendmsg(sock, &mh, 0), 1);
}

/* Descriptors with any byte of a message are that message's; too many spoil it and nothing else. */
static void rule_pieces_fds(void **state)
{
	struct vhost_user_hdr hdr = { VHOST_USER_SET_VRING_CALL, V_NEED, 8 };
	unsigned char bytes[20] = { 0 };
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
	/* Nothing arrived where nothing is needed: still not what was sent. */
	assert_int_equal(ask_fd(&r, VHOST_USER_SET_VRING_CALL, VHOST_USER_VRING_NOFD, r.event),
			 EBADF);
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
		struct vhost_user_hdr hdr = { VHOST_USER_SET_VRING_BASE, V_NEED, 8 };
		struct vhost_user_vring_state base = { .index = 1, .num = i };

		assert_ok(vu_frontend_send(&r.fe, &hdr, &base, NULL, 0));
		hdr = (struct vhost_user_hdr){ VHOST_USER_SET_VRING_CALL, V, 8 };
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
	struct call c = { .request = VHOST_USER_GET_CONFIG, .flags = V };
	struct vhost_user_hdr hdr = { .request = c.request, .flags = V };
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(rule_features),       TEST(rule_protocol_features),
		TEST(rule_enable),         TEST(rule_pending),
		TEST(rule_base),           TEST(rule_ring_changes),
		TEST(rule_ring_index),     TEST(rule_event_fds),
		TEST(rule_memory),         TEST(rule_memory_refused),
		TEST(rule_memory_sizes),   TEST(rule_config),
		TEST(rule_config_changed), TEST(rule_reset_device),
		TEST(rule_framing),        TEST(rule_pieces),
		TEST(rule_pieces_fds),     TEST(rule_fd_limit),
		TEST(rule_pipelined),      TEST(rule_unread_answers),
	};

	rig_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
