/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Framing: vhost-user messages and their file descriptors over a stream socket. Both ends use it.
 *
 * DOC: a channel never waits. A message may arrive in any number of pieces; descriptors that come
 * with a message belong to it until a handler takes them (vu_msg_take_fd), and vu_msg_close() closes
 * the rest, on every path. A reply that the socket does not take at once is kept; no message is read
 * before it is gone, so a peer that never reads its replies only stops itself.
 */
#ifndef UVHOST_VU_MSG_H
#define UVHOST_VU_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/later.h"
#include "wire/vhost_user.h"

#define VU_MSG_FDS_MAX 8

struct vu_msg {
	struct vhost_user_hdr hdr;
	union vhost_user_payload payload;
	int fds[VU_MSG_FDS_MAX]; /* -1: taken */
	unsigned fd_cnt;
	unsigned fd_lost;    /* more came than fit; they are closed already */
	struct later *later; /* who closes them */
};

struct vu_channel {
	int fd;     /* borrowed */
	size_t got; /* bytes of @in that have arrived */
	struct vu_msg in;
	size_t out_len, out_done;
	unsigned char out[sizeof(struct vhost_user_hdr) + sizeof(union vhost_user_payload)];
};

/* Descriptors that come and are not taken are closed by @later, or at once if that is NULL. */
void vu_channel_init(struct vu_channel *ch, int fd, struct later *later);
/* Closes descriptors of a message that was being received. */
void vu_channel_reset(struct vu_channel *ch);

/*
 * Reads on. 1: ch->in is a whole message, to be ended with vu_msg_close() before the next call; 0:
 * nothing more for now; -ECONNRESET: the peer has closed; -EPROTO: no vhost-user message (version,
 * size over the largest payload); -errno of recvmsg(). After an error only vu_channel_reset().
 */
int vu_channel_recv(struct vu_channel *ch);

/* Sends a message with up to VU_MSG_FDS_MAX borrowed descriptors. What does not fit is kept; only
 * descriptors cannot be. 0; -EAGAIN: nothing was sent, an earlier message or the descriptors are in
 * the way; -EMSGSIZE; -ECONNRESET: the peer has closed; -errno of sendmsg(). */
int vu_channel_send(struct vu_channel *ch, const struct vhost_user_hdr *hdr, const void *payload,
		    const int *fds, unsigned fd_cnt);
/* Sends on what was kept. 0: all gone; -EAGAIN; -errno. */
int vu_channel_flush(struct vu_channel *ch);

/* The i-th descriptor, from here on the caller's; -1 when there is none. */
int vu_msg_take_fd(struct vu_msg *msg, unsigned i);
void vu_msg_close(struct vu_msg *msg);

#endif
