/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of requests, shared by the dispatcher (backend.c) and the requests (requests.c).
 *
 * DOC: what all requests have in common is a column here and done by the dispatcher: the payload's
 * size, the descriptors that come along, the ring's index, which rings have to be out of the way,
 * who is answered. A request itself is at most two functions:
 *
 *	check	before anything is touched: what can be refused without stopping a ring is refused
 *		here, and what changes nothing ends here, so that running rings do not notice it.
 *	handle	with the rings of @scope quiesced: straight code.
 *
 * Descriptors that a handler did not take are closed by the dispatcher.
 */
#ifndef UVHOST_VU_BACKEND_PRIV_H
#define UVHOST_VU_BACKEND_PRIV_H

#include "vu/backend.h"

/* The payload's form: its size, and where it names a ring. */
enum vu_payload {
	VU_PAYLOAD_NONE,
	VU_PAYLOAD_U64,
	VU_PAYLOAD_VRING_FD, /* u64 of a ring's index and VHOST_USER_VRING_NOFD */
	VU_PAYLOAD_VRING_STATE,
	VU_PAYLOAD_VRING_ADDR,
	VU_PAYLOAD_MEM,
	VU_PAYLOAD_CONFIG,
};

/* The descriptors that come along. */
enum vu_fds {
	VU_FDS_NONE,
	VU_FDS_ONE,
	VU_FDS_VRING,   /* one; with NOFD in the payload none, or one that means nothing */
	VU_FDS_REGIONS, /* one a region of the payload */
};

/* What must be quiesced. */
enum vu_scope {
	VU_SCOPE_NOTHING,
	VU_SCOPE_RING, /* that the payload names */
	VU_SCOPE_ALL,
};

/* What the front end waits for, whether it asked for an acknowledgement or not. */
enum vu_reply {
	VU_REPLY_NONE,
	VU_REPLY_OWN,      /* has no way to say no: an error closes the connection */
	VU_REPLY_OR_EMPTY, /* an empty payload says no */
};

/* From a check: it is so already. */
#define VU_UNCHANGED 1

struct vu_request {
	const char *name;
	enum vu_payload payload;
	enum vu_fds fds;
	enum vu_scope scope;
	enum vu_reply reply;
	/* 0, VU_UNCHANGED or -errno; NULL: always 0. @ring: the one in the payload, or NULL. */
	int (*check)(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring);
	/* 0 or -errno; a reply of its own is left in @msg. NULL: nothing to do. */
	int (*handle)(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring);
};

/* Closes a descriptor of the front end's; -1 stays so. */
void vu_close_event(struct vu_backend *b, int *fd);

/* NULL: we do not know that request. */
const struct vu_request *vu_request_find(uint32_t request);

/* Virtio feature bits that are offered. */
static inline uint64_t vu_backend_features(const struct vu_backend *b)
{
	return b->cfg.features | 1ULL << VHOST_USER_F_PROTOCOL_FEATURES;
}

#endif
