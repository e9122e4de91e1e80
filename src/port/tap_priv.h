/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tap in three files: tap_if.c has the calls that make and set up an interface, tap_link.c watches
 * over its life in the control thread, tap.c moves frames in the worker's thread.
 */
#ifndef UVHOST_PORT_TAP_PRIV_H
#define UVHOST_PORT_TAP_PRIV_H

#include <net/if.h>
#include <stdatomic.h>

#include "base/log.h"
#include "port/port_priv.h"

/* ---- tap_if.c: control thread, since these calls may wait for the kernel's network lock ---- */

/* A descriptor that has no interface yet, or -errno. */
int tap_if_open(void);
/* Gives @fd the interface @name, which is created unless it exists. *@persistent: it existed. */
int tap_if_attach(int fd, const char *name, bool *persistent);
/* Checks an inherited descriptor: NULL, or why it cannot be used. */
const char *tap_if_check(int fd);
/* Sets header size, byte order and exactly these offloads. */
int tap_if_setup(int fd, unsigned offloads);
int tap_if_set_offload(int fd, unsigned offloads);
/* The offloads that the kernel offers; leaves all of them off. */
unsigned tap_if_probe(int fd);
/* Has @fd an interface at this moment? */
bool tap_if_attached(int fd);
/* Is its interface up, or nowhere to be seen from the network namespace of the socket @sock? */
bool tap_if_up(int fd, int sock);
/* Its index, 0 when there is none of that name. */
int tap_if_index(int sock, const char *name);
/* Can an interface have this name? */
bool tap_if_name_ok(const char *name);
/* What to do about a failed tap_if_open() or tap_if_attach(). */
const char *tap_if_advice(int err, int sock, const char *name);

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
