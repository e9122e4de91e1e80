/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A histogram of durations: fixed memory, 1.6 % resolution over 64 bits.
 *
 * DOC: buckets are linear within each power of two: HISTOGRAM_SUB of them an octave. A percentile is
 * the upper end of its bucket, so never less than what was measured.
 */
#ifndef UVHOST_BASE_HISTOGRAM_H
#define UVHOST_BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 6
#define HISTOGRAM_SUB      (1U << HISTOGRAM_SUB_BITS)
#define HISTOGRAM_BUCKETS  ((64 - HISTOGRAM_SUB_BITS + 1) * HISTOGRAM_SUB)

struct histogram {
	uint64_t buckets[HISTOGRAM_BUCKETS];
	uint64_t cnt, min, max, sum;
};

static inline unsigned histogram_bucket(uint64_t v)
{
	unsigned shift;

	if (v < HISTOGRAM_SUB)
		return (unsigned)v;
	shift = 63U - (unsigned)__builtin_clzll(v) - HISTOGRAM_SUB_BITS;
	return (shift + 1) * HISTOGRAM_SUB + (unsigned)(v >> shift) - HISTOGRAM_SUB;
}

/* The largest value of a bucket. */
static inline uint64_t histogram_top(unsigned bucket)
{
	unsigned shift = bucket / HISTOGRAM_SUB;

	if (shift == 0)
		return bucket;
	shift--;
	return ((uint64_t)(bucket % HISTOGRAM_SUB + HISTOGRAM_SUB + 1) << shift) - 1;
}

static inline void histogram_add(struct histogram *h, uint64_t v)
{
	h->buckets[histogram_bucket(v)]++;
	h->min = h->cnt == 0 || v < h->min ? v : h->min;
	h->max = v > h->max ? v : h->max;
	h->sum += v;
	h->cnt++;
}

/* The value that @permille of 1,000 values do not exceed; 0 when there are none. */
static inline uint64_t histogram_at(const struct histogram *h, unsigned permille)
{
	uint64_t want = (h->cnt * permille + 999) / 1000, seen = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen > 0 && seen >= want)
			return histogram_top(i) < h->max ? histogram_top(i) : h->max;
	}
	return h->max;
}

#endif
