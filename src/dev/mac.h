/* SPDX-License-Identifier: BSD-2-Clause */
/* A MAC address for a device that was given none. */
#ifndef UVHOST_DEV_MAC_H
#define UVHOST_DEV_MAC_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/virtio_net.h"

/* A locally administered address from this machine's id and @name: the same after a restart, another
 * one on another machine. */
void mac_for_name(uint8_t mac[VIRTIO_NET_MAC_LEN], const char *name);

/* Reads "52:54:00:12:34:56"; false unless it is a unicast address that is not zero. */
bool mac_parse(uint8_t mac[VIRTIO_NET_MAC_LEN], const char *text);

#endif
