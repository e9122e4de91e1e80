/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The virtio-net header (virtio 1.2, sections 5.1.6.2 and 5.1.6.4): decoded from a private copy and
 * validated once, encoded once. Nothing else reads or writes header bytes of a guest.
 */
#ifndef UVHOST_NET_HDR_H
#define UVHOST_NET_HDR_H

#include <stdint.h>

#include "net/counters.h"
#include "port/port.h"
#include "wire/virtio_net.h"

/* Bytes of header in front of each frame, with the acked features @acked. */
unsigned hdr_len(uint64_t acked);

/*
 * Takes the header of @len bytes off the front of @f's pieces, in any number of them, and fills
 * f->off. On entry f->len counts the header, on return it does not. @offloads are the port_offload
 * bits that the guest acked. DROP_NONE, or why the frame is refused.
 */
enum net_drop hdr_decode(struct frame *f, unsigned len, unsigned offloads);

/* The header for a frame that fills @buffers of the guest's buffers. */
void hdr_encode(struct virtio_net_hdr *h, const struct frame_offload *off, uint16_t buffers);

#endif
