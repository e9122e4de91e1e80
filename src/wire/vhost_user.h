/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the vhost-user protocol (QEMU, docs/interop/vhost-user). */
#ifndef UVHOST_WIRE_VHOST_USER_H
#define UVHOST_WIRE_VHOST_USER_H

#include <assert.h>
#include <stdint.h>

/* Requests of the front end; those that this project knows. */
enum vhost_user_request {
	VHOST_USER_GET_FEATURES = 1,
	VHOST_USER_SET_FEATURES = 2,
	VHOST_USER_SET_OWNER = 3,
	VHOST_USER_RESET_OWNER = 4,
	VHOST_USER_SET_MEM_TABLE = 5,
	VHOST_USER_SET_VRING_NUM = 8,
	VHOST_USER_SET_VRING_ADDR = 9,
	VHOST_USER_SET_VRING_BASE = 10,
	VHOST_USER_GET_VRING_BASE = 11,
	VHOST_USER_SET_VRING_KICK = 12,
	VHOST_USER_SET_VRING_CALL = 13,
	VHOST_USER_SET_VRING_ERR = 14,
	VHOST_USER_GET_PROTOCOL_FEATURES = 15,
	VHOST_USER_SET_PROTOCOL_FEATURES = 16,
	VHOST_USER_GET_QUEUE_NUM = 17,
	VHOST_USER_SET_VRING_ENABLE = 18,
	VHOST_USER_SET_BACKEND_REQ_FD = 21,
	VHOST_USER_GET_CONFIG = 24,
	VHOST_USER_SET_CONFIG = 25,
	VHOST_USER_RESET_DEVICE = 34,
};

/* Requests of the back end, on the channel of SET_BACKEND_REQ_FD. */
#define VHOST_USER_BACKEND_CONFIG_CHANGE_MSG 2

/* Among the virtio feature bits: protocol features can be negotiated. */
#define VHOST_USER_F_PROTOCOL_FEATURES 30

#define VHOST_USER_PROTOCOL_F_MQ           0
#define VHOST_USER_PROTOCOL_F_REPLY_ACK    3
#define VHOST_USER_PROTOCOL_F_BACKEND_REQ  5
#define VHOST_USER_PROTOCOL_F_CONFIG       9
#define VHOST_USER_PROTOCOL_F_RESET_DEVICE 13

#define VHOST_USER_VERSION         1
#define VHOST_USER_VERSION_MASK    3
#define VHOST_USER_FLAG_REPLY      (1U << 2)
#define VHOST_USER_FLAG_NEED_REPLY (1U << 3)

/* In the payload of SET_VRING_KICK, CALL and ERR: the ring's index, and that no fd comes along. */
#define VHOST_USER_VRING_IDX_MASK 0xffULL
#define VHOST_USER_VRING_NOFD     (1ULL << 8)

#define VHOST_USER_MEM_REGIONS_MAX 8
#define VHOST_USER_CONFIG_MAX      256

/* All integers of a message are in the byte order of the machine that both ends run on. */
struct vhost_user_hdr {
	uint32_t request;
	uint32_t flags;
	uint32_t size; /* of the payload */
};
static_assert(sizeof(struct vhost_user_hdr) == 12, "vhost-user, Header");

struct vhost_user_vring_state {
	uint32_t index;
	uint32_t num;
};

struct vhost_user_vring_addr {
	uint32_t index;
	uint32_t flags;
	uint64_t desc; /* these three: addresses in the front end's process */
	uint64_t used;
	uint64_t avail;
	uint64_t log;
};
static_assert(sizeof(struct vhost_user_vring_addr) == 40,
	      "vhost-user, A vring address description");

struct vhost_user_region {
	uint64_t guest_addr;
	uint64_t size;
	uint64_t user_addr;
	uint64_t mmap_offset;
};
static_assert(sizeof(struct vhost_user_region) == 32, "vhost-user, Memory region description");

struct vhost_user_mem {
	uint32_t cnt;
	uint32_t padding;
	struct vhost_user_region regions[VHOST_USER_MEM_REGIONS_MAX];
};

struct vhost_user_config {
	uint32_t offset;
	uint32_t size;
	uint32_t flags;
	uint8_t data[VHOST_USER_CONFIG_MAX];
};
#define VHOST_USER_CONFIG_HDR_LEN 12

union vhost_user_payload {
	uint64_t u64;
	struct vhost_user_vring_state state;
	struct vhost_user_vring_addr addr;
	struct vhost_user_mem mem;
	struct vhost_user_config config;
};

#endif
