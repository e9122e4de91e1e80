// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ways to receive from a tap into a guest's buffers, measured on a real one (design, "Receive from a
 * tap"). Prints one JSON object a run; bench/rx_modes.py makes figures of them.
 *
 * DOC: a namespace of its own, a tap in it, frames sent into the tap's interface by AF_PACKET. Room for
 * the largest frame is needed at each read, the guest's buffers have GUEST_BUF bytes. The modes:
 *
 * slots   a burst of reads into slots, each with full room; then a copy into the buffers needed
 * direct  one read into as many buffers as the largest frame needs
 * first   a burst of reads, each into one buffer of the guest with a slot behind it; what went to the
 *         slot is copied into further buffers, and a frame that follows an empty read is moved
 *
 * Two kinds of load. *Backlog*: the queue is filled, then emptied, and only emptying is timed: neither
 * the sender nor another process counts. "half" finds half as many frames as it reads: the tails fail.
 * *Paced*: a thread on the other processor sends at an even rate, the reader sleeps when it finds
 * nothing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HDR_LEN     12
#define FRAME_MAX   (65535 + ETH_HLEN)
#define BURST_MAX   64
#define SLOT_LEN    (FRAME_MAX + 2123) /* as in src/net/scratch.h */
#define GUEST_BYTES (8 << 20)          /* what a guest's buffers go round in */
#define DIRECT_BUFS 64
#define GSO_SIZE    1448
#define QUEUE_LEN   1024
#define QUEUE_BYTES (2 << 20) /* of a filled queue: what a cache keeps */

enum kind { SLOTS, DIRECT, FIRST };

struct mode {
	const char *name;
	enum kind kind;
	unsigned burst; /* 0: adapts, 4 to 64 */
};

/* Every @every-th frame has @len bytes, the others @between. */
struct traffic {
	unsigned len, between, every;
};

struct reader {
	struct io_uring ring;
	int tap;
	const struct mode *mode;
	unsigned guest_buf, guest_cnt;
	uint64_t next; /* buffer of the guest; free-running */
	char *guest, *slots;
	char hdrs[BURST_MAX][HDR_LEN];
	struct iovec iov[BURST_MAX][1 + DIRECT_BUFS];
	int res[BURST_MAX];
	unsigned burst;
	uint64_t calls, moved;
};

struct sender {
	int sock;
	struct traffic traffic;
	uint64_t sent;
	char *frame;
	uint64_t gap_ns;
	atomic_bool stop;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t clock_now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set),
			  &set); /* with one processor the figures are worse, no more */
}

/* ---- the reader ---- */

static char *guest_at(const struct reader *r, uint64_t n)
{
	return r->guest + (n % r->guest_cnt) * r->guest_buf;
}

static char *slot_at(const struct reader *r, unsigned i)
{
	return r->slots + (size_t)i * SLOT_LEN;
}

static void prep_read(struct reader *r, unsigned i, unsigned iov_cnt)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

	r->iov[i][0] = (struct iovec){ r->hdrs[i], HDR_LEN };
	io_uring_prep_readv(sqe, 0, r->iov[i], iov_cnt, 0);
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->rw_flags = RWF_NOWAIT;
	sqe->user_data = i;
}

static void enter(struct reader *r, unsigned wait)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	r->calls++;
	if (io_uring_submit_and_wait(&r->ring, wait) < 0)
		die("io_uring_enter");
	io_uring_for_each_cqe(&r->ring, head, cqe) {
		n++;
		if (cqe->user_data < BURST_MAX)
			r->res[cqe->user_data] = cqe->res;
	}
	io_uring_cq_advance(&r->ring, n);
}

/* The bytes that come after the first buffer's, into the following ones. */
static void fill_buffers(struct reader *r, const char *from, size_t len)
{
	while (len > 0) {
		size_t n = len < r->guest_buf ? len : r->guest_buf;

		memcpy(guest_at(r, r->next++), from, n);
		from += n;
		len -= n;
	}
}

/* A frame in a slot, whole, into as many buffers as it needs. */
static void deliver(struct reader *r, unsigned i, size_t len)
{
	size_t n = len < r->guest_buf - HDR_LEN ? len : r->guest_buf - HDR_LEN;
	char *first = guest_at(r, r->next++);

	memcpy(first, r->hdrs[i], HDR_LEN);
	memcpy(first + HDR_LEN, slot_at(r, i), n);
	fill_buffers(r, slot_at(r, i) + n, len - n);
}

static unsigned read_slots(struct reader *r, unsigned burst)
{
	unsigned got = 0;

	for (unsigned i = 0; i < burst; i++) {
		r->iov[i][1] = (struct iovec){ slot_at(r, i), FRAME_MAX };
		prep_read(r, i, 2);
	}
	enter(r, burst);
	for (unsigned i = 0; i < burst; i++) {
		size_t len = r->res[i] < HDR_LEN ? 0 : (size_t)(r->res[i] - HDR_LEN);

		if (len == 0)
			continue;
		deliver(r, i, len);
		got++;
	}
	return got;
}

static unsigned read_direct(struct reader *r)
{
	unsigned cnt = (HDR_LEN + FRAME_MAX + r->guest_buf - 1) / r->guest_buf;
	size_t len;

	for (unsigned i = 0; i < cnt; i++)
		r->iov[0][1 + i] = (struct iovec){ guest_at(r, r->next + i), r->guest_buf };
	r->iov[0][1].iov_base = guest_at(r, r->next) + HDR_LEN;
	r->iov[0][1].iov_len -= HDR_LEN;
	prep_read(r, 0, 1 + cnt);
	enter(r, 1);
	if (r->res[0] < HDR_LEN)
		return 0;
	len = (size_t)(r->res[0] - HDR_LEN);
	memcpy(guest_at(r, r->next), r->hdrs[0], HDR_LEN);
	r->next += (HDR_LEN + len + r->guest_buf - 1) / r->guest_buf;
	return 1;
}

static unsigned read_first(struct reader *r, unsigned burst)
{
	const size_t room = r->guest_buf - HDR_LEN;
	const uint64_t base = r->next;
	size_t over[BURST_MAX];
	unsigned from[BURST_MAX], got = 0;

	for (unsigned i = 0; i < burst; i++) {
		r->iov[i][1] = (struct iovec){ guest_at(r, base + i) + HDR_LEN, room };
		r->iov[i][2] = (struct iovec){ slot_at(r, i), FRAME_MAX - room };
		prep_read(r, i, 3);
	}
	enter(r, burst);
	for (unsigned i = 0; i < burst; i++) {
		size_t len = r->res[i] < HDR_LEN ? 0 : (size_t)(r->res[i] - HDR_LEN);
		char *to = guest_at(r, base + got);

		if (len == 0)
			continue;
		if (i != got) {
			memcpy(to + HDR_LEN, guest_at(r, base + i) + HDR_LEN,
			       len < room ? len : room);
			r->moved++;
		}
		memcpy(to, r->hdrs[i], HDR_LEN);
		over[got] = len > room ? len - room : 0;
		from[got++] = i;
	}
	r->next = base + got;
	for (unsigned i = 0; i < got; i++)
		fill_buffers(r, slot_at(r, from[i]), over[i]);
	return got;
}

static void adapt_burst(struct reader *r, unsigned got)
{
	if (got == r->burst)
		r->burst = r->burst * 2 < BURST_MAX ? r->burst * 2 : BURST_MAX;
	else if (got < r->burst / 2)
		r->burst = r->burst / 2 > 4 ? r->burst / 2 : 4;
}

/* One entry; how many frames it brought. */
static unsigned read_once(struct reader *r)
{
	unsigned got, burst = r->mode->burst ? r->mode->burst : r->burst;

	switch (r->mode->kind) {
	case DIRECT:
		return read_direct(r);
	case FIRST:
		got = read_first(r, burst);
		break;
	default:
		got = read_slots(r, burst);
		break;
	}
	adapt_burst(r, got);
	return got;
}

static void wait_readable(struct reader *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);

	io_uring_prep_poll_add(sqe, 0, POLLIN);
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->user_data = BURST_MAX;
	enter(r, 1);
}

static void reader_reset(struct reader *r, const struct mode *mode, unsigned guest_buf)
{
	r->mode = mode;
	r->guest_buf = guest_buf;
	r->guest_cnt = GUEST_BYTES / guest_buf;
	r->burst = 4;
	r->calls = r->moved = 0;
}

/* ---- the sender ---- */

static unsigned len_of(const struct traffic *t, uint64_t n)
{
	return t->every > 1 && n % t->every != 0 ? t->between : t->len;
}

/* Ethernet with a type that nobody speaks; above any MTU in use here, TCP that is to be segmented. */
static void make_frame(char *buf, unsigned len)
{
	struct virtio_net_hdr *hdr = (void *)buf;
	uint8_t *eth = (uint8_t *)buf + sizeof(*hdr), *ip = eth + ETH_HLEN, *tcp = ip + 20;

	memset(buf, 0, sizeof(*hdr) + ETH_HLEN + 40);
	memset(eth, 2, 2 * ETH_ALEN);
	*(uint16_t *)(void *)(eth + 2 * ETH_ALEN) = htons(0x88b5);
	if (len <= 9000 + ETH_HLEN)
		return;
	*(uint16_t *)(void *)(eth + 2 * ETH_ALEN) = htons(ETH_P_IP);
	ip[0] = 0x45;
	*(uint16_t *)(void *)(ip + 2) = htons((uint16_t)(len - ETH_HLEN));
	ip[8] = 64;
	ip[9] = IPPROTO_TCP;
	tcp[12] = 5 << 4;
	*hdr = (struct virtio_net_hdr){ .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
					.gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
					.hdr_len = ETH_HLEN + 40,
					.gso_size = GSO_SIZE,
					.csum_start = ETH_HLEN + 20,
					.csum_offset = 16 };
}

static void send_frame(struct sender *s)
{
	unsigned len = len_of(&s->traffic, s->sent++);

	make_frame(s->frame, len);
	if (send(s->sock, s->frame, sizeof(struct virtio_net_hdr) + len, 0) < 0 && errno != ENOBUFS)
		die("send");
}

static void *send_paced(void *arg)
{
	struct sender *s = arg;
	uint64_t next = clock_now(CLOCK_MONOTONIC);

	pin(1);
	while (!atomic_load(&s->stop)) {
		uint64_t now = clock_now(CLOCK_MONOTONIC);

		if (now < next)
			continue;
		send_frame(s);
		/* A sender that was not running does not make up for it in one heap. */
		next = now > next + 1000000 ? now : next + s->gap_ns;
	}
	return NULL;
}

/* ---- the tap ---- */

static void if_ioctl(unsigned long request, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, request, ifr) < 0)
		die("setting the tap up");
	close(fd);
}

static int open_tap(struct ifreq *ifr)
{
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), hdr_len = HDR_LEN;
	/* Nothing but our frames. */
	int conf = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY | O_CLOEXEC);

	if (conf >= 0 && write(conf, "1", 1) == 1)
		close(conf);
	*ifr = (struct ifreq){ .ifr_name = "rx0", .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	if (fd < 0 || ioctl(fd, TUNSETIFF, ifr) < 0 || ioctl(fd, TUNSETVNETHDRSZ, &hdr_len) < 0 ||
	    ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) < 0)
		die("tap");
	ifr->ifr_qlen = QUEUE_LEN;
	if_ioctl(SIOCSIFTXQLEN, ifr);
	ifr->ifr_mtu = 9000;
	if_ioctl(SIOCSIFMTU, ifr);
	ifr->ifr_flags = IFF_UP;
	if_ioctl(SIOCSIFFLAGS, ifr);
	return fd;
}

static int open_packet(struct ifreq *ifr)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), one = 1, room = 32 << 20;
	struct sockaddr_ll to = { .sll_family = AF_PACKET };

	if_ioctl(SIOCGIFINDEX, ifr);
	to.sll_ifindex = ifr->ifr_ifindex;
	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) < 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) < 0 ||
	    bind(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		die("packet socket");
	return fd;
}

static void open_ring(struct reader *r)
{
	struct io_uring_params params = { .flags = IORING_SETUP_SINGLE_ISSUER |
						   IORING_SETUP_DEFER_TASKRUN };

	if (io_uring_queue_init_params(2 * BURST_MAX, &r->ring, &params) < 0 ||
	    io_uring_register_files(&r->ring, &r->tap, 1) < 0)
		die("io_uring");
	io_uring_register_ring_fd(&r->ring);
}

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* ---- runs ---- */

static void print_run(const char *load, const struct reader *r, const struct traffic *t,
		      uint64_t frames, uint64_t cpu_ns, uint64_t wall_ns)
{
	printf("{\"load\":\"%s\",\"mode\":\"%s\",\"guest_buf\":%u,\"len\":%u,\"between\":%u,"
	       "\"every\":%u,\"frames\":%lu,\"cpu_ns\":%lu,\"wall_ns\":%lu,\"calls\":%lu,"
	       "\"moved\":%lu}\n",
	       load, r->mode->name, r->guest_buf, t->len, t->between, t->every, frames, cpu_ns,
	       wall_ns, r->calls, r->moved);
}

/* What a pair of looks at both clocks costs by itself. */
static uint64_t clock_cost(void)
{
	uint64_t begin = clock_now(CLOCK_THREAD_CPUTIME_ID);

	for (int i = 0; i < 1000; i++)
		clock_now(CLOCK_THREAD_CPUTIME_ID);
	return (clock_now(CLOCK_THREAD_CPUTIME_ID) - begin) / 1000;
}

static unsigned queue_fill(const struct traffic *t, const struct mode *m, bool half)
{
	unsigned mean = (t->len + (t->every - 1) * t->between) / t->every;
	unsigned burst = m->burst ? m->burst : BURST_MAX, cnt = QUEUE_BYTES / mean;

	if (half)
		return burst > 1 ? burst / 2 : 1;
	cnt = cnt > QUEUE_LEN / 2 ? QUEUE_LEN / 2 : cnt;
	return cnt < burst ? burst : cnt / burst * burst;
}

static void run_backlog(struct reader *r, struct sender *s, bool half, uint64_t total)
{
	const uint64_t look_ns = clock_cost();
	const unsigned fill = queue_fill(&s->traffic, r->mode, half);
	uint64_t frames = 0, cpu = 0, wall = 0;

	while (frames < total) {
		uint64_t cpu_begin, wall_begin, got = 0;

		for (unsigned i = 0; i < fill; i++)
			send_frame(s);
		wall_begin = clock_now(CLOCK_MONOTONIC);
		cpu_begin = clock_now(CLOCK_THREAD_CPUTIME_ID);
		while (got < fill) {
			unsigned n = read_once(r);

			if (n == 0)
				break; /* the queue dropped some */
			got += n;
		}
		cpu += clock_now(CLOCK_THREAD_CPUTIME_ID) - cpu_begin - look_ns;
		wall += clock_now(CLOCK_MONOTONIC) - wall_begin - 2 * look_ns;
		frames += got;
		if (got == 0)
			die("no frames come through");
	}
	print_run(half ? "half" : "backlog", r, &s->traffic, frames, cpu, wall);
}

static void run_paced(struct reader *r, struct sender *s, uint64_t gap_ns, uint64_t run_ns)
{
	uint64_t frames = 0, cpu, wall, end;
	pthread_t thread;

	s->gap_ns = gap_ns;
	atomic_store(&s->stop, false);
	cpu = clock_now(CLOCK_THREAD_CPUTIME_ID);
	wall = clock_now(CLOCK_MONOTONIC);
	end = wall + run_ns;
	if (pthread_create(&thread, NULL, send_paced, s) != 0)
		die("thread");
	while (clock_now(CLOCK_MONOTONIC) < end) {
		unsigned n = read_once(r);

		frames += n;
		if (n == 0)
			wait_readable(r);
	}
	cpu = clock_now(CLOCK_THREAD_CPUTIME_ID) - cpu;
	wall = clock_now(CLOCK_MONOTONIC) - wall;
	atomic_store(&s->stop, true);
	pthread_join(thread, NULL);
	print_run("paced", r, &s->traffic, frames, cpu, wall);
	while (read_once(r) > 0)
		;
}

/* ---- the book of runs ---- */

static const struct mode modes[] = {
	{ .name = "slots", .kind = SLOTS },
	{ .name = "slots-1", .kind = SLOTS, .burst = 1 },
	{ .name = "slots-4", .kind = SLOTS, .burst = 4 },
	{ .name = "slots-16", .kind = SLOTS, .burst = 16 },
	{ .name = "slots-64", .kind = SLOTS, .burst = 64 },
	{ .name = "direct", .kind = DIRECT, .burst = 1 },
	{ .name = "first", .kind = FIRST },
	{ .name = "first-16", .kind = FIRST, .burst = 16 },
	{ .name = "first-64", .kind = FIRST, .burst = 64 },
};

static const unsigned lens[] = { 64, 512, 1500, 4096, 9000, 16384, 32768, 65214 };
static const unsigned guest_bufs[] = { 1536, 4096 }; /* of new rings; what Linux adapts to */
#define MIX_LEN     65214
#define MIX_BETWEEN 66
static const unsigned mixes[] = { 2, 5, 17, 65 };

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void run_lens(struct reader *r, struct sender *s, unsigned guest_buf)
{
	for (unsigned l = 0; l < COUNT(lens); l++) {
		s->traffic = (struct traffic){ .len = lens[l], .between = lens[l], .every = 1 };
		for (unsigned m = 0; m < COUNT(modes); m++) {
			uint64_t total = lens[l] > 9000 ? 512 : 4096;

			reader_reset(r, &modes[m], guest_buf);
			run_backlog(r, s, false, total);
			reader_reset(r, &modes[m], guest_buf);
			run_backlog(r, s, true, total / 2);
		}
	}
}

/* Few large frames among small ones. */
static void run_mixes(struct reader *r, struct sender *s, unsigned guest_buf)
{
	for (unsigned k = 0; k < COUNT(mixes); k++) {
		s->traffic = (struct traffic){ MIX_LEN, MIX_BETWEEN, mixes[k] };
		for (unsigned m = 0; m < COUNT(modes); m++) {
			reader_reset(r, &modes[m], guest_buf);
			run_backlog(r, s, false, 2048);
		}
	}
}

static void run_gaps(struct reader *r, struct sender *s, unsigned guest_buf)
{
	/* About half of what a reader can do. */
	static const struct {
		unsigned len;
		uint64_t gap_ns;
	} paces[] = { { 64, 4000 }, { 1500, 5000 }, { 9000, 10000 }, { 65214, 50000 } };

	for (unsigned p = 0; p < COUNT(paces); p++) {
		s->traffic = (struct traffic){ paces[p].len, paces[p].len, 1 };
		for (unsigned m = 0; m < COUNT(modes); m++) {
			if (modes[m].kind != DIRECT && modes[m].burst != 0)
				continue;
			reader_reset(r, &modes[m], guest_buf);
			run_paced(r, s, paces[p].gap_ns, 100000000);
		}
	}
}

int main(int argc, char **argv)
{
	static struct reader reader;
	static struct sender sender;
	struct ifreq ifr;
	int rounds = argc > 1 ? atoi(argv[1]) : 1;

	if (unshare(CLONE_NEWNET) < 0)
		die("a network namespace");
	reader.tap = open_tap(&ifr);
	sender.sock = open_packet(&ifr);
	sender.frame = map(sizeof(struct virtio_net_hdr) + FRAME_MAX);
	reader.guest = map(GUEST_BYTES);
	reader.slots = map((size_t)BURST_MAX * SLOT_LEN);
	open_ring(&reader);
	pin(0);
	for (int i = 0; i < rounds; i++) {
		for (unsigned b = 0; b < COUNT(guest_bufs); b++) {
			run_lens(&reader, &sender, guest_bufs[b]);
			run_mixes(&reader, &sender, guest_bufs[b]);
			run_gaps(&reader, &sender, guest_bufs[b]);
		}
		fflush(stdout);
	}
	return 0;
}
