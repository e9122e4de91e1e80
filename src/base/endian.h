/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Little-endian fields of memory that two parties share, as types of their own, so that a value in
 * the wrong byte order does not compile.
 *
 * DOC: every access is one C11 atomic access. The other party may write at any moment; a plain read
 * could be torn or, worse, repeated by the compiler after the value was checked. Relaxed accesses
 * cost what plain ones cost; the ordered ones name their partner where they are used.
 */
#ifndef UVHOST_BASE_ENDIAN_H
#define UVHOST_BASE_ENDIAN_H

#include <endian.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct {
	_Atomic uint16_t raw;
} le16;

typedef struct {
	_Atomic uint32_t raw;
} le32;

typedef struct {
	_Atomic uint64_t raw;
} le64;

static inline uint16_t le16_load(const le16 *p, memory_order order)
{
	return le16toh(atomic_load_explicit(&p->raw, order));
}

static inline void le16_store(le16 *p, uint16_t v, memory_order order)
{
	atomic_store_explicit(&p->raw, htole16(v), order);
}

static inline uint16_t le16_get(const le16 *p)
{
	return le16_load(p, memory_order_relaxed);
}

static inline void le16_set(le16 *p, uint16_t v)
{
	le16_store(p, v, memory_order_relaxed);
}

static inline uint32_t le32_get(const le32 *p)
{
	return le32toh(atomic_load_explicit(&p->raw, memory_order_relaxed));
}

static inline void le32_set(le32 *p, uint32_t v)
{
	atomic_store_explicit(&p->raw, htole32(v), memory_order_relaxed);
}

static inline uint64_t le64_get(const le64 *p)
{
	return le64toh(atomic_load_explicit(&p->raw, memory_order_relaxed));
}

static inline void le64_set(le64 *p, uint64_t v)
{
	atomic_store_explicit(&p->raw, htole64(v), memory_order_relaxed);
}

#endif
