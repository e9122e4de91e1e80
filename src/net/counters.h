/* SPDX-License-Identifier: BSD-2-Clause */
/* What a queue counts. One thread writes a counter, any thread may read it. */
#ifndef UVHOST_NET_COUNTERS_H
#define UVHOST_NET_COUNTERS_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdint.h>

struct counter {
	_Atomic uint64_t v;
};

/* A single writer needs no atomic addition, only a store that no reader sees in halves. */
static inline void counter_add(struct counter *c, uint64_t n)
{
	atomic_store_explicit(&c->v, atomic_load_explicit(&c->v, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline uint64_t counter_get(const struct counter *c)
{
	return atomic_load_explicit(&c->v, memory_order_relaxed);
}

/* Why a frame was lost; the names are those of the JSON. */
enum net_drop {
	DROP_NONE,
	DROP_BAD_CHAIN,  /* descriptors that break the rules */
	DROP_BAD_HEADER, /* shorter than the header, or header fields that contradict the frame */
	DROP_NOT_NEGOTIATED, /* needs an offload that the receiver did not ack */
	DROP_TOO_BIG,        /* larger than any frame, or than the guest's buffer can hold */
	DROP_DISABLED,       /* tx on a disabled ring */
	DROP_PORT_FULL,      /* the port's queue is full */
	DROP_PORT_DOWN,      /* the port's link is down or its device gone */
	DROP_PORT_ERROR,     /* the port refused the frame */
	DROP_FAULT,          /* guest memory went away under the frame */
	DROP_ABANDONED,      /* still with the port at the drain deadline */
	DROP_STALE,          /* arrived while no guest was there */
	DROP_CNT,
};

struct queue_counters {
	struct counter frames, bytes;
	struct counter calls;   /* interrupts sent */
	struct counter starved; /* rx: times it waited for buffers */
	struct counter drops[DROP_CNT];
};

static inline void count_frame(struct queue_counters *c, uint64_t bytes)
{
	counter_add(&c->frames, 1);
	counter_add(&c->bytes, bytes);
}

static inline void count_drop(struct queue_counters *c, enum net_drop why)
{
	counter_add(&c->drops[why], 1);
}

/* The drop that a port's -errno stands for. */
enum net_drop drop_of_errno(int err);

/* {"frames": n, ..., "drops": {"bad_chain": n, ...}}; a new reference, NULL without memory. */
json_t *counters_json(const struct queue_counters *c);

#endif
