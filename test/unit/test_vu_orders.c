// SPDX-License-Identifier: BSD-2-Clause
/* The vhost-user protocol: what real front ends send, replayed call by call; the back end in a thread. */
#include "vu_rig.h"

/* What the back end has come to is looked at under the lock; a query that is answered comes first. */
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
	struct vhost_user_hdr hdr = { .request = request };

	assert_ok(vu_frontend_request(&r->fe, &hdr, NULL, NULL, 0));
}

static void request_req_fd(struct rig *r, int fd)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_SET_BACKEND_REQ_FD };

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
static void uml_load(struct rig *r, const int *irq)
{
	struct vhost_user_mem mem = { .cnt = 1, .regions = { whole } };
	struct vhost_user_hdr hdr = { .request = VHOST_USER_SET_MEM_TABLE, .size = UML_MEM_LEN };
	struct vu_frontend *fe = &r->fe;
	uint8_t config[12];

	assert_ok(vu_frontend_set_u64(fe, VHOST_USER_SET_FEATURES, PROTOCOL_BIT | BIT(32)));
	/* For each byte of the MAC and each field it asks for all that is before, too. */
	for (uint32_t i = 1; i <= sizeof(config); i++)
		assert_ok(vu_frontend_get_config(fe, config, 0, i));
	assert_memory_equal(config, r->dev.config, sizeof(config));
	assert_ok(vu_frontend_request(fe, &hdr, &mem, &r->memfd, 1));
	for (uint32_t i = 0; i < RINGS; i++) {
		assert_ok(vu_frontend_vring_fd(fe, VHOST_USER_SET_VRING_CALL, i, irq[1]));
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
	int socks[2], irq[2];

	rig_open(&r, true);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks));
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, irq));
	request_empty(&r, VHOST_USER_SET_OWNER);
	assert_ok(vu_frontend_get_u64(&r.fe, VHOST_USER_GET_FEATURES, &features));
	assert_ok(vu_frontend_get_u64(&r.fe, VHOST_USER_GET_PROTOCOL_FEATURES, &features));
	features &= ACK_BIT | BIT(VHOST_USER_PROTOCOL_F_BACKEND_REQ) |
		    BIT(VHOST_USER_PROTOCOL_F_CONFIG);
	assert_ok(vu_frontend_set_protocol_features(&r.fe, features));
	request_req_fd(&r, socks[1]);
	uml_load(&r, irq);
	expect_rings(&r, 7, 7);

	/* Unload: disable all, in reverse, and one query; the memory is free then. */
	for (uint32_t i = RINGS; i-- > 0;)
		assert_ok(vu_frontend_vring_state(&r.fe, VHOST_USER_SET_VRING_ENABLE, i, 0));
	expect_rings(&r, 7, 0);
	/* Load again, over rings that were never stopped. */
	uml_load(&r, irq);
	expect_rings(&r, 7, 7);
	rig_close(&r);
	for (int i = 0; i < 2; i++) {
		fd_close(&socks[i]);
		fd_close(&irq[i]);
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
	static const uint64_t versions[] = { BIT(15), BIT(15) | BIT(32) | PROTOCOL_BIT };

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
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(order_uml),     TEST(order_qemu),      TEST(order_virtio_user),
		TEST(order_minimal), TEST(order_reconnect), TEST(order_connect_path),
	};

	rig_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
