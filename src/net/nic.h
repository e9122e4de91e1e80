/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A NIC: a receive, a transmit and a control queue in front of a port.
 *
 * DOC: rx and tx are sources of one worker, the control queue is a source of the control thread. The
 * control thread changes what a queue uses only while it is stopped: nic_quiesce() stops queues, and
 * what was changed takes effect with nic_start(). Every call into the worker is executed between two
 * of its rounds and has returned before the caller goes on, so neither side needs a lock.
 *
 * All functions are the control thread's.
 */
#ifndef UVHOST_NET_NIC_H
#define UVHOST_NET_NIC_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/queue.h"
#include "net/scratch.h"
#include "port/port.h"
#include "work/worker.h"

/* Virtqueues by index (virtio 1.2, section 5.1.2). */
enum nic_ring { NIC_RX, NIC_TX, NIC_CTRL, NIC_RINGS };

struct nic;

struct nic_cfg {
	const char *name;
	struct port *port; /* borrowed */
	struct worker *worker, *control;
	struct scratch *scratch;     /* the worker's */
	struct vq_iovs *pieces;      /* the control thread's */
	uint64_t drain_ns;           /* how long a stop waits for frames that the port has */
	void (*quiesced)(void *ctx); /* ends a nic_quiesce() that was not done at once */
	void (*stuck)(void *ctx);    /* the front end made the worker wait in a call */
	void *ctx;
};

/* The worker must be running. 0 or -errno. */
int nic_new(struct nic **out, const struct nic_cfg *cfg);
/* All rings are quiesced. */
void nic_free(struct nic *nic);

/* Starts a stopped ring; errors as queue_start(). */
int nic_start(struct nic *nic, enum nic_ring ring, const struct queue_cfg *cfg);
/* Stops the rings in the bit mask @rings. 0: done; -EINPROGRESS: cfg.quiesced will be called, at the
 * latest shortly after the drain deadline; no other call into the NIC before that. */
int nic_quiesce(struct nic *nic, unsigned rings);
bool nic_running(const struct nic *nic, enum nic_ring ring);
/* The next avail index of a ring that was quiesced. */
uint32_t nic_position(const struct nic *nic, enum nic_ring ring);

/* The guest acked these port_offload bits; all rings are quiesced. 0 or -errno of the port. */
int nic_set_offload(struct nic *nic, unsigned offloads);

/* A front end has connected: what the port received before is not for its guest. */
void nic_guest_comes(struct nic *nic);
/* It has gone; all rings are quiesced. */
void nic_guest_goes(struct nic *nic);

/* {"rx": {...}, "tx": {...}, "control": {...}}: a new reference. */
json_t *nic_stats(const struct nic *nic);

#endif
