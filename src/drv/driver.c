// SPDX-License-Identifier: BSD-2-Clause
/* A driver's life: it connects, is served, loses its back end, connects again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/unix_socket.h"
#include "base/util.h"
#include "drv/kernel.h"
#include "drv/session.h"

#define RETRY_MIN_NS (10 * NSEC_PER_MSEC)
#define RETRY_MAX_NS (500 * NSEC_PER_MSEC)
#define EVENTS_MAX   32

struct uvhost_queue {
	struct drv_rx rx;
	struct drv_tx tx;
};

struct uvhost_driver {
	struct uvhost_driver_cfg cfg;
	struct sockaddr_un addr;
	struct drv_wish wish;
	struct drv_mem mem;
	struct uvhost_queue *pairs;
	struct drv_session session;
	struct drv_kernel kernel; /* in place of its socket */
	int epoll_fd, timer_fd, listen_fd;
	uint64_t retry_ns;
	bool connected, over;
	uint64_t connections;
	int last_error;
};

/* ---- the connection ---- */

static int watch(struct uvhost_driver *d, int fd, uint32_t events, void *ptr)
{
	struct epoll_event ev = { .events = events, .data.ptr = ptr };

	return epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static void set_timer(struct uvhost_driver *d, uint64_t ns)
{
	struct itimerspec at = { .it_value = { .tv_sec = (time_t)(ns / NSEC_PER_SEC),
					       .tv_nsec = (long)(ns % NSEC_PER_SEC) } };

	timerfd_settime(d->timer_fd, 0, &at, NULL);
}

static void retry_later(struct uvhost_driver *d)
{
	if (d->listen_fd >= 0)
		return; /* the back end comes */
	set_timer(d, d->retry_ns);
	d->retry_ns = d->retry_ns * 2 < RETRY_MAX_NS ? d->retry_ns * 2 : RETRY_MAX_NS;
}

/* The back end has left, or is none that we can talk to. */
static void disconnect(struct uvhost_driver *d, int why)
{
	for (unsigned i = 0; i < d->cfg.queue_pairs; i++) {
		drv_rx_stop(&d->pairs[i].rx);
		drv_tx_stop(&d->pairs[i].tx);
	}
	drv_session_close(&d->session); /* leaves the epoll set by that */
	drv_kernel_close(&d->kernel);
	d->connected = false;
	d->last_error = why;
	d->over = d->cfg.fd >= 0;
	if (!d->over)
		retry_later(d);
}

static int hand_over(struct uvhost_driver *d, unsigned idx, const struct drv_ring *r)
{
	return d->cfg.vhost_net != NULL ? drv_kernel_ring(&d->kernel, idx, r) :
					  drv_session_ring(&d->session, idx, r);
}

static int start_rings(struct uvhost_driver *d)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < d->session.pairs; i++) {
		struct uvhost_queue *p = &d->pairs[i];

		rc = drv_rx_start(&p->rx, d->session.features);
		if (rc == 0)
			rc = drv_tx_start(&p->tx, d->session.features);
		if (rc == 0)
			rc = hand_over(d, 2 * i, &p->rx.r);
		if (rc == 0)
			rc = hand_over(d, 2 * i + 1, &p->tx.r);
	}
	return rc;
}

/* How an attempt to connect has ended. */
static void settle(struct uvhost_driver *d, int rc)
{
	if (rc < 0) {
		disconnect(d, rc);
		return;
	}
	d->connected = true;
	d->connections++;
	d->retry_ns = RETRY_MIN_NS;
	d->last_error = 0;
}

/* A socket is there. */
static void meet(struct uvhost_driver *d, int fd)
{
	int rc;

	vu_frontend_init(&d->session.fe, fd, (int)d->cfg.timeout_ms);
	rc = drv_session_open(&d->session, &d->wish, &d->mem);
	if (rc == 0)
		rc = start_rings(d);
	if (rc == 0)
		rc = drv_session_enable(&d->session);
	if (rc == 0)
		rc = watch(d, fd, EPOLLIN | EPOLLRDHUP, &d->session);
	if (rc == 0 && d->session.req_fd >= 0)
		rc = watch(d, d->session.req_fd, EPOLLIN, &d->session.req_fd);
	settle(d, rc);
}

static void meet_kernel(struct uvhost_driver *d)
{
	struct drv_session *s = &d->session;
	int rc = drv_kernel_open(&d->kernel, d->cfg.vhost_net, &d->wish, &d->mem, &s->features);

	s->pairs = 1;
	if (rc == 0)
		rc = start_rings(d);
	if (rc == 0)
		rc = drv_kernel_enable(&d->kernel);
	settle(d, rc);
}

static void try_connect(struct uvhost_driver *d)
{
	struct vu_frontend fe;
	int rc;

	if (d->cfg.vhost_net != NULL) {
		meet_kernel(d);
		return;
	}
	rc = vu_frontend_connect(&fe, d->addr.sun_path, 0);
	if (rc == 0) {
		meet(d, fe.fd);
	} else {
		d->last_error = rc;
		retry_later(d);
	}
}

static void take_in(struct uvhost_driver *d)
{
	/* cppcheck-suppress nullPointer; nobody wants the peer's address */
	int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0 && !d->connected)
		meet(d, fd);
	else
		fd_close(&fd); /* one back end at a time */
}

/* ---- events ---- */

static void take_interrupt(struct drv_ring *r)
{
	eventfd_t n;

	if (eventfd_read(r->call, &n) == 0)
		r->interrupts += n;
}

static void handle(struct uvhost_driver *d, const void *what)
{
	uint64_t n;

	if (what == &d->timer_fd) {
		if (read(d->timer_fd, &n, sizeof(n)) == sizeof(n) && !d->connected)
			try_connect(d);
	} else if (what == &d->listen_fd) {
		take_in(d);
	} else if (what == &d->session.req_fd) {
		int rc = d->connected ? drv_session_listen(&d->session) : 0;

		if (rc < 0)
			disconnect(d, rc);
	} else if (what == &d->session) {
		/* It has nothing to say here, so this is the end of it. */
		if (d->connected)
			disconnect(d, -ECONNRESET);
	} else {
		for (unsigned i = 0; i < d->cfg.queue_pairs; i++) {
			if (what == &d->pairs[i].rx.r)
				take_interrupt(&d->pairs[i].rx.r);
			else if (what == &d->pairs[i].tx.r)
				take_interrupt(&d->pairs[i].tx.r);
		}
	}
}

static bool any_broken(const struct uvhost_driver *d)
{
	for (unsigned i = 0; i < d->cfg.queue_pairs; i++) {
		if (d->pairs[i].rx.r.broken || d->pairs[i].tx.r.broken)
			return true;
	}
	return false;
}

int uvhost_driver_process(struct uvhost_driver *d)
{
	struct epoll_event events[EVENTS_MAX];
	int n = epoll_wait(d->epoll_fd, events, EVENTS_MAX, 0);

	for (int i = 0; i < n; i++)
		handle(d, events[i].data.ptr);
	if (d->connected && any_broken(d))
		disconnect(d, -EPROTO);
	return d->over ? -ECONNRESET : 0;
}

/* ---- life ---- */

static bool is_ring_size(unsigned n)
{
	return n > 0 && n <= 32768 && (n & (n - 1)) == 0;
}

/* The caller's configuration, with the defaults filled in. */
static int take_cfg(struct uvhost_driver *d, const struct uvhost_driver_cfg *cfg)
{
	struct uvhost_driver_cfg *c = &d->cfg;
	uint64_t large = 1ULL << VIRTIO_NET_F_GUEST_TSO4 | 1ULL << VIRTIO_NET_F_GUEST_TSO6;
	const char *err;
	bool whole;

	if (cfg->size != sizeof(*cfg))
		return -EINVAL;
	*c = *cfg;
	c->queue_pairs = c->queue_pairs != 0 ? c->queue_pairs : 1;
	c->rx_size = c->rx_size != 0 ? c->rx_size : 256;
	c->tx_size = c->tx_size != 0 ? c->tx_size : 256;
	c->timeout_ms = c->timeout_ms != 0 ? c->timeout_ms : 2000;
	whole = (c->leave_out >> VIRTIO_NET_F_MRG_RXBUF) & 1 && (c->leave_out & large) != large;
	if (c->rx_buf == 0)
		c->rx_buf = whole ? DRV_FRAME_MAX + VIRTIO_NET_HDR_LEN + 1 : 2048;
	if ((c->socket_path != NULL) + (c->fd >= 0) + (c->vhost_net != NULL) != 1 ||
	    (c->vhost_net != NULL && (c->tap_fd < 0 || c->queue_pairs != 1)) ||
	    c->queue_pairs > 128 || !is_ring_size(c->rx_size) || !is_ring_size(c->tx_size) ||
	    c->rx_buf < 128 || c->rx_buf > DRV_FRAME_MAX + VIRTIO_NET_HDR_LEN + 1)
		return -EINVAL;
	d->wish = (struct drv_wish){ .features = UVHOST_DRIVER_FEATURES & ~c->leave_out,
				     .pairs = c->queue_pairs,
				     .rx_buf = c->rx_buf };
	return c->socket_path != NULL ? unix_address(&d->addr, c->socket_path, &err) : 0;
}

static int make_queues(struct uvhost_driver *d)
{
	const struct uvhost_driver_cfg *c = &d->cfg;
	size_t pair = drv_rx_bytes(c->rx_size, c->rx_buf) + drv_tx_bytes(c->tx_size);
	int rc = drv_mem_init(&d->mem, c->queue_pairs * pair + drv_mem_round(c->pool_len),
			      c->hugepages, c->lent, c->lent_cnt);

	d->pairs = calloc(c->queue_pairs, sizeof(*d->pairs));
	if (rc == 0 && d->pairs == NULL)
		rc = -ENOMEM;
	for (unsigned i = 0; rc == 0 && i < c->queue_pairs; i++) {
		struct uvhost_queue *p = &d->pairs[i];

		rc = drv_rx_init(&p->rx, &d->mem, c->rx_size, c->rx_buf);
		if (rc == 0)
			rc = drv_tx_init(&p->tx, &d->mem, c->tx_size);
		if (rc == 0)
			rc = watch(d, p->rx.r.call, EPOLLIN, &p->rx.r);
		if (rc == 0)
			rc = watch(d, p->tx.r.call, EPOLLIN, &p->tx.r);
	}
	return rc;
}

static int open_listener(struct uvhost_driver *d)
{
	const char *err;

	d->listen_fd = unix_bind(&d->addr, 0600, &err);
	if (d->listen_fd < 0)
		return d->listen_fd;
	if (listen(d->listen_fd, 1) < 0)
		return -errno;
	return watch(d, d->listen_fd, EPOLLIN, &d->listen_fd);
}

static int begin(struct uvhost_driver *d)
{
	int rc;

	d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	d->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (d->epoll_fd < 0 || d->timer_fd < 0)
		return -errno;
	rc = watch(d, d->timer_fd, EPOLLIN, &d->timer_fd);
	if (rc == 0)
		rc = make_queues(d);
	if (rc < 0)
		return rc;
	if (d->cfg.listen)
		return open_listener(d);
	if (d->cfg.fd >= 0)
		meet(d, d->cfg.fd);
	else
		try_connect(d);
	return 0;
}

int uvhost_driver_open(struct uvhost_driver **out, const struct uvhost_driver_cfg *cfg)
{
	struct uvhost_driver *d = calloc(1, sizeof(*d));
	int rc;

	if (d == NULL)
		return -ENOMEM;
	d->epoll_fd = d->timer_fd = d->listen_fd = d->session.fe.fd = d->session.req_fd =
		d->kernel.fd = -1;
	d->retry_ns = RETRY_MIN_NS;
	rc = take_cfg(d, cfg);
	d->kernel.tap_fd = d->cfg.tap_fd;
	if (rc == 0)
		rc = begin(d);
	if (rc < 0)
		uvhost_driver_close(d);
	else
		*out = d;
	return rc;
}

void uvhost_driver_close(struct uvhost_driver *d)
{
	drv_session_close(&d->session);
	drv_kernel_close(&d->kernel);
	for (unsigned i = 0; d->pairs != NULL && i < d->cfg.queue_pairs; i++) {
		drv_rx_fini(&d->pairs[i].rx);
		drv_tx_fini(&d->pairs[i].tx);
	}
	free(d->pairs);
	drv_mem_fini(&d->mem);
	if (d->listen_fd >= 0)
		unlink(d->addr.sun_path);
	fd_close(&d->listen_fd);
	fd_close(&d->timer_fd);
	fd_close(&d->epoll_fd);
	free(d);
}

/* ---- what is left is about one queue or about nothing ---- */

int uvhost_driver_fd(const struct uvhost_driver *d)
{
	return d->epoll_fd;
}

void uvhost_driver_info(const struct uvhost_driver *d, struct uvhost_driver_info *info)
{
	const struct drv_session *s = &d->session;

	*info = (struct uvhost_driver_info){ .connections = d->connections,
					     .last_error = d->last_error };
	if (!d->connected)
		return;
	info->connected = true;
	info->features = s->features;
	info->queue_pairs = s->pairs;
	info->link_up = true;
	if (d->cfg.vhost_net != NULL)
		return; /* the kernel knows of no configuration */
	info->link_up = (s->features >> VIRTIO_NET_F_STATUS & 1) == 0 ||
			(le16toh(s->config.status) & VIRTIO_NET_S_LINK_UP) != 0;
	info->has_mac = (s->features >> VIRTIO_NET_F_MAC) & 1;
	memcpy(info->mac, s->config.mac, sizeof(info->mac));
	if ((s->features >> VIRTIO_NET_F_MTU) & 1)
		info->mtu = le16toh(s->config.mtu);
}

void *uvhost_driver_alloc(struct uvhost_driver *d, size_t len)
{
	return drv_mem_alloc(&d->mem, len);
}

struct uvhost_queue *uvhost_driver_queue(struct uvhost_driver *d, unsigned i)
{
	return i < d->cfg.queue_pairs ? &d->pairs[i] : NULL;
}

int uvhost_queue_send(struct uvhost_queue *q, const struct uvhost_frame *frames, unsigned cnt)
{
	return drv_tx_send(&q->tx, frames, cnt);
}

int uvhost_queue_send_copy(struct uvhost_queue *q, const struct uvhost_frame *frames, unsigned cnt)
{
	return drv_tx_send_copy(&q->tx, frames, cnt);
}

unsigned uvhost_queue_sent(struct uvhost_queue *q, void **tokens, unsigned max)
{
	return drv_tx_sent(&q->tx, tokens, max);
}

unsigned uvhost_queue_recv(struct uvhost_queue *q, struct uvhost_frame *frames, unsigned max,
			   struct iovec *iov, unsigned iov_max)
{
	return drv_rx_recv(&q->rx, frames, max, iov, iov_max);
}

void uvhost_queue_release(struct uvhost_queue *q, const struct uvhost_frame *frames, unsigned cnt)
{
	drv_rx_release(&q->rx, frames, cnt);
}

bool uvhost_queue_interrupts(struct uvhost_queue *q, unsigned which)
{
	bool rx = drv_ring_interrupts(&q->rx.r, which & UVHOST_INTERRUPT_RX);
	bool tx = drv_ring_interrupts(&q->tx.r, which & UVHOST_INTERRUPT_TX);

	return rx || tx;
}

void uvhost_queue_stats(const struct uvhost_queue *q, struct uvhost_queue_stats *stats)
{
	*stats = (struct uvhost_queue_stats){
		.tx_frames = q->tx.sent,
		.rx_frames = q->rx.received,
		.tx_bytes = q->tx.bytes,
		.rx_bytes = q->rx.bytes,
		.kicks = q->tx.r.kicks + q->rx.r.kicks,
		.interrupts = q->tx.r.interrupts + q->rx.r.interrupts,
		.rx_malformed = q->rx.malformed,
		.tx_lost = q->tx.lost,
	};
}

const char *uvhost_version(void)
{
	return UVHOST_VERSION;
}
