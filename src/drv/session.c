// SPDX-License-Identifier: BSD-2-Clause
/* A driver's connection to a back end. */
#include "drv/session.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/util.h"
#include "wire/virtio_ring.h"

#define BIT(n) (1ULL << (n))

#define OFFLOADS                                                                                \
	(BIT(VIRTIO_NET_F_CSUM) | BIT(VIRTIO_NET_F_GUEST_CSUM) | BIT(VIRTIO_NET_F_GUEST_TSO4) | \
	 BIT(VIRTIO_NET_F_GUEST_TSO6) | BIT(VIRTIO_NET_F_GUEST_ECN) |                           \
	 BIT(VIRTIO_NET_F_HOST_TSO4) | BIT(VIRTIO_NET_F_HOST_TSO6) | BIT(VIRTIO_NET_F_HOST_ECN))
static_assert(UVHOST_DRIVER_FEATURES == (OFFLOADS | BIT(VIRTIO_NET_F_MTU) | BIT(VIRTIO_NET_F_MAC) |
					 BIT(VIRTIO_NET_F_MRG_RXBUF) | BIT(VIRTIO_NET_F_STATUS) |
					 BIT(VIRTIO_NET_F_MQ) | BIT(VIRTIO_F_RING_INDIRECT_DESC) |
					 BIT(VIRTIO_F_RING_EVENT_IDX) | BIT(VIRTIO_F_VERSION_1) |
					 BIT(VIRTIO_F_RING_PACKED) | BIT(VIRTIO_F_IN_ORDER)),
	      "the public number says what is meant");

#define PROTOCOL                                                                \
	(BIT(VHOST_USER_PROTOCOL_F_MQ) | BIT(VHOST_USER_PROTOCOL_F_REPLY_ACK) | \
	 BIT(VHOST_USER_PROTOCOL_F_BACKEND_REQ) | BIT(VHOST_USER_PROTOCOL_F_CONFIG))

static bool has_protocol(const struct drv_session *s, unsigned bit)
{
	return (s->fe.protocol_features >> bit) & 1;
}

/* Features, both kinds, and how many queue pairs there are. */
static int negotiate(struct drv_session *s, const struct drv_wish *wish)
{
	uint64_t offered, protocol = 0, cnt = 1;
	int rc = vu_frontend_get_u64(&s->fe, VHOST_USER_GET_FEATURES, &offered);

	if (rc == 0 && offered & BIT(VHOST_USER_F_PROTOCOL_FEATURES)) {
		rc = vu_frontend_get_u64(&s->fe, VHOST_USER_GET_PROTOCOL_FEATURES, &protocol);
		if (rc == 0)
			rc = vu_frontend_set_protocol_features(&s->fe, protocol & PROTOCOL);
	}
	if (rc == 0 && has_protocol(s, VHOST_USER_PROTOCOL_F_MQ))
		rc = vu_frontend_get_u64(&s->fe, VHOST_USER_GET_QUEUE_NUM, &cnt);
	s->pairs = cnt < wish->pairs ? (unsigned)cnt : wish->pairs;
	if (rc == 0 && s->pairs == 0)
		rc = -EPROTO;
	/* Several queues are several rings here; steering is the back end's. */
	s->features = drv_features_that_fit(offered & wish->features, wish->rx_buf);
	if (s->pairs < 2)
		s->features &= ~BIT(VIRTIO_NET_F_MQ);
	return rc;
}

static int set_features(struct drv_session *s)
{
	const struct vhost_user_hdr owner = { .request = VHOST_USER_SET_OWNER };
	uint64_t extra = s->fe.protocol_features != 0 ? BIT(VHOST_USER_F_PROTOCOL_FEATURES) : 0;
	int rc = vu_frontend_request(&s->fe, &owner, NULL, NULL, 0);

	if (rc == 0)
		rc = vu_frontend_set_u64(&s->fe, VHOST_USER_SET_FEATURES, s->features | extra);
	return rc;
}

/* What the back end does not say is as if all were well. */
static int get_config(struct drv_session *s)
{
	int rc = 0;

	s->config = (struct virtio_net_config){ .status = htole16(VIRTIO_NET_S_LINK_UP) };
	if (has_protocol(s, VHOST_USER_PROTOCOL_F_CONFIG))
		rc = vu_frontend_get_config(&s->fe, &s->config, 0, sizeof(s->config));
	else
		s->features &= ~(BIT(VIRTIO_NET_F_MAC) | BIT(VIRTIO_NET_F_MTU));
	return rc;
}

static int share_memory(struct drv_session *s, const struct drv_mem *mem)
{
	struct vhost_user_region regions[VHOST_USER_MEM_REGIONS_MAX];
	int fds[VHOST_USER_MEM_REGIONS_MAX];

	for (unsigned i = 0; i < mem->cnt; i++) {
		const struct drv_region *r = &mem->regions[i];

		regions[i] = (struct vhost_user_region){ .guest_addr = r->gpa.v,
							 .size = r->len,
							 .user_addr = (uintptr_t)r->addr,
							 .mmap_offset = r->offset };
		fds[i] = r->fd;
	}
	return vu_frontend_set_mem(&s->fe, regions, fds, mem->cnt);
}

/* Gives the back end a channel for messages of its own. */
static int offer_channel(struct drv_session *s)
{
	const struct vhost_user_hdr hdr = { .request = VHOST_USER_SET_BACKEND_REQ_FD };
	int fds[2], rc;

	if (!has_protocol(s, VHOST_USER_PROTOCOL_F_BACKEND_REQ))
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -errno;
	s->req_fd = fds[0];
	vu_channel_init(&s->req, fds[0], NULL);
	rc = vu_frontend_request(&s->fe, &hdr, NULL, &fds[1], 1);
	fd_close(&fds[1]);
	return rc;
}

int drv_session_listen(struct drv_session *s)
{
	int rc;

	while ((rc = vu_channel_recv(&s->req)) > 0) {
		struct vhost_user_hdr hdr = s->req.in.hdr;
		uint64_t status = 0;

		vu_msg_close(&s->req.in);
		if (hdr.request == VHOST_USER_BACKEND_CONFIG_CHANGE_MSG)
			rc = get_config(s);
		else
			status = EOPNOTSUPP;
		if (rc < 0)
			return rc;
		if ((hdr.flags & VHOST_USER_FLAG_NEED_REPLY) == 0)
			continue;
		hdr.flags = VHOST_USER_VERSION | VHOST_USER_FLAG_REPLY;
		hdr.size = sizeof(status);
		rc = vu_channel_send(&s->req, &hdr, &status, NULL, 0);
		if (rc < 0)
			return rc;
	}
	return rc;
}

int drv_session_open(struct drv_session *s, const struct drv_wish *wish, const struct drv_mem *mem)
{
	int rc = negotiate(s, wish);

	if (rc == 0)
		rc = get_config(s);
	if (rc == 0)
		rc = set_features(s);
	if (rc == 0)
		rc = offer_channel(s);
	if (rc == 0)
		rc = share_memory(s, mem);
	return rc;
}

int drv_session_ring(struct drv_session *s, unsigned idx, const struct drv_ring *r)
{
	const struct drvq_areas at = drvq_areas(&r->q);
	const struct vhost_user_vring_addr addr = {
		.index = idx,
		.desc = (uintptr_t)at.desc,
		.avail = (uintptr_t)at.driver,
		.used = (uintptr_t)at.device,
	};
	int rc = vu_frontend_vring_state(&s->fe, VHOST_USER_SET_VRING_NUM, idx, r->num);

	if (rc == 0)
		rc = vu_frontend_vring_state(&s->fe, VHOST_USER_SET_VRING_BASE, idx,
					     drvq_base(&r->q));
	if (rc == 0)
		rc = vu_frontend_vring_addr(&s->fe, &addr);
	if (rc == 0)
		rc = vu_frontend_vring_fd(&s->fe, VHOST_USER_SET_VRING_CALL, idx, r->call);
	if (rc == 0)
		rc = vu_frontend_vring_fd(&s->fe, VHOST_USER_SET_VRING_KICK, idx, r->kick);
	return rc;
}

int drv_session_enable(struct drv_session *s)
{
	int rc = 0;

	if (s->fe.protocol_features == 0)
		return 0; /* they are enabled from the start */
	for (unsigned i = 0; rc == 0 && i < 2 * s->pairs; i++)
		rc = vu_frontend_vring_state(&s->fe, VHOST_USER_SET_VRING_ENABLE, i, 1);
	return rc;
}

void drv_session_close(struct drv_session *s)
{
	vu_frontend_close(&s->fe);
	if (s->req_fd >= 0)
		vu_channel_reset(&s->req);
	fd_close(&s->req_fd);
}
