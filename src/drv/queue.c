// SPDX-License-Identifier: BSD-2-Clause
/* What the queues of both directions have: a ring with its doorbells. */
#include "drv/queue.h"

#include <errno.h>
#include <sys/eventfd.h>

#include "base/fd.h"
#include "base/util.h"

static size_t ring_bytes(unsigned num)
{
	size_t avail, used;

	return drv_mem_round(drvq_ring_bytes(num, &avail, &used));
}

/* A table a descriptor, each for the longest chain. */
static unsigned table_max(unsigned num)
{
	return min_uint(num, DRV_PIECES_MAX);
}

static size_t table_bytes(unsigned num)
{
	return (size_t)num * table_max(num) * sizeof(struct vring_desc);
}

size_t drv_ring_bytes(unsigned num)
{
	return ring_bytes(num) + drv_mem_round(table_bytes(num));
}

int drv_ring_init(struct drv_ring *r, struct drv_mem *m, unsigned num)
{
	*r = (struct drv_ring){ .num = num, .kick = -1, .call = -1 };
	r->ring = drv_mem_alloc(m, ring_bytes(num));
	r->tables.desc = drv_mem_alloc(m, table_bytes(num));
	r->tables.max = (uint16_t)table_max(num);
	if (r->ring == NULL || r->tables.desc == NULL ||
	    !drv_mem_gpa(m, r->tables.desc, table_bytes(num), &r->tables.gpa))
		return -ENOMEM;
	r->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return r->kick < 0 || r->call < 0 ? -errno : 0;
}

void drv_ring_fini(struct drv_ring *r)
{
	if (r->ring == NULL)
		return; /* never made */
	drv_ring_stop(r);
	fd_close(&r->kick);
	fd_close(&r->call);
}

int drv_ring_start(struct drv_ring *r, uint64_t features)
{
	uint64_t modern = 1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_NET_F_MRG_RXBUF;
	int rc = drvq_init(&r->q, r->ring, r->num, features, &r->tables);

	if (rc < 0)
		return rc;
	drvq_call_off(&r->q);
	r->hdr_len = (features & modern) != 0 ? VIRTIO_NET_HDR_LEN : VIRTIO_NET_HDR_LEN_LEGACY;
	r->running = true;
	r->broken = false;
	return 0;
}

void drv_ring_stop(struct drv_ring *r)
{
	if (r->running)
		drvq_fini(&r->q);
	r->running = false;
}

void drv_ring_publish(struct drv_ring *r)
{
	if (!drvq_publish(&r->q))
		return;
	/* Full means that the back end has a kick that it did not take yet. */
	eventfd_write(r->kick, 1);
	r->kicks++;
}

bool drv_ring_get(struct drv_ring *r, struct drvq_used *used)
{
	int rc = drvq_get(&r->q, used);

	r->broken |= rc < 0;
	return rc > 0;
}

bool drv_ring_interrupts(struct drv_ring *r, bool on)
{
	if (!drv_ring_usable(r))
		return r->broken; /* the driver is to connect again */
	if (on)
		return drvq_call_on(&r->q);
	drvq_call_off(&r->q);
	return false;
}
