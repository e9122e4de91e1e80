// SPDX-License-Identifier: BSD-2-Clause
/* uvhost nic: a Linux interface that a vhost-user back end is behind. */
/*
 * DOC: the interface is a tap. What the kernel sends on it is read straight into memory that the back
 * end shares, its header in front as virtio has it, and goes on by reference; what the back end sends
 * is written to the tap from where it lies. Checksums and segmentation are left to whoever does them
 * in the end: the tap is told what the back end can do, the back end what the kernel can (all).
 *
 * Frames that find the transmit ring full wait in their buffers, and the tap is not read; what the
 * kernel has then to drop it counts itself. Without a back end the carrier is off.
 */
#include <errno.h>
#include <getopt.h>
#include <net/if_arp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "commands.h"
#include "tap/tap_if.h"
#include "uvhost/driver.h"
#include "wire/virtio_net.h"

#define PROGRAM    "uvhost nic"
#define RING       256
#define BATCH      64
#define PIECES     (4 * BATCH)
#define QUEUES_MAX 16
#define FRAME_ROOM (VIRTIO_NET_HDR_LEN + VIRTIO_NET_FRAME_MAX + 1)

/* A frame of the kernel's on its way to the back end. */
struct buffer {
	struct iovec iov;
	uint32_t len;
	_Alignas(64) char room[FRAME_ROOM]; /* its header, then the frame */
};

struct pair {
	struct uvhost_queue *q;
	int tap;
	struct buffer **free_bufs; /* a stack */
	unsigned free_cnt;
	/* Read from the tap, and not taken by the ring yet. */
	struct uvhost_frame waiting[BATCH];
	unsigned first, cnt;
};

struct nic {
	const char *socket_path, *ifname;
	bool listen;
	unsigned queues;
	struct uvhost_driver *d;
	struct pair pairs[QUEUES_MAX];
	uint64_t connections; /* that the interface was set up for */
	bool carrier;
	int signal_fd, sock;
	struct log_limit limit;
};

/* ---- frames ---- */

static void take_back(struct pair *p)
{
	void *tokens[BATCH];
	unsigned n;

	while ((n = uvhost_queue_sent(p->q, tokens, BATCH)) > 0) {
		for (unsigned i = 0; i < n; i++)
			p->free_bufs[p->free_cnt++] = tokens[i];
	}
}

/* Describes the @len bytes in @b as a frame; false: there is none. */
static bool describe(struct uvhost_frame *f, struct buffer *b, ssize_t len)
{
	const struct virtio_net_hdr *h = (const void *)b->room;

	if (len <= VIRTIO_NET_HDR_LEN)
		return false;
	b->iov = (struct iovec){ .iov_base = b->room + VIRTIO_NET_HDR_LEN,
				 .iov_len = (size_t)len - VIRTIO_NET_HDR_LEN };
	*f = (struct uvhost_frame){ .iov = &b->iov,
				    .iov_cnt = 1,
				    .len = (uint32_t)b->iov.iov_len,
				    .headroom = true,
				    .token = b };
	f->hdr = (struct uvhost_net_hdr){ .flags = h->flags,
					  .gso_type = h->gso_type,
					  .hdr_len = le16toh(h->hdr_len),
					  .gso_size = le16toh(h->gso_size),
					  .csum_start = le16toh(h->csum_start),
					  .csum_offset = le16toh(h->csum_offset) };
	return true;
}

/* Reads what the kernel sends; true: it may have more. */
static bool read_tap(struct pair *p)
{
	p->first = 0;
	while (p->cnt < BATCH && p->free_cnt > 0) {
		struct buffer *b = p->free_bufs[p->free_cnt - 1];
		ssize_t n = read(p->tap, b->room, FRAME_ROOM);

		if (n < 0)
			return false;
		if (describe(&p->waiting[p->cnt], b, n)) {
			p->free_cnt--;
			p->cnt++;
		}
	}
	return true;
}

/* From the kernel to the back end; true: there was something. */
static bool send_some(struct pair *p)
{
	bool more = false;
	int sent;

	take_back(p);
	if (p->cnt == 0)
		more = read_tap(p);
	if (p->cnt == 0)
		return false;
	sent = uvhost_queue_send(p->q, &p->waiting[p->first], p->cnt);
	if (sent <= 0)
		return false;
	p->first += (unsigned)sent;
	p->cnt -= (unsigned)sent;
	return more || p->cnt == 0;
}

/* Without a back end nobody wants what the kernel still had. */
static void drop_some(struct pair *p)
{
	take_back(p);
	do {
		while (p->cnt > 0) {
			p->cnt--;
			p->free_bufs[p->free_cnt++] = p->waiting[p->first + p->cnt].token;
		}
	} while (read_tap(p) && p->cnt > 0);
}

static void write_frame(struct pair *p, const struct uvhost_frame *f)
{
	struct virtio_net_hdr h = { .flags = f->hdr.flags,
				    .gso_type = f->hdr.gso_type,
				    .hdr_len = htole16(f->hdr.hdr_len),
				    .gso_size = htole16(f->hdr.gso_size),
				    .csum_start = htole16(f->hdr.csum_start),
				    .csum_offset = htole16(f->hdr.csum_offset) };
	struct iovec iov[1 + PIECES];

	iov[0] = (struct iovec){ .iov_base = &h, .iov_len = sizeof(h) };
	memcpy(&iov[1], f->iov, f->iov_cnt * sizeof(*f->iov));
	/* What the kernel does not take it counts: the interface is down, or the frame is none. */
	if (writev(p->tap, iov, (int)f->iov_cnt + 1) < 0)
		return;
}

/* From the back end to the kernel. */
static bool receive_some(struct pair *p)
{
	struct uvhost_frame frames[BATCH];
	struct iovec pieces[PIECES];
	unsigned n = uvhost_queue_recv(p->q, frames, BATCH, pieces, PIECES);

	for (unsigned i = 0; i < n; i++)
		write_frame(p, &frames[i]);
	if (n > 0)
		uvhost_queue_release(p->q, frames, n);
	return n > 0;
}

/* ---- the interface ---- */

static unsigned tun_bits(uint64_t features)
{
	static const struct {
		unsigned feature, tun;
	} map[] = {
		{ VIRTIO_NET_F_CSUM, TUN_F_CSUM },
		{ VIRTIO_NET_F_HOST_TSO4, TUN_F_TSO4 },
		{ VIRTIO_NET_F_HOST_TSO6, TUN_F_TSO6 },
		{ VIRTIO_NET_F_HOST_ECN, TUN_F_TSO_ECN },
	};
	unsigned bits = 0;

	for (size_t i = 0; i < ARRAY_SIZE(map); i++)
		bits |= (features >> map[i].feature) & 1 ? map[i].tun : 0;
	if (!(bits & TUN_F_CSUM))
		return 0;
	return bits & (TUN_F_TSO4 | TUN_F_TSO6) ? bits : bits & ~(unsigned)TUN_F_TSO_ECN;
}

static struct ifreq named(const struct nic *nic)
{
	struct ifreq ifr = { 0 };

	strncpy(ifr.ifr_name, nic->ifname, sizeof(ifr.ifr_name) - 1);
	return ifr;
}

/* What the back end says of itself; that the interface cannot be so is only told. */
static void take_over(struct nic *nic, const struct uvhost_driver_info *info)
{
	struct ifreq ifr = named(nic);

	if (info->has_mac) {
		ifr.ifr_hwaddr.sa_family = ARPHRD_ETHER;
		memcpy(ifr.ifr_hwaddr.sa_data, info->mac, sizeof(info->mac));
		if (ioctl(nic->sock, SIOCSIFHWADDR, &ifr) < 0)
			log_warn(nic->ifname, "cannot have the back end's MAC address: error=%s",
				 log_errname(-errno));
	}
	ifr = named(nic);
	ifr.ifr_mtu = info->mtu;
	if (info->mtu != 0 && ioctl(nic->sock, SIOCSIFMTU, &ifr) < 0)
		log_warn(nic->ifname, "cannot have the back end's MTU: mtu=%u error=%s", info->mtu,
			 log_errname(-errno));
}

static void set_carrier(struct nic *nic, bool on)
{
	unsigned carrier = on;

	nic->carrier = on;
	if (ioctl(nic->pairs[0].tap, TUNSETCARRIER, &carrier) < 0)
		log_limited(&nic->limit, LOG_LEVEL_WARN, nic->ifname,
			    "cannot set the carrier: error=%s", log_errname(-errno));
}

/* The interface follows the connection; true: there is one. */
static bool follow(struct nic *nic)
{
	struct uvhost_driver_info info;

	uvhost_driver_info(nic->d, &info);
	if (info.connected && info.connections != nic->connections) {
		log_limited(&nic->limit, LOG_LEVEL_INFO, nic->ifname,
			    "connected: queues=%u features=%#llx", info.queue_pairs,
			    (unsigned long long)info.features);
		if (nic->connections == 0)
			take_over(nic, &info);
		for (unsigned i = 0; i < nic->queues; i++)
			tap_if_set_offload(nic->pairs[i].tap, tun_bits(info.features));
		nic->connections = info.connections;
	}
	if (info.link_up != nic->carrier)
		set_carrier(nic, info.link_up);
	return info.connected;
}

static int open_tap(struct nic *nic, struct pair *p)
{
	bool persistent;
	int rc;

	p->tap = rc = tap_if_open();
	if (rc >= 0)
		rc = tap_if_attach(p->tap, nic->ifname, nic->queues > 1, &persistent);
	if (rc >= 0)
		rc = tap_if_setup(p->tap, 0);
	if (rc < 0)
		log_error(nic->ifname, "%s: error=%s", tap_if_advice(rc, nic->sock, nic->ifname),
			  log_errname(rc));
	return rc;
}

/* ---- life ---- */

static int prepare(struct nic *nic)
{
	sigset_t set;
	int rc = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	nic->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	nic->sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (nic->signal_fd < 0 || nic->sock < 0)
		return -errno;
	for (unsigned i = 0; rc >= 0 && i < nic->queues; i++)
		rc = open_tap(nic, &nic->pairs[i]);
	if (rc >= 0)
		set_carrier(nic, false);
	return rc;
}

static int attach_driver(struct nic *nic)
{
	struct uvhost_driver_cfg cfg = UVHOST_DRIVER_CFG;
	int rc;

	cfg.socket_path = nic->socket_path;
	cfg.listen = nic->listen;
	cfg.queue_pairs = nic->queues;
	cfg.rx_size = cfg.tx_size = RING;
	cfg.pool_len = (size_t)nic->queues * RING * (sizeof(struct buffer) + 64);
	rc = uvhost_driver_open(&nic->d, &cfg);
	if (rc < 0) {
		log_error(nic->ifname, "socket %s: error=%s", nic->socket_path, log_errname(rc));
		return rc;
	}
	for (unsigned i = 0; i < nic->queues; i++) {
		struct pair *p = &nic->pairs[i];

		p->q = uvhost_driver_queue(nic->d, i);
		p->free_bufs = calloc(RING, sizeof(struct buffer *));
		if (p->free_bufs == NULL)
			return -ENOMEM;
		for (; p->free_cnt < RING; p->free_cnt++)
			p->free_bufs[p->free_cnt] =
				uvhost_driver_alloc(nic->d, sizeof(struct buffer));
	}
	return 0;
}

/* Sleeps until something happens, unless there is something to do; false: a signal ends it all. */
static bool wait_for_work(struct nic *nic, bool busy)
{
	struct pollfd fds[2 + QUEUES_MAX] = {
		{ .fd = nic->signal_fd, .events = POLLIN },
		{ .fd = uvhost_driver_fd(nic->d), .events = POLLIN },
	};

	for (unsigned i = 0; i < nic->queues; i++) {
		struct pair *p = &nic->pairs[i];
		/* With the ring full, or all buffers out, what is sent has to come back first. */
		bool full = p->cnt > 0 || p->free_cnt == 0;

		fds[2 + i] = (struct pollfd){ .fd = full ? -1 : p->tap, .events = POLLIN };
		if (!busy)
			busy = uvhost_queue_interrupts(
				p->q, UVHOST_INTERRUPT_RX | (full ? UVHOST_INTERRUPT_TX : 0));
	}
	poll(fds, 2 + nic->queues, busy ? 0 : -1);
	return fds[0].revents == 0;
}

/* Moves frames in all directions; true: there were some. */
static bool move_frames(struct nic *nic, bool connected)
{
	bool busy = false;

	for (unsigned i = 0; i < nic->queues; i++) {
		struct pair *p = &nic->pairs[i];

		if (!connected) {
			drop_some(p);
			continue;
		}
		busy |= send_some(p);
		busy |= receive_some(p);
	}
	return busy;
}

static void serve(struct nic *nic)
{
	bool connected = false, before, busy = true;

	while (wait_for_work(nic, busy)) {
		uvhost_driver_process(nic->d);
		before = connected;
		connected = follow(nic);
		if (before && !connected)
			log_limited(&nic->limit, LOG_LEVEL_INFO, nic->ifname,
				    "the back end has left");
		busy = move_frames(nic, connected);
	}
}

static void shut_down(struct nic *nic)
{
	if (nic->d != NULL)
		uvhost_driver_close(nic->d);
	for (unsigned i = 0; i < nic->queues; i++) {
		fd_close(&nic->pairs[i].tap);
		free(nic->pairs[i].free_bufs);
	}
	fd_close(&nic->signal_fd);
	fd_close(&nic->sock);
}

/* ---- options ---- */

static void print_help(void)
{
	puts("Usage: " PROGRAM " --socket-path=PATH --tap=NAME [OPTION...]\n"
	     "A Linux interface in this network namespace, behind it a vhost-user back end.\n\n"
	     "  --socket-path=PATH  socket of the back end\n"
	     "  --tap=NAME          the interface: attached to if it exists, else made\n"
	     "  --listen            make that socket and wait for the back end there\n"
	     "  --queues=N          queue pairs, 1 to 16 (1)\n"
	     "  --help              print this\n\n"
	     "The interface has the back end's MAC address and MTU; its carrier is on while there is one.\n"
	     "It stays down until you set it up: ip addr add 10.0.0.2/24 dev NAME; ip link set NAME up");
}

static int complain(const char *what, const char *of)
{
	fprintf(stderr, PROGRAM ": %s%s\nTry '" PROGRAM " --help'.\n", of, what);
	return -EINVAL;
}

static int parse(struct nic *nic, int argc, char **argv, bool *help)
{
	static const struct option longs[] = {
		{ "socket-path", required_argument, NULL, 's' },
		{ "tap", required_argument, NULL, 't' },
		{ "listen", no_argument, NULL, 'l' },
		{ "queues", required_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	char *end;
	int c;

	/* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread */
	while ((c = getopt_long(argc, argv, ":h", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			nic->socket_path = optarg;
			break;
		case 't':
			nic->ifname = optarg;
			break;
		case 'l':
			nic->listen = true;
			break;
		case 'q':
			nic->queues = (unsigned)strtoul(optarg, &end, 10);
			if (*end != '\0' || nic->queues < 1 || nic->queues > QUEUES_MAX)
				return complain(" wants 1 to 16", "--queues");
			break;
		case 'h':
			*help = true;
			return 0;
		case ':':
			return complain(" needs a value", argv[optind - 1]);
		default:
			return complain(" is no option", argv[optind - 1]);
		}
	}
	if (optind < argc)
		return complain(" is no option", argv[optind]);
	if (nic->socket_path == NULL || nic->ifname == NULL)
		return complain("say --socket-path and --tap", "");
	if (strlen(nic->ifname) >= IFNAMSIZ || !tap_if_name_ok(nic->ifname) || *nic->ifname == '\0')
		return complain(" wants the name of an interface, 15 characters at most", "--tap");
	return 0;
}

int nic_main(int argc, char **argv)
{
	static struct nic nic = { .queues = 1, .signal_fd = -1, .sock = -1 };
	bool help = false;
	int rc;

	for (unsigned i = 0; i < QUEUES_MAX; i++)
		nic.pairs[i].tap = -1;
	if (parse(&nic, argc, argv, &help) < 0)
		return 2;
	if (help) {
		print_help();
		return 0;
	}
	rc = prepare(&nic);
	if (rc >= 0)
		rc = attach_driver(&nic);
	if (rc >= 0)
		serve(&nic);
	shut_down(&nic);
	return rc >= 0 ? 0 : 1;
}
