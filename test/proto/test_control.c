// SPDX-License-Identifier: BSD-2-Clause
/* The control queue of a live daemon (field cases 139 to 141, 186). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "hostile/raw.h"

static struct guest g;
static struct daemon d;

static void open_ctrl(void)
{
	struct guest_cfg cfg = { .ctrl = true };

	DAEMON_START(&d, "loop:");
	guest_up(&g, &cfg, d.path[0]);
}

static void close_ctrl(void)
{
	guest_exchange(&g, 20, 100, 16);
	guest_down(&g);
	daemon_stop(&d);
}

/* Field cases 139 and 140: every command is answered, with one byte; what is not known, with ERR. */
static void test_every_command(void **state)
{
	open_ctrl();
	for (unsigned class = 0; class < 256; class ++) {
		for (unsigned cmd = 0; cmd < 256; cmd += class < 8 ? 1 : 51) {
			bool known = (class == VIRTIO_NET_CTRL_RX && cmd <= 1);

			EQ(guest_command(&g, (uint8_t) class, (uint8_t)cmd, "\1", 1),
			   known ? VIRTIO_NET_OK : VIRTIO_NET_ERR);
		}
	}
	close_ctrl();
}

/* Field case 141: past the wrap of both indexes. */
static void test_many_commands(void **state)
{
	unsigned cnt = test_scale(70000);

	open_ctrl();
	for (unsigned i = 0; i < cnt; i++)
		EQ(guest_command(&g, VIRTIO_NET_CTRL_RX, i % 2, i % 4 < 2 ? "\1" : "\0", 1),
		   VIRTIO_NET_OK);
	EQ(daemon_count(&d, 0, "control.commands_ok"), cnt);
	close_ctrl();
}

/* Field case 186: tables of addresses whose length does not agree with their count. */
static void test_mac_table(void **state)
{
	static const uint8_t good[] = { 1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 2, 0, 0,
					0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 2 };
	uint8_t table[sizeof(good)];

	open_ctrl();
	EQ(guest_command(&g, VIRTIO_NET_CTRL_MAC, 0, good, sizeof(good)), VIRTIO_NET_OK);
	for (uint32_t len = 0; len < sizeof(good); len++)
		EQ(guest_command(&g, VIRTIO_NET_CTRL_MAC, 0, good, len), VIRTIO_NET_ERR);
	memcpy(table, good, sizeof(good));
	for (unsigned i = 0; i < 4; i++) {
		table[i] = 0xff;
		EQ(guest_command(&g, VIRTIO_NET_CTRL_MAC, 0, table, sizeof(table)), VIRTIO_NET_ERR);
	}
	close_ctrl();
}

/* Commands that cannot be answered: the chain comes back with nothing written; then good ones. */
static void test_bad_chains(void **state)
{
	static const struct raw_desc chains[][2] = {
		{ { 0, 4, VRING_DESC_F_NEXT, 0 } }, /* a loop */
		{ { 0, 4, 0, 0 } },                 /* no room for an answer */
		{ { 0, 4, VRING_DESC_F_NEXT, 1 }, { 0, 0, VRING_DESC_F_WRITE, 0 } },
		{ { 0, 1, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 1 }, { 0, 4, 0, 0 } },
		{ { 0, 4, VRING_DESC_F_NEXT, 0xffff } },
	};
	struct guest_ring *r = &g.rings[GUEST_CTRL];
	uint64_t buf;

	open_ctrl();
	buf = guest_alloc(&g, 4096, 64);
	for (unsigned i = 0; i < ARRAY_SIZE(chains); i++) {
		for (unsigned j = 0; j < 2; j++) {
			struct raw_desc desc = chains[i][j];

			desc.addr = buf + 64 * j;
			raw_desc(&r->q.split.desc[j], &desc);
		}
		raw_avail(r, 0, 16);
		raw_wait(r);
	}
	EQ(daemon_count(&d, 0, "control.drops.bad_chain"), 16 * ARRAY_SIZE(chains));
	guest_stop_ring(&g, GUEST_CTRL);
	guest_reset_ring(&g, GUEST_CTRL);
	guest_start_ring(&g, GUEST_CTRL);
	EQ(guest_command(&g, VIRTIO_NET_CTRL_RX, 0, "\1", 1), VIRTIO_NET_OK);
	/* Without data, and without a command. */
	EQ(guest_command(&g, VIRTIO_NET_CTRL_RX, 0, "", 0), VIRTIO_NET_ERR);
	close_ctrl();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_every_command),
		TEST(test_many_commands),
		TEST(test_mac_table),
		TEST(test_bad_chains),
	};

	return TEST_BOTH(tests);
}
