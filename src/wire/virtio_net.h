/* SPDX-License-Identifier: BSD-2-Clause */
/* The network device (virtio 1.2, section 5.1): feature bits, header, configuration, commands. */
#ifndef UVHOST_WIRE_VIRTIO_NET_H
#define UVHOST_WIRE_VIRTIO_NET_H

#include <assert.h>
#include <stdint.h>

#define VIRTIO_NET_F_CSUM       0
#define VIRTIO_NET_F_GUEST_CSUM 1
#define VIRTIO_NET_F_MTU        3
#define VIRTIO_NET_F_MAC        5
#define VIRTIO_NET_F_GUEST_TSO4 7
#define VIRTIO_NET_F_GUEST_TSO6 8
#define VIRTIO_NET_F_GUEST_ECN  9
#define VIRTIO_NET_F_HOST_TSO4  11
#define VIRTIO_NET_F_HOST_TSO6  12
#define VIRTIO_NET_F_HOST_ECN   13
#define VIRTIO_NET_F_MRG_RXBUF  15
#define VIRTIO_NET_F_STATUS     16
#define VIRTIO_NET_F_CTRL_VQ    17
#define VIRTIO_NET_F_CTRL_RX    18
#define VIRTIO_NET_F_MQ         22

#define VIRTIO_NET_HDR_F_NEEDS_CSUM 1
#define VIRTIO_NET_HDR_F_DATA_VALID 2

#define VIRTIO_NET_HDR_GSO_NONE  0
#define VIRTIO_NET_HDR_GSO_TCPV4 1
#define VIRTIO_NET_HDR_GSO_TCPV6 4
#define VIRTIO_NET_HDR_GSO_ECN   0x80

/* Fields are little-endian with VERSION_1; they are private copies, so plain integers. */
struct virtio_net_hdr {
	uint8_t flags;
	uint8_t gso_type;
	uint16_t hdr_len;
	uint16_t gso_size;
	uint16_t csum_start;
	uint16_t csum_offset;
	uint16_t num_buffers; /* only with VERSION_1 or MRG_RXBUF */
};
static_assert(sizeof(struct virtio_net_hdr) == 12, "virtio 1.2, 5.1.6");

#define VIRTIO_NET_HDR_LEN        12
#define VIRTIO_NET_HDR_LEN_LEGACY 10

#define VIRTIO_NET_S_LINK_UP 1

struct virtio_net_config {
	uint8_t mac[6];
	uint16_t status;
	uint16_t max_virtqueue_pairs;
	uint16_t mtu;
} __attribute__((packed));
static_assert(sizeof(struct virtio_net_config) == 12, "virtio 1.2, 5.1.4");

/* A control command: class, command, data; the device answers with one byte (5.1.6.5). */
struct virtio_net_ctrl_hdr {
	uint8_t class;
	uint8_t cmd;
};
static_assert(sizeof(struct virtio_net_ctrl_hdr) == 2, "virtio 1.2, 5.1.6.5");

#define VIRTIO_NET_CTRL_RX            0
#define VIRTIO_NET_CTRL_RX_PROMISC    0
#define VIRTIO_NET_CTRL_RX_ALLMULTI   1
#define VIRTIO_NET_CTRL_MAC           1
#define VIRTIO_NET_CTRL_MAC_TABLE_SET 0

#define VIRTIO_NET_MAC_LEN 6

#define VIRTIO_NET_OK  0
#define VIRTIO_NET_ERR 1

/* The driver's limits on F_MTU (5.1.4.1). */
#define VIRTIO_NET_MTU_MIN 68
#define VIRTIO_NET_MTU_MAX 65535

/* The largest frame: 65,535 bytes of IP packet behind an Ethernet header with two VLAN tags. */
#define VIRTIO_NET_FRAME_MAX (65535 + 14 + 8)

#endif
