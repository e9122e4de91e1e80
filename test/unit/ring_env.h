/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring with both its sides in one process, for the tests of ring/.
 *
 *   guest-physical   | A (ring, tables, buffers) | B (buffers)      |    adjoining at SEAM
 *   file             | canary | B      | canary | A                 | canary |
 *
 * The driver's side goes by its own mapping of the whole file, the device's side by a memory table:
 * the two regions lie apart and in the other order there (field cases 4 and 51). The canaries must
 * be whole when the test ends.
 */
#ifndef UVHOST_TEST_RING_ENV_H
#define UVHOST_TEST_RING_ENV_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/iov.h"
#include "base/util.h"
#include "mem/mem.h"
#include "ring/drvq.h"
#include "ring/vq.h"

/* cmocka compares in its own integer type; this says what was meant. */
#define expect(cond) assert_true(cond)

#define PAGE     4096ULL
#define A_SIZE   (4ULL << 20)
#define B_SIZE   (4ULL << 20)
#define A_GPA    0x40000000ULL
#define SEAM     (A_GPA + A_SIZE)
#define END_GPA  (SEAM + B_SIZE)
#define A_UVA    0x7f1200000000ULL
#define B_UVA    0x7f0000000000ULL
#define B_OFF    PAGE
#define A_OFF    (B_OFF + B_SIZE + PAGE)
#define FILE_LEN (A_OFF + A_SIZE + PAGE)
/* Inside A. */
#define TABLE_GPA (A_GPA + (1ULL << 20))
#define BUF_GPA   (A_GPA + (2ULL << 20))
#define NO_GPA    0x10000ULL /* no memory is here */

#define F(bit)      (1ULL << VIRTIO_F_##bit)
#define INDIRECT    F(RING_INDIRECT_DESC)
#define EVENT_IDX   F(RING_EVENT_IDX)
#define IN_ORDER    F(IN_ORDER)
#define PACKED      F(RING_PACKED)
#define CANARY      0xc5
#define CHAINS_MAX  VQ_NUM_MAX
#define TABLE_DESCS 32

struct env {
	int fd;
	char *file;
	struct mem *mem;
	unsigned num;
	uint64_t features;
	struct vq_addr addr;
	struct drvq drv;
	struct vq dev;
	struct vq_iovs iovs;
	struct vq_chain chains[CHAINS_MAX];
};

/* A test that does not touch the ring's memory runs with both layouts. */
static uint64_t env_layout; /* PACKED or 0: what each ring has */

static inline int env_split(void **state)
{
	env_layout = 0;
	return 0;
}

static inline int env_packed(void **state)
{
	env_layout = PACKED;
	return 0;
}

#define SPLIT(test)                                \
	{                                          \
#test, test, env_split, NULL, NULL \
	}
#define BOTH_LAYOUTS(test)                                    \
	SPLIT(test),                                          \
	{                                                     \
#test " packed", test, env_packed, NULL, NULL \
	}

/* The driver's pointer to a guest-physical address; good up to the end of its region. */
static inline void *env_ptr(struct env *e, uint64_t gpa)
{
	expect(gpa >= A_GPA && gpa < END_GPA);
	return e->file + (gpa < SEAM ? A_OFF + (gpa - A_GPA) : B_OFF + (gpa - SEAM));
}

static inline void env_write(struct env *e, uint64_t gpa, const void *src, size_t len)
{
	for (size_t i = 0; i < len; i++)
		*(char *)env_ptr(e, gpa + i) = ((const char *)src)[i];
}

static inline void env_read(struct env *e, uint64_t gpa, void *dst, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((char *)dst)[i] = *(char *)env_ptr(e, gpa + i);
}

static inline struct mem *env_table(struct env *e)
{
	const struct mem_region_cfg regions[] = {
		{ { A_GPA }, { A_UVA }, A_SIZE, A_OFF, e->fd },
		{ { SEAM }, { B_UVA }, B_SIZE, B_OFF, e->fd },
	};
	struct mem *mem = NULL;

	assert_int_equal(mem_new(&mem, regions, ARRAY_SIZE(regions), 0, "test"), 0);
	return mem;
}

/* A fresh driver's ring of @num; the device's side is not started. */
static inline void env_lay(struct env *e, unsigned num, uint64_t features)
{
	const struct drvq_indirect indirect = { env_ptr(e, TABLE_GPA), { TABLE_GPA }, TABLE_DESCS };
	size_t avail, used;

	features |= env_layout;
	e->num = num;
	e->features = features;
	drvq_ring_bytes(num, &avail, &used);
	e->addr = (struct vq_addr){ { A_UVA }, { A_UVA + avail }, { A_UVA + used } };
	assert_int_equal(drvq_init(&e->drv, env_ptr(e, A_GPA), num, features, &indirect), 0);
}

static inline int env_start(struct env *e, uint32_t base)
{
	return vq_start(&e->dev, e->mem, &e->addr, (uint16_t)e->num, base, e->features);
}

static inline void env_put_canaries(struct env *e)
{
	memset(e->file, CANARY, PAGE);
	memset(e->file + B_OFF + B_SIZE, CANARY, PAGE);
	memset(e->file + A_OFF + A_SIZE, CANARY, PAGE);
}

static inline struct env *env_new(unsigned num, uint64_t features)
{
	struct env *e = calloc(1, sizeof(*e));

	if (e == NULL)
		abort();
	e->fd = memfd_create("ring_env", MFD_CLOEXEC);
	expect(e->fd >= 0);
	assert_int_equal(ftruncate(e->fd, FILE_LEN), 0);
	e->file = mmap(NULL, FILE_LEN, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
	expect(e->file != MAP_FAILED);
	env_put_canaries(e);
	e->mem = env_table(e);
	env_lay(e, num, features);
	assert_int_equal(env_start(e, drvq_base(&e->drv)), 0);
	return e;
}

static inline void env_free(struct env *e)
{
	for (size_t i = 0; i < PAGE; i++) {
		expect((unsigned char)e->file[i] == CANARY);
		expect((unsigned char)e->file[B_OFF + B_SIZE + i] == CANARY);
		expect((unsigned char)e->file[A_OFF + A_SIZE + i] == CANARY);
	}
	if (vq_running(&e->dev))
		vq_stop(&e->dev);
	drvq_fini(&e->drv);
	mem_free(e->mem, NULL);
	munmap(e->file, FILE_LEN);
	close(e->fd);
	free(e);
}

/* ---- the device's side ---- */

/* Is the driver to be told? Then it is. */
static inline bool env_notify(struct env *e)
{
	bool wants = vq_wants_notify(&e->dev);

	if (wants)
		vq_notified(&e->dev);
	return wants;
}

static inline int env_pop(struct env *e, unsigned max)
{
	e->iovs.used = 0;
	return vq_pop(&e->dev, e->chains, max, &e->iovs);
}

static inline void env_push(struct env *e, const struct vq_chain *c, uint32_t len)
{
	const struct vq_done done = { .head = c->head, .seq = c->seq, .len = len };

	vq_push(&e->dev, &done, 1);
}

/* Pops up to @max chains and returns all with @len bytes; how many. */
static inline int env_serve(struct env *e, unsigned max, uint32_t len)
{
	int cnt = env_pop(e, max);

	for (int i = 0; i < cnt; i++)
		env_push(e, &e->chains[i], len);
	vq_flush(&e->dev);
	return cnt;
}

/* ---- the driver's side ---- */

/* Tokens are the addresses of these; nothing is ever stored there. */
static char env_tokens[1 << 20];

static inline void *token_ptr(size_t token)
{
	expect(token < sizeof(env_tokens));
	return &env_tokens[token];
}

static inline size_t token_num(const void *token)
{
	return (size_t)((const char *)token - env_tokens);
}

/* Adds one chain of one descriptor with this token. */
static inline int env_add(struct env *e, uint32_t len, bool write, size_t token)
{
	const struct drvq_buf buf = { { BUF_GPA }, len };

	return drvq_add(&e->drv, &buf, !write, write, token_ptr(token));
}

/* The next used chain must be @token's with @len bytes written. */
static inline void env_expect_used(struct env *e, size_t token, uint32_t len)
{
	struct drvq_used used;

	assert_int_equal(drvq_get(&e->drv, &used), 1);
	assert_int_equal(token_num(used.token), token);
	assert_int_equal(used.len, len);
}

static inline void env_expect_none(struct env *e)
{
	struct drvq_used used;

	assert_int_equal(drvq_get(&e->drv, &used), 0);
}

/* ---- a hostile or hand-written driver: the ring's memory as it is ---- */

static inline void raw_put(struct vring_desc *d, uint64_t addr, uint32_t len, unsigned flags,
			   unsigned next)
{
	le64_set(&d->addr, addr);
	le32_set(&d->len, len);
	le16_set(&d->flags, (uint16_t)flags);
	le16_set(&d->next, (uint16_t)next);
}

static inline void raw_desc(struct env *e, unsigned i, uint64_t addr, uint32_t len, unsigned flags,
			    unsigned next)
{
	raw_put(&e->drv.split.desc[i], addr, len, flags, next);
}

static inline uint16_t raw_avail_idx(struct env *e)
{
	return le16_get(&e->drv.split.avail->idx);
}

static inline void raw_publish(struct env *e, unsigned head)
{
	uint16_t idx = raw_avail_idx(e);

	le16_set(&e->drv.split.avail->ring[idx & (e->num - 1)], (uint16_t)head);
	le16_store(&e->drv.split.avail->idx, (uint16_t)(idx + 1), memory_order_release);
}

static inline uint16_t raw_used_idx(struct env *e)
{
	return le16_load(&e->drv.split.used->idx, memory_order_acquire);
}

/* Makes both sides stand where they do when @idx chains of a descriptor each have passed. */
static inline void env_wind_split(struct env *e, uint16_t idx)
{
	le16_set(&e->drv.split.avail->idx, idx);
	le16_set(&e->drv.split.used->idx, idx);
	assert_int_equal(env_start(e, idx), 0);
}

static inline void env_wind_packed(struct env *e, uint16_t idx)
{
	struct drvq_packed *p = &e->drv.packed;
	unsigned pos = idx % e->num;
	uint16_t lap = idx / e->num % 2 == 0 ? VRING_PACKED_WRAP : 0;

	for (unsigned i = 0; i < e->num; i++)
		le16_set(&p->desc[i].flags,
			 vring_packed_used(i < pos ? lap : lap ^ VRING_PACKED_WRAP));
	p->avail = p->published = p->used = (uint16_t)(pos | lap);
	assert_int_equal(env_start(e, p->avail * 0x10001U), 0);
}

static inline void env_wind(struct env *e, uint16_t idx)
{
	if (vq_running(&e->dev))
		vq_stop(&e->dev);
	if (e->drv.is_packed)
		env_wind_packed(e, idx);
	else
		env_wind_split(e, idx);
	e->drv.avail_idx = e->drv.kicked_idx = e->drv.used_idx = idx;
}

#endif
