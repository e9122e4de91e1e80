// SPDX-License-Identifier: BSD-2-Clause
/* What must be true of any used ring. */
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static atomic_uint tests_over;
static _Thread_local unsigned own_test;

void test_thread(void)
{
	own_test = atomic_load(&tests_over);
}

void test_over(void)
{
	atomic_fetch_add(&tests_over, 1);
}

void test_failed(const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (gettid() != getpid() && own_test != atomic_load(&tests_over))
		pthread_exit(NULL);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s:%d: %s\n", file, line, text);
	/* cmocka's way out is a longjmp(), good in its own thread only. */
	if (gettid() == getpid())
		_fail(file, line);
	abort();
}

void test_ok(const char *file, int line, const char *what, int ret)
{
	if (ret != 0)
		test_failed(file, line, "%s: %s", what, strerror(-ret));
}

void test_eq(const char *file, int line, const char *what, long long is, long long should)
{
	if (is != should)
		test_failed(file, line, "%s is %lld, not %lld", what, is, should);
}

void check_init(struct check *c, const char *name, const struct vring_desc *desc,
		const struct vring_avail *avail, const struct vring_used *used, unsigned num,
		bool in_order)
{
	*c = (struct check){ .name = name,
			     .desc = desc,
			     .avail = avail,
			     .used = used,
			     .num = num,
			     .in_order = in_order };
	c->heads = calloc(num, sizeof(c->heads[0]));
	c->order = calloc(num, sizeof(c->order[0]));
	MUST(c->heads != NULL && c->order != NULL);
}

void check_fini(struct check *c)
{
	free(c->heads);
	free(c->order);
	c->heads = NULL;
	c->order = NULL;
}

/* Writable bytes of @max descriptors from @i on; 0 for a chain that breaks a rule. */
static uint64_t chain_capacity(const struct check *c, const struct vring_desc *desc, uint32_t max,
			       uint32_t i)
{
	uint64_t sum = 0;

	for (uint32_t n = 0; n < max; n++) {
		uint16_t flags = le16_get(&desc[i].flags);
		uint32_t len = le32_get(&desc[i].len);

		if (flags & VRING_DESC_F_INDIRECT) {
			const struct vring_desc *table =
				desc == c->desc ? c->at(c->ctx, le64_get(&desc[i].addr), len) :
						  NULL;

			if (table == NULL || len < sizeof(*table))
				return 0;
			return sum + chain_capacity(c, table, len / sizeof(*table), 0);
		}
		if (flags & VRING_DESC_F_WRITE)
			sum += len;
		if (!(flags & VRING_DESC_F_NEXT))
			return sum;
		i = le16_get(&desc[i].next);
		if (i >= max)
			return 0;
	}
	return 0;
}

void check_avail(struct check *c)
{
	uint16_t idx = le16_get(&c->avail->idx);

	for (; c->avail_idx != idx; c->avail_idx++) {
		uint16_t head = le16_get(&c->avail->ring[c->avail_idx & (c->num - 1)]);
		uint64_t capacity;

		MUST(head < c->num);
		capacity = chain_capacity(c, c->desc, c->num, head);
		c->heads[head].out++;
		c->heads[head].capacity = capacity > UINT32_MAX ? 0 : (uint32_t)capacity;
		c->order[c->avail_idx & (c->num - 1)] = head;
	}
}

static void check_elem(struct check *c, uint32_t id, uint32_t len)
{
	if (id >= c->num)
		FAIL("%s: used %u: head %u of %u", c->name, c->used_idx, id, c->num);
	if (c->heads[id].out == 0)
		FAIL("%s: used %u: head %u is not with the device", c->name, c->used_idx, id);
	if (len > c->heads[id].capacity)
		FAIL("%s: used %u: head %u with %u bytes, %u fit", c->name, c->used_idx, id, len,
		     c->heads[id].capacity);
	if (c->in_order && id != c->order[c->used_idx & (c->num - 1)])
		FAIL("%s: used %u: head %u is not next in order", c->name, c->used_idx, id);
	c->heads[id].out--;
}

unsigned check_used(struct check *c)
{
	uint16_t idx = le16_load(&c->used->idx, memory_order_acquire);
	unsigned ready = (uint16_t)(idx - c->used_idx);

	if (ready > check_out(c))
		FAIL("%s: %u came back, %u were out", c->name, ready, check_out(c));
	for (; c->used_idx != idx; c->used_idx++) {
		const struct vring_used_elem *e = &c->used->ring[c->used_idx & (c->num - 1)];

		check_elem(c, le32_get(&e->id), le32_get(&e->len));
	}
	return ready;
}

unsigned check_out(const struct check *c)
{
	return (uint16_t)(c->avail_idx - c->used_idx);
}

void check_stopped(struct check *c, uint32_t base)
{
	check_used(c);
	if (base != c->used_idx)
		FAIL("%s: stopped at %u with used index %u", c->name, base, c->used_idx);
}
