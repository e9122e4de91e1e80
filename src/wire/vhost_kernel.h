/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ioctls of the kernel's /dev/vhost-net (Linux, Documentation and uapi of vhost). Its own header
 * cannot be included: it declares the rings that wire/virtio_ring.h declares.
 */
#ifndef UVHOST_WIRE_VHOST_KERNEL_H
#define UVHOST_WIRE_VHOST_KERNEL_H

#include <assert.h>
#include <stdint.h>
#include <sys/ioctl.h>

struct vhost_kernel_region {
	uint64_t guest_addr;
	uint64_t size;
	uint64_t user_addr;
	uint64_t flags; /* 0 */
};

struct vhost_kernel_mem {
	uint32_t cnt;
	uint32_t padding;
	struct vhost_kernel_region regions[];
};
static_assert(sizeof(struct vhost_kernel_mem) == 8, "the ioctl's number has this size in it");

struct vhost_kernel_state {
	uint32_t index;
	uint32_t num;
};

struct vhost_kernel_file {
	uint32_t index;
	int32_t fd; /* -1: none */
};

struct vhost_kernel_addr {
	uint32_t index;
	uint32_t flags;
	uint64_t desc; /* addresses in the caller's process */
	uint64_t used;
	uint64_t avail;
	uint64_t log;
};
static_assert(sizeof(struct vhost_kernel_addr) == 40, "the ioctl's number has this size in it");

#define VHOST_KERNEL_GET_FEATURES    _IOR(0xaf, 0x00, uint64_t)
#define VHOST_KERNEL_SET_FEATURES    _IOW(0xaf, 0x00, uint64_t)
#define VHOST_KERNEL_SET_OWNER       _IO(0xaf, 0x01)
#define VHOST_KERNEL_SET_MEM_TABLE   _IOW(0xaf, 0x03, struct vhost_kernel_mem)
#define VHOST_KERNEL_SET_VRING_NUM   _IOW(0xaf, 0x10, struct vhost_kernel_state)
#define VHOST_KERNEL_SET_VRING_ADDR  _IOW(0xaf, 0x11, struct vhost_kernel_addr)
#define VHOST_KERNEL_SET_VRING_BASE  _IOW(0xaf, 0x12, struct vhost_kernel_state)
#define VHOST_KERNEL_SET_VRING_KICK  _IOW(0xaf, 0x20, struct vhost_kernel_file)
#define VHOST_KERNEL_SET_VRING_CALL  _IOW(0xaf, 0x21, struct vhost_kernel_file)
#define VHOST_KERNEL_NET_SET_BACKEND _IOW(0xaf, 0x30, struct vhost_kernel_file)

#endif
