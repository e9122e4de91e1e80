// SPDX-License-Identifier: BSD-2-Clause
/* The back end of the vhost-user protocol: a connection, and how any message is dealt with. */
#include "vu/backend.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/util.h"
#include "vu/backend_priv.h"

/* Messages a call: one connection cannot keep the control thread from the others. */
#define STEP_MESSAGES 16

static const struct {
	uint32_t min, max;
} payload_sizes[] = {
	[VU_PAYLOAD_NONE] = { 0, 0 },
	[VU_PAYLOAD_U64] = { sizeof(uint64_t), sizeof(uint64_t) },
	[VU_PAYLOAD_VRING_FD] = { sizeof(uint64_t), sizeof(uint64_t) },
	[VU_PAYLOAD_VRING_STATE] = { sizeof(struct vhost_user_vring_state),
				     sizeof(struct vhost_user_vring_state) },
	[VU_PAYLOAD_VRING_ADDR] = { sizeof(struct vhost_user_vring_addr),
				    sizeof(struct vhost_user_vring_addr) },
	/* Some front ends send as many regions as there are, some the whole array. */
	[VU_PAYLOAD_MEM] = { offsetof(struct vhost_user_mem, regions),
			     sizeof(struct vhost_user_mem) },
	[VU_PAYLOAD_CONFIG] = { VHOST_USER_CONFIG_HDR_LEN, sizeof(struct vhost_user_config) },
};

void vu_backend_init(struct vu_backend *b, const struct vu_backend_cfg *cfg, int fd)
{
	assert(cfg->rings <= VU_RINGS_MAX);
	*b = (struct vu_backend){ .cfg = *cfg, .req_fd = -1 };
	vu_channel_init(&b->ch, fd, cfg->later);
	for (unsigned i = 0; i < VU_RINGS_MAX; i++)
		b->rings[i].kick_fd = b->rings[i].call_fd = b->rings[i].err_fd = -1;
}

void vu_backend_fini(struct vu_backend *b)
{
	vu_channel_reset(&b->ch);
	for (unsigned i = 0; i < VU_RINGS_MAX; i++) {
		vu_close_event(b, &b->rings[i].kick_fd);
		vu_close_event(b, &b->rings[i].call_fd);
		vu_close_event(b, &b->rings[i].err_fd);
	}
	vu_close_event(b, &b->req_fd);
	mem_free(b->mem, b->cfg.later);
	b->mem = NULL;
}

bool vu_ring_runnable(const struct vu_backend *b, unsigned ring)
{
	const struct vu_ring *r = &b->rings[ring];

	return b->mem != NULL && r->num > 0 && r->addr_set && r->kick_set;
}

static bool acked_protocol(const struct vu_backend *b, unsigned bit)
{
	return (b->protocol_features >> bit) & 1;
}

/* The ring that the payload names, or NULL when its form names none. -ENXIO: there is no such ring. */
static int find_ring(struct vu_backend *b, enum vu_payload form, struct vu_ring **ring)
{
	const union vhost_user_payload *p = &b->ch.in.payload;
	uint64_t idx; /* all bits that the front end wrote */

	*ring = NULL;
	switch (form) {
	case VU_PAYLOAD_VRING_FD:
		idx = p->u64 & ~VHOST_USER_VRING_NOFD;
		break;
	case VU_PAYLOAD_VRING_STATE:
		idx = p->state.index;
		break;
	case VU_PAYLOAD_VRING_ADDR:
		idx = p->addr.index;
		break;
	default:
		return 0;
	}
	if (idx >= b->cfg.rings)
		return -ENXIO;
	*ring = &b->rings[idx];
	return 0;
}

static bool fds_fit(enum vu_fds rule, const struct vu_msg *msg)
{
	if (msg->fd_lost > 0)
		return false;
	switch (rule) {
	case VU_FDS_ONE:
		return msg->fd_cnt == 1;
	case VU_FDS_VRING:
		return msg->fd_cnt == 1 ||
		       (msg->fd_cnt == 0 && (msg->payload.u64 & VHOST_USER_VRING_NOFD));
	case VU_FDS_REGIONS:
		return msg->fd_cnt == msg->payload.mem.cnt;
	default:
		return msg->fd_cnt == 0;
	}
}

/* What can be wrong with any message; an errno each, for the log. */
static int validate(struct vu_backend *b, const struct vu_request *req, struct vu_ring **ring)
{
	const struct vu_msg *msg = &b->ch.in;

	if (req == NULL)
		return -EOPNOTSUPP;
	if (msg->hdr.flags & VHOST_USER_FLAG_REPLY)
		return -EBADMSG;
	if (msg->hdr.size < payload_sizes[req->payload].min ||
	    msg->hdr.size > payload_sizes[req->payload].max)
		return -EMSGSIZE;
	if (!fds_fit(req->fds, msg))
		return -EBADF;
	return find_ring(b, req->payload, ring);
}

static bool wants_ack(const struct vu_backend *b, const struct vhost_user_hdr *hdr)
{
	if (!(hdr->flags & VHOST_USER_FLAG_NEED_REPLY))
		return false;
	/* This one may switch acknowledgements on (User-mode Linux) or off, or be refused; a front
	 * end that sets the flag in it waits in any case. */
	if (hdr->request == VHOST_USER_SET_PROTOCOL_FEATURES)
		return true;
	return acked_protocol(b, VHOST_USER_PROTOCOL_F_REPLY_ACK);
}

static void note_refused(struct vu_backend *b, const struct vu_request *req, int err)
{
	const struct vhost_user_hdr *hdr = &b->ch.in.hdr;

	b->bad_messages++;
	log_limited(&b->limit, LOG_LEVEL_WARN, b->cfg.name,
		    "message refused request=%s number=%u flags=%#x size=%u fds=%u error=%s",
		    req != NULL ? req->name : "unknown", hdr->request, hdr->flags, hdr->size,
		    b->ch.in.fd_cnt, log_errname(err));
}

/* Ends the message in ch.in with the result @err: its descriptors, its answer. 0 or -errno. */
static int answer(struct vu_backend *b, const struct vu_request *req, int err)
{
	struct vu_msg *msg = &b->ch.in;
	struct vhost_user_hdr hdr = {
		.request = msg->hdr.request,
		.flags = VHOST_USER_VERSION | VHOST_USER_FLAG_REPLY,
		.size = sizeof(uint64_t),
	};
	uint64_t status = (uint64_t)-err;

	if (err < 0)
		note_refused(b, req, err);
	vu_msg_close(msg);
	if (req != NULL && req->reply != VU_REPLY_NONE) {
		if (err < 0 && req->reply == VU_REPLY_OWN)
			return -EPROTO;
		hdr.size = err < 0 ? 0 : msg->hdr.size;
		return vu_channel_send(&b->ch, &hdr, &msg->payload, NULL, 0);
	}
	if (!wants_ack(b, &msg->hdr))
		return 0;
	return vu_channel_send(&b->ch, &hdr, &status, NULL, 0);
}

/* The rings of the request's scope that may be in the data path: nobody else touches a ring. */
static unsigned rings_in_scope(const struct vu_backend *b, const struct vu_request *req,
			       const struct vu_ring *ring)
{
	unsigned mask = 0;

	if (req->scope == VU_SCOPE_NOTHING)
		return 0;
	for (unsigned i = 0; i < b->cfg.rings; i++) {
		if (req->scope == VU_SCOPE_RING && ring != &b->rings[i])
			continue;
		if (vu_ring_runnable(b, i))
			mask |= 1U << i;
	}
	return mask;
}

/* All that the message touches is quiesced. 0 or -errno. */
static int carry_out(struct vu_backend *b, const struct vu_request *req, struct vu_ring *ring)
{
	unsigned quiesced = rings_in_scope(b, req, ring);
	int ret = 0;

	/* Whatever starts the ring again starts it from here, and a second stop answers the same. */
	for (unsigned i = 0; i < b->cfg.rings; i++) {
		if (quiesced & (1U << i))
			b->rings[i].base = b->cfg.ops->position(b->cfg.ctx, i);
	}
	if (req->handle != NULL)
		ret = req->handle(b, &b->ch.in, ring);
	if (req->scope != VU_SCOPE_NOTHING)
		b->cfg.ops->resume(b->cfg.ctx);
	return answer(b, req, ret);
}

/* The message in ch.in. 0; VU_PENDING; -errno. */
static int dispatch(struct vu_backend *b)
{
	const struct vu_request *req = vu_request_find(b->ch.in.hdr.request);
	struct vu_ring *ring;
	unsigned rings;
	int ret;

	b->spoken = true;
	ret = validate(b, req, &ring);
	if (ret == 0 && req->check != NULL)
		ret = req->check(b, &b->ch.in, ring);
	if (ret < 0)
		return answer(b, req, ret);
	if (ret == VU_UNCHANGED)
		return answer(b, req, 0);

	rings = rings_in_scope(b, req, ring);
	ret = rings != 0 ? b->cfg.ops->quiesce(b->cfg.ctx, rings) : 0;
	if (ret == -EINPROGRESS) {
		b->pending = true;
		return VU_PENDING;
	}
	assert(ret == 0);
	return carry_out(b, req, ring);
}

int vu_backend_step(struct vu_backend *b)
{
	assert(!b->pending);
	for (unsigned i = 0; i < STEP_MESSAGES; i++) {
		int ret = vu_channel_flush(&b->ch);

		if (ret == -EAGAIN)
			return VU_OUTPUT;
		if (ret == 0 && later_busy(b->cfg.later))
			return VU_BUSY;
		if (ret == 0)
			ret = vu_channel_recv(&b->ch);
		if (ret == 0)
			return VU_INPUT;
		if (ret > 0)
			ret = dispatch(b);
		if (ret != 0)
			return ret;
	}
	return VU_MORE;
}

int vu_backend_quiesced(struct vu_backend *b)
{
	const struct vu_request *req = vu_request_find(b->ch.in.hdr.request);
	struct vu_ring *ring;
	int ret;

	assert(b->pending);
	b->pending = false;
	ret = find_ring(b, req->payload, &ring);
	assert(ret == 0);
	ret = carry_out(b, req, ring);
	return ret < 0 ? ret : vu_backend_step(b);
}

int vu_backend_config_changed(struct vu_backend *b)
{
	struct vhost_user_hdr hdr = { .request = VHOST_USER_BACKEND_CONFIG_CHANGE_MSG,
				      .flags = VHOST_USER_VERSION };
	ssize_t n;

	if (b->req_fd < 0 || !acked_protocol(b, VHOST_USER_PROTOCOL_F_BACKEND_REQ) ||
	    !acked_protocol(b, VHOST_USER_PROTOCOL_F_CONFIG))
		return 0;
	do {
		n = send(b->req_fd, &hdr, sizeof(hdr), MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(hdr))
		return 0;
	if (n < 0 && errno == EAGAIN)
		return -EAGAIN;
	/* Half a message, or nobody there: what comes next would not be understood. */
	n = n < 0 ? -errno : -EPIPE;
	vu_close_event(b, &b->req_fd);
	return (int)n;
}
