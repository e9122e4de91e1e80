/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device's life: the only place where the protocol (vu) and the NIC (net) meet.
 *
 * DOC: a device has a port and an endpoint for as long as it exists, and a protocol state for as long
 * as a front end is connected. The protocol says what the front end wants; the device has the NIC do
 * it and tells the protocol when a stop that takes time is over.
 *
 * All functions are the control thread's.
 */
#ifndef UVHOST_DEV_DEV_H
#define UVHOST_DEV_DEV_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "net/scratch.h"
#include "wire/virtio_net.h"
#include "work/worker.h"

#define DEV_DRAIN_NS 100000000ULL         /* 100 ms */
#define DEV_BAN_NS   (10 * 1000000000ULL) /* after a front end that made the worker wait */

struct dev_cfg {
	const char *name; /* NULL: after the socket, or the descriptor */
	const char *socket_path;
	int fd; /* -1: socket_path */
	bool client;
	mode_t socket_mode;
	const char *socket_group;
	const char *port; /* "tap:NAME" */
	uint8_t mac[VIRTIO_NET_MAC_LEN];
	bool mac_set;
	uint16_t mtu;        /* 0: not told to the guest */
	const char *offload; /* NULL: all that the port can do */
	uint64_t leave_out;  /* virtio feature bits */
	bool any_memory;
};

/* What all devices of the process share. */
struct dev_env {
	struct worker *control, *worker;
	struct scratch *scratch; /* the worker's */
	struct vq_iovs *pieces;  /* the control thread's */
	/* A device has ended: dev_close() is complete, or its only front end (a connected descriptor)
	 * has left. It may be freed, but not from within the call. */
	void (*closed)(void *ctx);
	void *ctx;
};

struct dev;

/* Opens port and socket, begins to serve. 0, or -errno, logged with what to do about it. */
int dev_new(struct dev **out, const struct dev_cfg *cfg, const struct dev_env *env);
/* Disconnects the front end and serves no other; env.closed is called, now or at the latest shortly
 * after the drain deadline. */
void dev_close(struct dev *dev);
/* It has ended, or no front end ever came. */
void dev_free(struct dev *dev);

/* {"name": ..., "connected": bool, "link": bool, "rx": {...}, ...}: a new reference. */
json_t *dev_stats(const struct dev *dev);

#endif
