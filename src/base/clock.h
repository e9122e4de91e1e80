/* SPDX-License-Identifier: BSD-2-Clause */
/* Monotonic time in nanoseconds. */
#ifndef UVHOST_BASE_CLOCK_H
#define UVHOST_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NSEC_PER_USEC 1000ULL
#define NSEC_PER_MSEC 1000000ULL
#define NSEC_PER_SEC  1000000000ULL

static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

#endif
