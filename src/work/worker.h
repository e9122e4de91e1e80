/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker: one thread that runs the sources which are ready, in rounds.
 *
 * DOC: a *source* is something that has work now and then: a queue's tx or rx, a listening socket.
 * A *round* is one entry into the kernel: the worker takes the sources at the head of the run list
 * while the round's budget of operations and bytes lasts, lets each prepare its operations, enters
 * the engine once, and lets each harvest. A *turn* is a source's time at the head of the list, over
 * one round or several; it ends when the source has no more work or when the turn has reached its
 * packet weight or byte weight, whatever happened to the packets: the source then goes to the tail.
 *
 * A source without work stays *awake* for the worker's poll window, in which the worker looks at it
 * in memory only (peek); then it is armed: from there on a kick, a file or a timer makes it ready.
 * Whatever happens only marks a source ready; nothing else calls into it.
 *
 * All functions are for the worker's own thread (or before it starts) unless they say otherwise.
 */
#ifndef UVHOST_WORK_WORKER_H
#define UVHOST_WORK_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "io/io.h"

struct worker;
struct work_src;

/* What is left of a round. */
struct work_room {
	unsigned frames; /* one operation each */
	unsigned bytes;
};

/* What a source took: of the round's room, and towards its weights. */
struct work_used {
	unsigned frames; /* dropped, failed and empty ones count */
	unsigned bytes;
	bool more; /* there is, or may be, more work: run again */
};

struct work_ops {
	/* Reserves operations in the engine, within @room; returns what it took. */
	struct work_used (*prepare)(struct work_src *src, struct work_room room);
	/* After the entry: takes the results; what it returns adds to the turn's weight and says whether
	 * there is more. NULL: prepare() has said all. */
	struct work_used (*harvest)(struct work_src *src);
	/* In the poll window: does memory show new work? NULL: there is no window. */
	bool (*peek)(struct work_src *src);
	/* Before the source sleeps: ask to be woken. True: look again, work came meanwhile. NULL: no. */
	bool (*arm)(struct work_src *src);
};

enum work_state { WORK_ASLEEP, WORK_READY, WORK_AWAKE };

struct work_src {
	const struct work_ops *ops;
	struct worker *worker;
	struct list node; /* in the list of its state */
	enum work_state state;
	bool more;
	bool again; /* made ready since it prepared */
	unsigned turn_frames, turn_bytes;
	uint64_t awake_until_ns;
};

void work_src_init(struct work_src *src, struct worker *w, const struct work_ops *ops);
/* Marks the source ready: it runs in this round or the next. */
void work_src_ready(struct work_src *src);
/* Takes the source out of all lists; it may be freed when its own prepare() has returned. */
void work_src_remove(struct work_src *src);

/* A watch of the engine that makes its source ready. */
struct work_watch {
	struct io_watch io;
	struct work_src *src;
};

/* Watches @file for @src, once armed with io_watch_arm(&ww->io). */
void work_watch_init(struct work_watch *ww, struct work_src *src, struct io_file *file,
		     uint32_t events, bool multishot);

/* A timer that makes its source ready, once. */
struct work_timer {
	struct work_src *src;
	uint64_t at_ns; /* CLOCK_MONOTONIC */
	struct list node;
};

void work_timer_init(struct work_timer *t, struct work_src *src);
/* (Re)sets the timer. */
void work_timer_set(struct work_timer *t, uint64_t at_ns);
void work_timer_stop(struct work_timer *t);
static inline bool work_timer_pending(const struct work_timer *t)
{
	return !list_empty(&t->node);
}

/* A call into a worker's thread: @fn runs there between two rounds, in the order of posting. */
struct work_msg {
	void (*fn)(struct work_msg *msg);
	struct work_msg *next;
};

/* Runs fn(@arg) in the worker's thread between two rounds and returns when it has run, at most a round
 * later. Any thread but the worker's own; no worker waits for the caller's thread. */
void worker_call(struct worker *w, void (*fn)(void *arg), void *arg);

/* Any thread. @msg belongs to the worker until @fn has begun, to @fn's owner from there on. */
void worker_post(struct worker *w, struct work_msg *msg);

struct work_config {
	const char *name;
	enum io_kind io;
	uint64_t poll_ns;       /* poll window, 0: none */
	unsigned weight_frames; /* 0: no limit */
	unsigned weight_bytes;  /* 0: no limit */
};

/* Weights of a turn (the kernel's vhost-net has the same) and of a round. */
#define WORK_WEIGHT_FRAMES 256
#define WORK_WEIGHT_BYTES  (512 * 1024)
#define WORK_ROUND_BYTES   (1024 * 1024)
#define WORK_ROUND_SRCS    128

/* Makes a worker for the calling thread; io errors as io_new(). */
int worker_new(struct worker **out, const struct work_config *cfg);
void worker_free(struct worker *w);
/* Runs rounds until worker_stop(). 0, or -errno when the engine broke. */
int worker_run(struct worker *w);
/* Ends worker_run() after the current round. Any thread. */
void worker_stop(struct worker *w);

/* Makes a worker and runs it in a thread of its own; returns when it is up. Joined by worker_join(),
 * which stops and frees it. The caller's thread. */
int worker_spawn(struct worker **out, const struct work_config *cfg);
void worker_join(struct worker *w);

struct io *worker_io(struct worker *w);
/* The time when this round began: good enough for windows and deadlines. */
uint64_t worker_now(const struct worker *w);
/* Counts rounds: tells scratch memory that the round it was filled in is over. */
uint64_t worker_round(const struct worker *w);

#endif
