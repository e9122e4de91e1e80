// SPDX-License-Identifier: BSD-2-Clause
/* What a queue counts, as JSON. */
#include "net/counters.h"

#include <errno.h>

static const char *const drop_names[DROP_CNT] = {
	[DROP_BAD_CHAIN] = "bad_chain",
	[DROP_BAD_HEADER] = "bad_header",
	[DROP_NOT_NEGOTIATED] = "not_negotiated",
	[DROP_TOO_BIG] = "too_big",
	[DROP_DISABLED] = "disabled",
	[DROP_PORT_FULL] = "port_full",
	[DROP_PORT_DOWN] = "port_down",
	[DROP_PORT_ERROR] = "port_error",
	[DROP_FAULT] = "fault",
	[DROP_ABANDONED] = "abandoned",
	[DROP_STALE] = "stale",
};

enum net_drop drop_of_errno(int err)
{
	switch (err) {
	case 0:
		return DROP_NONE;
	case -EAGAIN:
	case -ENOBUFS:
	case -ENOMEM:
		return DROP_PORT_FULL;
	case -EIO:
	case -ENODEV:
	case -EBADFD:
	case -ENETDOWN:
		return DROP_PORT_DOWN;
	case -EMSGSIZE:
		return DROP_TOO_BIG;
	case -EOPNOTSUPP:
		return DROP_NOT_NEGOTIATED;
	case -EFAULT:
		return DROP_FAULT;
	default:
		return DROP_PORT_ERROR;
	}
}

static void set_counter(json_t *obj, const char *key, const struct counter *c)
{
	json_object_set_new(obj, key, json_integer((json_int_t)counter_get(c)));
}

json_t *counters_json(const struct queue_counters *c)
{
	json_t *obj = json_object(), *drops = json_object();

	set_counter(obj, "frames", &c->frames);
	set_counter(obj, "bytes", &c->bytes);
	set_counter(obj, "calls", &c->calls);
	set_counter(obj, "starved", &c->starved);
	for (int i = DROP_NONE + 1; i < DROP_CNT; i++)
		set_counter(drops, drop_names[i], &c->drops[i]);
	json_object_set_new(obj, "drops", drops);
	return obj;
}
