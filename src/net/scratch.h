/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that the queues of one worker share, each within one round: pieces of chains, and slots into
 * which a port reads frames. Nothing in it outlives the round.
 */
#ifndef UVHOST_NET_SCRATCH_H
#define UVHOST_NET_SCRATCH_H

#include <stdint.h>
#include <sys/uio.h>

#include "port/port.h"
#include "ring/vq.h"

#define SCRATCH_SLOTS 64
/* No power of two: equal offsets in all slots would fall into the same few sets of the cache. */
#define SCRATCH_SLOT_LEN (PORT_ROOM + 2122)

struct scratch_slot {
	struct iovec spare; /* a port's header */
	struct iovec iov;
};

struct scratch {
	uint64_t round;
	struct vq_iovs pieces; /* in use until the entry */
	struct vq_iovs copy;   /* in use within one call */
	unsigned slots_used;
	struct scratch_slot slots[SCRATCH_SLOTS];
	struct vq_chain chains[VQ_NUM_MAX]; /* likewise */
	char *memory;                       /* of the slots; touched only as far as frames reach */
};

int scratch_new(struct scratch **out);
void scratch_free(struct scratch *s);

/* Empties it when @round is not the one that filled it. */
static inline void scratch_enter(struct scratch *s, uint64_t round)
{
	if (s->round == round)
		return;
	s->round = round;
	s->pieces.used = 0;
	s->slots_used = 0;
}

#endif
