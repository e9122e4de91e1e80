// SPDX-License-Identifier: BSD-2-Clause
/* Framing: vhost-user messages and their file descriptors over a stream socket. */
#include "vu/msg.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Aligned room for the descriptors of one sendmsg() or recvmsg(). */
union fd_room {
	struct cmsghdr align;
	char buf[CMSG_SPACE(VU_MSG_FDS_MAX * sizeof(int))];
};

void vu_channel_init(struct vu_channel *ch, int fd, struct later *later)
{
	*ch = (struct vu_channel){ .fd = fd, .in.later = later };
}

void vu_channel_reset(struct vu_channel *ch)
{
	vu_msg_close(&ch->in);
	ch->got = 0;
	ch->out_len = ch->out_done = 0;
}

/* The descriptors of one recvmsg() become the message's; what does not fit is closed here. */
static void collect_fds(struct vu_msg *msg, struct msghdr *mh)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c != NULL; c = CMSG_NXTHDR(mh, c)) {
		size_t cnt;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		cnt = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < cnt; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (msg->fd_cnt < VU_MSG_FDS_MAX) {
				msg->fds[msg->fd_cnt++] = fd;
			} else {
				later_close(msg->later, &fd);
				msg->fd_lost++;
			}
		}
	}
	/* The kernel has closed some, for want of room here or of free numbers; it keeps the count. */
	if (mh->msg_flags & MSG_CTRUNC)
		msg->fd_lost++;
}

/* Up to @len bytes of the message into @buf: how many; 0: none now; -errno. */
static int recv_piece(struct vu_channel *ch, void *buf, size_t len)
{
	union fd_room room;
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr mh = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = room.buf,
		.msg_controllen = sizeof(room.buf),
	};
	ssize_t n;

	do {
		n = recvmsg(ch->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	collect_fds(&ch->in, &mh);
	return n == 0 ? -ECONNRESET : (int)n;
}

static int check_hdr(const struct vhost_user_hdr *hdr)
{
	if ((hdr->flags & VHOST_USER_VERSION_MASK) != VHOST_USER_VERSION)
		return -EPROTO;
	if (hdr->size > sizeof(union vhost_user_payload))
		return -EPROTO;
	return 0;
}

/*
 * Reads to the end of the header, then to the end of the message and never further: descriptors
 * come with the first byte that they were sent with, so those of the next message stay there.
 */
int vu_channel_recv(struct vu_channel *ch)
{
	const size_t hdr_len = sizeof(ch->in.hdr);
	struct vu_msg *msg = &ch->in;
	int n, ret;

	/* The one before was ended. */
	assert(ch->got > 0 || (msg->fd_cnt == 0 && msg->fd_lost == 0));
	for (;;) {
		if (ch->got < hdr_len) {
			n = recv_piece(ch, (char *)&msg->hdr + ch->got, hdr_len - ch->got);
		} else {
			size_t off = ch->got - hdr_len;

			n = recv_piece(ch, (char *)&msg->payload + off, msg->hdr.size - off);
		}
		if (n <= 0)
			return n;
		ch->got += (size_t)n;
		if (ch->got < hdr_len)
			continue;
		if (ch->got == hdr_len) {
			ret = check_hdr(&msg->hdr);
			if (ret < 0)
				return ret;
			/* A short payload must not be completed by an earlier message's. */
			memset(&msg->payload, 0, sizeof(msg->payload));
		}
		if (ch->got == hdr_len + msg->hdr.size) {
			ch->got = 0;
			return 1;
		}
	}
}

/* Sends what is left of ch->out, the descriptors with its first byte. 0, -EAGAIN or -errno. */
static int send_out(struct vu_channel *ch, const int *fds, unsigned fd_cnt)
{
	union fd_room room = { .align = { .cmsg_len = CMSG_LEN(fd_cnt * sizeof(int)),
					  .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS } };
	struct msghdr mh = { 0 };

	if (fd_cnt > 0) {
		memcpy(CMSG_DATA(&room.align), fds, fd_cnt * sizeof(int));
		mh.msg_control = room.buf;
		mh.msg_controllen = CMSG_SPACE(fd_cnt * sizeof(int));
	}
	while (ch->out_done < ch->out_len) {
		struct iovec iov = { .iov_base = ch->out + ch->out_done,
				     .iov_len = ch->out_len - ch->out_done };
		ssize_t n;

		mh.msg_iov = &iov;
		mh.msg_iovlen = 1;
		n = sendmsg(ch->fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN)
				return -EAGAIN;
			return errno == EPIPE ? -ECONNRESET : -errno;
		}
		ch->out_done += (size_t)n;
		mh.msg_control = NULL;
		mh.msg_controllen = 0;
	}
	ch->out_len = ch->out_done = 0;
	return 0;
}

int vu_channel_send(struct vu_channel *ch, const struct vhost_user_hdr *hdr, const void *payload,
		    const int *fds, unsigned fd_cnt)
{
	int ret;

	if (hdr->size > sizeof(union vhost_user_payload) || fd_cnt > VU_MSG_FDS_MAX)
		return -EMSGSIZE;
	if (ch->out_len > 0)
		return -EAGAIN;
	memcpy(ch->out, hdr, sizeof(*hdr));
	if (hdr->size > 0)
		memcpy(ch->out + sizeof(*hdr), payload, hdr->size);
	ch->out_len = sizeof(*hdr) + hdr->size;
	ret = send_out(ch, fds, fd_cnt);
	/* Borrowed descriptors cannot be kept; once a byte is out they are out, too. */
	if (ret == -EAGAIN && (fd_cnt == 0 || ch->out_done > 0))
		return 0;
	if (ret < 0)
		ch->out_len = ch->out_done = 0;
	return ret;
}

int vu_channel_flush(struct vu_channel *ch)
{
	return send_out(ch, NULL, 0);
}

int vu_msg_take_fd(struct vu_msg *msg, unsigned i)
{
	int fd = -1;

	if (i < msg->fd_cnt) {
		fd = msg->fds[i];
		msg->fds[i] = -1;
	}
	return fd;
}

void vu_msg_close(struct vu_msg *msg)
{
	for (unsigned i = 0; i < msg->fd_cnt; i++)
		later_close(msg->later, &msg->fds[i]);
	msg->fd_cnt = 0;
	msg->fd_lost = 0;
}
