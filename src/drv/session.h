/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A driver's connection to a back end: everything that is said over the socket.
 *
 * DOC: the order is the one that front ends have used for years, so that any back end knows it:
 * features, protocol features, owner, features acked, configuration, memory; then for each ring its
 * size, base, addresses, call and kick; then all are enabled.
 */
#ifndef UVHOST_DRV_SESSION_H
#define UVHOST_DRV_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "drv/memory.h"
#include "drv/queue.h"
#include "vu/frontend.h"
#include "wire/virtio_net.h"

struct drv_session {
	struct vu_frontend fe; /* fe.fd -1: there is none */
	uint64_t features;     /* acked */
	unsigned pairs;        /* that the back end has, at most those asked for */
	struct virtio_net_config config;
	int req_fd; /* the back end's own messages come here; -1: it has none */
	struct vu_channel req;
};

/* What is asked for. */
struct drv_wish {
	uint64_t features;
	unsigned pairs;  /* at most */
	uint32_t rx_buf; /* bytes of a receive buffer */
};

/* Negotiates and shares the memory. The socket is fe->fd. 0; -ETIMEDOUT, -ECONNRESET, -EPROTO,
 * -EREMOTEIO as vu_frontend_request(). */
int drv_session_open(struct drv_session *s, const struct drv_wish *wish, const struct drv_mem *mem);
/* Takes what the back end has to say by itself: that the configuration has changed. 0 or -errno. */
int drv_session_listen(struct drv_session *s);
/* Hands ring number @idx over; it is started already. */
int drv_session_ring(struct drv_session *s, unsigned idx, const struct drv_ring *r);
/* All rings are handed over: frames may pass. */
int drv_session_enable(struct drv_session *s);
void drv_session_close(struct drv_session *s);

#endif
