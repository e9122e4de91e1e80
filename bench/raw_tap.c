// SPDX-License-Identifier: BSD-2-Clause
/*
 * The least that moves frames through a tap: what uvhostd is compared with.
 *
 *	raw_tap write|uring-write|read|uring-read TAP SECONDS BYTES
 *	raw_tap flood INTERFACE SECONDS BYTES
 *
 * write: one writev() a frame. uring-write: one io_uring_enter() for 64. read, uring-read: the same the
 * other way, as long as there is something. flood: sends into an interface, for the reading ones. Prints
 * one line of JSON: frames, seconds, ns of its processor's time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BATCH   64
#define HDR_LEN 12
#define ROOM    65562

struct run {
	int fd;
	unsigned bytes;
	uint64_t until, frames;
	char hdr[HDR_LEN];
	char *frame; /* BATCH of them to read */
	struct io_uring ring;
	struct iovec iov[BATCH][2];
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int open_tap(const char *name)
{
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), len = HDR_LEN;

	strncpy(ifr.ifr_name, name, sizeof(ifr.ifr_name) - 1);
	/* The kernel lets go of a ring, and of the tap in it, after its process has ended. */
	for (int i = 0; i < 100 && ioctl(fd, TUNSETIFF, &ifr) < 0 && errno == EBUSY; i++)
		usleep(10000);
	if (fd < 0 || ioctl(fd, TUNSETVNETHDRSZ, &len) < 0)
		die(name);
	return fd;
}

static int open_packet(const char *name)
{
	struct sockaddr_ll addr = { .sll_family = AF_PACKET,
				    .sll_ifindex = (int)if_nametoindex(name) };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), on = 1;

	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) < 0)
		die(name);
	return fd;
}

static void write_each(struct run *r)
{
	struct iovec iov[2] = { { r->hdr, HDR_LEN }, { r->frame, r->bytes } };

	for (unsigned i = 0; i < BATCH; i++)
		r->frames += writev(r->fd, iov, 2) > 0;
}

static void read_each(struct run *r)
{
	struct iovec iov[2] = { { r->hdr, HDR_LEN }, { r->frame, ROOM } };

	for (unsigned i = 0; i < BATCH; i++) {
		if (readv(r->fd, iov, 2) <= 0)
			return;
		r->frames++;
	}
}

/* One entry for a batch of operations; counts those that moved a frame. */
static void uring_batch(struct run *r, int write)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	for (unsigned i = 0; i < BATCH; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

		if (write)
			io_uring_prep_writev(sqe, 0, r->iov[0], 2, 0);
		else
			io_uring_prep_readv(sqe, 0, r->iov[i], 2, 0);
		sqe->flags = IOSQE_FIXED_FILE;
		sqe->rw_flags = RWF_NOWAIT;
	}
	if (io_uring_submit_and_wait(&r->ring, BATCH) < 0)
		die("io_uring_submit_and_wait");
	io_uring_for_each_cqe(&r->ring, head, cqe) {
		r->frames += cqe->res > 0;
		n++;
	}
	io_uring_cq_advance(&r->ring, n);
}

static void uring_write(struct run *r)
{
	uring_batch(r, 1);
}

static void uring_read(struct run *r)
{
	uring_batch(r, 0);
}

static void flood(struct run *r)
{
	struct mmsghdr msgs[BATCH];
	struct iovec iov = { r->frame, r->bytes };
	int n;

	memset(msgs, 0, sizeof(msgs));
	for (unsigned i = 0; i < BATCH; i++) {
		msgs[i].msg_hdr.msg_iov = &iov;
		msgs[i].msg_hdr.msg_iovlen = 1;
	}
	n = sendmmsg(r->fd, msgs, BATCH, MSG_DONTWAIT);
	if (n > 0)
		r->frames += (unsigned)n;
}

static void open_ring(struct run *r, unsigned room)
{
	struct io_uring_params params = { .flags = IORING_SETUP_SINGLE_ISSUER |
						   IORING_SETUP_DEFER_TASKRUN };

	if (io_uring_queue_init_params(BATCH, &r->ring, &params) < 0 ||
	    io_uring_register_files(&r->ring, &r->fd, 1) < 0)
		die("io_uring");
	for (unsigned i = 0; i < BATCH; i++) {
		r->iov[i][0] = (struct iovec){ r->hdr, HDR_LEN };
		r->iov[i][1] = (struct iovec){ r->frame + (size_t)i * ROOM, room };
	}
}

static const struct {
	const char *name;
	void (*step)(struct run *r);
	int uring, packet;
} modes[] = {
	{ "write", write_each, 0, 0 },
	{ "read", read_each, 0, 0 },
	{ "uring-write", uring_write, 1, 0 },
	{ "uring-read", uring_read, 1, 0 },
	{ "flood", flood, 0, 1 },
};

int main(int argc, char **argv)
{
	static const unsigned char macs[14] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5 };
	static struct run r;
	uint64_t start, cpu;
	size_t mode = 0;

	while (argc == 5 && mode < sizeof(modes) / sizeof(modes[0]) &&
	       strcmp(argv[1], modes[mode].name) != 0)
		mode++;
	if (argc != 5 || mode == sizeof(modes) / sizeof(modes[0])) {
		fputs("usage: raw_tap write|uring-write|read|uring-read|flood INTERFACE SECONDS BYTES\n",
		      stderr);
		return 2;
	}
	r.bytes = (unsigned)atoi(argv[4]);
	r.frame = calloc(BATCH, ROOM);
	if (r.frame == NULL || r.bytes < sizeof(macs) || r.bytes > ROOM)
		return 2;
	memcpy(r.frame, macs, sizeof(macs));
	r.fd = modes[mode].packet ? open_packet(argv[2]) : open_tap(argv[2]);
	if (modes[mode].uring)
		open_ring(&r, modes[mode].step == uring_write ? r.bytes : ROOM);
	start = now(CLOCK_MONOTONIC);
	cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	r.until = start + (uint64_t)(atof(argv[3]) * 1e9);
	while (now(CLOCK_MONOTONIC) < r.until)
		modes[mode].step(&r);
	printf("{\"frames\": %llu, \"seconds\": %.6f, \"cpu_ns\": %llu}\n",
	       (unsigned long long)r.frames, (double)(now(CLOCK_MONOTONIC) - start) * 1e-9,
	       (unsigned long long)(now(CLOCK_PROCESS_CPUTIME_ID) - cpu));
	return 0;
}
