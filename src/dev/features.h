/* SPDX-License-Identifier: BSD-2-Clause */
/* Which virtio features a device offers, and which offloads of its port those stand for. */
#ifndef UVHOST_DEV_FEATURES_H
#define UVHOST_DEV_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Changes @offloads, a set of port_offload bits, as @spec says: a list of [+-]NAME by commas, where
 * NAME is one offload (host_tso4), one in both directions (csum, tso4), all of TCP segmentation
 * (tso), or all. A name without sign means +. What is asked for by + is also added to *@required.
 * 0, or -EINVAL with the offending name in *@bad (length *@bad_len).
 */
int features_edit_offloads(const char *spec, unsigned *offloads, unsigned *required,
			   const char **bad, int *bad_len);

/* The feature bits for these offloads, with what is always offered; @mtu: also F_MTU. */
uint64_t features_offered(unsigned offloads, bool mtu);
/* The offloads that the acked feature bits stand for. */
unsigned features_offloads(uint64_t acked);

/* The name of the lowest offload in the set, for messages. */
const char *features_offload_name(unsigned offloads);

#endif
