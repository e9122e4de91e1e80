/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A port is where frames go: a tap, or one of the ports that exist to test and to measure.
 *
 * DOC: frames pass in batches and completions are pulled. tx and rx are the guest's view: the guest
 * transmits what a port *sends* and receives what a port *receives*.
 *
 * send: prep_send() takes the first k of n frames and returns k. They belong to the port until
 * done_send() hands them back: in any order, in any round, each once. Nothing may be assumed about
 * when. k < n only because the engine's array is full; what the port itself has no room for is taken
 * and handed back with an error.
 *
 * recv: prep_recv() takes room for frames; after the entry done_recv() tells which were filled, in
 * the order of their arrival. Room is on loan for that one entry only. A frame that fills its room to
 * the last byte may be lost: a tap cuts what does not fit without a word, so it is taken as cut.
 *
 * abandon(): the port forgets every frame that it still has. What the kernel tells it about them
 * later ends in the port.
 *
 * Pieces are read by the port between prep_send() and the end of the entry; a port that keeps a frame
 * longer copies the array of pieces. The array of a frame that the port took, and its iov[-1] for a
 * header, are the port's to change.
 */
#ifndef UVHOST_PORT_PORT_H
#define UVHOST_PORT_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "io/io.h"
#include "wire/virtio_net.h"
#include "work/worker.h"

/* The offloads of a frame, in host byte order, validated. */
enum frame_gso { FRAME_GSO_NONE, FRAME_GSO_TCP4, FRAME_GSO_TCP6 };

struct frame_offload {
	bool needs_csum; /* the checksum at csum_start + csum_offset is to be completed */
	bool csum_valid; /* the checksum was verified by who sent the frame */
	bool ecn;        /* segments of this TCP frame carry CWR/ECE */
	uint8_t gso;     /* enum frame_gso */
	uint16_t gso_size;
	uint16_t hdr_len;
	uint16_t csum_start, csum_offset;
};

struct frame {
	struct iovec *iov; /* iov[-1] is the port's */
	uint16_t iov_cnt;
	uint16_t cookie; /* the owner's, handed back with the frame */
	uint32_t len;    /* send: bytes of the frame; recv: bytes of room */
	struct frame_offload off;
};

/* A sent frame that comes back. */
struct port_sent {
	uint16_t cookie;
	int32_t res; /* 0, or -errno: the frame is lost */
};

/* A received frame. */
struct port_rcvd {
	uint16_t cookie;
	int32_t res; /* bytes of the frame, or -errno: it was lost (-EMSGSIZE: larger than its room) */
	struct frame_offload off;
};

/* Offloads in each direction, named as on the command line. host_: what the guest may send; guest_:
 * what it may be given. */
enum port_offload {
	PORT_HOST_CSUM = 1 << 0,
	PORT_HOST_TSO4 = 1 << 1,
	PORT_HOST_TSO6 = 1 << 2,
	PORT_HOST_ECN = 1 << 3,
	PORT_GUEST_CSUM = 1 << 4,
	PORT_GUEST_TSO4 = 1 << 5,
	PORT_GUEST_TSO6 = 1 << 6,
	PORT_GUEST_ECN = 1 << 7,
};

#define PORT_SENT_MAX 64   /* frames of one prep_send() */
#define PORT_RCVD_MAX 64   /* rooms of one prep_recv() */
#define PORT_OUT_MAX  1024 /* sent frames that a port can have: those of the largest ring */

/* Room for any frame: a byte more than the largest. */
#define PORT_ROOM (VIRTIO_NET_FRAME_MAX + 1)

struct port;

/* How a port tells its device that the link came or went. Called in the control thread. */
struct port_events {
	void (*link)(void *ctx, bool up);
	void *ctx;
};

struct port_ops {
	const char *scheme; /* "tap" */
	const char *syntax; /* "tap:NAME | tap:fd=N", for help and errors */

	/* Control thread. */

	/*
	 * Opens the port from what follows `scheme:`. @name is the device, for the log; @control the
	 * worker of the control thread. On failure *@err is a static text that says what to do.
	 */
	int (*open)(struct port **port, const char *args, const char *name, struct worker *control,
		    const char **err);
	void (*close)(struct port *port);          /* detached */
	unsigned (*caps)(const struct port *port); /* port_offload bits it can do */
	/* Exactly these are on from here on; while no frame is with the port. */
	int (*set_offload)(struct port *port, unsigned offloads);
	/* Is the link up? From here on @events are reported. */
	bool (*link)(struct port *port, const struct port_events *events);

	/* The worker's thread. */

	/* Files become known to the worker's engine; @rx is made ready when frames may have arrived,
	 * @tx when sent ones may be handed back. */
	int (*attach)(struct port *port, struct worker *w, struct work_src *tx,
		      struct work_src *rx);
	void (*detach)(struct port *port);
	unsigned (*prep_send)(struct port *port, struct frame *frames, unsigned n);
	unsigned (*done_send)(struct port *port, struct port_sent *sent, unsigned max);
	void (*abandon)(struct port *port);
	/* Returns how many of the rooms it took; 0 when it knows that there is nothing. */
	unsigned (*prep_recv)(struct port *port, struct frame *rooms, unsigned n);
	unsigned (*done_recv)(struct port *port, struct port_rcvd *rcvd, unsigned max);
	/* Makes @rx ready once when frames arrive; true: look again, some may be there already. */
	bool (*arm_recv)(struct port *port);
};

struct port {
	const struct port_ops *ops;
	const char *name; /* of the device */
};

/* Opens "scheme:args"; -EINVAL for an unknown scheme. Errors as port_ops.open. */
int port_open(struct port **port, const char *spec, const char *name, struct worker *control,
	      const char **err);
/* The n-th port there is, or NULL: for help texts and the conformance suite. */
const struct port_ops *port_nth(unsigned n);

#endif
