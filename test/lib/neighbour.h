/* SPDX-License-Identifier: BSD-2-Clause */
/* A guest beside the one under test, in a thread of its own: it loses nothing, whatever happens there. */
#ifndef UVHOST_TEST_NEIGHBOUR_H
#define UVHOST_TEST_NEIGHBOUR_H

struct neighbour;
struct neighbour *neighbour_start(const char *path);
/* What it waited longest for 16 frames there and back. */
unsigned neighbour_worst_ms(const struct neighbour *nb);
/* Ends and frees it; frames that it exchanged. */
unsigned neighbour_stop(struct neighbour *nb);

#endif
