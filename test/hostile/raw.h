/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring that is written by hand, descriptor by descriptor, right or wrong. The driver's side (drvq)
 * must not be used on it; the checker is.
 */
#ifndef UVHOST_TEST_RAW_H
#define UVHOST_TEST_RAW_H

#include <stdint.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "lib/daemon.h"
#include "lib/guest.h"

struct raw_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

static inline void raw_desc(struct vring_desc *d, const struct raw_desc *from)
{
	le64_set(&d->addr, from->addr);
	le32_set(&d->len, from->len);
	le16_set(&d->flags, from->flags);
	le16_set(&d->next, from->next);
}

/* Makes @head available @cnt times. */
static inline void raw_avail(struct guest_ring *r, uint16_t head, unsigned cnt)
{
	uint16_t idx = le16_get(&r->q.split.avail->idx);

	for (unsigned i = 0; i < cnt; i++)
		le16_set(&r->q.split.avail->ring[idx++ & (r->num - 1)], head);
	le16_store(&r->q.split.avail->idx, idx, memory_order_release);
	check_avail(&r->chk);
	eventfd_write(r->kick, 1);
}

/* Waits until everything has come back. */
static inline void raw_wait(struct guest_ring *r)
{
	uint64_t deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;

	while (check_used(&r->chk), check_out(&r->chk) > 0) {
		if (clock_ns() > deadline)
			FAIL("%s: %u heads did not come back", r->chk.name, check_out(&r->chk));
		test_sleep_us(20);
	}
}

/* The error descriptor was signalled: the ring is broken. */
static inline void raw_wait_broken(struct guest_ring *r)
{
	uint64_t deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;
	eventfd_t n;

	while (eventfd_read(r->err, &n) < 0) {
		if (clock_ns() > deadline)
			FAIL("%s: no error was signalled", r->chk.name);
		test_sleep_us(200);
	}
	EQ(n, 1);
}

#endif
