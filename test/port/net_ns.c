// SPDX-License-Identifier: BSD-2-Clause
/* A network namespace of the test's own, and what happens to interfaces in it. */
#include "net_ns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

static void no_ipv6(void)
{
	/* Else the kernel itself sends through each interface that comes up. */
	int fd = open("/proc/sys/net/ipv6/conf/default/disable_ipv6", O_WRONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (write(fd, "1", 1) < 0)
			perror("disable_ipv6");
		close(fd);
	}
}

bool netns_enter(void)
{
	int fd;

	if (unshare(CLONE_NEWNET) < 0) {
		printf("# skipping taps: no network namespace of our own (%s)\n",
		       log_errname(-errno));
		return false;
	}
	no_ipv6();
	fd = tap_fd_open("probe0", 0);
	if (fd < 0) {
		printf("# skipping taps: no tap is to be had (%s)\n", log_errname(fd));
		return false;
	}
	close(fd);
	return true;
}

static struct ifreq named(const char *name)
{
	struct ifreq ifr = { 0 };

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	return ifr;
}

/* An ioctl on interfaces in general. */
static int if_ioctl(unsigned long cmd, struct ifreq *ifr)
{
	int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc = ioctl(sock, cmd, ifr) < 0 ? -errno : 0;

	close(sock);
	return rc;
}

int if_set_up(const char *name, bool up)
{
	struct ifreq ifr = named(name);
	int rc = if_ioctl(SIOCGIFFLAGS, &ifr);

	if (rc < 0)
		return rc;
	ifr.ifr_flags = (short)(up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP);
	return if_ioctl(SIOCSIFFLAGS, &ifr);
}

int if_set_mtu(const char *name, int mtu)
{
	struct ifreq ifr = named(name);

	ifr.ifr_mtu = mtu;
	return if_ioctl(SIOCSIFMTU, &ifr);
}

int if_rename(const char *name, const char *to)
{
	struct ifreq ifr = named(name);

	snprintf(ifr.ifr_newname, sizeof(ifr.ifr_newname), "%s", to);
	return if_ioctl(SIOCSIFNAME, &ifr);
}

bool if_exists(const char *name)
{
	return if_nametoindex(name) != 0;
}

struct link_request {
	struct nlmsghdr nlh;
	struct ifinfomsg info;
	struct rtattr attr;
	int value;
};

/* Sends a request about @name and waits for the kernel's answer. */
static int ask_link(struct link_request *req, const char *name)
{
	struct {
		struct nlmsghdr nlh;
		struct nlmsgerr err;
		char rest[128];
	} ans = { .err.error = -EIO };
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int rc = 0;

	req->nlh.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	req->info.ifi_index = (int)if_nametoindex(name);
	if (send(sock, req, req->nlh.nlmsg_len, 0) < 0 || recv(sock, &ans, sizeof(ans), 0) < 0)
		rc = -errno;
	close(sock);
	return rc < 0 ? rc : ans.err.error;
}

int if_delete(const char *name)
{
	struct link_request req = {
		.nlh = { .nlmsg_len = offsetof(struct link_request, attr),
			 .nlmsg_type = RTM_DELLINK },
	};

	return ask_link(&req, name);
}

int if_move(const char *name, int netns_fd)
{
	struct link_request req = {
		.nlh = { .nlmsg_len = sizeof(req), .nlmsg_type = RTM_NEWLINK },
		.attr = { .rta_len = RTA_LENGTH(sizeof(int)), .rta_type = IFLA_NET_NS_FD },
		.value = netns_fd,
	};

	return ask_link(&req, name);
}

int tap_fd_open(const char *name, short flags)
{
	struct ifreq ifr = named(name);
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	ifr.ifr_flags = (short)(flags | IFF_NO_PI | ((flags & IFF_TUN) != 0 ? 0 : IFF_TAP));
	if (ioctl(fd, TUNSETIFF, &ifr) < 0) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	return fd;
}

int tap_make(const char *name, bool tun)
{
	int fd = tap_fd_open(name, tun ? IFF_TUN : 0), rc = 0;

	if (fd < 0)
		return fd;
	if (ioctl(fd, TUNSETPERSIST, 1) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

int packet_open(const char *name, bool vnet)
{
	struct sockaddr_ll addr = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)if_nametoindex(name),
	};
	struct timeval limit = { .tv_sec = 2 };
	int on = 1, has_hdr = vnet, sock;

	sock = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -errno;
	if (setsockopt(sock, SOL_PACKET, PACKET_VNET_HDR, &has_hdr, sizeof(has_hdr)) < 0 ||
	    setsockopt(sock, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) < 0 ||
	    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
	    bind(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		int rc = -errno;

		close(sock);
		return rc;
	}
	return sock;
}
