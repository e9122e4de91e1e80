/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tap in two files: tap_link.c watches over its life in the control thread, tap.c moves frames in the
 * worker's thread. The calls on the interface are in tap/tap_if.h.
 */
#ifndef UVHOST_PORT_TAP_PRIV_H
#define UVHOST_PORT_TAP_PRIV_H

#include <net/if.h>
#include <stdatomic.h>

#include "base/log.h"
#include "port/port_priv.h"
#include "tap/tap_if.h"

/* ---- tap_link.c ---- */

enum tap_origin {
	TAP_CREATED,   /* by us: created again when somebody deletes it */
	TAP_FOUND,     /* it existed: waited for, never created */
	TAP_INHERITED, /* as a descriptor, from who started us */
};

struct tap_link {
	/* The control thread's. */
	const char *device;
	struct worker *control;
	enum tap_origin origin;
	char ifname[IFNAMSIZ];
	int fd;
	int index;
	unsigned caps, offloads;
	bool attached, up;
	struct port_events events;
	/* What tells of changes: a netlink socket; for an inherited descriptor, whose interface may be
	 * in another network namespace, an eventfd. */
	int notice_fd;
	struct io_file notice;
	struct work_watch noticed;
	struct work_src src;
	struct work_timer retry;
	uint64_t backoff_ns;
	struct log_limit limit;

	/* Set in the worker's thread by attach and detach, while the control thread waits for them. */
	struct worker *worker;
	struct log_limit gone_limit; /* the worker's */
	/* Tells the worker that the interface is back; its fn is the owner's. */
	struct work_msg back;
	atomic_bool back_posted; /* fn clears it */
};

/* Opens NAME or fd=N. On failure *@err says what to do. */
int tap_link_open(struct tap_link *l, const char *args, const char *device, struct worker *control,
		  const char **err);
void tap_link_close(struct tap_link *l);
int tap_link_set_offload(struct tap_link *l, unsigned offloads);

/* Worker's thread: an operation found the interface gone. */
void tap_link_gone(struct tap_link *l);

#endif
