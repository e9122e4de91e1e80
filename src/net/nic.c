// SPDX-License-Identifier: BSD-2-Clause
/* A NIC: three queues in front of a port. */
#include "net/nic.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "net/ctrlq.h"
#include "net/rx.h"
#include "net/tx.h"

struct nic {
	struct nic_cfg cfg;
	struct rx rx;
	struct tx tx;
	struct ctrlq ctrl;
	struct work_msg quiesced, stuck; /* to the control thread */
	atomic_bool stuck_posted;
};

static const struct queue *queue_at(const struct nic *nic, enum nic_ring ring)
{
	switch (ring) {
	case NIC_RX:
		return &nic->rx.q;
	case NIC_TX:
		return &nic->tx.q;
	default:
		return &nic->ctrl.q;
	}
}

/* ---- calls into the worker: one struct for their arguments and results ---- */

struct nic_call {
	struct nic *nic;
	enum nic_ring ring;
	const struct queue_cfg *cfg;
	unsigned rings;
	int rc;
};

static int call_worker(struct nic *nic, void (*fn)(void *arg), struct nic_call *call)
{
	call->nic = nic;
	worker_call(nic->cfg.worker, fn, call);
	return call->rc;
}

static void attach_in_worker(void *arg)
{
	struct nic_call *call = arg;
	struct nic *nic = call->nic;

	call->rc = nic->cfg.port->ops->attach(nic->cfg.port, nic->cfg.worker, &nic->tx.src,
					      &nic->rx.src);
}

static void detach_in_worker(void *arg)
{
	struct nic *nic = ((struct nic_call *)arg)->nic;

	nic->cfg.port->ops->detach(nic->cfg.port);
	work_src_remove(&nic->rx.src);
	work_src_remove(&nic->tx.src);
}

static void start_in_worker(void *arg)
{
	struct nic_call *call = arg;

	call->rc = call->ring == NIC_RX ? rx_start(&call->nic->rx, call->cfg) :
					  tx_start(&call->nic->tx, call->cfg);
}

static void quiesce_in_worker(void *arg)
{
	struct nic_call *call = arg;

	if (call->rings & 1U << NIC_RX)
		rx_stop(&call->nic->rx);
	if (call->rings & 1U << NIC_TX &&
	    !tx_stop(&call->nic->tx, clock_ns() + call->nic->cfg.drain_ns))
		call->rc = -EINPROGRESS;
}

static void discard_in_worker(void *arg)
{
	rx_discard(&((struct nic_call *)arg)->nic->rx);
}

static void forget_in_worker(void *arg)
{
	rx_forget(&((struct nic_call *)arg)->nic->rx);
}

/* ---- the end of a stop that had to wait ---- */

static void tx_stopped(void *ctx)
{
	struct nic *nic = ctx;

	worker_post(nic->cfg.control, &nic->quiesced);
}

static void quiesced_in_control(struct work_msg *msg)
{
	struct nic *nic = container_of(msg, struct nic, quiesced);

	nic->cfg.quiesced(nic->cfg.ctx);
}

/* ---- a front end that would make us wait ---- */

static void queue_stuck(void *ctx)
{
	struct nic *nic = ctx;

	if (!atomic_exchange(&nic->stuck_posted, true))
		worker_post(nic->cfg.control, &nic->stuck);
}

static void stuck_in_control(struct work_msg *msg)
{
	struct nic *nic = container_of(msg, struct nic, stuck);

	atomic_store(&nic->stuck_posted, false);
	nic->cfg.stuck(nic->cfg.ctx);
}

/* ---- life ---- */

int nic_new(struct nic **out, const struct nic_cfg *cfg)
{
	struct nic *nic = calloc(1, sizeof(*nic));
	struct nic_call call = { 0 };
	int rc;

	if (nic == NULL)
		return -ENOMEM;
	nic->cfg = *cfg;
	nic->quiesced.fn = quiesced_in_control;
	nic->stuck.fn = stuck_in_control;
	rc = rx_init(&nic->rx, cfg->worker, cfg->name);
	if (rc < 0)
		goto err_free;
	tx_init(&nic->tx, cfg->worker, cfg->name);
	ctrlq_init(&nic->ctrl, cfg->control, cfg->name, cfg->pieces);
	nic->rx.port = nic->tx.port = cfg->port;
	nic->rx.scratch = nic->tx.scratch = cfg->scratch;
	nic->rx.q.stuck = nic->tx.q.stuck = nic->ctrl.q.stuck = queue_stuck;
	nic->rx.q.ctx = nic->tx.q.ctx = nic->ctrl.q.ctx = nic;
	nic->tx.stopped = tx_stopped;
	nic->tx.stopped_ctx = nic;
	rc = call_worker(nic, attach_in_worker, &call);
	if (rc < 0)
		goto err_rx;
	*out = nic;
	return 0;

err_rx:
	rx_fini(&nic->rx);
err_free:
	free(nic);
	return rc;
}

void nic_free(struct nic *nic)
{
	struct nic_call call = { 0 };

	call_worker(nic, detach_in_worker, &call);
	work_src_remove(&nic->ctrl.src);
	rx_fini(&nic->rx);
	free(nic);
}

int nic_start(struct nic *nic, enum nic_ring ring, const struct queue_cfg *cfg)
{
	struct nic_call call = { .ring = ring, .cfg = cfg };

	assert(!nic_running(nic, ring));
	if (ring == NIC_CTRL)
		return queue_start(&nic->ctrl.q, cfg);
	return call_worker(nic, start_in_worker, &call);
}

int nic_quiesce(struct nic *nic, unsigned rings)
{
	struct nic_call call = { .rings = 0 };

	for (unsigned r = 0; r < NIC_RINGS; r++) {
		if (rings & 1U << r && nic_running(nic, r))
			call.rings |= 1U << r;
	}
	if (call.rings & 1U << NIC_CTRL)
		queue_stop(&nic->ctrl.q);
	if ((call.rings & (1U << NIC_RX | 1U << NIC_TX)) == 0)
		return 0;
	return call_worker(nic, quiesce_in_worker, &call);
}

bool nic_running(const struct nic *nic, enum nic_ring ring)
{
	return queue_started(queue_at(nic, ring));
}

uint32_t nic_position(const struct nic *nic, enum nic_ring ring)
{
	return vq_base(&queue_at(nic, ring)->vq);
}

int nic_set_offload(struct nic *nic, unsigned offloads)
{
	nic->rx.offloads = nic->tx.offloads = offloads;
	return nic->cfg.port->ops->set_offload(nic->cfg.port, offloads);
}

void nic_guest_comes(struct nic *nic)
{
	struct nic_call call = { 0 };

	call_worker(nic, discard_in_worker, &call);
}

void nic_guest_goes(struct nic *nic)
{
	struct nic_call call = { 0 };

	call_worker(nic, forget_in_worker, &call);
}

json_t *nic_stats(const struct nic *nic)
{
	json_t *control = counters_json(&nic->ctrl.q.cnt);

	json_object_set_new(control, "commands_ok",
			    json_integer((json_int_t)counter_get(&nic->ctrl.ok)));
	json_object_set_new(control, "commands_refused",
			    json_integer((json_int_t)counter_get(&nic->ctrl.refused)));
	return json_pack("{s:o, s:o, s:o}", "rx", counters_json(&nic->rx.q.cnt), "tx",
			 counters_json(&nic->tx.q.cnt), "control", control);
}
