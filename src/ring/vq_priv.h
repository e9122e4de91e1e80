/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the device's side share. */
#ifndef UVHOST_RING_VQ_PRIV_H
#define UVHOST_RING_VQ_PRIV_H

#include "ring/vq.h"

/*
 * Follows the descriptors from chain->head on and writes their pieces to chain->iov, at most @room.
 * Fills in the counts and lengths and returns the number of pieces; an error of vq_chain.err leaves
 * them alone. -E2BIG: @room is too small.
 */
int vq_chain_walk(const struct vq *vq, struct vq_chain *chain, unsigned room);

#endif
