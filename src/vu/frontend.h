/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The front end of the vhost-user protocol: one call a message, in any order, valid or not.
 *
 * DOC: this is the lowest layer of the driver's side. It keeps no state beyond the socket and the
 * acked protocol features, checks nothing that the back end ought to check, and blocks up to
 * @timeout_ms for answers, so that tests can say exactly what they want to say.
 */
#ifndef UVHOST_VU_FRONTEND_H
#define UVHOST_VU_FRONTEND_H

#include <stdbool.h>
#include <stdint.h>

#include "vu/msg.h"

struct vu_frontend {
	struct vu_channel ch;
	int fd;                     /* the socket, owned */
	uint64_t protocol_features; /* acked; REPLY_ACK decides whether NEED_REPLY is set */
	int timeout_ms;
};

/* Connects to the socket at @path; 0 or -errno. */
int vu_frontend_connect(struct vu_frontend *fe, const char *path, int timeout_ms);
/* Takes a connected socket over. */
void vu_frontend_init(struct vu_frontend *fe, int fd, int timeout_ms);
void vu_frontend_close(struct vu_frontend *fe);

/* Sends any message as it is. 0, -ETIMEDOUT, -ECONNRESET, or -EMSGSIZE: over the largest payload. */
int vu_frontend_send(struct vu_frontend *fe, const struct vhost_user_hdr *hdr, const void *payload,
		     const int *fds, unsigned fd_cnt);
/* Waits for one message of the back end, in fe->ch.in: 0, -ETIMEDOUT, -ECONNRESET, -EPROTO. */
int vu_frontend_wait(struct vu_frontend *fe);

/* A request without a reply of its own, @hdr without flags: waits for the acknowledgement where
 * REPLY_ACK is on. 0, -EREMOTEIO: the back end answered with an error; else as vu_frontend_wait(). */
int vu_frontend_request(struct vu_frontend *fe, const struct vhost_user_hdr *hdr,
			const void *payload, const int *fds, unsigned fd_cnt);

int vu_frontend_get_u64(struct vu_frontend *fe, uint32_t request, uint64_t *value);
int vu_frontend_set_u64(struct vu_frontend *fe, uint32_t request, uint64_t value);
int vu_frontend_set_protocol_features(struct vu_frontend *fe, uint64_t features);
int vu_frontend_set_mem(struct vu_frontend *fe, const struct vhost_user_region *regions,
			const int *fds, unsigned cnt);
int vu_frontend_vring_state(struct vu_frontend *fe, uint32_t request, uint32_t idx, uint32_t num);
int vu_frontend_get_vring_base(struct vu_frontend *fe, uint32_t idx, uint32_t *base);
int vu_frontend_vring_addr(struct vu_frontend *fe, const struct vhost_user_vring_addr *addr);
/* SET_VRING_KICK, CALL or ERR; @fd -1: the NOFD form. */
int vu_frontend_vring_fd(struct vu_frontend *fe, uint32_t request, uint32_t idx, int fd);
int vu_frontend_get_config(struct vu_frontend *fe, void *buf, uint32_t offset, uint32_t len);

#endif
