/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * uvhost driver: a virtio-net driver in user space, for any vhost-user network back end, and for the
 * kernel's vhost-net.
 *
 *	struct uvhost_driver_cfg cfg = UVHOST_DRIVER_CFG;
 *	struct uvhost_driver *d;
 *	struct uvhost_queue *q;
 *
 *	cfg.socket_path = "/run/switch.sock";
 *	if (uvhost_driver_open(&d, &cfg) < 0) ...
 *	q = uvhost_driver_queue(d, 0);
 *	for (;;) {
 *		poll() on uvhost_driver_fd(d);
 *		uvhost_driver_process(d);
 *		uvhost_queue_recv(q, ...); uvhost_queue_send(q, ...);
 *	}
 *
 * A *driver* is one NIC: memory that it shares with the back end, a connection, and queue pairs. It
 * connects by itself, and again whenever the back end goes and comes back; while there is none,
 * frames cannot be sent and none arrive. It has no thread: all of it is done by the calls below, which
 * belong to one thread at a time. The queue pairs of a driver may be served by different threads as
 * long as none of them is in a queue's function while another is in uvhost_driver_process().
 *
 * Frames never pass through the library by value. What is sent lies in memory that the driver shares
 * (uvhost_driver_alloc(), or memory that the caller lends in its configuration) and goes by reference;
 * what lies elsewhere is copied once (uvhost_queue_send_copy()). What arrives is read where it is.
 *
 * Functions return 0 or a count, or a negative errno. Integers are in host byte order.
 */
#ifndef UVHOST_DRIVER_H
#define UVHOST_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define UVHOST_API __attribute__((visibility("default")))
#else
#define UVHOST_API
#endif

struct uvhost_driver;
struct uvhost_queue; /* a pair: transmit and receive */

/* Memory of the caller's that the back end may read and write: @len bytes of the file @fd (a memfd, a
 * file on tmpfs or hugetlbfs) from @offset on, mapped at @addr with MAP_SHARED; whole pages. */
struct uvhost_lent {
	int fd;
	uint64_t offset;
	void *addr;
	size_t len;
};
#define UVHOST_LENT_MAX 7

struct uvhost_driver_cfg {
	size_t size; /* of this structure: set by UVHOST_DRIVER_CFG */

	const char *socket_path;
	bool listen; /* the back end is the client: make the socket and wait for it there */
	int fd;      /* a connected socket instead, taken over; -1: none. It cannot connect again */
	/* Or the kernel's vhost-net ("/dev/vhost-net") with this tap behind it, which the caller has
	 * opened with IFF_TAP, IFF_NO_PI and IFF_VNET_HDR and keeps; one queue pair. */
	const char *vhost_net;
	int tap_fd;

	unsigned queue_pairs;      /* at most; the back end may have fewer. 0: 1 */
	unsigned rx_size, tx_size; /* entries of each ring, a power of two up to 32768. 0: 256 */
	/* Bytes of each receive buffer, header included, 128 to 65562. 0: 2048, and 65562 where a large
	 * frame must fit into one. */
	unsigned rx_buf;

	/* Virtio feature bits (virtio 1.2, 5.1.3 and 6) that are not acked though the back end offers
	 * them, of those that the driver knows (UVHOST_DRIVER_FEATURES). */
	uint64_t leave_out;
	size_t pool_len; /* bytes for uvhost_driver_alloc(); 0: none */
	bool hugepages;  /* all memory of the driver from hugepages of the system's default size */
	const struct uvhost_lent *lent;
	unsigned lent_cnt;
	unsigned timeout_ms; /* for an answer of the back end. 0: 2000 */
};

#define UVHOST_DRIVER_CFG                                                         \
	{                                                                         \
		.size = sizeof(struct uvhost_driver_cfg), .fd = -1, .tap_fd = -1, \
	}

/* What the driver can do: MRG_RXBUF, MAC, MTU, STATUS, MQ, the checksum and TCP segmentation in both
 * directions; VERSION_1, INDIRECT_DESC, EVENT_IDX, RING_PACKED, IN_ORDER. */
#define UVHOST_DRIVER_FEATURES 0xd3041bbabULL /* checked in src/drv/session.c */

/*
 * Makes the driver and its memory, and begins to connect; whether it has connected says
 * uvhost_driver_info(). -EINVAL: the configuration; -ENOMEM; -errno of the socket for @listen.
 */
UVHOST_API int uvhost_driver_open(struct uvhost_driver **d, const struct uvhost_driver_cfg *cfg);
/* Disconnects and frees everything, frames that were sent or received included. */
UVHOST_API void uvhost_driver_close(struct uvhost_driver *d);

/* Readable when uvhost_driver_process() has something to do, or when a queue whose interrupts are on
 * has frames. Borrowed; the same for the driver's life. */
UVHOST_API int uvhost_driver_fd(const struct uvhost_driver *d);
/*
 * Connects, notices that the back end has left, takes interrupts. Waits only for answers of a back end
 * that has just been reached, each for timeout_ms at most. 0; -ECONNRESET: the back end of
 * uvhost_driver_cfg.fd has left, for good.
 */
UVHOST_API int uvhost_driver_process(struct uvhost_driver *d);

struct uvhost_driver_info {
	bool connected;
	uint64_t connections; /* how many there have been */
	uint64_t features;    /* acked */
	unsigned queue_pairs; /* that run */
	bool link_up;         /* connected, and the back end says nothing else */
	bool has_mac;
	uint8_t mac[6];
	uint16_t mtu;   /* 0: none said */
	int last_error; /* why the last attempt or connection ended: -errno, 0: it did not */
};
UVHOST_API void uvhost_driver_info(const struct uvhost_driver *d, struct uvhost_driver_info *info);

/* The queue pair number @i, for the driver's life; NULL: there are only cfg.queue_pairs of them. One
 * that the back end does not have sends nothing and receives nothing. */
UVHOST_API struct uvhost_queue *uvhost_driver_queue(struct uvhost_driver *d, unsigned i);

/* ---- memory ---- */

/* @len bytes of the pool, aligned to 64, or NULL; there until the driver is closed. */
UVHOST_API void *uvhost_driver_alloc(struct uvhost_driver *d, size_t len);

/* ---- frames ---- */

/* What is left to be done for a frame, or has been: the virtio-net header (virtio 1.2, 5.1.6), in host
 * byte order. All zero: nothing. */
struct uvhost_net_hdr {
	uint8_t flags;     /* 1: a checksum is to be completed; 2: received, it has been verified */
	uint8_t gso_type;  /* 0: none, 1: TCP over IPv4, 4: TCP over IPv6; with ECN 0x80 more */
	uint16_t hdr_len;  /* of all headers, a hint */
	uint16_t gso_size; /* bytes of payload of each segment */
	uint16_t csum_start;  /* the checksum is over all from here on ... */
	uint16_t csum_offset; /* ... and belongs so far behind csum_start */
};

/* Free bytes before a frame's first byte: with them a frame is one buffer, without them two. */
#define UVHOST_HEADROOM 12

struct uvhost_frame {
	struct iovec *iov; /* the frame, from its Ethernet header on */
	unsigned iov_cnt;
	uint32_t len;  /* of all pieces */
	bool headroom; /* to send: UVHOST_HEADROOM bytes before iov[0] are the driver's */
	struct uvhost_net_hdr hdr;
	void *token; /* to send: the caller's, handed back. Received: the driver's */
};

/*
 * Gives frames that lie in shared memory to the back end, in their order; returns how many: fewer when
 * the ring is full, 0 without a back end. They are the back end's until uvhost_queue_sent() hands
 * their tokens back. -EFAULT: a piece of the first one is not in shared memory; -EMSGSIZE: it has more
 * pieces than the ring could ever take.
 */
UVHOST_API int uvhost_queue_send(struct uvhost_queue *q, const struct uvhost_frame *frames,
				 unsigned cnt);
/* The same for frames anywhere, which are copied and are the caller's again at once; their tokens do
 * not matter. -EMSGSIZE: the first is larger than 65549 bytes. */
UVHOST_API int uvhost_queue_send_copy(struct uvhost_queue *q, const struct uvhost_frame *frames,
				      unsigned cnt);
/* Tokens of frames that came back, at most @max. Also those of a back end that has left. */
UVHOST_API unsigned uvhost_queue_sent(struct uvhost_queue *q, void **tokens, unsigned max);

/* Frames that arrived, at most @max, their pieces in @iov; each is the caller's until it is released.
 * Fewer when @iov_max pieces are used up (64 are enough for any one frame with buffers of 2048). */
UVHOST_API unsigned uvhost_queue_recv(struct uvhost_queue *q, struct uvhost_frame *frames,
				      unsigned max, struct iovec *iov, unsigned iov_max);
/* Gives the buffers of received frames back, in any order. */
UVHOST_API void uvhost_queue_release(struct uvhost_queue *q, const struct uvhost_frame *frames,
				     unsigned cnt);

enum uvhost_interrupts { UVHOST_INTERRUPT_RX = 1, UVHOST_INTERRUPT_TX = 2 };

/*
 * Asks for interrupts (a mask) for the next frame received or the next one sent; those left out are
 * switched off, as all are at first. True: look again, there is something already. An interrupt makes
 * uvhost_driver_fd() readable until the next uvhost_driver_process(), once: ask again before each sleep.
 */
UVHOST_API bool uvhost_queue_interrupts(struct uvhost_queue *q, unsigned which);

/* Frames that went wrong, by reason; they grow only. */
struct uvhost_queue_stats {
	uint64_t tx_frames, rx_frames, tx_bytes, rx_bytes;
	uint64_t kicks;        /* to the back end */
	uint64_t interrupts;   /* from it */
	uint64_t rx_malformed; /* a header that contradicts itself or its frame */
	uint64_t tx_lost;      /* with a back end that left */
};
UVHOST_API void uvhost_queue_stats(const struct uvhost_queue *q, struct uvhost_queue_stats *stats);

/* The negotiated version of the library, "0.1.0". */
UVHOST_API const char *uvhost_version(void);

#ifdef __cplusplus
}
#endif

#endif
