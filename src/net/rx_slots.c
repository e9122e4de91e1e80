// SPDX-License-Identifier: BSD-2-Clause
/* Receive through slots: a burst of reads into the worker's scratch, then one copy to the guest. */
#include "net/rx_priv.h"

unsigned rx_slots_prepare(struct rx *rx, unsigned max)
{
	struct scratch *s = rx->scratch;
	struct frame rooms[SCRATCH_SLOTS];
	unsigned n = min_uint(max, SCRATCH_SLOTS - s->slots_used);

	rx->deferred = n == 0;
	rx->first_slot = s->slots_used;
	for (unsigned i = 0; i < n; i++) {
		struct scratch_slot *slot = &s->slots[rx->first_slot + i];

		slot->iov.iov_len = SCRATCH_ROOM;
		rooms[i] = (struct frame){ .iov = &slot->iov,
					   .iov_cnt = 1,
					   .cookie = (uint16_t)(rx->first_slot + i),
					   .len = SCRATCH_ROOM };
	}
	rx->slot_cnt = n > 0 ? rx->port->ops->prep_recv(rx->port, rooms, n) : 0;
	s->slots_used += rx->slot_cnt;
	return rx->slot_cnt;
}

/* To the guest, else to the backlog, behind which all later ones queue up. */
static void deliver_or_keep(struct rx *rx, struct rx_frame *f)
{
	if (rx_backlog_empty(&rx->backlog) && rx_deliver(rx, f) == RX_DONE)
		return;
	if (!rx_backlog_add(&rx->backlog, f))
		count_drop(&rx->q.cnt, DROP_NO_BUFFER);
}

/* Twice as many reads when all found a frame, half as many when few did: an empty one costs, too. */
static void adapt_burst(struct rx *rx, unsigned got)
{
	if (got == rx->burst)
		rx->burst = min_uint(rx->burst * 2, RX_BURST_MAX);
	else if (got < rx->burst / 2)
		rx->burst = max_uint(rx->burst / 2, RX_BURST_MIN);
}

unsigned rx_slots_harvest(struct rx *rx, unsigned *frames)
{
	struct port_rcvd rcvd[PORT_RCVD_MAX];
	unsigned n = rx->port->ops->done_recv(rx->port, rcvd, PORT_RCVD_MAX);
	unsigned bytes = 0;

	for (unsigned i = 0; i < n; i++) {
		struct rx_frame f = { .data = rx->scratch->slots[rcvd[i].cookie].iov.iov_base,
				      .off = rcvd[i].off };

		if (rcvd[i].res < 0) {
			count_drop(&rx->q.cnt, drop_of_errno(rcvd[i].res));
			continue;
		}
		f.len = (uint32_t)rcvd[i].res;
		bytes += f.len;
		rx->direct |= f.len >= RX_LARGE;
		if (rx->discarding)
			count_drop(&rx->q.cnt, DROP_STALE);
		else
			deliver_or_keep(rx, &f);
	}
	adapt_burst(rx, n);
	rx->slot_cnt = 0;
	*frames += n;
	return bytes;
}
