/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue: a virtqueue with its doorbells, as one source of a worker uses it.
 *
 * DOC: the kick is an eventfd that is watched and never read: each write to it is an edge. A queue
 * without a kick (NOFD) is looked at every QUEUE_POLL_NS. The call is one operation in the engine's
 * next entry.
 *
 * All functions are for the thread of the queue's worker, between two rounds or from its source,
 * unless they say otherwise.
 */
#ifndef UVHOST_NET_QUEUE_H
#define UVHOST_NET_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "net/counters.h"
#include "ring/vq.h"
#include "work/worker.h"

#define QUEUE_POLL_NS 1000000ULL /* 1 ms */

/* What a ring is started with; the descriptors are borrowed until it is stopped. */
struct queue_cfg {
	const struct mem *mem;
	struct vq_addr addr;
	uint16_t num;
	uint32_t base;
	uint64_t features;
	bool enabled;
	int kick_fd, call_fd, err_fd; /* -1: none */
};

struct queue {
	struct vq vq;
	struct work_src *src;
	char name[48]; /* "device tx", for the log */
	struct io_file kick, call, err;
	bool has_kick, has_call, has_err;
	bool call_owed; /* the engine's array was full */
	bool broken_told;
	bool enabled;
	bool started;         /* written between rounds only */
	bool parked;          /* disabled, and not kicked since: the ring is not in use */
	struct queue_cfg cfg; /* of a parked one */
	struct work_watch kick_watch;
	struct work_timer poll; /* without a kick */
	struct work_timer call_timer;
	uint64_t call_at_ns; /* 0: no call is put off */
	struct queue_counters cnt;
	struct log_limit limit;
	/* A call had to be torn out of a wait that the front end set up. */
	void (*stuck)(void *ctx);
	void *ctx;
};

void queue_init(struct queue *q, struct work_src *src, const char *device, const char *which);

/* Starts the ring, makes its source ready as if kicked, and signals the driver once; a disabled ring
 * only waits for a kick. 0 or -errno of
 * vq_start() and io_file_add(). */
int queue_start(struct queue *q, const struct queue_cfg *cfg);
/* Sends the last call, then forgets the ring and its descriptors. Not while a source's operations are
 * in the engine's array. Harmless on a stopped queue. */
void queue_stop(struct queue *q);
static inline bool queue_running(const struct queue *q)
{
	return vq_running(&q->vq);
}
/* Between a start and its stop; by any thread that has seen those. */
static inline bool queue_started(const struct queue *q)
{
	return q->started;
}

/* Can the ring be used in this turn? Notices memory that went away and a call that broke. */
bool queue_usable(struct queue *q);
/* The ring or the memory behind it cannot be trusted: ignored until it is started again. */
void queue_break(struct queue *q, const char *why);

/* Publishes what was pushed and calls the driver if it wants that. */
void queue_publish(struct queue *q);
/* Publishes now, but puts the call off until it is for @max_cnt chains or @max_ns old. */
void queue_publish_later(struct queue *q, unsigned max_cnt, uint64_t max_ns);
/* Returns the head of @c with @len bytes written; unpublished. */
static inline void queue_return(struct queue *q, const struct vq_chain *c, uint32_t len)
{
	struct vq_done done = { .head = c->head, .seq = c->seq, .len = len };

	vq_push(&q->vq, &done, 1);
}

/* Asks for a kick; true: look again. */
bool queue_arm(struct queue *q);

#endif
