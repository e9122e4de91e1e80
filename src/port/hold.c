// SPDX-License-Identifier: BSD-2-Clause
/*
 * hold: keeps the buffers of every frame for a while, as a network card or a zero-copy socket does,
 * and hands them back late, in order or shuffled.
 *
 * DOC: this is the port that finds out who believes that a sent frame is finished at once, in order
 * or as a prefix. It reads a buffer only when it hands it back, like a card that reads late: memory
 * that went away meanwhile is found by the address sanitizer or by a signal. Frames in more pieces
 * than HOLD_PIECES are copied by such hardware and sockets, and are therefore back at once.
 */
#include "port/port_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define HOLD_PIECES 18 /* a header and MAX_SKB_FRAGS pages */
#define HOLD_MS_MAX (24 * 3600 * 1000)

struct held {
	uint64_t due_ns;
	uint16_t cookie, iov_cnt;
	struct iovec iov[HOLD_PIECES];
};

struct hold {
	struct port port;
	struct worker *worker;
	uint64_t hold_ns;
	bool shuffled;
	uint32_t random;
	unsigned head, cnt;           /* of queue[], in the order in which frames fall due */
	uint16_t queue[PORT_OUT_MAX]; /* a permutation: the slots in use, then the free ones */
	struct held slots[PORT_OUT_MAX];
	struct port_done done;
	struct work_timer timer;
	uint8_t sum; /* of what was read; only its computation matters */
};

static struct hold *to_hold(struct port *port)
{
	return container_of(port, struct hold, port);
}

/* Fills in what @args say; NULL, or what is wrong with them. */
static const char *parse_args(struct hold *h, const char *args)
{
	bool has_ms = false;
	struct port_arg arg;
	unsigned ms;

	while (port_arg_next(&args, &arg)) {
		if (port_arg_is(&arg, "ms")) {
			if (port_arg_uint(&arg, HOLD_MS_MAX, &ms) < 0)
				return "hold: ms is a number of milliseconds, at most a day";
			h->hold_ns = ms * NSEC_PER_MSEC;
			has_ms = true;
		} else if (port_arg_is(&arg, "order")) {
			h->shuffled = port_arg_val_is(&arg, "random");
			if (!h->shuffled && !port_arg_val_is(&arg, "fifo"))
				return "hold: order is fifo or random";
		} else {
			return "hold: unknown key; it takes ms=N and order=fifo|random";
		}
	}
	return has_ms ? NULL : "hold: needs ms=N, the milliseconds to keep each frame";
}

static int hold_open(struct port **port, const char *args, const char *name, struct worker *control,
		     const char **err)
{
	struct hold *h = calloc(1, sizeof(*h));

	if (h == NULL) {
		*err = "out of memory";
		return -ENOMEM;
	}
	*err = parse_args(h, args);
	if (*err != NULL) {
		free(h);
		return -EINVAL;
	}
	h->port = (struct port){ .ops = &hold_port, .name = name };
	h->random = 1; /* tests want the same order each time */
	for (uint16_t i = 0; i < PORT_OUT_MAX; i++)
		h->queue[i] = i;
	*port = &h->port;
	return 0;
}

static void hold_close(struct port *port)
{
	free(to_hold(port));
}

static int hold_attach(struct port *port, struct worker *w, struct work_src *tx,
		       struct work_src *rx)
{
	struct hold *h = to_hold(port);

	h->worker = w;
	work_timer_init(&h->timer, tx);
	return 0;
}

static void hold_abandon(struct port *port)
{
	struct hold *h = to_hold(port);

	h->head = (h->head + h->cnt) % PORT_OUT_MAX;
	h->cnt = 0;
	port_done_clear(&h->done);
	work_timer_stop(&h->timer);
}

static struct held *nth_held(struct hold *h, unsigned n)
{
	return &h->slots[h->queue[(h->head + n) % PORT_OUT_MAX]];
}

static unsigned hold_prep_send(struct port *port, struct frame *frames, unsigned n)
{
	struct hold *h = to_hold(port);
	uint64_t due_ns = worker_now(h->worker) + h->hold_ns;

	n = min_uint(n, PORT_OUT_MAX - h->cnt - h->done.cnt);
	for (unsigned i = 0; i < n; i++) {
		struct held *held = nth_held(h, h->cnt);

		if (frames[i].iov_cnt > HOLD_PIECES) {
			port_done_push(&h->done, frames[i].cookie, 0);
			continue;
		}
		held->due_ns = due_ns;
		held->cookie = frames[i].cookie;
		held->iov_cnt = frames[i].iov_cnt;
		memcpy(held->iov, frames[i].iov, frames[i].iov_cnt * sizeof(held->iov[0]));
		h->cnt++;
	}
	if (h->cnt > 0 && !work_timer_pending(&h->timer))
		work_timer_set(&h->timer, nth_held(h, 0)->due_ns);
	return n;
}

static uint32_t next_random(struct hold *h)
{
	/* xorshift32 */
	h->random ^= h->random << 13;
	h->random ^= h->random >> 17;
	h->random ^= h->random << 5;
	return h->random;
}

/* Held frames whose time is over: they are at the head, since all are held for the same time. */
static unsigned count_due(struct hold *h)
{
	uint64_t now_ns = worker_now(h->worker);
	unsigned n = 0;

	while (n < h->cnt && nth_held(h, n)->due_ns <= now_ns)
		n++;
	return n;
}

/* Swaps slots so that one of the @due first frames, by lot, is at the head. */
static void shuffle_head(struct hold *h, unsigned due)
{
	unsigned other = (h->head + next_random(h) % due) % PORT_OUT_MAX;
	uint16_t slot = h->queue[h->head];

	h->queue[h->head] = h->queue[other];
	h->queue[other] = slot;
}

static void read_late(struct hold *h, const struct held *held)
{
	for (unsigned i = 0; i < held->iov_cnt; i++) {
		const volatile uint8_t *p = held->iov[i].iov_base;

		for (size_t at = 0; at < held->iov[i].iov_len; at++)
			h->sum += p[at];
	}
}

static unsigned hold_done_send(struct port *port, struct port_sent *sent, unsigned max)
{
	struct hold *h = to_hold(port);
	unsigned n = port_done_take(&h->done, sent, max);

	for (unsigned due = count_due(h); due > 0 && n < max; due--) {
		struct held *held;

		if (h->shuffled)
			shuffle_head(h, due);
		held = nth_held(h, 0);
		read_late(h, held);
		sent[n++] = (struct port_sent){ held->cookie, 0 };
		h->head = (h->head + 1) % PORT_OUT_MAX;
		h->cnt--;
	}
	/* A time that is over already makes tx ready at once: the caller had no room for all. */
	if (h->cnt > 0)
		work_timer_set(&h->timer, nth_held(h, 0)->due_ns);
	else
		work_timer_stop(&h->timer);
	return n;
}

const struct port_ops hold_port = {
	.scheme = "hold",
	.syntax = "hold:ms=N[,order=fifo|random]",
	.open = hold_open,
	.close = hold_close,
	.caps = port_caps_all,
	.set_offload = port_set_offload_any,
	.link = port_link_always,
	.attach = hold_attach,
	.detach = hold_abandon,
	.prep_send = hold_prep_send,
	.done_send = hold_done_send,
	.abandon = hold_abandon,
	.prep_recv = port_prep_recv_none,
	.done_recv = port_done_recv_none,
	.arm_recv = port_arm_recv_never,
};
