// SPDX-License-Identifier: BSD-2-Clause
/* The kernel's vhost-net as a driver's back end. */
#include "drv/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "base/fd.h"
#include "base/util.h"
#include "wire/vhost_kernel.h"

#define BIT(n) (1ULL << (n))

/* Which of the tap's offloads a guest may be given; it takes whatever it is sent. */
static const struct {
	uint64_t feature;
	unsigned tun_f;
} guest_offloads[] = {
	{ BIT(VIRTIO_NET_F_GUEST_CSUM), TUN_F_CSUM },
	{ BIT(VIRTIO_NET_F_GUEST_TSO4), TUN_F_TSO4 },
	{ BIT(VIRTIO_NET_F_GUEST_TSO6), TUN_F_TSO6 },
	{ BIT(VIRTIO_NET_F_GUEST_ECN), TUN_F_TSO_ECN },
};

#define HOST_OFFLOADS                                                                         \
	(BIT(VIRTIO_NET_F_CSUM) | BIT(VIRTIO_NET_F_HOST_TSO4) | BIT(VIRTIO_NET_F_HOST_TSO6) | \
	 BIT(VIRTIO_NET_F_HOST_ECN))

static int call(const struct drv_kernel *k, unsigned long request, const void *arg)
{
	return ioctl(k->fd, request, arg) < 0 ? -errno : 0;
}

static int set_features(struct drv_kernel *k, const struct drv_wish *wish, uint64_t *acked)
{
	uint64_t offered, rings, offloads = HOST_OFFLOADS;
	int rc = ioctl(k->fd, VHOST_KERNEL_GET_FEATURES, &offered) < 0 ? -errno : 0;

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(guest_offloads); i++)
		offloads |= guest_offloads[i].feature;
	rings = offered & wish->features;
	*acked = drv_features_that_fit(rings | (wish->features & offloads), wish->rx_buf);
	return call(k, VHOST_KERNEL_SET_FEATURES, &rings);
}

static int set_up_tap(const struct drv_kernel *k, uint64_t acked)
{
	int modern = (acked & (BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_NET_F_MRG_RXBUF))) != 0;
	int hdr_len = modern ? VIRTIO_NET_HDR_LEN : VIRTIO_NET_HDR_LEN_LEGACY;
	unsigned long tun_f = 0;

	for (size_t i = 0; i < ARRAY_SIZE(guest_offloads); i++)
		tun_f |= acked & guest_offloads[i].feature ? guest_offloads[i].tun_f : 0;
	if (ioctl(k->tap_fd, TUNSETVNETHDRSZ, &hdr_len) < 0 ||
	    ioctl(k->tap_fd, TUNSETOFFLOAD, tun_f) < 0)
		return -errno;
	return 0;
}

static int share_memory(const struct drv_kernel *k, const struct drv_mem *mem)
{
	struct vhost_kernel_mem *table =
		calloc(1, sizeof(*table) + mem->cnt * sizeof(struct vhost_kernel_region));
	int rc;

	if (table == NULL)
		return -ENOMEM;
	table->cnt = mem->cnt;
	for (unsigned i = 0; i < mem->cnt; i++)
		table->regions[i] = (struct vhost_kernel_region){
			.guest_addr = mem->regions[i].gpa.v,
			.size = mem->regions[i].len,
			.user_addr = (uintptr_t)mem->regions[i].addr,
		};
	rc = call(k, VHOST_KERNEL_SET_MEM_TABLE, table);
	free(table);
	return rc;
}

int drv_kernel_open(struct drv_kernel *k, const char *path, const struct drv_wish *wish,
		    const struct drv_mem *mem, uint64_t *acked)
{
	int rc;

	k->fd = open(path, O_RDWR | O_CLOEXEC);
	if (k->fd < 0)
		return -errno;
	rc = call(k, VHOST_KERNEL_SET_OWNER, NULL);
	if (rc == 0)
		rc = set_features(k, wish, acked);
	if (rc == 0)
		rc = set_up_tap(k, *acked);
	if (rc == 0)
		rc = share_memory(k, mem);
	return rc;
}

int drv_kernel_ring(struct drv_kernel *k, unsigned idx, const struct drv_ring *r)
{
	const struct vhost_kernel_state num = { .index = idx, .num = r->num };
	const struct vhost_kernel_state base = { .index = idx, .num = drvq_base(&r->q) };
	const struct drvq_areas at = drvq_areas(&r->q);
	const struct vhost_kernel_addr addr = {
		.index = idx,
		.desc = (uintptr_t)at.desc,
		.used = (uintptr_t)at.device,
		.avail = (uintptr_t)at.driver,
	};
	const struct vhost_kernel_file kick = { .index = idx, .fd = r->kick };
	const struct vhost_kernel_file bell = { .index = idx, .fd = r->call };
	int rc = call(k, VHOST_KERNEL_SET_VRING_NUM, &num);

	if (rc == 0)
		rc = call(k, VHOST_KERNEL_SET_VRING_BASE, &base);
	if (rc == 0)
		rc = call(k, VHOST_KERNEL_SET_VRING_ADDR, &addr);
	if (rc == 0)
		rc = call(k, VHOST_KERNEL_SET_VRING_KICK, &kick);
	if (rc == 0)
		rc = call(k, VHOST_KERNEL_SET_VRING_CALL, &bell);
	return rc;
}

int drv_kernel_enable(struct drv_kernel *k)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < 2; i++)
		rc = call(k, VHOST_KERNEL_NET_SET_BACKEND,
			  &(struct vhost_kernel_file){ .index = i, .fd = k->tap_fd });
	return rc;
}

void drv_kernel_close(struct drv_kernel *k)
{
	fd_close(&k->fd); /* which takes the tap from it, too */
}
