// SPDX-License-Identifier: BSD-2-Clause
/* Orders in which front ends set a device up, as recorded from them, and how they leave it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "lib/daemon.h"
#include "lib/guest.h"

/* A step is a request; those for a ring are followed by its index. */
#define R(request, ring) (VHOST_USER_##request), (ring)
#define S(request)       (VHOST_USER_##request)
#define DISABLE(ring)    100, (ring)
#define END              0

#define RING_MSGS(r) \
	R(SET_VRING_CALL, r), R(SET_VRING_NUM, r), R(SET_VRING_BASE, r), R(SET_VRING_ADDR, r)

struct order {
	const char *name;
	bool protocol, ctrl;
	uint64_t protocol_features;
	uint8_t steps[80];
};

#define P_ACK BIT(VHOST_USER_PROTOCOL_F_REPLY_ACK)
#define P_UML (P_ACK | BIT(VHOST_USER_PROTOCOL_F_CONFIG) | BIT(VHOST_USER_PROTOCOL_F_BACKEND_REQ))
#define P_MQ  BIT(VHOST_USER_PROTOCOL_F_MQ)

static const struct order orders[] = {
	{ "User-mode Linux 6.1",
	  true,
	  true,
	  P_UML,
	  { S(SET_OWNER), S(GET_FEATURES), S(GET_PROTOCOL_FEATURES), S(SET_BACKEND_REQ_FD),
	    S(SET_FEATURES), S(GET_CONFIG), S(SET_MEM_TABLE), RING_MSGS(0), RING_MSGS(1),
	    RING_MSGS(2), R(SET_VRING_KICK, 0), R(SET_VRING_ENABLE, 0), R(SET_VRING_KICK, 1),
	    R(SET_VRING_ENABLE, 1), R(SET_VRING_KICK, 2), R(SET_VRING_ENABLE, 2) } },
	{ "QEMU 7.2",
	  true,
	  false,
	  P_ACK | P_MQ,
	  { S(GET_FEATURES),        S(GET_PROTOCOL_FEATURES), S(GET_QUEUE_NUM),
	    S(SET_OWNER),           S(GET_FEATURES),          R(SET_VRING_CALL, 0),
	    R(SET_VRING_CALL, 1),   R(SET_VRING_ENABLE, 0),   R(SET_VRING_ENABLE, 1),
	    S(SET_FEATURES),        S(SET_MEM_TABLE),         R(SET_VRING_NUM, 0),
	    R(SET_VRING_BASE, 0),   R(SET_VRING_ADDR, 0),     R(SET_VRING_KICK, 0),
	    R(SET_VRING_CALL, 0),   R(SET_VRING_NUM, 1),      R(SET_VRING_BASE, 1),
	    R(SET_VRING_ADDR, 1),   R(SET_VRING_KICK, 1),     R(SET_VRING_CALL, 1),
	    R(SET_VRING_ENABLE, 0), R(SET_VRING_ENABLE, 1) } },
	{ "QEMU 2.11: features once more at the end",
	  true,
	  false,
	  P_MQ,
	  { S(GET_FEATURES), S(GET_PROTOCOL_FEATURES), S(SET_OWNER), S(SET_FEATURES),
	    S(SET_MEM_TABLE), R(SET_VRING_NUM, 0), R(SET_VRING_BASE, 0), R(SET_VRING_ADDR, 0),
	    R(SET_VRING_KICK, 0), R(SET_VRING_CALL, 0), R(SET_VRING_NUM, 1), R(SET_VRING_BASE, 1),
	    R(SET_VRING_ADDR, 1), R(SET_VRING_KICK, 1), R(SET_VRING_CALL, 1),
	    R(SET_VRING_ENABLE, 0), R(SET_VRING_ENABLE, 1), S(SET_FEATURES) } },
	{ "DPDK virtio-user",
	  true,
	  false,
	  P_ACK | P_MQ,
	  { S(SET_OWNER), S(GET_FEATURES), S(GET_PROTOCOL_FEATURES), S(SET_FEATURES),
	    S(GET_QUEUE_NUM), R(SET_VRING_CALL, 0), R(SET_VRING_CALL, 1), S(SET_FEATURES),
	    S(SET_MEM_TABLE), R(SET_VRING_NUM, 0), R(SET_VRING_BASE, 0), R(SET_VRING_ADDR, 0),
	    R(SET_VRING_KICK, 0), R(SET_VRING_NUM, 1), R(SET_VRING_BASE, 1), R(SET_VRING_ADDR, 1),
	    R(SET_VRING_KICK, 1), R(SET_VRING_ENABLE, 0), R(SET_VRING_ENABLE, 1) } },
	{ "no protocol features (QEMU before 2.4)",
	  false,
	  false,
	  0,
	  { S(SET_OWNER), S(GET_FEATURES), S(SET_FEATURES), S(SET_MEM_TABLE), RING_MSGS(0),
	    R(SET_VRING_KICK, 0), RING_MSGS(1), R(SET_VRING_KICK, 1) } },
	{ "rust-vmm",
	  true,
	  false,
	  P_ACK | P_MQ | BIT(VHOST_USER_PROTOCOL_F_CONFIG),
	  { S(GET_FEATURES), S(SET_OWNER), S(GET_PROTOCOL_FEATURES), S(SET_FEATURES),
	    S(SET_MEM_TABLE), R(SET_VRING_NUM, 0), R(SET_VRING_ADDR, 0), R(SET_VRING_BASE, 0),
	    R(SET_VRING_CALL, 0), R(SET_VRING_KICK, 0), R(SET_VRING_NUM, 1), R(SET_VRING_ADDR, 1),
	    R(SET_VRING_BASE, 1), R(SET_VRING_CALL, 1), R(SET_VRING_KICK, 1),
	    R(SET_VRING_ENABLE, 0), R(SET_VRING_ENABLE, 1) } },
	{ "memory last",
	  true,
	  false,
	  P_ACK,
	  { S(GET_FEATURES), S(GET_PROTOCOL_FEATURES), S(SET_FEATURES), RING_MSGS(0),
	    R(SET_VRING_KICK, 0), R(SET_VRING_ENABLE, 0), RING_MSGS(1), R(SET_VRING_KICK, 1),
	    R(SET_VRING_ENABLE, 1), S(SET_MEM_TABLE) } },
	{ "kick and enable first, call last",
	  true,
	  false,
	  P_ACK,
	  { S(GET_FEATURES), S(GET_PROTOCOL_FEATURES), R(SET_VRING_KICK, 0), R(SET_VRING_ENABLE, 0),
	    R(SET_VRING_KICK, 1), R(SET_VRING_ENABLE, 1), S(SET_FEATURES), S(SET_MEM_TABLE),
	    R(SET_VRING_ADDR, 0), R(SET_VRING_NUM, 0), R(SET_VRING_ADDR, 1), R(SET_VRING_NUM, 1),
	    R(SET_VRING_CALL, 0), R(SET_VRING_CALL, 1) } },
	{ "restored: protocol features set without asking",
	  true,
	  false,
	  P_ACK,
	  { S(SET_PROTOCOL_FEATURES), S(SET_FEATURES), S(SET_OWNER), S(SET_MEM_TABLE), RING_MSGS(1),
	    R(SET_VRING_KICK, 1), RING_MSGS(0), R(SET_VRING_KICK, 0), R(SET_VRING_ENABLE, 1),
	    R(SET_VRING_ENABLE, 0) } },
};

static struct guest g;
static int backend_req[2];

static void do_other(uint32_t step)
{
	struct vhost_user_hdr hdr = { .request = step };
	uint8_t mac[6];
	uint64_t pairs;

	switch (step) {
	case VHOST_USER_SET_OWNER:
		OK(vu_frontend_request(&g.fe, &hdr, NULL, NULL, 0));
		break;
	case VHOST_USER_SET_BACKEND_REQ_FD:
		OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, backend_req));
		OK(vu_frontend_request(&g.fe, &hdr, NULL, &backend_req[1], 1));
		close(backend_req[0]);
		close(backend_req[1]);
		break;
	case VHOST_USER_GET_CONFIG:
		for (uint32_t i = 0; i < sizeof(mac); i++)
			OK(vu_frontend_get_config(&g.fe, &mac[i], i, 1));
		break;
	case VHOST_USER_GET_QUEUE_NUM:
		OK(vu_frontend_get_u64(&g.fe, step, &pairs));
		EQ(pairs, 1);
		break;
	default:
		FAIL("no such step");
	}
}

static const uint8_t *do_step(const uint8_t *step)
{
	uint32_t request = *step++;

	switch (request) {
	case VHOST_USER_GET_FEATURES:
		guest_get_features(&g);
		return step;
	case VHOST_USER_GET_PROTOCOL_FEATURES:
		guest_protocol(&g);
		return step;
	case VHOST_USER_SET_PROTOCOL_FEATURES:
		OK(vu_frontend_set_protocol_features(&g.fe, g.cfg.protocol));
		return step;
	case VHOST_USER_SET_FEATURES:
		guest_ack(&g);
		return step;
	case VHOST_USER_SET_MEM_TABLE:
		guest_set_mem(&g);
		return step;
	case VHOST_USER_SET_VRING_NUM:
	case VHOST_USER_SET_VRING_ADDR:
	case VHOST_USER_SET_VRING_BASE:
	case VHOST_USER_SET_VRING_KICK:
	case VHOST_USER_SET_VRING_CALL:
	case VHOST_USER_SET_VRING_ENABLE:
		guest_ring_msg(&g, *step, request);
		return step + 1;
	default:
		do_other(request);
		return step;
	}
}

static void make(const struct order *o)
{
	struct guest_cfg cfg = { .features = F_VERSION_1 | F_MRG | F_INDIRECT | F_EVENT_IDX,
				 .ctrl = o->ctrl,
				 .layout = GUEST_SEAM,
				 .protocol = o->protocol_features };

	cfg.features |= o->protocol ? F_PROTOCOL : 0;
	guest_make(&g, &cfg);
	guest_refill(&g);
}

static void play(const struct order *o, unsigned pause_us)
{
	for (const uint8_t *s = o->steps; *s != END;) {
		s = do_step(s);
		if (pause_us > 0)
			test_sleep_us(pause_us);
	}
	/* Without REPLY_ACK only an answer shows that all before it was done; a frame that is kicked
	 * before its ring is enabled is thrown away. */
	if (!(o->protocol_features & P_ACK))
		OK(vu_frontend_get_u64(&g.fe, VHOST_USER_GET_FEATURES, &g.offered));
}

/* Field cases 37, 60, 191 and 192: each order, twice on the same device. */
static void test_orders(void **state)
{
	struct daemon d;

	DAEMON_START(&d, "loop:");
	for (unsigned i = 0; i < 2 * ARRAY_SIZE(orders); i++) {
		const struct order *o = &orders[i / 2];

		print_message("%s\n", o->name);
		make(o);
		guest_connect(&g, d.path[0]);
		play(o, 0);
		if (o->ctrl)
			EQ(guest_command(&g, VIRTIO_NET_CTRL_RX, 0, "\1", 1), VIRTIO_NET_OK);
		guest_exchange(&g, 100, 100 + i, 32);
		guest_down(&g);
	}
	daemon_stop(&d);
}

/* What was sent before the set-up was complete waits for it, whatever the order is. */
static void test_orders_pending(void **state)
{
	struct daemon d;

	DAEMON_START(&d, "loop:");
	for (unsigned i = 0; i < ARRAY_SIZE(orders); i++) {
		make(&orders[i]);
		for (unsigned j = 0; j < 9; j++)
			MUST(guest_send(&g, 99, NULL, NULL, 0));
		guest_publish(&g, GUEST_TX);
		guest_connect(&g, d.path[0]);
		play(&orders[i], 200);
		GUEST_UNTIL(&g, guest_rx_done(&g) && guest_tx_done(&g));
		guest_down(&g);
	}
	daemon_stop(&d);
}

/* Field case 191: QEMU's probe of a back end, which ends before any feature is acked. */
static void test_probe(void **state)
{
	static const struct order probe = {
		"probe",
		true,
		false,
		P_ACK | P_MQ,
		{ S(GET_FEATURES), S(GET_PROTOCOL_FEATURES), S(GET_QUEUE_NUM), S(SET_OWNER),
		  R(SET_VRING_CALL, 0), R(SET_VRING_KICK, 0), R(SET_VRING_CALL, 1),
		  R(SET_VRING_KICK, 1), R(SET_VRING_ENABLE, 0), R(SET_VRING_ENABLE, 1) }
	};
	struct daemon d;

	DAEMON_START(&d, "loop:");
	for (unsigned i = 0; i < 5; i++) {
		make(&probe);
		guest_connect(&g, d.path[0]);
		play(&probe, 0);
		guest_free(&g);
		make(&orders[1]);
		guest_connect(&g, d.path[0]);
		play(&orders[1], 0);
		guest_exchange(&g, 50, 200, 32);
		guest_down(&g);
	}
	daemon_stop(&d);
}

/* User-mode Linux unloads its driver: all rings disabled, one question, and the memory is free. */
static void uml_unload(bool no_kick_pending)
{
	for (unsigned i = 0; i < 3; i++)
		guest_enable(&g, i, false);
	OK(vu_frontend_get_u64(&g.fe, VHOST_USER_GET_FEATURES, &g.offered));
	guest_reap(&g);
	MUST(no_kick_pending || guest_tx_done(&g));
	guest_scribble(&g);
	test_sleep_us(2000);
	/* Messages that come before the new addresses. */
	g.features ^= F_OFFLOADS;
	guest_ack(&g);
	guest_set_mem(&g);
	guest_ring_msg(&g, GUEST_TX, VHOST_USER_SET_VRING_CALL);
	test_sleep_us(1000);
	guest_untouched(&g);
}

/* ... and loads it again: NUM, BASE and ADDR of rings that were never stopped. */
static void uml_reload(void)
{
	static const struct order reload = {
		"reload",
		true,
		true,
		P_UML,
		{ S(SET_FEATURES), S(GET_CONFIG), S(SET_MEM_TABLE), RING_MSGS(0), RING_MSGS(1),
		  RING_MSGS(2), R(SET_VRING_KICK, 0), R(SET_VRING_ENABLE, 0), R(SET_VRING_KICK, 1),
		  R(SET_VRING_ENABLE, 1), R(SET_VRING_KICK, 2), R(SET_VRING_ENABLE, 2) }
	};

	for (unsigned i = 0; i < 3; i++)
		guest_reset_ring(&g, i);
	guest_refill(&g);
	play(&reload, 0);
}

static void test_uml_reload(void **state)
{
	struct daemon d;

	DAEMON_START(&d, "loop:");
	make(&orders[0]);
	guest_connect(&g, d.path[0]);
	play(&orders[0], 0);
	for (unsigned i = 0; i < test_scale(200); i++) {
		guest_exchange(&g, 20, 300, 16);
		EQ(guest_command(&g, VIRTIO_NET_CTRL_RX, 1, "\1", 1), VIRTIO_NET_OK);
		uml_unload(false);
		uml_reload();
	}
	/* In the middle of traffic. */
	for (unsigned i = 0; i < test_scale(200); i++) {
		for (unsigned j = 0; j < 30; j++)
			MUST(guest_send(&g, 300, NULL, NULL, 0));
		guest_kick(&g, GUEST_TX);
		/* Frames of before the reload may come after it. */
		g.on_frame = guest_ignore_frame;
		uml_unload(true);
		uml_reload();
	}
	guest_free(&g);
	daemon_stop(&d);
}

/* Field case 192: a pause after each message; nothing spins while a device is half set up. */
static void test_slow_set_up(void **state)
{
	struct daemon d;
	uint64_t cpu;

	DAEMON_START(&d, "loop:");
	make(&orders[1]);
	guest_connect(&g, d.path[0]);
	eventfd_write(g.rings[0].kick, 1);
	eventfd_write(g.rings[1].kick, 1);
	cpu = daemon_cpu_ns(&d);
	play(&orders[1], 50000);
	if (daemon_cpu_ns(&d) - cpu > 50000000)
		FAIL("%llu ns of CPU for a slow set-up",
		     (unsigned long long)(daemon_cpu_ns(&d) - cpu));
	guest_exchange(&g, 20, 300, 16);
	guest_down(&g);
	daemon_stop(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_orders),     TEST(test_orders_pending), TEST(test_probe),
		TEST(test_uml_reload), TEST(test_slow_set_up),
	};

	return TEST_BOTH(tests);
}
