// SPDX-License-Identifier: BSD-2-Clause
/* The calls that make, set up and look at a tap interface. */
#include "tap/tap_if.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/util.h"
#include "wire/virtio_net.h"

int tap_if_open(void)
{
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return fd;
}

static int get_if(int fd, struct ifreq *ifr)
{
	memset(ifr, 0, sizeof(*ifr));
	return ioctl(fd, TUNGETIFF, ifr) < 0 ? -errno : 0;
}

int tap_if_attach(int fd, const char *name, bool multi_queue, bool *persistent)
{
	struct ifreq ifr = { .ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR |
						  (multi_queue ? IFF_MULTI_QUEUE : 0)) };
	int rc;

	strncpy(ifr.ifr_name, name, sizeof(ifr.ifr_name) - 1);
	if (ioctl(fd, TUNSETIFF, &ifr) < 0)
		return -errno;
	/* One queue has one owner: what is free to be attached to is persistent, and what we have just
	 * created is not. */
	rc = get_if(fd, &ifr);
	*persistent = rc == 0 && (ifr.ifr_flags & IFF_PERSIST) != 0;
	return rc;
}

const char *tap_if_check(int fd)
{
	struct ifreq ifr;
	int rc = get_if(fd, &ifr);

	if (rc == -EBADF)
		return "tap:fd=N: no such descriptor is open";
	if (rc == -EBADFD)
		return "tap:fd=N: this tun descriptor has no interface (TUNSETIFF)";
	if (rc < 0)
		return "tap:fd=N: this descriptor is not of /dev/net/tun";
	if ((ifr.ifr_flags & IFF_TAP) == 0)
		return "tap:fd=N: this is a tun and not a tap; open it with IFF_TAP";
	if ((ifr.ifr_flags & IFF_VNET_HDR) == 0)
		return "tap:fd=N: this tap has no header; open it with IFF_VNET_HDR";
	if ((ifr.ifr_flags & IFF_NO_PI) == 0)
		return "tap:fd=N: this tap has a packet info field; open it with IFF_NO_PI";
	return NULL;
}

int tap_if_set_offload(int fd, unsigned tun_f)
{
	return ioctl(fd, TUNSETOFFLOAD, (unsigned long)tun_f) < 0 ? -errno : 0;
}

int tap_if_setup(int fd, unsigned tun_f)
{
	static const int header_len = VIRTIO_NET_HDR_LEN, one = 1;

	if (ioctl(fd, TUNSETVNETHDRSZ, &header_len) < 0 || ioctl(fd, TUNSETVNETLE, &one) < 0)
		return -errno;
	return tap_if_set_offload(fd, tun_f);
}

bool tap_if_attached(int fd)
{
	struct ifreq ifr;

	return get_if(fd, &ifr) == 0;
}

bool tap_if_up(int fd, int sock)
{
	struct ifreq ifr;

	if (get_if(fd, &ifr) < 0) /* gives the name that it has now */
		return false;
	if (ioctl(sock, SIOCGIFFLAGS, &ifr) < 0)
		return errno == ENODEV;
	return (ifr.ifr_flags & IFF_UP) != 0;
}

int tap_if_index(int sock, const char *name)
{
	struct ifreq ifr = { 0 };

	strncpy(ifr.ifr_name, name, sizeof(ifr.ifr_name) - 1);
	return ioctl(sock, SIOCGIFINDEX, &ifr) < 0 ? 0 : ifr.ifr_ifindex;
}

bool tap_if_name_ok(const char *name)
{
	/* As the kernel's dev_valid_name(), and no '%', which asks it to choose a number. */
	return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
	       strpbrk(name, "/:% \t\n\v\f\r") == NULL;
}

const char *tap_if_advice(int err, int sock, const char *name)
{
	switch (err) {
	case -ENOENT:
	case -ENODEV:
	case -ENXIO:
		return "tap: no /dev/net/tun; modprobe tun, or give the container that device";
	case -EACCES:
		return "tap: /dev/net/tun may not be opened; it should have mode 0666";
	case -EPERM:
		if (tap_if_index(sock, name) != 0)
			return "tap: not permitted: it was made for somebody else; delete it and make it for "
			       "this user: ip tuntap add NAME mode tap vnet_hdr user U";
		return "tap: not permitted: needs CAP_NET_ADMIN, or a tap made for this user: "
		       "ip tuntap add NAME mode tap vnet_hdr user U";
	case -EBUSY:
		return "tap: in use; each tap serves one device";
	case -EINVAL:
		if (tap_if_index(sock, name) != 0)
			return "tap: the interface of this name is not a tap with one queue "
			       "(but a tun, multi_queue, or no tap at all); delete it or choose another";
		return "tap: the kernel refuses this name, or taps with a header";
	case -ENOMEM:
		return "out of memory";
	case -EMFILE:
	case -ENFILE:
		return "tap: too many open files; raise the limit (ulimit -n)";
	default:
		return "tap: the interface cannot be opened";
	}
}
