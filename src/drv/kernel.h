/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The kernel's vhost-net as a driver's back end (/dev/vhost-net), with a tap behind it.
 *
 * DOC: what a vhost-user back end is told in messages the kernel is told in ioctls; rings, memory and
 * doorbells are the same. It offers the features of rings only: checksums and segmentation are the
 * tap's, which is set to what is acked.
 */
#ifndef UVHOST_DRV_KERNEL_H
#define UVHOST_DRV_KERNEL_H

#include <stdint.h>

#include "drv/memory.h"
#include "drv/session.h"

struct drv_kernel {
	int fd;     /* -1: none */
	int tap_fd; /* the caller's, opened with IFF_VNET_HDR */
};

/* Opens @path, shares the memory, agrees on features: *@acked. One queue pair. 0 or -errno. */
int drv_kernel_open(struct drv_kernel *k, const char *path, const struct drv_wish *wish,
		    const struct drv_mem *mem, uint64_t *acked);
/* Hands ring number @idx over; it is started already. */
int drv_kernel_ring(struct drv_kernel *k, unsigned idx, const struct drv_ring *r);
/* Both are handed over: frames may pass. */
int drv_kernel_enable(struct drv_kernel *k);
void drv_kernel_close(struct drv_kernel *k);

#endif
