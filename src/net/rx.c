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

static struct work_used rx_prepare(struct work_src *src, struct work_room room)
{
	struct rx *rx = rx_of(src);
	struct work_used used = { 0 };
	unsigned max = min_uint(rx->burst, room.frames);
	int pending;

	rx->starved = rx->deferred = false;
	scratch_enter(rx->scratch, worker_round(src->worker));
	if (rx->discarding) {
		used.frames = rx_slots_prepare(rx, max);
		return used;
	}
	if (!can_deliver(rx))
		return used;
	vq_kick_off(&rx->q.vq);
	if (!clear_backlog(rx, &used))
		return wait_for_buffers(rx, used);
	pending = vq_pending(&rx->q.vq);
	if (pending < 0)
		queue_break(&rx->q, "the guest broke its receive ring");
	if (pending <= 0)
		return wait_for_buffers(rx, used);
	if (rx->direct && rx_direct_prepare(rx) == 1) {
		used.frames++;
		return used;
	}
	/* With large frames about and no room for the largest, one at a time can always be kept. */
	max = rx->direct ? 1 : min_uint(max, (unsigned)pending);
	used.frames += rx_slots_prepare(rx, max);
	return used;
}

/* ---- harvest ---- */

static struct work_used rx_harvest(struct work_src *src)
{
	struct rx *rx = rx_of(src);
	struct work_used used = { 0 };
	unsigned frames = 0;

	if (rx->chain_cnt > 0)
		used.bytes = rx_direct_harvest(rx, &frames);
	else if (rx->slot_cnt > 0)
		used.bytes = rx_slots_harvest(rx, &frames);
	if (queue_running(&rx->q))
		queue_publish(&rx->q);
	if (frames > 0) {
		used.more = true;
	} else if (rx->discarding) {
		rx->discarding = false;
		used.more = true;
	} else if (!rx->starved && can_deliver(rx)) {
		used.more = rx->deferred || rx->port->ops->arm_recv(rx->port);
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
	work_src_ready(&rx->src);
}
