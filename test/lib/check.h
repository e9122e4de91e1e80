/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What must be true of any used ring, on in every test that drives a device: each head that comes
 * back was available, comes back exactly once, with no more bytes than fit, in order with IN_ORDER.
 *
 * It reads the ring in memory and knows nothing of the driver that fills it, so it also watches over
 * chains that are written by hand.
 */
#ifndef UVHOST_TEST_CHECK_H
#define UVHOST_TEST_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/virtio_ring.h"

/* Ends the test; in another thread than the test's own, the whole program. */
void test_failed(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));
/* A thread says that it belongs to the test that runs. When that is over and the thread then fails,
 * because what it used has gone, it just ends. */
void test_thread(void);
void test_over(void);
#define FAIL(...)  test_failed(__FILE__, __LINE__, __VA_ARGS__)
#define MUST(cond) ((cond) ? (void)0 : test_failed(__FILE__, __LINE__, "not so: %s", #cond))
/* An int that is 0 or -errno. */
#define OK(call) test_ok(__FILE__, __LINE__, #call, call)
#define EQ(a, b) test_eq(__FILE__, __LINE__, #a, (long long)(a), (long long)(b))
void test_ok(const char *file, int line, const char *what, int ret);
void test_eq(const char *file, int line, const char *what, long long is, long long should);

struct check_head {
	uint32_t capacity;
	uint16_t out; /* times that it is with the device */
};

struct check {
	const char *name;
	const struct vring_desc *desc;
	const struct vring_avail *avail;
	const struct vring_used *used;
	unsigned num;
	bool in_order;
	uint16_t avail_idx, used_idx;
	struct check_head *heads;
	uint16_t *order; /* heads by avail index */
	/* The @len bytes at a guest-physical address, or NULL. */
	void *(*at)(void *ctx, uint64_t gpa, uint64_t len);
	void *ctx;
};

/* For a ring whose both indexes are 0. */
void check_init(struct check *c, const char *name, const struct vring_desc *desc,
		const struct vring_avail *avail, const struct vring_used *used, unsigned num,
		bool in_order);
void check_fini(struct check *c);

/* After the driver has published: the new chains are with the device. */
void check_avail(struct check *c);
/* Checks what has come back since; how many. Before the driver reuses any of it. */
unsigned check_used(struct check *c);
/* Chains with the device. */
unsigned check_out(const struct check *c);
/* The device has stopped at @base: whatever it took has come back. */
void check_stopped(struct check *c, uint32_t base);

#endif
