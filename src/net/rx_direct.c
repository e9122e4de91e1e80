// SPDX-License-Identifier: BSD-2-Clause
/* Direct receive: one read straight into the guest's buffers, which have room for any frame. */
#include <string.h>

#include "base/iov.h"
#include "net/hdr.h"
#include "net/rx_priv.h"

/* Pops chains until they have room for header and largest frame; false: not to be had now. */
static bool pop_room(struct rx *rx)
{
	uint32_t need = rx->hdr_len + PORT_ROOM_MIN, room = 0;
	unsigned limit = rx->mergeable ? RX_DIRECT_CHAINS : 1;

	rx->chain_cnt = 0;
	while (room < need && rx->chain_cnt < limit) {
		struct vq_chain *c = &rx->direct_chains[rx->chain_cnt];

		if (vq_pop(&rx->q.vq, c, 1, &rx->scratch->pieces) <= 0)
			break;
		rx->chain_cnt++;
		/* A bad one is for the other way, which counts and returns it. */
		if (c->err != 0 || c->out_cnt > 0 || c->in_len == 0)
			break;
		room += c->in_len;
	}
	if (room >= need)
		return true;
	vq_unpop(&rx->q.vq, rx->chain_cnt);
	rx->chain_cnt = 0;
	return false;
}

/* The room as one array of pieces, behind the header and behind a free one for the port. */
static bool lay_out_room(struct rx *rx, struct frame *f)
{
	struct vq_iovs *pieces = &rx->scratch->pieces;
	struct iovec *to;
	unsigned cnt = 0;

	for (unsigned i = 0; i < rx->chain_cnt; i++)
		cnt += rx->direct_chains[i].in_cnt;
	if (cnt + 1 > VQ_IOVS_MAX - pieces->used)
		return false;
	to = &pieces->iov[pieces->used + 1];
	pieces->used += cnt + 1;
	*f = (struct frame){ .iov = to };
	for (unsigned i = 0; i < rx->chain_cnt; i++) {
		const struct vq_chain *c = &rx->direct_chains[i];

		memcpy(to, c->iov, c->in_cnt * sizeof(*to));
		to += c->in_cnt;
	}
	cnt = iov_trim_front(&f->iov, cnt, rx->hdr_len);
	f->iov_cnt = (uint16_t)iov_trim_back(f->iov, cnt, PORT_ROOM_MIN);
	f->len = PORT_ROOM_MIN;
	return true;
}

unsigned rx_direct_prepare(struct rx *rx)
{
	unsigned before = rx->scratch->pieces.used;
	struct frame room;

	if (!pop_room(rx))
		goto err_pieces;
	if (!lay_out_room(rx, &room))
		goto err_unpop;
	if (rx->port->ops->prep_recv(rx->port, &room, 1) == 1)
		return 1;

err_unpop:
	vq_unpop(&rx->q.vq, rx->chain_cnt);
	rx->chain_cnt = 0;
err_pieces:
	rx->scratch->pieces.used = before;
	return 0;
}

/* Returns the chains that the frame fills, steps back over the others. */
static void return_filled(struct rx *rx, uint32_t len, const struct frame_offload *off)
{
	uint32_t lens[RX_DIRECT_CHAINS], left = rx->hdr_len + len, left_hdr = rx->hdr_len;
	struct virtio_net_hdr h;
	unsigned used = 0;

	for (; left > 0; used++) {
		lens[used] = min_uint(rx->direct_chains[used].in_len, left);
		left -= lens[used];
	}
	vq_unpop(&rx->q.vq, rx->chain_cnt - used);
	hdr_encode(&h, off, (uint16_t)used);
	for (unsigned i = 0; i < used; i++) {
		struct vq_chain *c = &rx->direct_chains[i];
		struct iov_cursor cur = iov_cursor(c->iov, c->in_cnt);

		left_hdr -=
			(uint32_t)iov_write(&cur, (char *)&h + rx->hdr_len - left_hdr, left_hdr);
		queue_return(&rx->q, c, lens[i]);
	}
	count_frame(&rx->q.cnt, len);
}

unsigned rx_direct_harvest(struct rx *rx, unsigned *frames)
{
	struct port_rcvd rcvd;
	enum net_drop drop;
	uint32_t len;

	if (rx->port->ops->done_recv(rx->port, &rcvd, 1) == 0) {
		vq_unpop(&rx->q.vq, rx->chain_cnt);
		rx->chain_cnt = 0;
		return 0;
	}
	(*frames)++;
	drop = rcvd.res < 0 ? drop_of_errno(rcvd.res) : rx_screen(rx, &rcvd.off);
	len = rcvd.res < 0 ? 0 : (uint32_t)rcvd.res;
	if (drop == DROP_FAULT)
		queue_break(&rx->q, "the front end took guest memory away");
	if (drop == DROP_NONE) {
		return_filled(rx, len, &rcvd.off);
	} else {
		vq_unpop(&rx->q.vq, rx->chain_cnt);
		count_drop(&rx->q.cnt, drop);
	}
	rx->chain_cnt = 0;
	rx->small_run = len >= RX_LARGE ? 0 : rx->small_run + 1;
	if (rx->small_run >= RX_SMALL_RUN) {
		rx->direct = false;
		rx->small_run = 0;
	}
	return len;
}
