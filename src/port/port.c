// SPDX-License-Identifier: BSD-2-Clause
/* The table of ports, and what they share. */
#include "port/port_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

static const struct port_ops *const ports[] = { &tap_port, &null_port, &loop_port, &hold_port };

const struct port_ops *port_nth(unsigned n)
{
	return n < ARRAY_SIZE(ports) ? ports[n] : NULL;
}

/* The text for a scheme that is none of ours, made from the table once. */
static const char *unknown_scheme(void)
{
	static char text[256];
	size_t len = sizeof("no such port; there are") - 1;

	memcpy(text, "no such port; there are", len + 1);
	for (unsigned i = 0; i < ARRAY_SIZE(ports) && len < sizeof(text); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s %s", i > 0 ? "," : "",
					ports[i]->syntax);
	return text;
}

int port_open(struct port **port, const char *spec, const char *name, struct worker *control,
	      const char **err)
{
	const char *colon = strchr(spec, ':');

	for (unsigned i = 0; colon != NULL && i < ARRAY_SIZE(ports); i++) {
		size_t len = strlen(ports[i]->scheme);

		if (len == (size_t)(colon - spec) && memcmp(spec, ports[i]->scheme, len) == 0)
			return ports[i]->open(port, colon + 1, name, control, err);
	}
	*err = unknown_scheme();
	return -EINVAL;
}

/* ---- arguments ---- */

bool port_arg_next(const char **args, struct port_arg *arg)
{
	size_t len = strcspn(*args, ",");
	const char *eq = memchr(*args, '=', len);

	if (**args == '\0')
		return false;
	*arg = (struct port_arg){ .key = *args, .key_len = len };
	if (eq != NULL) {
		arg->key_len = (size_t)(eq - *args);
		arg->val = eq + 1;
		arg->val_len = len - arg->key_len - 1;
	}
	*args += len;
	if (**args == ',')
		(*args)++;
	return true;
}

bool port_arg_is(const struct port_arg *arg, const char *key)
{
	return arg->key_len == strlen(key) && memcmp(arg->key, key, arg->key_len) == 0;
}

bool port_arg_val_is(const struct port_arg *arg, const char *val)
{
	return arg->val != NULL && arg->val_len == strlen(val) &&
	       memcmp(arg->val, val, arg->val_len) == 0;
}

int port_arg_uint(const struct port_arg *arg, unsigned max, unsigned *out)
{
	uint64_t sum = 0;

	if (arg->val == NULL || arg->val_len == 0)
		return -EINVAL;
	for (size_t i = 0; i < arg->val_len; i++) {
		if (arg->val[i] < '0' || arg->val[i] > '9')
			return -EINVAL;
		sum = sum * 10 + (uint64_t)(arg->val[i] - '0');
		if (sum > max)
			return -EINVAL;
	}
	*out = (unsigned)sum;
	return 0;
}

/* ---- operations that several ports share ---- */

unsigned port_caps_all(const struct port *port)
{
	return PORT_OFFLOADS_ALL;
}

int port_set_offload_any(struct port *port, unsigned offloads)
{
	return (offloads & ~PORT_OFFLOADS_ALL) == 0 ? 0 : -EOPNOTSUPP;
}

bool port_link_always(struct port *port, const struct port_events *events)
{
	return true;
}

unsigned port_prep_recv_none(struct port *port, struct frame *rooms, unsigned n)
{
	return 0;
}

unsigned port_done_recv_none(struct port *port, struct port_rcvd *rcvd, unsigned max)
{
	return 0;
}

bool port_arm_recv_never(struct port *port)
{
	return false;
}

/* ---- sent frames ---- */

unsigned port_done_take(struct port_done *d, struct port_sent *sent, unsigned max)
{
	unsigned n = min_uint(d->cnt, max);

	for (unsigned i = 0; i < n; i++)
		sent[i] = d->sent[(d->head + i) % PORT_OUT_MAX];
	d->head = (d->head + n) % PORT_OUT_MAX;
	d->cnt -= n;
	return n;
}
