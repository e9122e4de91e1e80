// SPDX-License-Identifier: BSD-2-Clause
/*
 * null: takes every frame, copies it once as a device would, and never gives any. null:check also
 * verifies probe frames (base/probe_frame.h): those that are damaged or not the next one come back
 * with -EBADMSG. Frames of other kinds pass unseen, since real guests send some of their own.
 */
#include "port/port_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/iov.h"
#include "base/log.h"
#include "base/probe_frame.h"

struct null {
	struct port port;
	bool check;
	uint64_t next_seq;
	uint64_t good, lost, late, damaged;
	struct port_done done;
	uint8_t buf[VIRTIO_NET_FRAME_MAX]; /* one for all frames, so that it stays in the cache */
};

static struct null *to_null(struct port *port)
{
	return container_of(port, struct null, port);
}

static int null_open(struct port **port, const char *args, const char *name, struct worker *control,
		     const char **err)
{
	struct port_arg arg;
	bool check = false;
	struct null *nl;

	while (port_arg_next(&args, &arg)) {
		if (!port_arg_is(&arg, "check") || arg.val != NULL) {
			*err = "null: takes nothing, or check";
			return -EINVAL;
		}
		check = true;
	}
	nl = calloc(1, sizeof(*nl));
	if (nl == NULL) {
		*err = "out of memory";
		return -ENOMEM;
	}
	nl->port = (struct port){ .ops = &null_port, .name = name };
	nl->check = check;
	*port = &nl->port;
	return 0;
}

static void null_close(struct port *port)
{
	struct null *nl = to_null(port);

	if (nl->check)
		log_info(port->name,
			 "probe frames: good=%" PRIu64 " lost=%" PRIu64 " late=%" PRIu64
			 " damaged=%" PRIu64,
			 nl->good, nl->lost, nl->late, nl->damaged);
	free(nl);
}

static int null_attach(struct port *port, struct worker *w, struct work_src *tx,
		       struct work_src *rx)
{
	to_null(port)->next_seq = 0;
	return 0;
}

static void null_abandon(struct port *port)
{
	port_done_clear(&to_null(port)->done);
}

/* The frame in the buffer: is it the one that was to come? */
static int check_frame(struct null *nl, uint32_t len)
{
	uint64_t seq;

	switch (probe_read(nl->buf, len, &seq)) {
	case PROBE_OTHER:
		return 0;
	case PROBE_DAMAGED:
		nl->damaged++;
		return -EBADMSG;
	case PROBE_GOOD:
		break;
	}
	if (seq < nl->next_seq) {
		nl->late++;
		return -EBADMSG;
	}
	if (seq > nl->next_seq) {
		nl->lost += seq - nl->next_seq;
		nl->next_seq = seq + 1;
		return -EBADMSG;
	}
	nl->good++;
	nl->next_seq++;
	return 0;
}

static int take_frame(struct null *nl, const struct frame *f)
{
	struct iov_cursor c = iov_cursor(f->iov, f->iov_cnt);

	if (f->len > sizeof(nl->buf))
		return -EMSGSIZE;
	iov_read(&c, nl->buf, f->len);
	return nl->check ? check_frame(nl, f->len) : 0;
}

static unsigned null_prep_send(struct port *port, struct frame *frames, unsigned n)
{
	struct null *nl = to_null(port);

	n = min_uint(n, PORT_OUT_MAX - nl->done.cnt);
	for (unsigned i = 0; i < n; i++)
		port_done_push(&nl->done, frames[i].cookie, take_frame(nl, &frames[i]));
	return n;
}

static unsigned null_done_send(struct port *port, struct port_sent *sent, unsigned max)
{
	return port_done_take(&to_null(port)->done, sent, max);
}

const struct port_ops null_port = {
	.scheme = "null",
	.syntax = "null:[check]",
	.open = null_open,
	.close = null_close,
	.caps = port_caps_all,
	.set_offload = port_set_offload_any,
	.link = port_link_always,
	.attach = null_attach,
	.detach = null_abandon,
	.prep_send = null_prep_send,
	.done_send = null_done_send,
	.abandon = null_abandon,
	.prep_recv = port_prep_recv_none,
	.done_recv = port_done_recv_none,
	.arm_recv = port_arm_recv_never,
};
