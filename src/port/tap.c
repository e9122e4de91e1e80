// SPDX-License-Identifier: BSD-2-Clause
/*
 * tap: frames to and from the host's network stack, one operation of the engine each.
 *
 * DOC: every frame has the port's own 12-byte header in front (iov[-1]): written here from the frame's
 * offloads on the way out, read and validated here on the way in. The kernel copies both ways during
 * the entry, so no frame stays with the tap from one round to the next; only results do, until
 * done_send() asks for them. Results stand in the engine's operations until its next entry, so
 * whatever is called first after an entry collects them.
 *
 * A frame that the tap does not take is lost with the reason and nothing else follows from it: a full
 * queue (-EAGAIN), an interface that is down (-EIO), a header that the kernel refuses (-EINVAL),
 * memory that is not there (-EFAULT). When the interface was deleted (-EBADFD) the file is left alone
 * until the control thread reports that it is back: its poll would fire at once, for ever.
 */
#include "port/tap_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "port/offload.h"

#define TAP_PIECES_MAX  1024 /* UIO_MAXIOV, with the header */
#define TAP_SCRATCH_LEN (128 * 1024)
#define TAP_ROOMS_MAX   (4 * PORT_RCVD_MAX)

#define NOT_EXECUTED INT32_MIN /* no bytes and no -errno: the entry has not come yet */

/* A frame or room that takes part in the next entry, or took part in the last. */
struct tap_slot {
	struct io_op *op;
	uint32_t len; /* without the header */
	uint16_t cookie;
};

struct tap {
	struct port port;
	struct tap_link link;
	struct io_file file;
	struct work_src *rx;
	struct work_watch readable;
	struct log_limit limit;
	bool gone;

	unsigned send_cnt;
	struct tap_slot send[IO_OPS_MAX];
	struct virtio_net_hdr send_hdr[IO_OPS_MAX];
	struct port_done done;
	unsigned scratch_used;

	unsigned recv_cnt, recv_next; /* recv_next: not told by done_recv() yet */
	struct tap_slot recv[TAP_ROOMS_MAX];
	struct virtio_net_hdr recv_hdr[TAP_ROOMS_MAX];

	uint8_t scratch[TAP_SCRATCH_LEN]; /* last: it is hardly ever touched */
};

static struct tap *to_tap(struct port *port)
{
	return container_of(port, struct tap, port);
}

static struct io *tap_io(const struct tap *t)
{
	return worker_io(t->link.worker);
}

static bool executed(const struct tap_slot *slots, unsigned cnt)
{
	return cnt > 0 && slots[0].op->res != NOT_EXECUTED;
}

static void note_gone(struct tap *t)
{
	if (!t->gone)
		tap_link_gone(&t->link);
	t->gone = true;
}

/* ---- send ---- */

static int sent_result(struct tap *t, const struct tap_slot *s)
{
	int res = s->op->res;

	if (res == (int)(VIRTIO_NET_HDR_LEN + s->len))
		return 0;
	if (res >= 0)
		return -EIO; /* cut short */
	if (res == -EBADFD || res == -ENODEV) {
		note_gone(t);
		return -ENODEV;
	}
	return res;
}

/* Takes the results of the last entry out of the engine's operations. */
static void collect_sent(struct tap *t)
{
	if (!executed(t->send, t->send_cnt))
		return;
	for (unsigned i = 0; i < t->send_cnt; i++)
		port_done_push(&t->done, t->send[i].cookie, sent_result(t, &t->send[i]));
	t->send_cnt = 0;
	t->scratch_used = 0;
}

/*
 * Makes one piece of the header and the first pieces of a frame that has more of them than the kernel
 * takes, so that the last of those is where the operation begins. Few bytes are copied, unless a guest
 * wants it otherwise; then it has itself to blame for the frames that find no room in this entry.
 */
static int merge_front(struct tap *t, struct frame *f, const struct virtio_net_hdr *hdr,
		       unsigned cnt)
{
	struct iov_cursor c = iov_cursor(f->iov, cnt);
	size_t len = iov_bytes(f->iov, cnt);
	uint8_t *to = t->scratch + t->scratch_used;

	if (VIRTIO_NET_HDR_LEN + len > sizeof(t->scratch) - t->scratch_used)
		return -ENOBUFS;
	memcpy(to, hdr, VIRTIO_NET_HDR_LEN);
	iov_read(&c, to + VIRTIO_NET_HDR_LEN, len);
	f->iov[cnt - 1] = (struct iovec){ to, VIRTIO_NET_HDR_LEN + len };
	t->scratch_used += (unsigned)(VIRTIO_NET_HDR_LEN + len);
	return 0;
}

/* Makes the operation of one frame. 0; 1: the engine's array is full; -errno: the frame is lost. */
static int prep_frame(struct tap *t, struct frame *f)
{
	struct virtio_net_hdr *hdr = &t->send_hdr[t->send_cnt];
	unsigned pieces = 1u + f->iov_cnt, merged = 0;
	struct io_op *op;

	if (io_room(tap_io(t)) == 0)
		return 1;
	if (f->len > VIRTIO_NET_FRAME_MAX)
		return -EMSGSIZE;
	offload_to_hdr(hdr, &f->off);
	f->iov[-1] = (struct iovec){ hdr, VIRTIO_NET_HDR_LEN };
	if (pieces > TAP_PIECES_MAX) {
		int rc;

		merged = pieces - TAP_PIECES_MAX;
		rc = merge_front(t, f, hdr, merged);
		if (rc < 0)
			return rc;
	}
	op = io_reserve(tap_io(t), 1);
	*op = (struct io_op){
		.file = &t->file,
		.iov = f->iov - 1 + merged,
		.iov_cnt = (uint16_t)(pieces - merged),
		.opcode = IO_OP_WRITE,
		.res = NOT_EXECUTED,
	};
	t->send[t->send_cnt++] = (struct tap_slot){ op, f->len, f->cookie };
	return 0;
}

static unsigned tap_prep_send(struct port *port, struct frame *frames, unsigned n)
{
	struct tap *t = to_tap(port);

	collect_sent(t);
	n = min_uint(n, PORT_OUT_MAX - t->done.cnt - t->send_cnt);
	for (unsigned i = 0; i < n; i++) {
		int rc = t->gone ? -ENODEV : prep_frame(t, &frames[i]);

		if (rc > 0)
			return i;
		if (rc < 0)
			port_done_push(&t->done, frames[i].cookie, rc);
	}
	return n;
}

static unsigned tap_done_send(struct port *port, struct port_sent *sent, unsigned max)
{
	struct tap *t = to_tap(port);

	collect_sent(t);
	return port_done_take(&t->done, sent, max);
}

static void tap_abandon(struct port *port)
{
	struct tap *t = to_tap(port);

	t->send_cnt = 0;
	t->scratch_used = 0;
	port_done_clear(&t->done);
}

/* ---- receive ---- */

static unsigned tap_prep_recv(struct port *port, struct frame *rooms, unsigned n)
{
	struct tap *t = to_tap(port);

	/* Rooms are on loan for one entry: what done_recv() did not ask for is gone. */
	if (executed(t->recv, t->recv_cnt))
		t->recv_cnt = t->recv_next = 0;
	if (t->gone)
		return 0;
	n = min_uint(n, TAP_ROOMS_MAX - t->recv_cnt);
	for (unsigned i = 0; i < n; i++) {
		struct virtio_net_hdr *hdr = &t->recv_hdr[t->recv_cnt];
		struct frame *f = &rooms[i];
		unsigned pieces = min_uint(f->iov_cnt, TAP_PIECES_MAX - 1);
		struct io_op *op = io_reserve(tap_io(t), 1);

		if (op == NULL)
			return i;
		f->iov[-1] = (struct iovec){ hdr, VIRTIO_NET_HDR_LEN };
		*op = (struct io_op){
			.file = &t->file,
			.iov = f->iov - 1,
			.iov_cnt = (uint16_t)(1 + pieces),
			.opcode = IO_OP_READ,
			.res = NOT_EXECUTED,
		};
		t->recv[t->recv_cnt++] = (struct tap_slot){ op, f->len, f->cookie };
		if (pieces < f->iov_cnt)
			t->recv[t->recv_cnt - 1].len = (uint32_t)iov_bytes(f->iov, pieces);
	}
	return n;
}

/* A tap cuts a frame to its room without a word: one that fills it to the last byte may be cut. */
static int32_t received(const struct tap_slot *s, const struct virtio_net_hdr *hdr,
			struct frame_offload *off)
{
	int32_t len = s->op->res - VIRTIO_NET_HDR_LEN;
	int rc;

	if (s->op->res < 0)
		return s->op->res;
	if (len < 0)
		return -EPROTO;
	if ((uint32_t)len >= s->len)
		return -EMSGSIZE;
	/* One that no kernel should write: the frame is lost rather than the guest told nonsense. */
	rc = offload_from_hdr(off, hdr, (uint32_t)len);
	return rc < 0 ? rc : len;
}

static unsigned tap_done_recv(struct port *port, struct port_rcvd *rcvd, unsigned max)
{
	struct tap *t = to_tap(port);
	unsigned n = 0;

	if (!executed(t->recv, t->recv_cnt))
		return 0;
	for (; t->recv_next < t->recv_cnt && n < max; t->recv_next++) {
		const struct tap_slot *s = &t->recv[t->recv_next];

		if (s->op->res == -EBADFD || s->op->res == -ENODEV)
			note_gone(t);
		else if (s->op->res != -EAGAIN) {
			rcvd[n] = (struct port_rcvd){ .cookie = s->cookie };
			rcvd[n].res = received(s, &t->recv_hdr[t->recv_next], &rcvd[n].off);
			n++;
		}
	}
	return n;
}

static bool tap_arm_recv(struct port *port)
{
	struct tap *t = to_tap(port);
	int rc = t->gone ? 0 : io_watch_arm(tap_io(t), &t->readable.io);

	if (rc < 0)
		log_limited(&t->limit, LOG_LEVEL_ERROR, port->name,
			    "cannot wait for the tap: error=%s", log_errname(rc));
	return rc < 0; /* the watch itself looks first */
}

/* ---- life ---- */

/* Between two rounds of the worker: the interface is there again. */
static void come_back(struct work_msg *msg)
{
	struct tap *t = container_of(msg, struct tap, link.back);

	atomic_store(&t->link.back_posted, false);
	if (t->link.worker == NULL)
		return;
	/* What failed before the message was posted is old. */
	collect_sent(t);
	t->gone = false;
	work_src_ready(t->rx);
}

static int tap_open(struct port **port, const char *args, const char *name, struct worker *control,
		    const char **err)
{
	struct tap *t = calloc(1, sizeof(*t));
	int rc;

	if (t == NULL) {
		*err = "out of memory";
		return -ENOMEM;
	}
	rc = tap_link_open(&t->link, args, name, control, err);
	if (rc < 0) {
		free(t);
		return rc;
	}
	t->port = (struct port){ .ops = &tap_port, .name = name };
	t->link.back.fn = come_back;
	*port = &t->port;
	return 0;
}

static void tap_close(struct port *port)
{
	struct tap *t = to_tap(port);

	tap_link_close(&t->link);
	free(t);
}

static unsigned tap_caps(const struct port *port)
{
	static_assert(offsetof(struct tap, port) == 0, "container_of() would take the const away");
	return ((const struct tap *)(const void *)port)->link.caps;
}

static int tap_set_offload(struct port *port, unsigned offloads)
{
	return tap_link_set_offload(&to_tap(port)->link, offloads);
}

static bool tap_link(struct port *port, const struct port_events *events)
{
	struct tap *t = to_tap(port);

	t->link.events = *events;
	return t->link.up;
}

static int tap_attach(struct port *port, struct worker *w, struct work_src *tx, struct work_src *rx)
{
	struct tap *t = to_tap(port);
	int rc = io_file_add(worker_io(w), &t->file, t->link.fd);

	if (rc < 0)
		return rc;
	work_watch_init(&t->readable, rx, &t->file, POLLIN, false);
	t->rx = rx;
	t->gone = false; /* the first operation finds out */
	t->link.worker = w;
	return 0;
}

static void tap_detach(struct port *port)
{
	struct tap *t = to_tap(port);

	tap_abandon(port);
	t->recv_cnt = t->recv_next = 0;
	io_watch_cancel(tap_io(t), &t->readable.io);
	/* A poll that is still in the kernel would keep the tap open after close(): busy for the next
	 * who opens it, and there for who wants it gone. */
	io_enter(tap_io(t), 0);
	io_file_del(tap_io(t), &t->file);
	t->link.worker = NULL;
}

const struct port_ops tap_port = {
	.scheme = "tap",
	.syntax = "tap:NAME | tap:fd=N",
	.open = tap_open,
	.close = tap_close,
	.caps = tap_caps,
	.set_offload = tap_set_offload,
	.link = tap_link,
	.attach = tap_attach,
	.detach = tap_detach,
	.prep_send = tap_prep_send,
	.done_send = tap_done_send,
	.abandon = tap_abandon,
	.prep_recv = tap_prep_recv,
	.done_recv = tap_done_recv,
	.arm_recv = tap_arm_recv,
};
