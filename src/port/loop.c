// SPDX-License-Identifier: BSD-2-Clause
/*
 * loop: gives back what is sent to it, with the MAC addresses swapped.
 *
 * DOC: frames wait in a ring of bytes, each in one piece: where the rest of the ring is too short,
 * the frame goes to its start and the rest stays unused. Nothing here enters the kernel, and since
 * tx and rx run in one worker, sending makes rx ready directly.
 */
#include "port/port_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "port/offload.h"

#define LOOP_FRAMES 1024
#define LOOP_BYTES  (4u << 20)
#define MAC_LEN     6
#define ETH_LEN     14

struct looped {
	uint32_t at, len; /* in bytes[] */
	struct frame_offload off;
};

struct loop {
	struct port port;
	struct work_src *rx;
	unsigned offloads;
	unsigned head, cnt; /* of frames[] */
	struct looped frames[LOOP_FRAMES];
	struct port_done done;
	unsigned rcvd_head, rcvd_cnt; /* filled rooms that done_recv() has not told yet */
	struct port_rcvd rcvd[PORT_RCVD_MAX];
	uint8_t *bytes;
};

static struct loop *to_loop(struct port *port)
{
	return container_of(port, struct loop, port);
}

static int loop_open(struct port **port, const char *args, const char *name, struct worker *control,
		     const char **err)
{
	struct loop *l;

	if (*args != '\0') {
		*err = "loop: takes no arguments";
		return -EINVAL;
	}
	*err = "out of memory";
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return -ENOMEM;
	l->bytes = malloc(LOOP_BYTES); /* takes memory only as it is used */
	if (l->bytes == NULL) {
		free(l);
		return -ENOMEM;
	}
	l->port = (struct port){ .ops = &loop_port, .name = name };
	*port = &l->port;
	return 0;
}

static void loop_close(struct port *port)
{
	struct loop *l = to_loop(port);

	free(l->bytes);
	free(l);
}

static int loop_set_offload(struct port *port, unsigned offloads)
{
	if ((offloads & ~PORT_OFFLOADS_ALL) != 0)
		return -EOPNOTSUPP;
	to_loop(port)->offloads = offload_sane(offloads);
	return 0;
}

static int loop_attach(struct port *port, struct worker *w, struct work_src *tx,
		       struct work_src *rx)
{
	to_loop(port)->rx = rx;
	return 0;
}

static void loop_abandon(struct port *port)
{
	port_done_clear(&to_loop(port)->done);
}

static void loop_detach(struct port *port)
{
	struct loop *l = to_loop(port);

	loop_abandon(port);
	l->head = l->cnt = l->rcvd_cnt = 0;
}

/* Where @len bytes in one piece are free; -1 when nowhere. */
static int64_t find_place(const struct loop *l, uint32_t len)
{
	const struct looped *first = &l->frames[l->head];
	const struct looped *last = &l->frames[(l->head + l->cnt - 1) % LOOP_FRAMES];
	uint32_t end;

	if (l->cnt == 0)
		return 0;
	end = last->at + last->len;
	if (end > first->at && LOOP_BYTES - end >= len)
		return end;
	if (end > first->at)
		return first->at >= len ? 0 : -1;
	/* It has come around. */
	return first->at - end >= len ? (int64_t)end : -1;
}

static void swap_macs(uint8_t *frame)
{
	uint8_t mac[MAC_LEN];

	memcpy(mac, frame, MAC_LEN);
	memcpy(frame, frame + MAC_LEN, MAC_LEN);
	memcpy(frame + MAC_LEN, mac, MAC_LEN);
}

static int take_frame(struct loop *l, const struct frame *f)
{
	struct iov_cursor c = iov_cursor(f->iov, f->iov_cnt);
	struct looped *in;
	int64_t at;

	if (f->len < ETH_LEN)
		return -EINVAL;
	if (f->len > VIRTIO_NET_FRAME_MAX)
		return -EMSGSIZE;
	if ((offload_needs_guest(&f->off) & ~l->offloads) != 0)
		return -EOPNOTSUPP;
	at = l->cnt < LOOP_FRAMES ? find_place(l, f->len) : -1;
	if (at < 0)
		return -ENOBUFS;
	in = &l->frames[(l->head + l->cnt) % LOOP_FRAMES];
	*in = (struct looped){ .at = (uint32_t)at, .len = f->len, .off = f->off };
	iov_read(&c, l->bytes + at, f->len);
	swap_macs(l->bytes + at);
	l->cnt++;
	return 0;
}

static unsigned loop_prep_send(struct port *port, struct frame *frames, unsigned n)
{
	struct loop *l = to_loop(port);

	n = min_uint(n, PORT_OUT_MAX - l->done.cnt);
	for (unsigned i = 0; i < n; i++)
		port_done_push(&l->done, frames[i].cookie, take_frame(l, &frames[i]));
	if (l->cnt > 0)
		work_src_ready(l->rx);
	return n;
}

static unsigned loop_done_send(struct port *port, struct port_sent *sent, unsigned max)
{
	return port_done_take(&to_loop(port)->done, sent, max);
}

/* Fills rooms now; done_recv() tells. A frame that is larger than its room is lost. */
static unsigned loop_prep_recv(struct port *port, struct frame *rooms, unsigned n)
{
	struct loop *l = to_loop(port);

	if (l->rcvd_cnt == 0)
		l->rcvd_head = 0;
	n = min_uint(n, PORT_RCVD_MAX - l->rcvd_head - l->rcvd_cnt);
	n = min_uint(n, l->cnt);
	for (unsigned i = 0; i < n; i++) {
		struct iov_cursor c = iov_cursor(rooms[i].iov, rooms[i].iov_cnt);
		struct port_rcvd *in = &l->rcvd[l->rcvd_head + l->rcvd_cnt++];
		const struct looped *out = &l->frames[l->head];

		*in = (struct port_rcvd){ .cookie = rooms[i].cookie, .off = out->off };
		if (out->len <= rooms[i].len)
			in->res = (int32_t)iov_write(&c, l->bytes + out->at, out->len);
		else
			in->res = -EMSGSIZE;
		l->head = (l->head + 1) % LOOP_FRAMES;
		l->cnt--;
	}
	return n;
}

static unsigned loop_done_recv(struct port *port, struct port_rcvd *rcvd, unsigned max)
{
	struct loop *l = to_loop(port);
	unsigned n = min_uint(l->rcvd_cnt, max);

	memcpy(rcvd, l->rcvd + l->rcvd_head, n * sizeof(rcvd[0]));
	l->rcvd_head += n;
	l->rcvd_cnt -= n;
	return n;
}

static bool loop_arm_recv(struct port *port)
{
	return to_loop(port)->cnt > 0;
}

const struct port_ops loop_port = {
	.scheme = "loop",
	.syntax = "loop:",
	.open = loop_open,
	.close = loop_close,
	.caps = port_caps_all,
	.set_offload = loop_set_offload,
	.link = port_link_always,
	.attach = loop_attach,
	.detach = loop_detach,
	.prep_send = loop_prep_send,
	.done_send = loop_done_send,
	.abandon = loop_abandon,
	.prep_recv = loop_prep_recv,
	.done_recv = loop_done_recv,
	.arm_recv = loop_arm_recv,
};
