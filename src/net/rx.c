// SPDX-License-Identifier: BSD-2-Clause
/* Receive: from the port to the guest's ring. */
#include "net/rx.h"

#include <errno.h>

#include "net/hdr.h"
#include "net/rx_priv.h"

static struct rx *rx_of(struct work_src *src)
{
	return container_of(src, struct rx, src);
}

static bool can_deliver(struct rx *rx)
{
	return rx->q.enabled && queue_usable(&rx->q);
}

/* ---- prepare ---- */

/* What waits goes first. False: it still waits, and so must the port. */
static bool clear_backlog(struct rx *rx, struct work_used *used)
{
	if (rx_backlog_empty(&rx->backlog))
		return true;
	used->bytes += rx_backlog_deliver(rx, &used->frames);
	queue_publish(&rx->q);
	return rx_backlog_empty(&rx->backlog);
}

static struct work_used wait_for_buffers(struct rx *rx, struct work_used used)
{
	rx->starved = true;
	counter_add(&rx->q.cnt.starved, 1);
	return used;
}

/* Buffers that a whole burst takes, as far as the last frames tell. */
static unsigned buffers_wanted(const struct rx *rx)
{
	return rx->burst * ((rx->hdr_len + rx->frame_len) / max_uint(rx->buf_len, 1) + 1);
}

/* As many frames as the round, the turn and the ring have room for, as far as the last ones tell. */
static unsigned burst_size(const struct rx *rx, struct work_room room, unsigned buffers)
{
	uint64_t bytes = min_uint(room.bytes, RX_BURST_BYTES),
		 ring = (uint64_t)buffers * rx->buf_len;
	unsigned cnt = min_uint(min_uint(rx->burst, room.frames), buffers);

	bytes = ring < bytes ? ring : bytes;
	return max_uint(min_uint(cnt, (unsigned)(bytes / (rx->hdr_len + rx->frame_len))), 1);
}

/* Gives the port room for up to @max frames; returns for how many. */
static unsigned give_slots(struct rx *rx, unsigned max)
{
	struct scratch *s = rx->scratch;
	struct frame rooms[SCRATCH_SLOTS];
	unsigned n = min_uint(max, SCRATCH_SLOTS - s->slots_used);

	rx->deferred = n == 0;
	for (unsigned i = 0; i < n; i++) {
		unsigned slot = s->slots_used + i;

		s->slots[slot].iov.iov_len = PORT_ROOM;
		rooms[i] = (struct frame){ .iov = &s->slots[slot].iov,
					   .iov_cnt = 1,
					   .cookie = (uint16_t)slot,
					   .len = PORT_ROOM };
	}
	rx->slot_cnt = n > 0 ? rx->port->ops->prep_recv(rx->port, rooms, n) : 0;
	s->slots_used += rx->slot_cnt;
	return rx->slot_cnt;
}

static struct work_used rx_prepare(struct work_src *src, struct work_room room)
{
	struct rx *rx = rx_of(src);
	struct work_used used = { 0 };
	int buffers;

	rx->starved = rx->deferred = false;
	rx->slot_cnt = 0;
	scratch_enter(rx->scratch, worker_round(src->worker));
	if (rx->discarding) {
		used.frames = give_slots(rx, min_uint(rx->burst, room.frames));
		return used;
	}
	if (!can_deliver(rx))
		return used;
	vq_kick_off(&rx->q.vq);
	if (!clear_backlog(rx, &used))
		return wait_for_buffers(rx, used);
	buffers = vq_pending(&rx->q.vq, buffers_wanted(rx));
	if (buffers < 0)
		queue_break(&rx->q, "the guest broke its receive ring");
	if (buffers <= 0)
		return wait_for_buffers(rx, used);
	used.frames += give_slots(rx, burst_size(rx, room, (unsigned)buffers));
	return used;
}

/* ---- harvest ---- */

/* To the guest, else to the backlog, behind which all later ones queue up. */
static void deliver_or_keep(struct rx *rx, struct rx_frame *f)
{
	if (!rx_backlog_empty(&rx->backlog) || rx_deliver(rx, f) == RX_NO_ROOM)
		rx_backlog_add(&rx->backlog, f);
}

static void take_frame(struct rx *rx, const struct port_rcvd *rcvd)
{
	struct rx_frame f = { .data = rx->scratch->slots[rcvd->cookie].iov.iov_base,
			      .len = (uint32_t)rcvd->res,
			      .off = rcvd->off };

	if (rcvd->res < 0) {
		count_drop(&rx->q.cnt, drop_of_errno(rcvd->res));
		return;
	}
	rx->frame_len = max_uint(rx->frame_len, f.len);
	if (rx->discarding)
		count_drop(&rx->q.cnt, DROP_STALE);
	else
		deliver_or_keep(rx, &f);
}

/* Twice as many reads when all found a frame, half as many when few did: an empty one costs, too. */
static void adapt_burst(struct rx *rx, unsigned got)
{
	if (got == rx->burst)
		rx->burst = min_uint(rx->burst * 2, RX_BURST_MAX);
	else if (got < rx->slot_cnt / 2)
		rx->burst = max_uint(rx->burst / 2, RX_BURST_MIN);
}

/* Takes what the port received; returns how many frames. */
static unsigned take_frames(struct rx *rx, unsigned *bytes)
{
	struct port_rcvd rcvd[PORT_RCVD_MAX];
	unsigned n = rx->port->ops->done_recv(rx->port, rcvd, PORT_RCVD_MAX);

	if (n > 0)
		rx->frame_len = 0;
	for (unsigned i = 0; i < n; i++) {
		take_frame(rx, &rcvd[i]);
		*bytes += rcvd[i].res > 0 ? (unsigned)rcvd[i].res : 0;
	}
	adapt_burst(rx, n);
	return n;
}

static struct work_used rx_harvest(struct work_src *src)
{
	struct rx *rx = rx_of(src);
	struct work_used used = { 0 };
	unsigned frames = 0;

	if (rx->slot_cnt > 0)
		frames = take_frames(rx, &used.bytes);
	if (queue_running(&rx->q))
		queue_publish(&rx->q);
	if (rx->discarding && worker_now(src->worker) >= rx->discard_until_ns)
		rx->discarding = false; /* a flood: these are for the new guest */
	if (rx->deferred || (frames > 0 && frames == rx->slot_cnt)) {
		used.more = true;
	} else if (rx->discarding) {
		rx->discarding = false; /* the port is empty */
		used.more = true;
	} else if (!rx->starved && can_deliver(rx)) {
		used.more = !rx_backlog_empty(&rx->backlog) || rx->port->ops->arm_recv(rx->port);
	}
	return used;
}

/* Of the two things that it can wait for, memory shows only buffers. */
static bool rx_peek(struct work_src *src)
{
	struct rx *rx = rx_of(src);

	return rx->starved && queue_running(&rx->q) && vq_peek(&rx->q.vq);
}

static bool rx_arm(struct work_src *src)
{
	struct rx *rx = rx_of(src);

	return rx->starved && queue_arm(&rx->q);
}

/* ---- life ---- */

static const struct work_ops rx_ops = {
	.prepare = rx_prepare,
	.harvest = rx_harvest,
	.peek = rx_peek,
	.arm = rx_arm,
};

int rx_init(struct rx *rx, struct worker *w, const char *device)
{
	work_src_init(&rx->src, w, &rx_ops);
	queue_init(&rx->q, &rx->src, device, "rx");
	rx->burst = RX_BURST_MIN;
	rx->buf_len = VIRTIO_NET_FRAME_MAX;
	return rx_backlog_init(&rx->backlog);
}

void rx_fini(struct rx *rx)
{
	rx_backlog_fini(&rx->backlog);
}

int rx_start(struct rx *rx, const struct queue_cfg *cfg)
{
	rx->hdr_len = hdr_len(cfg->features);
	rx->mergeable = (cfg->features >> VIRTIO_NET_F_MRG_RXBUF) & 1;
	rx->never_need = UINT32_MAX;
	return queue_start(&rx->q, cfg);
}

void rx_stop(struct rx *rx)
{
	queue_stop(&rx->q);
}

void rx_forget(struct rx *rx)
{
	for (unsigned n = rx_backlog_clear(&rx->backlog); n > 0; n--)
		count_drop(&rx->q.cnt, DROP_STALE);
}

void rx_discard(struct rx *rx)
{
	rx->discarding = true;
	rx->discard_until_ns = worker_now(rx->src.worker) + RX_DISCARD_NS;
	work_src_ready(&rx->src);
}
