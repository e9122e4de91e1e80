/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Probe frames: what a load generator writes, so that the receiver can tell a lost frame from a
 * doubled, a late or a damaged one.
 *
 * DOC: 14 bytes of Ethernet header (any addresses, ethertype 0x88b5: local experimental), the
 * sequence number (u64, little-endian), a checksum (u32, little-endian) of the sequence number, the
 * length and everything behind the checksum. The sequence number is in the sum, so that the payload
 * of another frame of the same size does not pass.
 *
 * The checksum is not a standard one: it takes 8 bytes a step, so that it does not bound what is
 * measured, and every bit of it depends on the value and the place of every byte.
 */
#ifndef UVHOST_BASE_PROBE_FRAME_H
#define UVHOST_BASE_PROBE_FRAME_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define PROBE_ETHERTYPE 0x88b5
#define PROBE_MACS_LEN  12
#define PROBE_HEAD_LEN  (PROBE_MACS_LEN + 2 + 8 + 4) /* the smallest probe frame */

enum probe_verdict { PROBE_GOOD, PROBE_DAMAGED, PROBE_OTHER /* not a probe frame */ };

static inline uint64_t probe_mix(uint64_t sum, uint64_t word)
{
	sum = (sum ^ word) * 0x9e3779b97f4a7c15ULL; /* 2^64 / golden ratio, odd */
	return sum ^ sum >> 32;
}

static inline uint32_t probe_sum(const uint8_t *frame, size_t len, uint64_t seq)
{
	uint64_t sum = probe_mix(probe_mix(0, seq), len), word;
	size_t at = PROBE_HEAD_LEN;

	for (; len - at >= sizeof(word); at += sizeof(word)) {
		memcpy(&word, frame + at, sizeof(word));
		sum = probe_mix(sum, le64toh(word));
	}
	word = 0;
	memcpy(&word, frame + at, len - at);
	return (uint32_t)(probe_mix(sum, le64toh(word)));
}

/* Makes a probe frame of @len >= PROBE_HEAD_LEN bytes, whose addresses and payload are there already. */
static inline void probe_write(void *buf, size_t len, uint64_t seq)
{
	uint8_t *frame = buf;
	uint16_t type = htobe16(PROBE_ETHERTYPE);
	uint64_t seq_le = htole64(seq);
	uint32_t sum_le = htole32(probe_sum(frame, len, seq));

	memcpy(frame + PROBE_MACS_LEN, &type, sizeof(type));
	memcpy(frame + PROBE_MACS_LEN + 2, &seq_le, sizeof(seq_le));
	memcpy(frame + PROBE_MACS_LEN + 2 + 8, &sum_le, sizeof(sum_le));
}

/* *@seq is set for a good one. */
static inline enum probe_verdict probe_read(const void *buf, size_t len, uint64_t *seq)
{
	const uint8_t *frame = buf;
	uint16_t type;
	uint32_t sum;

	if (len < PROBE_HEAD_LEN)
		return PROBE_OTHER;
	memcpy(&type, frame + PROBE_MACS_LEN, sizeof(type));
	if (type != htobe16(PROBE_ETHERTYPE))
		return PROBE_OTHER;
	memcpy(seq, frame + PROBE_MACS_LEN + 2, sizeof(*seq));
	memcpy(&sum, frame + PROBE_MACS_LEN + 2 + 8, sizeof(sum));
	*seq = le64toh(*seq);
	return le32toh(sum) == probe_sum(frame, len, *seq) ? PROBE_GOOD : PROBE_DAMAGED;
}

#endif
