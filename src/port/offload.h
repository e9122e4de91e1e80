/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The offloads of a frame, and the offloads that were agreed upon.
 *
 * A frame's own are struct frame_offload; agreed upon is a set of port_offload bits. The virtio-net
 * header carries the former: between a guest and us, and between us and a tap.
 */
#ifndef UVHOST_PORT_OFFLOAD_H
#define UVHOST_PORT_OFFLOAD_H

#include "port/port.h"
#include "wire/virtio_net.h"

/* Takes out what lacks what it is built on: TSO the checksum, ECN a TSO (virtio 1.2, 5.1.3.1). */
unsigned offload_sane(unsigned offloads);

/* What a receiver of the frame must be able to do: bits of the host_ or of the guest_ direction. */
unsigned offload_needs_host(const struct frame_offload *off);
unsigned offload_needs_guest(const struct frame_offload *off);

/* The header's first ten bytes; num_buffers is left 0. */
void offload_to_hdr(struct virtio_net_hdr *hdr, const struct frame_offload *off);

/*
 * Reads the header, a private copy, of a frame of @len bytes (5.1.6.2, 5.1.6.4). -EOPNOTSUPP: a kind of
 * segmentation that we do not know; -EPROTO: fields that contradict each other or the frame.
 */
int offload_from_hdr(struct frame_offload *off, const struct virtio_net_hdr *hdr, uint32_t len);

#endif
