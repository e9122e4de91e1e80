/* SPDX-License-Identifier: BSD-2-Clause */
/* The few macros that every folder uses. */
#ifndef UVHOST_BASE_UTIL_H
#define UVHOST_BASE_UTIL_H

#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline unsigned min_uint(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

static inline unsigned max_uint(unsigned a, unsigned b)
{
	return a > b ? a : b;
}

#endif
