// SPDX-License-Identifier: BSD-2-Clause
/* The requests of the front end: the table, and what each does. */
#include "vu/backend_priv.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"

#define BIT(n) (1ULL << (n))

uint64_t vu_backend_protocol_features(void)
{
	return BIT(VHOST_USER_PROTOCOL_F_MQ) | BIT(VHOST_USER_PROTOCOL_F_REPLY_ACK) |
	       BIT(VHOST_USER_PROTOCOL_F_BACKEND_REQ) | BIT(VHOST_USER_PROTOCOL_F_CONFIG) |
	       BIT(VHOST_USER_PROTOCOL_F_RESET_DEVICE);
}

static int reply_u64(struct vu_msg *msg, uint64_t value)
{
	msg->payload.u64 = value;
	msg->hdr.size = sizeof(value);
	return 0;
}

/* Features */

static int get_features(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	return reply_u64(msg, vu_backend_features(b));
}

static int check_features(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	uint64_t extra = msg->payload.u64 & ~vu_backend_features(b);

	if (extra != 0) {
		/* The one fault that an operator can cure: a guest that still has the features of
		 * an earlier back end. */
		log_limited(&b->limit, LOG_LEVEL_WARN, b->cfg.name,
			    "front end acked features that are not offered bits=%#llx",
			    (unsigned long long)extra);
		return -EINVAL;
	}
	return b->features_set && b->features == msg->payload.u64 ? VU_UNCHANGED : 0;
}

static void enable_all(struct vu_backend *b, bool enabled)
{
	for (unsigned i = 0; i < b->cfg.rings; i++)
		b->rings[i].enabled = enabled;
}

static int set_features(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	int ret = b->cfg.ops->features(b->cfg.ctx, msg->payload.u64);

	if (ret < 0)
		return ret;
	/* Without protocol features rings are enabled from the start and no SET_VRING_ENABLE comes;
	 * with them earlier ones count: QEMU sends some before this. Nothing here disables a ring. */
	if (!(msg->payload.u64 & BIT(VHOST_USER_F_PROTOCOL_FEATURES)))
		enable_all(b, true);
	b->features = msg->payload.u64;
	b->features_set = true;
	return 0;
}

static int get_protocol_features(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	return reply_u64(msg, vu_backend_protocol_features());
}

static int set_protocol_features(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	if (msg->payload.u64 & ~vu_backend_protocol_features())
		return -EINVAL;
	b->protocol_features = msg->payload.u64;
	return 0;
}

static int get_queue_num(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	/* Of queue pairs; a control queue does not count. */
	return reply_u64(msg, 1);
}

/* Session */

static int reset_owner(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	enable_all(b, false);
	/* A front end without protocol features enables rings with its next SET_FEATURES only, even
	 * if the bits are the same. */
	b->features_set = false;
	return 0;
}

static void stop_ring(struct vu_ring *ring)
{
	fd_close(&ring->kick_fd); /* an eventfd */
	ring->kick_set = false;
	ring->addr_set = false;
}

static int reset_device(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	for (unsigned i = 0; i < b->cfg.rings; i++) {
		stop_ring(&b->rings[i]);
		b->rings[i].num = 0;
		b->rings[i].base = 0;
	}
	enable_all(b, false);
	b->features = 0;
	b->features_set = false;
	b->cfg.ops->reset(b->cfg.ctx);
	return 0;
}

/* Memory */

static int check_mem_table(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	/* As many as descriptors, so no more than there is room for. */
	size_t regions = msg->payload.mem.cnt * sizeof(msg->payload.mem.regions[0]);

	if (msg->hdr.size < offsetof(struct vhost_user_mem, regions) + regions)
		return -EMSGSIZE;
	return 0;
}

static int set_mem_table(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	struct mem_region_cfg regions[VHOST_USER_MEM_REGIONS_MAX];
	const struct vhost_user_mem *table = &msg->payload.mem;
	struct mem *mem;
	int ret;

	for (unsigned i = 0; i < table->cnt; i++) {
		regions[i] = (struct mem_region_cfg){
			.gpa = { table->regions[i].guest_addr },
			.uva = { table->regions[i].user_addr },
			.size = table->regions[i].size,
			.offset = table->regions[i].mmap_offset,
			.fd = msg->fds[i],
		};
	}
	/* All or nothing: with an error the old table stays in force. */
	ret = mem_new(&mem, regions, table->cnt, b->cfg.mem_flags, b->cfg.name);
	if (ret < 0)
		return ret;
	mem_free(b->mem, b->cfg.later);
	b->mem = mem;
	return 0;
}

/* Rings */

static int check_vring_num(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	uint32_t num = msg->payload.state.num;
	bool packed = vu_acked(b, VIRTIO_F_RING_PACKED);

	/* 2.7, 2.8: a split ring has a power of two, a packed one any number. */
	return num == 0 || num > VQ_NUM_MAX || (!packed && (num & (num - 1)) != 0) ? -EINVAL : 0;
}

static int set_vring_num(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	if (vu_ring_runnable(b, (unsigned)(ring - b->rings)))
		stop_ring(ring);
	ring->num = (uint16_t)msg->payload.state.num;
	return 0;
}

static int check_vring_base(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	/* A split ring's index; packed: two places in the ring. */
	return !vu_acked(b, VIRTIO_F_RING_PACKED) && msg->payload.state.num > UINT16_MAX ? -EINVAL :
											   0;
}

static int set_vring_base(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	if (vu_ring_runnable(b, (unsigned)(ring - b->rings)))
		stop_ring(ring);
	ring->base = msg->payload.state.num;
	return 0;
}

static int get_vring_base(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	stop_ring(ring);
	msg->payload.state.num = ring->base;
	return 0;
}

static int check_vring_addr(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	/* The only flag asks for dirty logging, which is not offered. Without it the log address
	 * means nothing (User-mode Linux sends all ones). */
	return msg->payload.addr.flags != 0 ? -EINVAL : 0;
}

static int set_vring_addr(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	/* Whether memory is there decides whoever starts the ring: the table may come later. */
	ring->addr = (struct vq_addr){
		.desc = { msg->payload.addr.desc },
		.avail = { msg->payload.addr.avail },
		.used = { msg->payload.addr.used },
	};
	ring->addr_set = true;
	return 0;
}

static int check_vring_enable(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	if (msg->payload.state.num > 1)
		return -EINVAL;
	return ring->enabled == msg->payload.state.num ? VU_UNCHANGED : 0;
}

static int set_vring_enable(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	ring->enabled = msg->payload.state.num;
	return 0;
}

/* Descriptors of events */

/*
 * A front end's descriptors are taken where nothing that it does can hold up a write: eventfds, and
 * UNIX sockets (User-mode Linux). Whoever writes to a pipe waits for its lock, whatever the flags say,
 * and a front end can hold that lock: it writes to the pipe itself, out of memory that never arrives
 * (userfaultfd, FUSE).
 */
static bool is_eventfd(int fd)
{
	static const char name[] = "anon_inode:[eventfd]";
	char path[32], is[sizeof(name)];
	ssize_t len;

	/* Not by fstat(), which asks the file system, and that may be a stranger's. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = readlink(path, is, sizeof(is));
	return len == sizeof(name) - 1 && memcmp(is, name, sizeof(name) - 1) == 0;
}

/* The front end's own end of a connection to this device? We would hold both ends then, and never hear
 * that it has gone. */
static bool is_our_peer(const struct vu_backend *b, int fd)
{
	struct sockaddr_un ours = { 0 }, peer = { 0 };
	socklen_t ours_len = sizeof(ours), peer_len = sizeof(peer);

	return getsockname(b->ch.fd, (struct sockaddr *)&ours, &ours_len) == 0 &&
	       getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 &&
	       ours_len > offsetof(struct sockaddr_un, sun_path) && peer_len == ours_len &&
	       memcmp(&ours, &peer, ours_len) == 0;
}

static bool is_unix_socket(const struct vu_backend *b, int fd)
{
	socklen_t len = sizeof(int);
	int domain;

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX &&
	       !is_our_peer(b, fd);
}

void vu_close_event(struct vu_backend *b, int *fd)
{
	if (*fd >= 0 && is_eventfd(*fd))
		fd_close(fd); /* which never waits */
	else
		later_close(b->cfg.later, fd);
}

static int check_event_fd(const struct vu_backend *b, const struct vu_msg *msg, bool or_socket)
{
	if (msg->payload.u64 & VHOST_USER_VRING_NOFD)
		return 0;
	if (!is_eventfd(msg->fds[0]) && !(or_socket && is_unix_socket(b, msg->fds[0])))
		return -EBADF;
	return fd_set_nonblock(msg->fds[0]);
}

static int check_vring_fd(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	return check_event_fd(b, msg, false);
}

static int check_vring_call(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	return check_event_fd(b, msg, true);
}

static void replace_vring_fd(struct vu_backend *b, int *fd, struct vu_msg *msg)
{
	vu_close_event(b, fd);
	if (!(msg->payload.u64 & VHOST_USER_VRING_NOFD))
		*fd = vu_msg_take_fd(msg, 0);
}

static int set_vring_kick(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	replace_vring_fd(b, &ring->kick_fd, msg);
	ring->kick_set = true;
	return 0;
}

static int set_vring_call(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	replace_vring_fd(b, &ring->call_fd, msg);
	return 0;
}

static int set_vring_err(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	replace_vring_fd(b, &ring->err_fd, msg);
	return 0;
}

/* Messages go through it, and an eventfd carries only a number. */
static int check_req_fd(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	return is_unix_socket(b, msg->fds[0]) ? 0 : -EBADF;
}

static int set_backend_req_fd(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	vu_close_event(b, &b->req_fd);
	b->req_fd = vu_msg_take_fd(msg, 0);
	return 0;
}

/* Configuration */

static int get_config(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	struct vhost_user_config *c = &msg->payload.config;
	uint8_t space[VHOST_USER_CONFIG_MAX] = { 0 };

	if (c->size > sizeof(space) || c->offset > sizeof(space) - c->size ||
	    msg->hdr.size != VHOST_USER_CONFIG_HDR_LEN + c->size)
		return -EINVAL;
	/* Front ends ask for as much as they know of; what the device has not is zero. */
	b->cfg.ops->config(b->cfg.ctx, space, c->offset + c->size);
	memcpy(c->data, space + c->offset, c->size);
	return 0;
}

static int set_config(struct vu_backend *b, struct vu_msg *msg, struct vu_ring *ring)
{
	/* All fields are read-only. */
	return -EPERM;
}

/* clang-format off */
#define REQUEST(request, payload, fds, scope, reply, check, handle)                                \
	[VHOST_USER_##request] = {#request, VU_PAYLOAD_##payload, VU_FDS_##fds,                    \
				  VU_SCOPE_##scope, VU_REPLY_##reply, check, handle}

static const struct vu_request requests[] = {
	/*      request                payload      fds      scope    reply     check, handle */
	REQUEST(GET_FEATURES,          NONE,        NONE,    NOTHING, OWN,      NULL, get_features),
	REQUEST(SET_FEATURES,          U64,         NONE,    ALL,     NONE,     check_features, set_features),
	REQUEST(SET_OWNER,             NONE,        NONE,    NOTHING, NONE,     NULL, NULL),
	REQUEST(RESET_OWNER,           NONE,        NONE,    ALL,     NONE,     NULL, reset_owner),
	REQUEST(SET_MEM_TABLE,         MEM,         REGIONS, ALL,     NONE,     check_mem_table, set_mem_table),
	REQUEST(SET_VRING_NUM,         VRING_STATE, NONE,    RING,    NONE,     check_vring_num, set_vring_num),
	REQUEST(SET_VRING_ADDR,        VRING_ADDR,  NONE,    RING,    NONE,     check_vring_addr, set_vring_addr),
	REQUEST(SET_VRING_BASE,        VRING_STATE, NONE,    RING,    NONE,     check_vring_base, set_vring_base),
	REQUEST(GET_VRING_BASE,        VRING_STATE, NONE,    RING,    OWN,      NULL, get_vring_base),
	REQUEST(SET_VRING_KICK,        VRING_FD,    VRING,   RING,    NONE,     check_vring_fd, set_vring_kick),
	REQUEST(SET_VRING_CALL,        VRING_FD,    VRING,   RING,    NONE,     check_vring_call, set_vring_call),
	REQUEST(SET_VRING_ERR,         VRING_FD,    VRING,   RING,    NONE,     check_vring_fd, set_vring_err),
	REQUEST(GET_PROTOCOL_FEATURES, NONE,        NONE,    NOTHING, OWN,      NULL, get_protocol_features),
	REQUEST(SET_PROTOCOL_FEATURES, U64,         NONE,    NOTHING, NONE,     NULL, set_protocol_features),
	REQUEST(GET_QUEUE_NUM,         NONE,        NONE,    NOTHING, OWN,      NULL, get_queue_num),
	REQUEST(SET_VRING_ENABLE,      VRING_STATE, NONE,    RING,    NONE,     check_vring_enable, set_vring_enable),
	REQUEST(SET_BACKEND_REQ_FD,    NONE,        ONE,     NOTHING, NONE,     check_req_fd, set_backend_req_fd),
	REQUEST(GET_CONFIG,            CONFIG,      NONE,    NOTHING, OR_EMPTY, NULL, get_config),
	REQUEST(SET_CONFIG,            CONFIG,      NONE,    NOTHING, NONE,     NULL, set_config),
	REQUEST(RESET_DEVICE,          NONE,        NONE,    ALL,     NONE,     NULL, reset_device),
};
/* clang-format on */

const struct vu_request *vu_request_find(uint32_t request)
{
	if (request >= ARRAY_SIZE(requests) || requests[request].name == NULL)
		return NULL;
	return &requests[request];
}
