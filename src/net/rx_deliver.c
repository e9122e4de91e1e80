// SPDX-License-Identifier: BSD-2-Clause
/*
 * One frame from private memory into the guest's buffers.
 *
 * DOC: a frame takes as many buffers as it needs when the guest acked MRG_RXBUF, else exactly one
 * (virtio 1.2, section 5.1.6.4). It gets all of them or none. num_buffers is written last, into the
 * header that has gone first, when their number is known; the used ring tells the guest only after
 * that. A bad chain among them voids those gathered before it: all are returned empty, in their
 * order, and the frame starts over behind them.
 */
#include "base/iov.h"
#include "net/hdr.h"
#include "net/rx_priv.h"
#include "port/offload.h"

/* Clears what the guest did not ask for; not DROP_NONE: it must not get this frame. */
static enum net_drop screen(const struct rx *rx, struct frame_offload *off)
{
	if ((rx->offloads & PORT_GUEST_CSUM) == 0)
		off->csum_valid = false;
	return (offload_needs_guest(off) & ~rx->offloads) != 0 ? DROP_NOT_NEGOTIATED : DROP_NONE;
}

static bool chain_is_bad(const struct vq_chain *c)
{
	/* A receive chain has nothing for the device to read (virtio 1.2, 5.1.6.3). */
	return c->err != 0 || c->out_cnt > 0 || c->in_len == 0;
}

enum gathered { GATHERED, GATHER_NO_ROOM, GATHER_BAD, GATHER_NEVER };

/* Pops chains with room for @need bytes in all; on GATHERED and GATHER_BAD *@cnt of them are taken. */
static enum gathered gather(struct rx *rx, uint32_t need, unsigned *cnt)
{
	struct vq *vq = &rx->q.vq;
	struct vq_chain *chains = rx->scratch->chains;
	struct vq_iovs *pieces = &rx->scratch->copy;
	unsigned limit = rx->mergeable ? vq->num : 1;
	uint64_t room = 0;

	pieces->used = 0;
	*cnt = 0;
	if (need >= rx->never_need)
		return GATHER_NEVER; /* no walk over the whole ring for each of them */
	while (room < need) {
		struct vq_chain *c = &chains[*cnt];

		if (*cnt == limit || vq_pop(vq, c, 1, pieces) <= 0) {
			/* Chains that are left over mean that all a frame may have is too little. What
			 * the driver adds after the pop's look does not count: it is for later. */
			bool never = *cnt == limit || vq_left_over(vq);

			vq_unpop(vq, *cnt);
			if (!never)
				return GATHER_NO_ROOM;
			rx->never_need = need;
			return GATHER_NEVER;
		}
		(*cnt)++;
		if (chain_is_bad(c)) {
			rx->never_need = UINT32_MAX;
			return GATHER_BAD;
		}
		room += c->in_len;
	}
	rx->never_need = UINT32_MAX;
	return GATHERED;
}

/* Writes header and frame; returns every chain with the bytes that it got. */
static void fill(struct rx *rx, const struct rx_frame *f, unsigned cnt)
{
	struct vq_chain *chains = rx->scratch->chains;
	struct virtio_net_hdr h;
	uint32_t left_hdr = rx->hdr_len, left = f->len;

	hdr_encode(&h, &f->off, (uint16_t)cnt);
	for (unsigned i = 0; i < cnt; i++) {
		struct iov_cursor c = iov_cursor(chains[i].iov, chains[i].in_cnt);
		uint32_t wrote, n;

		wrote = (uint32_t)iov_write(&c, (char *)&h + rx->hdr_len - left_hdr, left_hdr);
		left_hdr -= wrote;
		n = (uint32_t)iov_write(&c, (const char *)f->data + f->len - left, left);
		left -= n;
		queue_return(&rx->q, &chains[i], wrote + n);
	}
	rx->buf_len = min_uint(chains[0].in_len, VIRTIO_NET_FRAME_MAX);
	count_frame(&rx->q.cnt, f->len);
}

/* Bad chains that one delivery returns: the guest sees them come back and could go on for ever. */
#define BAD_MAX 64

enum rx_delivered rx_deliver(struct rx *rx, struct rx_frame *f)
{
	enum net_drop drop = screen(rx, &f->off);
	unsigned cnt, bad = 0;

	if (drop != DROP_NONE) {
		count_drop(&rx->q.cnt, drop);
		return RX_DONE;
	}
	for (;;) {
		switch (gather(rx, rx->hdr_len + f->len, &cnt)) {
		case GATHERED:
			fill(rx, f, cnt);
			return RX_DONE;
		case GATHER_NO_ROOM:
			return RX_NO_ROOM;
		case GATHER_NEVER:
			count_drop(&rx->q.cnt, DROP_TOO_BIG);
			return RX_DONE;
		case GATHER_BAD:
			count_drop(&rx->q.cnt, DROP_BAD_CHAIN);
			for (unsigned i = 0; i < cnt; i++)
				queue_return(&rx->q, &rx->scratch->chains[i], 0);
			if (++bad == BAD_MAX)
				return RX_NO_ROOM; /* what is left wakes the queue at once */
			break;
		}
	}
}
