/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory that a driver shares with its back end: its own, from one memfd, and what the caller lends.
 *
 * DOC: the driver's addresses of this memory, the addresses that it names as the front end's, and the
 * guest-physical addresses in descriptors are three spaces. The first two are the same here. The third
 * is laid out by region, far from the others, so that a back end that mixes them up is found out.
 */
#ifndef UVHOST_DRV_MEMORY_H
#define UVHOST_DRV_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/mem.h"
#include "uvhost/driver.h"
#include "wire/vhost_user.h"

struct drv_region {
	char *addr;
	size_t len;
	struct gpa gpa;
	int fd;
	uint64_t offset;
};

struct drv_mem {
	struct drv_region regions[VHOST_USER_MEM_REGIONS_MAX]; /* the first is the driver's own */
	unsigned cnt;
	size_t used; /* of the first */
};

/* The driver's own region has at least @len bytes, all zero. 0, -ENOMEM, -EINVAL: @lent; or -errno of
 * making it. */
int drv_mem_init(struct drv_mem *m, size_t len, bool hugepages, const struct uvhost_lent *lent,
		 unsigned lent_cnt);
void drv_mem_fini(struct drv_mem *m);

/* Bytes of the driver's own region, aligned to a cache line; NULL: none are left. */
void *drv_mem_alloc(struct drv_mem *m, size_t len);
/* What such an allocation takes. */
size_t drv_mem_round(size_t len);
/* Where is it in guest-physical memory? False: not, or not all, in one region. */
bool drv_mem_gpa(const struct drv_mem *m, const void *ptr, size_t len, struct gpa *gpa);

#endif
