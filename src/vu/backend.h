/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The back end of the vhost-user protocol: a connection's state and the table of its messages.
 *
 * DOC: the protocol sees no frame and does no waiting. Its state (features, rings, memory table) is
 * changed by one thread only, and only while the data path does not use it: a message that touches
 * what a running ring uses first *quiesces* that ring, or all. The device answers at once when
 * nothing runs, or later (the message is *pending*: the connection's next messages wait); then the
 * handler changes the state, the device restarts what can run, and the answer goes out. So a handler
 * is straight code and has never to think of the other thread.
 *
 * A ring can run when it has memory, a size, addresses and a kick (or NOFD). Whether it delivers
 * frames is @enabled, which starts as true when the front end did not ack protocol features.
 * GET_VRING_BASE stops a ring: kick and addresses are void. So do NUM and BASE on a ring that can run.
 * A new memory table keeps the addresses: they are translated again.
 *
 * All of this is the control thread's.
 */
#ifndef UVHOST_VU_BACKEND_H
#define UVHOST_VU_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "mem/mem.h"
#include "ring/vq.h"
#include "vu/msg.h"

#define VU_RINGS_MAX 3

struct vu_ring {
	uint16_t num;
	uint32_t base; /* as vq_base() has it */
	struct vq_addr addr;
	bool addr_set;
	bool kick_set; /* a kick came, or NOFD: then kick_fd is -1 and the ring is to be polled */
	bool enabled;
	int kick_fd, call_fd, err_fd; /* the ring's; -1: none */
};

struct vu_backend;

/* What the protocol asks of the device. @ctx is the device. */
struct vu_backend_ops {
	/* Takes the rings of the mask @rings, which all can run, out of the data path: no access to
	 * their memory, every head returned. 0: done; -EINPROGRESS: vu_backend_quiesced() will be
	 * called. */
	int (*quiesce)(void *ctx, unsigned rings);
	/* State has changed: start every ring that can run and does not, with what the state says. */
	void (*resume)(void *ctx);
	/* Where a ring that was just quiesced stands; it becomes the ring's base, from which the ring
	 * goes on. One that could run but did not (outside memory, broken from the start) stands at
	 * its base. */
	uint32_t (*position)(void *ctx, unsigned ring);
	/* Makes the acked virtio features (and PROTOCOL_FEATURES) effective; all rings are quiesced.
	 * 0 or -errno: the former ones stay. */
	int (*features)(void *ctx, uint64_t acked);
	/* Fills the device's configuration, @len bytes of it (at most VHOST_USER_CONFIG_MAX). */
	void (*config)(void *ctx, void *buf, unsigned len);
	/* Back to the state before the first message, memory and connection aside (RESET_DEVICE). */
	void (*reset)(void *ctx);
};

struct vu_backend_cfg {
	const char *name;
	unsigned rings;      /* at most VU_RINGS_MAX */
	uint64_t features;   /* virtio feature bits offered, PROTOCOL_FEATURES is added */
	unsigned mem_flags;  /* enum mem_flags */
	struct later *later; /* closes what the front end sent; NULL: at once */
	const struct vu_backend_ops *ops;
	void *ctx;
};

struct vu_backend {
	struct vu_backend_cfg cfg;
	struct vu_channel ch;
	uint64_t features; /* acked */
	bool features_set;
	uint64_t protocol_features;
	struct mem *mem;
	struct vu_ring rings[VU_RINGS_MAX];
	int req_fd;   /* of SET_BACKEND_REQ_FD; -1: none */
	bool pending; /* ch.in waits for vu_backend_quiesced() */
	bool spoken;  /* there was a message */
	struct log_limit limit;
	uint64_t bad_messages; /* refused ones, for the counters */
};

/* @fd is a connected stream socket, borrowed. */
void vu_backend_init(struct vu_backend *b, const struct vu_backend_cfg *cfg, int fd);
/* Frees everything; all rings are quiesced. */
void vu_backend_fini(struct vu_backend *b);

enum vu_step {
	VU_INPUT,   /* call again when the socket can be read */
	VU_OUTPUT,  /* call again when it can be written */
	VU_PENDING, /* call nothing until vu_backend_quiesced() */
	VU_MORE,    /* call again soon: there may be more messages */
	VU_BUSY,    /* call again a while later: cfg.later has to get on first */
};

/* Handles up to a fixed number of messages. A vu_step, or -errno: close this connection
 * (-ECONNRESET: the front end left). */
int vu_backend_step(struct vu_backend *b);
/* Ends the pending message; then as vu_backend_step(). */
int vu_backend_quiesced(struct vu_backend *b);

/* Can this ring run? */
bool vu_ring_runnable(const struct vu_backend *b, unsigned ring);
static inline bool vu_acked(const struct vu_backend *b, unsigned virtio_feature)
{
	return (b->features >> virtio_feature) & 1;
}

/* Tells the front end that the configuration changed (BACKEND_CONFIG_CHANGE_MSG), if it wants to be
 * told: BACKEND_REQ and CONFIG acked, a channel set. Never waits. 0; -EAGAIN: the channel is full,
 * try again later; -errno: the channel is broken and closed. */
int vu_backend_config_changed(struct vu_backend *b);

/* Protocol feature bits that are offered. */
uint64_t vu_backend_protocol_features(void);

#endif
