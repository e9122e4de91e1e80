/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What became of a flow's probe frames (probe_frame.h): by their sequence numbers.
 *
 * DOC: a number behind the next one expected makes those between missing; a missing one that comes after
 * all was late; one that has come before was doubled. The last PROBE_WINDOW numbers are remembered,
 * what is older than that counts as doubled.
 */
#ifndef UVHOST_BASE_PROBE_TRACK_H
#define UVHOST_BASE_PROBE_TRACK_H

#include <stdint.h>
#include <string.h>

#define PROBE_WINDOW 65536

struct probe_track {
	uint64_t next; /* expected */
	uint64_t good, missing, late, doubled;
	uint64_t seen[PROBE_WINDOW / 64];
};

static inline uint64_t *probe_word(struct probe_track *t, uint64_t seq)
{
	return &t->seen[seq % PROBE_WINDOW / 64];
}

static inline void probe_track(struct probe_track *t, uint64_t seq)
{
	uint64_t bit = 1ULL << seq % 64;

	if (seq >= t->next) {
		uint64_t gap = seq - t->next;

		t->missing += gap;
		/* Numbers that are new to the window have not been seen. */
		if (gap >= PROBE_WINDOW)
			memset(t->seen, 0, sizeof(t->seen));
		for (uint64_t s = gap >= PROBE_WINDOW ? seq : t->next; s <= seq; s++)
			*probe_word(t, s) &= ~(1ULL << s % 64);
		t->next = seq + 1;
	} else if (t->next - seq > PROBE_WINDOW || *probe_word(t, seq) & bit) {
		t->doubled++;
		return;
	} else {
		t->missing--;
		t->late++;
	}
	*probe_word(t, seq) |= bit;
	t->good++;
}

#endif
