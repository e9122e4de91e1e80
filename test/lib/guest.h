/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A guest in a test: memory, rings, and a driver that sends and receives frames through a front end's
 * connection to a uvhostd, by the rules: it kicks only when asked to and sleeps on its call
 * descriptors, so a signal that is lost is a test that fails.
 *
 * DOC: guest-physical memory is one window here, so a buffer may lie across two regions. The regions'
 * places in their file, and the addresses that the front end names, are laid out differently from it
 * (GUEST_SEAM: two adjoining regions; GUEST_HOLE: two apart; each mapped the other way round).
 *
 * Every chain goes by the checker (check.h). What is sent is remembered; a frame that comes in must
 * be the next of those, with its MAC addresses swapped, as loop: gives it back: every byte, every
 * byte of the header, and no byte behind it.
 *
 * A guest belongs to one thread. Whatever goes wrong ends the test (FAIL()).
 */
#ifndef UVHOST_TEST_GUEST_H
#define UVHOST_TEST_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "ring/drvq.h"
#include "vu/frontend.h"
#include "wire/virtio_net.h"
#include "wire/virtio_ring.h"

#define BIT(n)      (1ULL << (n))
#define F_VERSION_1 BIT(VIRTIO_F_VERSION_1)
#define F_MRG       BIT(VIRTIO_NET_F_MRG_RXBUF)
#define F_INDIRECT  BIT(VIRTIO_F_RING_INDIRECT_DESC)
#define F_EVENT_IDX BIT(VIRTIO_F_RING_EVENT_IDX)
#define F_IN_ORDER  BIT(VIRTIO_F_IN_ORDER)
#define F_PROTOCOL  BIT(VHOST_USER_F_PROTOCOL_FEATURES)
#define F_OFFLOADS                                                                                 \
	(BIT(VIRTIO_NET_F_CSUM) | BIT(VIRTIO_NET_F_GUEST_CSUM) | BIT(VIRTIO_NET_F_HOST_TSO4) |     \
	 BIT(VIRTIO_NET_F_HOST_TSO6) | BIT(VIRTIO_NET_F_HOST_ECN) | BIT(VIRTIO_NET_F_GUEST_TSO4) | \
	 BIT(VIRTIO_NET_F_GUEST_TSO6) | BIT(VIRTIO_NET_F_GUEST_ECN))
#define F_DEFAULT (F_PROTOCOL | F_VERSION_1 | F_MRG)
#define P_DEFAULT                                                               \
	(BIT(VHOST_USER_PROTOCOL_F_MQ) | BIT(VHOST_USER_PROTOCOL_F_REPLY_ACK) | \
	 BIT(VHOST_USER_PROTOCOL_F_CONFIG) | BIT(VHOST_USER_PROTOCOL_F_RESET_DEVICE))

#define GUEST_RX    0
#define GUEST_TX    1
#define GUEST_CTRL  2
#define GUEST_RINGS 3

#define GUEST_GPA 0x40000000ULL
#define GUEST_GAP 5 /* between the pieces of a buffer: they never adjoin */
#define PREFILL   0xaa

enum guest_layout { GUEST_ONE, GUEST_SEAM, GUEST_HOLE };

struct guest_cfg {
	uint64_t features;       /* 0: F_DEFAULT */
	uint64_t protocol;       /* acked if F_PROTOCOL is; 0: P_DEFAULT */
	uint16_t rx_num, tx_num; /* 0: 256 */
	uint32_t rx_buf;         /* bytes of each receive buffer, 0: 2048 */
	uint32_t tx_max;         /* the largest frame to be sent, 0: 1514 */
	enum guest_layout layout;
	bool ctrl;      /* the control queue, too */
	bool no_refill; /* receive buffers are posted by the test */
};

/* A chain's buffer, one for each descriptor of a ring. */
struct guest_slot {
	uint64_t gpa;
	uint32_t len; /* with gaps */
	uint16_t cnt;
	struct drvq_buf *bufs;
};

struct guest_ring {
	struct guest *guest;
	unsigned idx;
	uint16_t num;
	uint64_t gpa;   /* of the ring */
	uint64_t table; /* of the indirect tables */
	struct drvq q;
	struct check chk;
	int kick, call, err;
	uint32_t stride;
	struct guest_slot *slots;
	/* Free slots, in the order of their return: all take part. */
	uint16_t *spare;
	unsigned spare_first, spare_cnt;
	unsigned kicks, calls; /* written, taken */
	bool by_hand;          /* the test writes and reads this ring itself */
};

struct guest_sent {
	uint32_t len, seed;
	struct virtio_net_hdr hdr; /* as it is to come back, num_buffers aside */
};

#define GUEST_SENT_MAX   4096
#define GUEST_REGION_MAX 2

struct guest {
	struct guest_cfg cfg;
	struct vu_frontend fe;
	uint64_t offered, features;
	unsigned hdr_len;

	int memfd;
	size_t file_len;
	char *window; /* of guest-physical memory from GUEST_GPA on */
	size_t window_len;
	struct vhost_user_region regions[GUEST_REGION_MAX];
	unsigned region_cnt;
	uint64_t alloc_at;

	struct guest_ring rings[GUEST_RINGS];
	unsigned ring_cnt;

	uint32_t seed;                          /* of the next frame */
	struct guest_sent sent[GUEST_SENT_MAX]; /* to come back, by free-running index */
	unsigned sent_idx, rcvd_idx;
	unsigned tx_back; /* transmit chains that came back */
	unsigned merged;  /* frames of more than one buffer */
	uint64_t bytes;
	/* Takes a frame instead of the comparison with what was sent. */
	void (*on_frame)(struct guest *g, const struct virtio_net_hdr *hdr, const uint8_t *frame,
			 uint32_t len);
	void *ctx;
	bool lossy; /* frames may be missing, but none doubled or reordered */
	unsigned lost;

	/* A frame whose buffers have not all come yet. */
	uint8_t *asm_buf;
	uint32_t asm_len;
	unsigned asm_left, asm_cnt;
};

/* ---- memory ---- */

/* Makes memory and rings, without a connection. */
void guest_make(struct guest *g, const struct guest_cfg *cfg);
/* Closes the connection, if there is one, and frees all. */
void guest_free(struct guest *g);
/* @len bytes of guest memory, whose tester's address guest_at() gives. */
uint64_t guest_alloc(struct guest *g, size_t len, size_t align);
void *guest_at(struct guest *g, uint64_t gpa);
/* The front end's address of it. */
uint64_t guest_uva(struct guest *g, uint64_t gpa);

/* ---- set-up, a step each, in any order ---- */

void guest_connect(struct guest *g, const char *path);
void guest_disconnect(struct guest *g);
/* Asks for the features, both kinds, and acks what the configuration wants. */
void guest_get_features(struct guest *g);
void guest_protocol(struct guest *g);
void guest_ack(struct guest *g);
void guest_set_mem(struct guest *g);
/* One message for ring @idx, VHOST_USER_SET_VRING_NUM to _ENABLE. */
void guest_ring_msg(struct guest *g, unsigned idx, uint32_t request);
void guest_enable(struct guest *g, unsigned idx, bool on);
/* NUM, BASE, ADDR, KICK, CALL, ERR; ENABLE where needed. Goes on from where the ring is. */
void guest_start_ring(struct guest *g, unsigned idx);
/* All of it: connection, features, memory, rings; receive buffers are posted before. */
void guest_up(struct guest *g, const struct guest_cfg *cfg, const char *path);
/* The same for a guest that was made, without the connection. */
void guest_set_up(struct guest *g);
/* GET_VRING_BASE: what it answers, checked against what came back. */
uint32_t guest_stop_ring(struct guest *g, unsigned idx);
/* Stops all rings, checks that every head is accounted for, disconnects and frees. */
void guest_down(struct guest *g);
/* A new, empty ring at the same place: the driver was reloaded. */
void guest_reset_ring(struct guest *g, unsigned idx);

/* Overwrites all memory in use with one byte; is all of it still so? */
void guest_scribble(struct guest *g);
void guest_untouched(struct guest *g);

/* ---- frames ---- */

/* Fills a frame from its seed; what loop: makes of it. */
void frame_fill(uint8_t *frame, uint32_t len, uint32_t seed);
void frame_swap(uint8_t *frame);

/* Adds a frame of @len bytes behind the header @hdr (NULL: zeros) in pieces of @cuts[0 .. cnt) bytes,
 * header counted, and a last one of what is left. False: no room. It is published by guest_kick(). */
bool guest_send(struct guest *g, uint32_t len, const struct virtio_net_hdr *hdr,
		const uint32_t *cuts, unsigned cnt);
/* The same for any bytes; nothing is expected to come back for them. */
bool guest_send_raw(struct guest *g, const void *bytes, uint32_t len, const uint32_t *cuts,
		    unsigned cnt);
/* Adds a receive buffer in pieces of @lens. */
bool guest_post(struct guest *g, const uint32_t *lens, unsigned cnt);
/* The next free slot; takes it, for a chain that the test adds to the queue itself. */
struct guest_slot *guest_spare(struct guest_ring *r);
void guest_take_spare(struct guest_ring *r);
/* As many of cfg.rx_buf bytes as fit. */
void guest_refill(struct guest *g);
/* Publishes; kicks if the device wants it. guest_publish() only says whether it does. */
void guest_kick(struct guest *g, unsigned idx);
bool guest_publish(struct guest *g, unsigned idx);
/* Adds and publishes @cnt frames that nothing is expected to come back for, @len bytes each. */
void guest_flood(struct guest *g, unsigned cnt, uint32_t len);
/* A control command; its answer. */
uint8_t guest_command(struct guest *g, uint8_t class, uint8_t cmd, const void *data, uint32_t len);

/* For on_frame: any frame may come. */
void guest_ignore_frame(struct guest *g, const struct virtio_net_hdr *hdr, const uint8_t *frame,
			uint32_t len);

/* Takes what has come back, posts receive buffers anew; how many chains. */
unsigned guest_reap(struct guest *g);
/* Reaps; when there is nothing, sleeps on the call descriptors. False: nothing in @ms. */
bool guest_pump(struct guest *g, unsigned ms);
/* Pumps until @cond holds. */
#define GUEST_UNTIL(g, cond)                                                                \
	do {                                                                                \
		while (!(cond))                                                             \
			if (!guest_pump(g, test_patience_ms()))                             \
				FAIL("waited in vain for: %s (sent %u received %u)", #cond, \
				     (g)->sent_idx, (g)->rcvd_idx);                         \
	} while (0)
/* Everything sent is back, as chain and, in the end, as frame. */
bool guest_tx_done(const struct guest *g);
bool guest_rx_done(const struct guest *g);
/* Sends @cnt frames of @len and waits for all of them, at most @window on their way. */
void guest_exchange(struct guest *g, unsigned cnt, uint32_t len, unsigned window);

#endif
