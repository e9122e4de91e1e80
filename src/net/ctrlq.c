// SPDX-License-Identifier: BSD-2-Clause
/* The control queue. */
#include "net/ctrlq.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/iov.h"
#include "wire/virtio_net.h"

/* PROMISC, ALLMULTI: one byte, on or off. All frames are delivered either way (5.1.6.5.1). */
static uint8_t set_rx_mode(struct iov_cursor *data)
{
	uint8_t on;

	if (iov_read(data, &on, sizeof(on)) != sizeof(on) || on > 1)
		return VIRTIO_NET_ERR;
	return VIRTIO_NET_OK;
}

/* Two tables, unicast and multicast: a count and as many addresses (5.1.6.5.2). They narrow what a
 * device has to deliver; delivering more is allowed. */
static uint8_t set_mac_table(struct iov_cursor *data)
{
	for (int i = 0; i < 2; i++) {
		uint32_t cnt;
		size_t len;

		if (iov_read(data, &cnt, sizeof(cnt)) != sizeof(cnt))
			return VIRTIO_NET_ERR;
		len = (size_t)le32toh(cnt) * VIRTIO_NET_MAC_LEN;
		if (iov_skip(data, len) != len)
			return VIRTIO_NET_ERR;
	}
	return VIRTIO_NET_OK;
}

struct command {
	uint8_t class, cmd;
	uint8_t (*run)(struct iov_cursor *data);
};

static const struct command commands[] = {
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_PROMISC, set_rx_mode },
	{ VIRTIO_NET_CTRL_RX, VIRTIO_NET_CTRL_RX_ALLMULTI, set_rx_mode },
	{ VIRTIO_NET_CTRL_MAC, VIRTIO_NET_CTRL_MAC_TABLE_SET, set_mac_table },
};

/* Runs the command of a chain; the answer. */
static uint8_t run_command(const struct vq_chain *chain)
{
	struct iov_cursor data = iov_cursor(chain->iov, chain->out_cnt);
	struct virtio_net_ctrl_hdr hdr;

	if (iov_read(&data, &hdr, sizeof(hdr)) != sizeof(hdr))
		return VIRTIO_NET_ERR;
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (commands[i].class == hdr.class && commands[i].cmd == hdr.cmd)
			return commands[i].run(&data);
	}
	return VIRTIO_NET_ERR;
}

static void answer(struct ctrlq *c, const struct vq_chain *chain)
{
	struct iov_cursor status = iov_cursor(chain->iov + chain->out_cnt, chain->in_cnt);
	uint8_t ack;

	if (chain->err != 0 || chain->in_len == 0) {
		count_drop(&c->q.cnt, DROP_BAD_CHAIN);
		queue_return(&c->q, chain, 0);
		return;
	}
	ack = run_command(chain);
	counter_add(ack == VIRTIO_NET_OK ? &c->ok : &c->refused, 1);
	/* The length is that of the bytes written: drivers take a device away over any other. */
	queue_return(&c->q, chain, (uint32_t)iov_write(&status, &ack, sizeof(ack)));
}

static struct work_used ctrlq_prepare(struct work_src *src, struct work_room room)
{
	struct ctrlq *c = container_of(src, struct ctrlq, src);
	struct vq_chain chains[CTRLQ_BURST];
	int n;

	(void)room;
	if (!queue_usable(&c->q))
		return (struct work_used){ 0 };
	c->pieces->used = 0;
	n = vq_pop(&c->q.vq, chains, CTRLQ_BURST, c->pieces);
	if (n < 0) {
		queue_break(&c->q, "the guest broke its control ring");
		return (struct work_used){ 0 };
	}
	for (int i = 0; i < n; i++)
		answer(c, &chains[i]);
	queue_publish(&c->q);
	return (struct work_used){ .frames = (unsigned)n, .more = n > 0 };
}

static bool ctrlq_arm(struct work_src *src)
{
	return queue_arm(&container_of(src, struct ctrlq, src)->q);
}

static const struct work_ops ctrlq_ops = { .prepare = ctrlq_prepare, .arm = ctrlq_arm };

void ctrlq_init(struct ctrlq *c, struct worker *control, const char *device, struct vq_iovs *pieces)
{
	work_src_init(&c->src, control, &ctrlq_ops);
	queue_init(&c->q, &c->src, device, "control");
	c->pieces = pieces;
}
