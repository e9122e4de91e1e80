// SPDX-License-Identifier: BSD-2-Clause
/*
 * The life of a tap: opening it, and noticing when it goes and comes back.
 *
 * DOC: netlink messages are taken as hints only. Whatever hint arrives, the state is asked from the
 * kernel, so that lost, late and doubled messages are harmless. The link is up while the interface
 * exists and is IFF_UP. One that was moved to another network namespace exists; there we cannot look,
 * and take it as up.
 *
 * When an interface is deleted its descriptor stays, without an interface, and TUNSETIFF can give it
 * the next one. The engine of the worker therefore knows one file all the time. The worker finds out
 * by -EBADFD and leaves the file alone until the message `back` arrives; that message is posted after
 * TUNSETIFF, so whatever failed before it is no news.
 *
 * A worker's message to the control thread could still be in the mailbox when the port is closed;
 * that is why the other direction goes through a file. It cannot happen to `back`: detach is a message to
 * the same worker, behind it.
 */
#include "port/tap_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdalign.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"
#include "port/offload.h"

#define BACKOFF_MIN_NS (100 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS (5 * NSEC_PER_SEC)

#define BUSY_NS      NSEC_PER_SEC
#define BUSY_STEP_MS 10

#define HINTS_MAX 16 /* messages read at a time: the control thread has other work */

/* ---- offloads ---- */

/* What the guest may be given is what we may receive. Bits that lack their base are not set: the
 * kernel refuses them. */
static unsigned tun_bits(unsigned offloads)
{
	unsigned bits = 0;

	offloads = offload_sane(offloads);
	if (offloads & PORT_GUEST_CSUM)
		bits |= TUN_F_CSUM;
	if (offloads & PORT_GUEST_TSO4)
		bits |= TUN_F_TSO4;
	if (offloads & PORT_GUEST_TSO6)
		bits |= TUN_F_TSO6;
	if (offloads & PORT_GUEST_ECN)
		bits |= TUN_F_TSO_ECN;
	return bits;
}

/* The offloads that the kernel offers; leaves all of them off. */
static unsigned probe_caps(int fd)
{
	static const unsigned steps[] = {
		PORT_GUEST_CSUM,
		PORT_GUEST_CSUM | PORT_GUEST_TSO4,
		PORT_GUEST_CSUM | PORT_GUEST_TSO6,
		PORT_GUEST_CSUM | PORT_GUEST_TSO4 | PORT_GUEST_ECN,
	};
	/* With a header, a tap takes whatever the stack behind it can do itself. */
	unsigned caps = PORT_HOST_CSUM | PORT_HOST_TSO4 | PORT_HOST_TSO6 | PORT_HOST_ECN;

	for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
		if (tap_if_set_offload(fd, tun_bits(steps[i])) == 0)
			caps |= steps[i];
	}
	tap_if_set_offload(fd, 0);
	return caps;
}

/* ---- hints ---- */

static int open_netlink(void)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	return fd;
}

/* Is this attribute of a message the name that we wait for? */
static bool is_our_name(const struct tap_link *l, const struct rtattr *a)
{
	return a->rta_type == IFLA_IFNAME && a->rta_len >= RTA_LENGTH(0) &&
	       strncmp((const char *)a + RTA_LENGTH(0), l->ifname, a->rta_len - RTA_LENGTH(0)) == 0;
}

/* Is the message, complete and at @msg, about our interface or one that has its name? */
static bool concerns_us(const struct tap_link *l, const char *msg, size_t len)
{
	const struct nlmsghdr *nlh = (const void *)msg;
	const struct ifinfomsg *info = (const void *)(msg + NLMSG_HDRLEN);
	size_t at = NLMSG_SPACE(sizeof(*info));

	if (nlh->nlmsg_type == NLMSG_ERROR)
		return true; /* the answer to tap_link_gone() */
	if (nlh->nlmsg_type != RTM_NEWLINK && nlh->nlmsg_type != RTM_DELLINK)
		return false;
	if (len < at || info->ifi_index == l->index)
		return true;
	while (len - at >= sizeof(struct rtattr)) {
		const struct rtattr *a = (const void *)(msg + at);

		if (a->rta_len < sizeof(*a) || a->rta_len > len - at)
			return true; /* looking too often does no harm */
		if (is_our_name(l, a))
			return true;
		at += min_size(RTA_ALIGN(a->rta_len), len - at);
	}
	return false;
}

static bool read_netlink(const struct tap_link *l)
{
	alignas(struct nlmsghdr) char buf[8192];
	bool ours = false;

	for (unsigned i = 0; i < HINTS_MAX; i++) {
		ssize_t got = recv(l->notice_fd, buf, sizeof(buf), 0);
		size_t len = got > 0 ? (size_t)got : 0, at = 0;

		if (got < 0 && errno != ENOBUFS)
			break;
		if (got < 0 || len == sizeof(buf))
			ours = true; /* what was lost or cut off may have been about us */
		while (len - at >= NLMSG_HDRLEN) {
			size_t msg_len =
				((const struct nlmsghdr *)(const void *)(buf + at))->nlmsg_len;

			if (msg_len < NLMSG_HDRLEN || msg_len > len - at)
				break;
			ours |= concerns_us(l, buf + at, msg_len);
			at += min_size(NLMSG_ALIGN(msg_len), len - at);
		}
	}
	return ours;
}

/* Takes what has been noticed; should we look? */
static bool read_hints(const struct tap_link *l)
{
	eventfd_t cnt;

	if (l->origin == TAP_INHERITED)
		return eventfd_read(l->notice_fd, &cnt) == 0;
	return read_netlink(l);
}

/* ---- life ---- */

static void set_up(struct tap_link *l, bool up)
{
	if (up == l->up)
		return;
	l->up = up;
	if (l->events.link != NULL)
		l->events.link(l->events.ctx, up);
}

static void retry_later(struct tap_link *l)
{
	work_timer_set(&l->retry, worker_now(l->control) + l->backoff_ns);
	l->backoff_ns *= 2;
	if (l->backoff_ns > BACKOFF_MAX_NS)
		l->backoff_ns = BACKOFF_MAX_NS;
}

/* Somebody deleted it. */
static void lose(struct tap_link *l)
{
	static const char *const then[] = {
		[TAP_CREATED] = "creating it again",
		[TAP_FOUND] = "waiting until somebody makes it again",
		[TAP_INHERITED] = "an inherited one cannot come back",
	};

	l->attached = false;
	l->index = 0;
	l->backoff_ns = BACKOFF_MIN_NS;
	log_limited(&l->limit, LOG_LEVEL_WARN, l->device, "tap deleted, %s: tap=%s",
		    then[l->origin], l->ifname);
	if (l->origin == TAP_CREATED)
		retry_later(l);
}

/*
 * TUNSETIFF creates what does not exist, and between our look and it the interface may have gone.
 * Closing the descriptor would undo that, but the worker's engine has it.
 */
static void uncreate(struct tap_link *l)
{
	struct {
		struct nlmsghdr nlh;
		struct ifinfomsg info;
	} req = {
		.nlh = { .nlmsg_len = sizeof(req),
			 .nlmsg_type = RTM_DELLINK,
			 .nlmsg_flags = NLM_F_REQUEST },
		.info = { .ifi_index = tap_if_index(l->notice_fd, l->ifname) },
	};

	if (send(l->notice_fd, &req, sizeof(req), 0) < 0)
		log_warn(l->device, "cannot delete a tap created by mistake: tap=%s error=%s",
			 l->ifname, log_errname(-errno));
}

static int attach(struct tap_link *l)
{
	bool persistent;
	int rc = tap_if_attach(l->fd, l->ifname, false, &persistent);

	if (rc < 0)
		return rc;
	if (l->origin == TAP_FOUND && !persistent) {
		uncreate(l);
		return -ENODEV;
	}
	if (persistent)
		l->origin = TAP_FOUND;
	rc = tap_if_setup(l->fd, tun_bits(l->offloads));
	if (rc < 0)
		return rc;
	l->index = tap_if_index(l->notice_fd, l->ifname);
	l->attached = true;
	return 0;
}

static void come_back(struct tap_link *l)
{
	int rc;

	if (l->origin == TAP_INHERITED || work_timer_pending(&l->retry))
		return;
	if (l->origin == TAP_FOUND && tap_if_index(l->notice_fd, l->ifname) == 0)
		return;
	rc = attach(l);
	if (rc < 0) {
		/* Whoever makes the interface may have it open for a moment yet. */
		log_limited(&l->limit, LOG_LEVEL_WARN, l->device,
			    "cannot open the tap again yet: tap=%s error=%s", l->ifname,
			    log_errname(rc));
		retry_later(l);
		return;
	}
	log_limited(&l->limit, LOG_LEVEL_INFO, l->device, "tap is back: tap=%s", l->ifname);
	if (l->worker != NULL && !atomic_exchange(&l->back_posted, true))
		worker_post(l->worker, &l->back);
}

static void look(struct tap_link *l)
{
	if (l->attached && !tap_if_attached(l->fd)) {
		set_up(l, false);
		lose(l);
	}
	if (!l->attached)
		come_back(l);
	set_up(l, l->attached && (l->origin == TAP_INHERITED || tap_if_up(l->fd, l->notice_fd)));
}

static struct work_used link_prepare(struct work_src *src, struct work_room room)
{
	struct tap_link *l = container_of(src, struct tap_link, src);

	if (read_hints(l) || !l->attached)
		look(l);
	return (struct work_used){ 0 };
}

/* The watch fires once, and at once if there are more than HINTS_MAX. */
static bool link_arm(struct work_src *src)
{
	struct tap_link *l = container_of(src, struct tap_link, src);

	if (io_watch_arm(worker_io(l->control), &l->noticed.io) < 0)
		retry_later(l);
	return false;
}

static const struct work_ops link_ops = { .prepare = link_prepare, .arm = link_arm };

/* ---- opening and closing ---- */

/* The kernel lets go of a killed process's io_uring, and of the tap in it, a while after that has ended. */
static int attach_patiently(const struct tap_link *l, bool *persistent)
{
	uint64_t deadline = clock_ns() + BUSY_NS;
	int rc;

	while ((rc = tap_if_attach(l->fd, l->ifname, false, persistent)) == -EBUSY &&
	       clock_ns() < deadline)
		poll(NULL, 0, BUSY_STEP_MS);
	return rc;
}

static int open_name(struct tap_link *l, const char *name, const char **err)
{
	size_t len = strcspn(name, ",");
	bool persistent;
	int rc;

	*err = NULL;
	if (len == 0)
		*err = "tap: needs the name of an interface, or fd=N";
	else if (name[len] != '\0')
		*err = "tap: takes NAME or fd=N and nothing more; is the key after the comma misspelt, or without value?";
	else if (len >= sizeof(l->ifname))
		*err = "tap: the name is too long; an interface has at most 15 characters";
	else if (!tap_if_name_ok(name))
		*err = "tap: an interface cannot have this name";
	if (*err != NULL)
		return -EINVAL;
	memcpy(l->ifname, name, len + 1);
	/* Before the interface is opened, so that nothing that happens to it is missed. */
	l->notice_fd = open_netlink();
	if (l->notice_fd < 0) {
		*err = "tap: no netlink socket is to be had";
		return l->notice_fd;
	}
	l->fd = rc = tap_if_open();
	if (rc >= 0)
		rc = attach_patiently(l, &persistent);
	if (rc < 0) {
		*err = tap_if_advice(rc, l->notice_fd, l->ifname);
		return rc;
	}
	l->origin = persistent ? TAP_FOUND : TAP_CREATED;
	l->index = tap_if_index(l->notice_fd, l->ifname);
	if (persistent)
		log_info(l->device, "attached to the tap %s", l->ifname);
	else
		log_info(l->device, "made the tap %s, which is down: ip link set %s up", l->ifname,
			 l->ifname);
	return 0;
}

static int open_inherited(struct tap_link *l, const struct port_arg *arg, const char **err)
{
	unsigned fd;

	*err = "tap:fd=N: N is the number of an open descriptor";
	if (arg->val[arg->val_len] != '\0' || port_arg_uint(arg, INT_MAX, &fd) < 0)
		return -EINVAL;
	*err = tap_if_check((int)fd);
	if (*err != NULL)
		return -EINVAL;
	l->origin = TAP_INHERITED;
	memcpy(l->ifname, "fd", sizeof("fd"));
	l->fd = (int)fd;
	*err = "tap:fd=N: out of descriptors or memory";
	l->notice_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (l->notice_fd < 0 || fcntl(l->fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	return fd_set_nonblock(l->fd);
}

static int watch(struct tap_link *l)
{
	int rc = io_file_add(worker_io(l->control), &l->notice, l->notice_fd);

	if (rc < 0)
		return rc;
	work_src_init(&l->src, l->control, &link_ops);
	work_timer_init(&l->retry, &l->src);
	work_watch_init(&l->noticed, &l->src, &l->notice, POLLIN, false);
	work_src_ready(&l->src); /* arms the watch */
	return 0;
}

static void close_fds(struct tap_link *l)
{
	fd_close(&l->fd);
	fd_close(&l->notice_fd);
}

int tap_link_open(struct tap_link *l, const char *args, const char *device, struct worker *control,
		  const char **err)
{
	const char *rest = args;
	struct port_arg arg;
	int rc;

	*l = (struct tap_link){ .device = device, .control = control, .fd = -1, .notice_fd = -1 };
	l->backoff_ns = BACKOFF_MIN_NS;
	if (port_arg_next(&rest, &arg) && port_arg_is(&arg, "fd") && arg.val != NULL)
		rc = open_inherited(l, &arg, err);
	else
		rc = open_name(l, args, err);
	if (rc < 0)
		goto err_fds;
	*err = "tap: the kernel has no 12-byte little-endian headers; it needs Linux 3.19 or later";
	rc = tap_if_setup(l->fd, 0);
	if (rc < 0)
		goto err_fds;
	l->caps = probe_caps(l->fd);
	*err = "tap: out of memory";
	rc = watch(l);
	if (rc < 0)
		goto err_fds;
	l->attached = true;
	l->up = l->origin == TAP_INHERITED || tap_if_up(l->fd, l->notice_fd);
	return 0;

err_fds:
	close_fds(l);
	return rc;
}

void tap_link_close(struct tap_link *l)
{
	work_timer_stop(&l->retry);
	work_src_remove(&l->src);
	io_watch_cancel(worker_io(l->control), &l->noticed.io);
	io_file_del(worker_io(l->control), &l->notice);
	close_fds(l);
}

int tap_link_set_offload(struct tap_link *l, unsigned offloads)
{
	int rc = 0;

	if ((offloads & ~l->caps) != 0)
		return -EOPNOTSUPP;
	if (l->attached)
		rc = tap_if_set_offload(l->fd, tun_bits(offloads));
	/* One that has gone, seen or not yet, gets them when it comes back. */
	if (rc == 0 || rc == -EBADFD)
		l->offloads = offloads;
	return rc == -EBADFD ? 0 : rc;
}

void tap_link_gone(struct tap_link *l)
{
	static const struct nlmsghdr noop = { .nlmsg_len = sizeof(noop),
					      .nlmsg_type = NLMSG_NOOP,
					      .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK };
	ssize_t rc;

	/*
	 * The kernel's answer to a message without meaning wakes the control thread. Its own message
	 * may not come: if the interface was moved to another network namespace before.
	 */
	if (l->origin == TAP_INHERITED)
		rc = eventfd_write(l->notice_fd, 1);
	else
		rc = send(l->notice_fd, &noop, sizeof(noop), MSG_DONTWAIT);
	if (rc < 0)
		log_limited(&l->gone_limit, LOG_LEVEL_WARN, l->device,
			    "cannot tell that the tap is gone: error=%s", log_errname(-errno));
}
