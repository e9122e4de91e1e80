/* SPDX-License-Identifier: BSD-2-Clause */
/* The split virtqueue in memory (virtio 1.2, section 2.7) and the feature bits that shape it. */
#ifndef UVHOST_WIRE_VIRTIO_RING_H
#define UVHOST_WIRE_VIRTIO_RING_H

#include <assert.h>

#include "base/endian.h"

#define VIRTIO_F_RING_INDIRECT_DESC 28
#define VIRTIO_F_RING_EVENT_IDX     29
#define VIRTIO_F_VERSION_1          32
#define VIRTIO_F_IN_ORDER           35

#define VRING_DESC_F_NEXT     1
#define VRING_DESC_F_WRITE    2
#define VRING_DESC_F_INDIRECT 4

#define VRING_AVAIL_F_NO_INTERRUPT 1
#define VRING_USED_F_NO_NOTIFY     1

/* The largest split virtqueue (virtio 1.2, section 2.7). */
#define VRING_SPLIT_NUM_MAX 32768

struct vring_desc {
	le64 addr; /* guest-physical */
	le32 len;
	le16 flags;
	le16 next;
};
static_assert(sizeof(struct vring_desc) == 16, "virtio 1.2, 2.7.5");

/* used_event, a le16, follows ring[num]. */
struct vring_avail {
	le16 flags;
	le16 idx;
	le16 ring[];
};
static_assert(sizeof(struct vring_avail) == 4, "virtio 1.2, 2.7.6");

struct vring_used_elem {
	le32 id;
	le32 len;
};
static_assert(sizeof(struct vring_used_elem) == 8, "virtio 1.2, 2.7.8");

/* avail_event, a le16, follows ring[num]. */
struct vring_used {
	le16 flags;
	le16 idx;
	struct vring_used_elem ring[];
};
static_assert(sizeof(struct vring_used) == 4, "virtio 1.2, 2.7.8");

/* Bytes of each part, the event index included: the driver may place it there at any time. */
#define VRING_DESC_BYTES(num)  ((num) * sizeof(struct vring_desc))
#define VRING_AVAIL_BYTES(num) (sizeof(struct vring_avail) + ((num) + 1) * sizeof(le16))
#define VRING_USED_BYTES(num) \
	(sizeof(struct vring_used) + (num) * sizeof(struct vring_used_elem) + sizeof(le16))

#define VRING_DESC_ALIGN  16
#define VRING_AVAIL_ALIGN 2
#define VRING_USED_ALIGN  4

/* The event indexes, each behind the last element of the other's ring (2.7.6, 2.7.8). */
static inline le16 *vring_used_event(struct vring_avail *avail, unsigned num)
{
	return &avail->ring[num];
}

static inline le16 *vring_avail_event(struct vring_used *used, unsigned num)
{
	return (le16 *)(void *)&used->ring[num];
}

/*
 * Has the index of a series crossed @event when it went from @old_idx to @new_idx? All three are
 * free-running and wrap at 65,536 (virtio 1.2, section 2.7.7.2).
 */
static inline int vring_need_event(uint16_t event, uint16_t new_idx, uint16_t old_idx)
{
	return (uint16_t)(new_idx - event - 1) < (uint16_t)(new_idx - old_idx);
}

#endif
