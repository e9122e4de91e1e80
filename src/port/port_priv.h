/* SPDX-License-Identifier: BSD-2-Clause */
/* What the ports share: the table, their arguments, and the list of frames that are ready to go back. */
#ifndef UVHOST_PORT_PORT_PRIV_H
#define UVHOST_PORT_PORT_PRIV_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

#include "port/port.h"

extern const struct port_ops tap_port, null_port, loop_port, hold_port;

/* ---- arguments: key[=value],... ---- */

struct port_arg {
	const char *key, *val; /* not terminated; val is NULL without a '=' */
	size_t key_len, val_len;
};

/* The next argument of *@args, which moves on; false at the end. */
bool port_arg_next(const char **args, struct port_arg *arg);
bool port_arg_is(const struct port_arg *arg, const char *key);
bool port_arg_val_is(const struct port_arg *arg, const char *val);
/* A decimal number up to @max; -EINVAL for anything else. */
int port_arg_uint(const struct port_arg *arg, unsigned max, unsigned *out);

/* ---- operations that several ports share ---- */

#define PORT_OFFLOADS_ALL 0xffu

/* port_ops.caps, .set_offload and .link of ports that take and give everything and never go away. */
unsigned port_caps_all(const struct port *port);
int port_set_offload_any(struct port *port, unsigned offloads);
bool port_link_always(struct port *port, const struct port_events *events);

/* port_ops.prep_recv, .done_recv and .arm_recv of ports that never receive. */
unsigned port_prep_recv_none(struct port *port, struct frame *rooms, unsigned n);
unsigned port_done_recv_none(struct port *port, struct port_rcvd *rcvd, unsigned max);
bool port_arm_recv_never(struct port *port);

/* ---- sent frames that wait for done_send(), in the order of their completion ---- */

struct port_done {
	unsigned head, cnt;
	struct port_sent sent[PORT_OUT_MAX];
};

static inline void port_done_push(struct port_done *d, uint16_t cookie, int32_t res)
{
	assert(d->cnt < PORT_OUT_MAX);
	d->sent[(d->head + d->cnt) % PORT_OUT_MAX] = (struct port_sent){ cookie, res };
	d->cnt++;
}

/* Hands back up to @max; returns how many. */
unsigned port_done_take(struct port_done *d, struct port_sent *sent, unsigned max);

static inline void port_done_clear(struct port_done *d)
{
	d->head = d->cnt = 0;
}

#endif
