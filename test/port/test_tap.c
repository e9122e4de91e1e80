// SPDX-License-Identifier: BSD-2-Clause
/* What only taps do: headers and offloads, going away and coming back, ways to be refused. */
#include "rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if_tun.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "net_ns.h"

#define TAP "uvtap0"

#define ETH_LEN 14
#define IP_LEN  20
#define TCP_LEN 20
#define HDR_LEN (ETH_LEN + IP_LEN + TCP_LEN)

static struct frame frames[PORT_OUT_MAX];
static enum io_kind engine;

static int setup(void **state)
{
	*state = rig_new("tap:" TAP, engine);
	return 0;
}

static int teardown(void **state)
{
	struct rig *r = *state;

	rig_down(r);
	rig_free(r);
	if_delete(TAP);
	return 0;
}

static void up(struct rig *r)
{
	rig_up(r);
	assert_int_equal(if_set_up(TAP, true), 0);
}

static bool link_is_up(struct rig *r)
{
	return atomic_load(&r->link_up);
}

static bool link_is_down(struct rig *r)
{
	return !atomic_load(&r->link_up);
}

static bool tap_exists(struct rig *r)
{
	return if_exists(TAP);
}

static bool rx_ran(struct rig *r)
{
	return atomic_load(&r->rx_runs) > 0;
}

/* ---- refusals ---- */

static void refused(const char *spec, int rc, const char *part)
{
	struct rig *r = rig_new(spec, engine);
	const char *err = NULL;
	unsigned before = count_fds();

	assert_int_equal(rig_open(r, &err), rc);
	assert_non_null(err);
	if (strstr(err, part) == NULL)
		fail_msg("%s: \"%s\" does not say \"%s\"", spec, err, part);
	assert_int_equal(count_fds(), before);
	rig_free(r);
}

static void test_bad_names(void **state)
{
	refused("tap:", -EINVAL, "needs the name");
	refused("tap:,x=1", -EINVAL, "needs the name");
	refused("tap:abcdefghijklmnop", -EINVAL, "at most 15");
	refused("tap:a/b", -EINVAL, "cannot have this name");
	refused("tap:tap%d", -EINVAL, "cannot have this name");
	refused("tap:..", -EINVAL, "cannot have this name");
	refused("tap:tap0,queues=4", -EINVAL, "nothing more");
}

static void test_other_interfaces(void **state)
{
	int fd;

	refused("tap:lo", -EINVAL, "not a tap with one queue");
	assert_int_equal(tap_make("uvtun0", true), 0);
	refused("tap:uvtun0", -EINVAL, "not a tap with one queue");
	assert_int_equal(if_delete("uvtun0"), 0);
	fd = tap_fd_open("uvbusy0", IFF_VNET_HDR);
	refused("tap:uvbusy0", -EBUSY, "in use");
	close(fd);
}

static void refused_fd(int fd, const char *part)
{
	char spec[32];

	assert_true(fd >= 0);
	snprintf(spec, sizeof(spec), "tap:fd=%d", fd);
	refused(spec, -EINVAL, part);
	assert_true(fcntl(fd, F_GETFD) >= 0); /* still the caller's */
	close(fd);
}

static void test_bad_descriptors(void **state)
{
	refused("tap:fd=", -EINVAL, "number");
	refused("tap:fd=-1", -EINVAL, "number");
	refused("tap:fd=3x", -EINVAL, "number");
	refused("tap:fd=99999999999", -EINVAL, "number");
	refused("tap:fd=3,x=1", -EINVAL, "number");
	refused("tap:fd=999999", -EINVAL, "no such descriptor");
	refused_fd(eventfd(0, EFD_CLOEXEC), "not of /dev/net/tun");
	refused_fd(open("/dev/net/tun", O_RDWR | O_CLOEXEC), "no interface");
	refused_fd(tap_fd_open("uvfd0", IFF_TUN | IFF_VNET_HDR), "IFF_TAP");
	refused_fd(tap_fd_open("uvfd0", 0), "IFF_VNET_HDR");
}

/* Root without capabilities can open the file of /dev/net/tun and no more. */
static int open_unprivileged(void)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	const char *err = "";
	struct port *port;

	if (syscall(SYS_capset, &hdr, none) < 0)
		return -errno;
	/* It does not come to the point where the control worker is needed. */
	if (port_open(&port, "tap:uvno0", "dev0", NULL, &err) != -EPERM)
		return -EINVAL;
	return strstr(err, "CAP_NET_ADMIN") != NULL ? 0 : -EINVAL;
}

static void test_not_permitted(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(open_unprivileged() < 0 ? 1 : 0);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- losses of single frames ---- */

static void do_bad_frames(struct rig *r, void *nowhere)
{
	for (unsigned i = 0; i < 8; i++)
		frame_make(r, &frames[i], (uint16_t)i, 60, 1);
	frames[1].off.gso = FRAME_GSO_TCP4; /* without a size */
	frames[3].iov[0].iov_base = nowhere;
	frames[5].off.needs_csum = true;
	frames[5].off.csum_start = 60;
	send_frames(r, frames, 8);
	enter(r);
	take_sent(r, NULL);
}

/* One bad frame says nothing about its neighbours (field case 8). */
static void test_bad_frames(void **state)
{
	static const int32_t want[] = { 0, -EINVAL, 0, -EFAULT, 0, -EINVAL, 0, 0 };
	struct rig *r = *state;
	void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(nowhere != MAP_FAILED);
	up(r);
	rig_data(r, do_bad_frames, nowhere);
	munmap(nowhere, 4096);
	assert_int_equal(r->back, 8);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(r->res[i], want[i]);
}

static void do_send(struct rig *r, void *unused)
{
	frames_reset(r);
	forget_sent(r);
	for (unsigned i = 0; i < 64; i++)
		frame_make(r, &frames[i], (uint16_t)i, 60, 1);
	send_frames(r, frames, 64);
	enter(r);
	take_sent(r, NULL);
	EXPECT(r, r->back == 64);
}

/* All 64 have this result. */
static void send_all(struct rig *r, int res)
{
	rig_data(r, do_send, NULL);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(r->res[i], res);
}

static void test_down(void **state)
{
	struct rig *r = *state;

	rig_up(r);
	assert_true(link_is_down(r));
	send_all(r, -EIO);
	assert_int_equal(if_set_up(TAP, true), 0);
	send_all(r, 0);
}

/* ---- offloads ---- */

static void do_set_offload(struct rig *r, void *arg)
{
	EXPECT(r, r->ops->set_offload(r->port, *(unsigned *)arg) == 0);
}

static void set_offload(struct rig *r, unsigned offloads)
{
	rig_control(r, do_set_offload, &offloads);
}

static uint16_t fold(uint32_t sum)
{
	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static uint32_t sum_of(const uint8_t *p, size_t len)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += (uint32_t)p[i] << (i % 2 == 0 ? 8 : 0);
	return fold(sum);
}

static uint16_t pseudo_sum(const uint8_t *ip, size_t tcp_len)
{
	return fold(sum_of(ip + 12, 8) + 6 + (uint32_t)tcp_len);
}

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* A TCP segment whose checksum is to be completed; returns its length. */
static uint32_t make_tcp(uint8_t *f, uint32_t payload)
{
	static const uint8_t eth[ETH_LEN] = { 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0 };
	static const uint8_t ip[IP_LEN] = { 0x45, 0, 0,  0, 0, 1, 0x40, 0, 64, 6,
					    0,    0, 10, 0, 0, 1, 10,   0, 0,  2 };
	static const uint8_t tcp[TCP_LEN] = { 1, 2, 3, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1 };
	uint8_t *iph = f + ETH_LEN, *tcph = iph + IP_LEN;

	memcpy(f, eth, ETH_LEN);
	memcpy(iph, ip, IP_LEN);
	put16(iph + 2, IP_LEN + TCP_LEN + payload);
	put16(iph + 10, (uint16_t)~sum_of(iph, IP_LEN));
	memcpy(tcph, tcp, TCP_LEN);
	put16(tcph + 16, pseudo_sum(iph, TCP_LEN + payload));
	for (uint32_t i = 0; i < payload; i++)
		tcph[TCP_LEN + i] = (uint8_t)(i * 3);
	return HDR_LEN + payload;
}

static bool csum_complete(const uint8_t *f, uint32_t len)
{
	const uint8_t *ip = f + ETH_LEN;
	size_t tcp_len = len - ETH_LEN - IP_LEN;

	return fold(pseudo_sum(ip, tcp_len) + sum_of(ip + IP_LEN, tcp_len)) == 0xffff;
}

/* What packet sockets have: in the byte order of this machine. */
struct packet_hdr {
	uint8_t flags, gso_type;
	uint16_t hdr_len, gso_size, csum_start, csum_offset;
};

/* Sends a TCP segment through the stack to the tap. */
static void inject_tcp(uint32_t payload, uint16_t gso_size)
{
	static uint8_t buf[sizeof(struct packet_hdr) + VIRTIO_NET_FRAME_MAX];
	struct packet_hdr hdr = {
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = gso_size > 0 ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_NONE,
		.hdr_len = HDR_LEN,
		.gso_size = gso_size,
		.csum_start = ETH_LEN + IP_LEN,
		.csum_offset = 16,
	};
	uint32_t len = make_tcp(buf + sizeof(hdr), payload);
	int sock = packet_open(TAP, true);

	memcpy(buf, &hdr, sizeof(hdr));
	assert_int_equal(send(sock, buf, sizeof(hdr) + len, 0), sizeof(hdr) + len);
	close(sock);
}

struct reception {
	unsigned cnt;
	struct port_rcvd rcvd[PORT_RCVD_MAX];
	const uint8_t *bytes[PORT_RCVD_MAX];
};

static void do_receive(struct rig *r, void *arg)
{
	static struct frame rooms[PORT_RCVD_MAX];
	struct reception *rec = arg;

	frames_reset(r);
	for (unsigned i = 0; i < PORT_RCVD_MAX; i++)
		room_make(r, &rooms[i], (uint16_t)i, VIRTIO_NET_FRAME_MAX, 1);
	r->ops->prep_recv(r->port, rooms, PORT_RCVD_MAX);
	enter(r);
	rec->cnt = r->ops->done_recv(r->port, rec->rcvd, PORT_RCVD_MAX);
	for (unsigned i = 0; i < rec->cnt; i++)
		rec->bytes[i] = rooms[rec->rcvd[i].cookie].iov[0].iov_base;
}

static void test_recv_csum(void **state)
{
	struct rig *r = *state;
	struct reception rec = { 0 };

	up(r);
	inject_tcp(100, 0);
	rig_data(r, do_receive, &rec);
	assert_int_equal(rec.cnt, 1);
	assert_int_equal(rec.rcvd[0].res, HDR_LEN + 100);
	assert_false(rec.rcvd[0].off.needs_csum);
	assert_true(csum_complete(rec.bytes[0], HDR_LEN + 100));

	set_offload(r, PORT_GUEST_CSUM);
	inject_tcp(100, 0);
	rig_data(r, do_receive, &rec);
	assert_int_equal(rec.cnt, 1);
	assert_true(rec.rcvd[0].off.needs_csum);
	assert_int_equal(rec.rcvd[0].off.csum_start, ETH_LEN + IP_LEN);
	assert_int_equal(rec.rcvd[0].off.csum_offset, 16);
	assert_int_equal(rec.rcvd[0].off.gso, FRAME_GSO_NONE);
	assert_false(csum_complete(rec.bytes[0], HDR_LEN + 100));
}

/* One frame of 64 KiB when the guest takes it, else segments (field case 127). */
static void test_recv_tso(void **state)
{
	struct rig *r = *state;
	struct reception rec = { 0 };
	uint32_t payload = 65535 - HDR_LEN, sum = 0; /* the stack gives a tap no more */

	up(r);
	set_offload(r, PORT_GUEST_CSUM | PORT_GUEST_TSO4);
	inject_tcp(payload, 1400);
	rig_data(r, do_receive, &rec);
	assert_int_equal(rec.cnt, 1);
	assert_int_equal(rec.rcvd[0].res, 65535);
	assert_true(rec.rcvd[0].off.needs_csum);
	assert_int_equal(rec.rcvd[0].off.gso, FRAME_GSO_TCP4);
	assert_int_equal(rec.rcvd[0].off.gso_size, 1400);

	/* TSO without checksums is no TSO. */
	set_offload(r, PORT_GUEST_TSO4 | PORT_GUEST_TSO6 | PORT_GUEST_ECN);
	inject_tcp(payload, 1400);
	rig_data(r, do_receive, &rec);
	assert_int_equal(rec.cnt, (payload + 1399) / 1400);
	for (unsigned i = 0; i < rec.cnt; i++) {
		assert_int_equal(rec.rcvd[i].off.gso, FRAME_GSO_NONE);
		assert_true(csum_complete(rec.bytes[i], (uint32_t)rec.rcvd[i].res));
		sum += (uint32_t)rec.rcvd[i].res - HDR_LEN;
	}
	assert_int_equal(sum, payload);
}

static void do_send_tso(struct rig *r, void *unused)
{
	struct frame *f = &frames[0];

	frame_make(r, f, 0, VIRTIO_NET_FRAME_MAX, 1);
	make_tcp(f->iov[0].iov_base, 65535 - IP_LEN - TCP_LEN);
	f->off = (struct frame_offload){
		.needs_csum = true,
		.gso = FRAME_GSO_TCP4,
		.ecn = true,
		.gso_size = 1400,
		.hdr_len = HDR_LEN,
		.csum_start = ETH_LEN + IP_LEN,
		.csum_offset = 16,
	};
	send_frames(r, f, 1);
	enter(r);
	take_sent(r, NULL);
	EXPECT(r, r->back == 1 && r->res[0] == 0);
}

static void test_send_tso(void **state)
{
	static uint8_t buf[sizeof(struct packet_hdr) + VIRTIO_NET_FRAME_MAX];
	struct packet_hdr hdr;
	struct rig *r = *state;
	int sock;

	up(r);
	sock = packet_open(TAP, true);
	rig_data(r, do_send_tso, NULL);
	assert_int_equal(recv(sock, buf, sizeof(buf), 0), sizeof(hdr) + VIRTIO_NET_FRAME_MAX);
	memcpy(&hdr, buf, sizeof(hdr));
	assert_int_equal(hdr.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_F_NEEDS_CSUM);
	assert_int_equal(hdr.gso_type, VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN);
	assert_int_equal(hdr.gso_size, 1400);
	assert_int_equal(hdr.csum_start, ETH_LEN + IP_LEN);
	assert_int_equal(hdr.csum_offset, 16);
	assert_memory_equal(buf + sizeof(hdr), frames[0].iov[0].iov_base, VIRTIO_NET_FRAME_MAX);
	close(sock);
}

/* ---- life ---- */

static void do_arm(struct rig *r, void *unused)
{
	if (r->ops->arm_recv(r->port))
		work_src_ready(&r->rx);
}

/* Frames pass both ways, header, byte order and offloads are right, and arrivals wake rx. */
static void check_traffic(struct rig *r)
{
	struct reception rec = { 0 };

	send_all(r, 0);
	rig_data(r, do_receive, &rec); /* leaves the queue empty */
	atomic_store(&r->rx_runs, 0);
	rig_data(r, do_arm, NULL);
	inject_tcp(200, 0);
	assert_true(rig_wait(rx_ran, r));
	rig_data(r, do_receive, &rec);
	assert_int_equal(rec.cnt, 1);
	assert_int_equal(rec.rcvd[0].res, HDR_LEN + 200);
	assert_true(rec.rcvd[0].off.needs_csum);
	assert_int_equal(rec.rcvd[0].off.csum_start, ETH_LEN + IP_LEN);
}

/* As the device would: rx runs, finds nothing, and arms again. Returns how often, in 300 ms. */
static unsigned count_rx_runs(struct rig *r)
{
	unsigned runs = 0;

	for (unsigned ms = 0; ms < 300; ms++) {
		struct reception rec = { 0 };

		if (atomic_exchange(&r->rx_runs, 0) > 0) {
			runs++;
			rig_data(r, do_receive, &rec);
			assert_int_equal(rec.cnt, 0);
			rig_data(r, do_arm, NULL);
		}
		rig_sleep_ms(1);
	}
	return runs;
}

/* One that we created: gone with the port, created again after somebody else deleted it. */
static void test_created(void **state)
{
	struct rig *r = *state;

	up(r);
	set_offload(r, PORT_GUEST_CSUM);
	assert_true(rig_wait(link_is_up, r));
	check_traffic(r);
	for (unsigned round = 0; round < 3; round++) {
		rig_data(r, do_arm, NULL);
		assert_int_equal(if_delete(TAP), 0);
		send_all(r, -ENODEV);
		assert_true(rig_wait(link_is_down, r));
		assert_true(rig_wait(tap_exists, r));
		assert_int_equal(if_set_up(TAP, true), 0);
		assert_true(rig_wait(link_is_up, r));
		check_traffic(r);
	}
	rig_down(r);
	assert_false(if_exists(TAP));
}

/* rx runs once because the tap is gone and once because it is back; in between nobody spins. */
static void test_gone_no_spin(void **state)
{
	struct rig *r = *state;

	assert_int_equal(tap_make(TAP, false), 0);
	up(r);
	rig_data(r, do_arm, NULL);
	assert_int_equal(if_delete(TAP), 0);
	assert_in_range(count_rx_runs(r), 1, 2);
	assert_int_equal(count_rx_runs(r), 0);
	assert_int_equal(tap_make(TAP, false), 0);
	assert_in_range(count_rx_runs(r), 1, 2);
	assert_int_equal(if_set_up(TAP, true), 0);
	assert_true(rig_wait(link_is_up, r));
}

/* One that we found: left alone by the port's end, waited for and not created. */
static void test_found(void **state)
{
	struct rig *r = *state;

	assert_int_equal(tap_make(TAP, false), 0);
	up(r);
	set_offload(r, PORT_GUEST_CSUM);
	assert_true(rig_wait(link_is_up, r));
	check_traffic(r);
	assert_int_equal(if_delete(TAP), 0);
	assert_true(rig_wait(link_is_down, r));
	send_all(r, -ENODEV);
	rig_sleep_ms(300);
	assert_false(if_exists(TAP));
	assert_int_equal(tap_make(TAP, false), 0);
	assert_int_equal(if_set_up(TAP, true), 0);
	assert_true(rig_wait(link_is_up, r));
	check_traffic(r);
	rig_down(r);
	assert_true(if_exists(TAP));
}

/* Offloads that are set while it is away hold when it is back. */
static void test_offloads_while_gone(void **state)
{
	struct rig *r = *state;

	assert_int_equal(tap_make(TAP, false), 0);
	up(r);
	assert_int_equal(if_delete(TAP), 0);
	set_offload(r, PORT_GUEST_CSUM);
	assert_true(rig_wait(link_is_down, r));
	set_offload(r, 0);
	set_offload(r, PORT_GUEST_CSUM);
	assert_int_equal(tap_make(TAP, false), 0);
	assert_int_equal(if_set_up(TAP, true), 0);
	assert_true(rig_wait(link_is_up, r));
	check_traffic(r);
}

/* The administrator deletes ours and makes one that stays: it is not ours any more. */
static void test_created_then_found(void **state)
{
	struct rig *r = *state;

	up(r);
	set_offload(r, PORT_GUEST_CSUM);
	assert_int_equal(if_delete(TAP), 0);
	assert_int_equal(tap_make(TAP, false), 0);
	assert_int_equal(if_set_up(TAP, true), 0);
	assert_true(rig_wait(link_is_down, r));
	assert_true(rig_wait(link_is_up, r));
	check_traffic(r);
	rig_down(r);
	assert_true(if_exists(TAP));
}

static void test_renamed(void **state)
{
	struct rig *r = *state;

	up(r);
	assert_true(rig_wait(link_is_up, r));
	assert_int_equal(if_set_up(TAP, false), 0);
	assert_int_equal(if_rename(TAP, "uvother0"), 0);
	assert_true(rig_wait(link_is_down, r));
	assert_int_equal(if_set_up("uvother0", true), 0);
	assert_true(rig_wait(link_is_up, r));
	send_all(r, 0);
	assert_int_equal(if_delete("uvother0"), 0);
	assert_true(rig_wait(link_is_down, r));
	assert_true(rig_wait(tap_exists, r));
}

static void *make_netns(void *arg)
{
	int fd = -1;

	if (unshare(CLONE_NEWNET) == 0)
		fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	*(int *)arg = fd;
	return NULL;
}

/* Moved to a container's namespace it goes on; when it ends with that, it is created here. */
static void test_moved(void **state)
{
	struct rig *r = *state;
	pthread_t thread;
	int netns;

	assert_int_equal(pthread_create(&thread, NULL, make_netns, &netns), 0);
	pthread_join(thread, NULL);
	assert_true(netns >= 0);
	rig_up(r);
	assert_int_equal(if_move(TAP, netns), 0);
	assert_true(rig_wait(link_is_up, r)); /* which is to say: it is not known to be down */
	send_all(r, -EIO);
	rig_data(r, do_arm, NULL);
	close(netns); /* a tap does not outlive its namespace */
	assert_true(rig_wait(rx_ran, r));
	count_rx_runs(r);
	assert_true(rig_wait(tap_exists, r));
	assert_int_equal(if_set_up(TAP, true), 0);
	assert_true(rig_wait(link_is_up, r));
	send_all(r, 0);
}

static void test_inherited(void **state)
{
	struct rig *r = *state;
	static char spec[32];

	snprintf(spec, sizeof(spec), "tap:fd=%d", tap_fd_open(TAP, IFF_VNET_HDR));
	r->spec = spec;
	up(r);
	set_offload(r, PORT_GUEST_CSUM);
	assert_true(link_is_up(r));
	check_traffic(r);
	rig_data(r, do_arm, NULL);
	assert_int_equal(if_delete(TAP), 0);
	assert_in_range(count_rx_runs(r), 1, 2);
	assert_true(rig_wait(link_is_down, r));
	send_all(r, -ENODEV);
	assert_int_equal(count_rx_runs(r), 0);
	assert_false(if_exists(TAP));
}

static atomic_bool stop_deleting;

static void *delete_often(void *arg)
{
	while (!atomic_load(&stop_deleting)) {
		if_set_up(TAP, true);
		rig_sleep_ms(20);
		if_delete(TAP);
		rig_sleep_ms(130);
	}
	return NULL;
}

/* Each frame comes back once, whatever happens to the tap meanwhile. */
static void test_deleted_under_traffic(void **state)
{
	struct rig *r = *state;
	unsigned sent = 0, lost = 0;
	struct reception rec = { 0 };
	pthread_t thread;

	atomic_store(&stop_deleting, false);
	up(r);
	assert_int_equal(pthread_create(&thread, NULL, delete_often, NULL), 0);
	for (unsigned round = 0; round < 1500; round++) {
		rig_data(r, do_send, NULL);
		for (unsigned i = 0; i < 64; i++) {
			int res = r->res[i];

			assert_true(res == 0 || res == -ENODEV || res == -EIO);
			sent += res == 0;
			lost += res != 0;
		}
		rig_data(r, do_receive, &rec);
		rig_data(r, do_arm, NULL);
		rig_sleep_ms(1);
	}
	atomic_store(&stop_deleting, true);
	pthread_join(thread, NULL);
	assert_true(sent > 0 && lost > 0);
	assert_true(rig_wait(tap_exists, r));
	assert_int_equal(if_set_up(TAP, true), 0);
	assert_true(rig_wait(link_is_up, r));
	send_all(r, 0);
}

/* Closed while it is away, and while messages about that are on their way. */
static void test_close_while_gone(void **state)
{
	struct rig *r = *state;
	unsigned before = count_fds();

	for (unsigned round = 0; round < 30; round++) {
		up(r);
		rig_data(r, do_arm, NULL);
		assert_int_equal(if_delete(TAP), 0);
		if (round % 3 == 1)
			rig_data(r, do_send, NULL);
		rig_sleep_ms(round % 2 == 0 ? 0 : 90 + round);
		rig_down(r);
		assert_false(if_exists(TAP));
	}
	assert_int_equal(count_fds(), before);
}

int main(int argc, char **argv)
{
#define TAP_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_names),
		cmocka_unit_test(test_other_interfaces),
		cmocka_unit_test(test_bad_descriptors),
		cmocka_unit_test(test_not_permitted),
		TAP_TEST(test_bad_frames),
		TAP_TEST(test_down),
		TAP_TEST(test_recv_csum),
		TAP_TEST(test_recv_tso),
		TAP_TEST(test_send_tso),
		TAP_TEST(test_created),
		TAP_TEST(test_gone_no_spin),
		TAP_TEST(test_found),
		TAP_TEST(test_offloads_while_gone),
		TAP_TEST(test_created_then_found),
		TAP_TEST(test_renamed),
		TAP_TEST(test_moved),
		TAP_TEST(test_inherited),
		TAP_TEST(test_deleted_under_traffic),
		TAP_TEST(test_close_while_gone),
	};
	int failed;

	if (!netns_enter())
		return 77; /* skipped, says meson */
	log_set_level(LOG_LEVEL_ERROR);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]); /* with wildcards */
	engine = IO_PLAIN;
	failed = cmocka_run_group_tests_name("tap plain", tests, NULL, NULL);
	engine = IO_AUTO;
	return failed + cmocka_run_group_tests_name("tap auto", tests, NULL, NULL);
}
