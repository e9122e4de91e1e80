// SPDX-License-Identifier: BSD-2-Clause
/* The front end of the vhost-user protocol: one call a message. */
#include "vu/frontend.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/unix_socket.h"
#include "base/util.h"

int vu_frontend_connect(struct vu_frontend *fe, const char *path, int timeout_ms)
{
	struct sockaddr_un addr;
	const char *err;
	int fd, ret = unix_address(&addr, path, &err);

	if (ret < 0)
		return ret;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0) {
		ret = -errno;
		fd_close(&fd);
		return ret;
	}
	vu_frontend_init(fe, fd, timeout_ms);
	return 0;
}

void vu_frontend_init(struct vu_frontend *fe, int fd, int timeout_ms)
{
	*fe = (struct vu_frontend){ .fd = fd, .timeout_ms = timeout_ms };
	vu_channel_init(&fe->ch, fd, NULL);
}

void vu_frontend_close(struct vu_frontend *fe)
{
	vu_channel_reset(&fe->ch);
	fd_close(&fe->fd);
}

static uint64_t deadline_of(const struct vu_frontend *fe)
{
	return clock_ns() + (uint64_t)fe->timeout_ms * NSEC_PER_MSEC;
}

/* Waits until the socket is ready for @events. 0, -ETIMEDOUT or -errno. */
static int wait_socket(const struct vu_frontend *fe, short events, uint64_t deadline)
{
	struct pollfd pfd = { .fd = fe->fd, .events = events };
	uint64_t now = clock_ns();
	int n;

	do {
		uint64_t left = deadline > now ? deadline - now : 0;

		/* Rounded up, so that the last wait does not spin. */
		n = poll(&pfd, 1, (int)((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC));
		now = clock_ns();
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == 0 ? -ETIMEDOUT : 0;
}

int vu_frontend_send(struct vu_frontend *fe, const struct vhost_user_hdr *hdr, const void *payload,
		     const int *fds, unsigned fd_cnt)
{
	uint64_t deadline = deadline_of(fe);
	bool sent = false;
	int ret;

	for (;;) {
		/* What a time-out left of an earlier message goes first. */
		ret = vu_channel_flush(&fe->ch);
		if (ret == 0) {
			if (sent)
				return 0;
			ret = vu_channel_send(&fe->ch, hdr, payload, fds, fd_cnt);
			sent = ret == 0;
		}
		if (ret == -EAGAIN)
			ret = wait_socket(fe, POLLOUT, deadline);
		if (ret < 0)
			return ret;
	}
}

int vu_frontend_wait(struct vu_frontend *fe)
{
	uint64_t deadline = deadline_of(fe);
	int ret;

	if (fe->ch.got == 0)
		vu_msg_close(&fe->ch.in);
	for (;;) {
		ret = vu_channel_recv(&fe->ch);
		if (ret != 0)
			return ret < 0 ? ret : 0;
		ret = wait_socket(fe, POLLIN, deadline);
		if (ret < 0)
			return ret;
	}
}

/* Waits for the answer to @request, of @size bytes. */
static int wait_reply(struct vu_frontend *fe, uint32_t request, uint32_t size)
{
	const struct vhost_user_hdr *hdr = &fe->ch.in.hdr;
	int ret = vu_frontend_wait(fe);

	if (ret < 0)
		return ret;
	if (hdr->request != request || hdr->size != size ||
	    hdr->flags != (VHOST_USER_VERSION | VHOST_USER_FLAG_REPLY))
		return -EPROTO;
	return 0;
}

/* Sends a request that has a reply of its own. */
static int send_query(struct vu_frontend *fe, uint32_t request, const void *payload, uint32_t len)
{
	struct vhost_user_hdr hdr = {
		.request = request,
		.flags = VHOST_USER_VERSION,
		.size = len,
	};

	return vu_frontend_send(fe, &hdr, payload, NULL, 0);
}

int vu_frontend_request(struct vu_frontend *fe, const struct vhost_user_hdr *hdr,
			const void *payload, const int *fds, unsigned fd_cnt)
{
	bool ack = (fe->protocol_features >> VHOST_USER_PROTOCOL_F_REPLY_ACK) & 1;
	struct vhost_user_hdr full = *hdr;
	int ret;

	full.flags = VHOST_USER_VERSION | (ack ? VHOST_USER_FLAG_NEED_REPLY : 0);
	ret = vu_frontend_send(fe, &full, payload, fds, fd_cnt);
	if (ret < 0 || !ack)
		return ret;
	ret = wait_reply(fe, hdr->request, sizeof(uint64_t));
	if (ret < 0)
		return ret;
	return fe->ch.in.payload.u64 != 0 ? -EREMOTEIO : 0;
}

int vu_frontend_get_u64(struct vu_frontend *fe, uint32_t request, uint64_t *value)
{
	int ret = send_query(fe, request, NULL, 0);

	if (ret < 0)
		return ret;
	ret = wait_reply(fe, request, sizeof(*value));
	if (ret < 0)
		return ret;
	*value = fe->ch.in.payload.u64;
	return 0;
}

int vu_frontend_set_u64(struct vu_frontend *fe, uint32_t request, uint64_t value)
{
	struct vhost_user_hdr hdr = { .request = request, .size = sizeof(value) };

	return vu_frontend_request(fe, &hdr, &value, NULL, 0);
}

int vu_frontend_set_protocol_features(struct vu_frontend *fe, uint64_t features)
{
	uint64_t before = fe->protocol_features;
	int ret;

	/* REPLY_ACK counts from this message on: its own acknowledgement is asked for. */
	fe->protocol_features = features;
	ret = vu_frontend_set_u64(fe, VHOST_USER_SET_PROTOCOL_FEATURES, features);
	if (ret < 0)
		fe->protocol_features = before;
	return ret;
}

int vu_frontend_set_mem(struct vu_frontend *fe, const struct vhost_user_region *regions,
			const int *fds, unsigned cnt)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_SET_MEM_TABLE };
	struct vhost_user_mem mem = { .cnt = cnt };
	size_t len = cnt * sizeof(*regions);

	if (cnt > VHOST_USER_MEM_REGIONS_MAX)
		return -EINVAL;
	if (cnt > 0)
		memcpy(mem.regions, regions, len);
	hdr.size = (uint32_t)(offsetof(struct vhost_user_mem, regions) + len);
	return vu_frontend_request(fe, &hdr, &mem, fds, cnt);
}

int vu_frontend_vring_state(struct vu_frontend *fe, uint32_t request, uint32_t idx, uint32_t num)
{
	struct vhost_user_vring_state state = { .index = idx, .num = num };
	struct vhost_user_hdr hdr = { .request = request, .size = sizeof(state) };

	return vu_frontend_request(fe, &hdr, &state, NULL, 0);
}

int vu_frontend_get_vring_base(struct vu_frontend *fe, uint32_t idx, uint32_t *base)
{
	struct vhost_user_vring_state state = { .index = idx };
	int ret = send_query(fe, VHOST_USER_GET_VRING_BASE, &state, sizeof(state));

	if (ret < 0)
		return ret;
	ret = wait_reply(fe, VHOST_USER_GET_VRING_BASE, sizeof(state));
	if (ret < 0)
		return ret;
	if (fe->ch.in.payload.state.index != idx)
		return -EPROTO;
	*base = fe->ch.in.payload.state.num;
	return 0;
}

int vu_frontend_vring_addr(struct vu_frontend *fe, const struct vhost_user_vring_addr *addr)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_SET_VRING_ADDR, .size = sizeof(*addr) };

	return vu_frontend_request(fe, &hdr, addr, NULL, 0);
}

int vu_frontend_vring_fd(struct vu_frontend *fe, uint32_t request, uint32_t idx, int fd)
{
	uint64_t payload = idx;
	struct vhost_user_hdr hdr = { .request = request, .size = sizeof(payload) };

	if (fd < 0)
		payload |= VHOST_USER_VRING_NOFD;
	return vu_frontend_request(fe, &hdr, &payload, &fd, fd < 0 ? 0 : 1);
}

int vu_frontend_get_config(struct vu_frontend *fe, void *buf, uint32_t offset, uint32_t len)
{
	struct vhost_user_config config = { .offset = offset, .size = len };
	uint32_t size = VHOST_USER_CONFIG_HDR_LEN + len;
	const struct vhost_user_config *reply = &fe->ch.in.payload.config;
	int ret;

	if (len > VHOST_USER_CONFIG_MAX)
		return -EINVAL;
	ret = send_query(fe, VHOST_USER_GET_CONFIG, &config, size);
	if (ret < 0)
		return ret;
	ret = wait_reply(fe, VHOST_USER_GET_CONFIG, size);
	if (ret == -EPROTO && fe->ch.in.hdr.request == VHOST_USER_GET_CONFIG &&
	    fe->ch.in.hdr.size == 0)
		return -EREMOTEIO;
	if (ret < 0)
		return ret;
	if (reply->offset != offset || reply->size != len)
		return -EPROTO;
	memcpy(buf, reply->data, len);
	return 0;
}
