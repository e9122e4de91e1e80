/* SPDX-License-Identifier: BSD-2-Clause */
/* The virtqueue in memory, split (virtio 1.2, section 2.7) and packed (2.8), and the feature bits that
 * shape it. */
#ifndef UVHOST_WIRE_VIRTIO_RING_H
#define UVHOST_WIRE_VIRTIO_RING_H

#include <assert.h>
#include <stdbool.h>

#include "base/endian.h"

#define VIRTIO_F_RING_INDIRECT_DESC 28
#define VIRTIO_F_RING_EVENT_IDX     29
#define VIRTIO_F_VERSION_1          32
#define VIRTIO_F_RING_PACKED        34
#define VIRTIO_F_IN_ORDER           35
#define VIRTIO_F_RING_RESET         40

#define VRING_DESC_F_NEXT     1
#define VRING_DESC_F_WRITE    2
#define VRING_DESC_F_INDIRECT 4

#define VRING_AVAIL_F_NO_INTERRUPT 1
#define VRING_USED_F_NO_NOTIFY     1

/* The largest virtqueue (virtio 1.2, sections 2.7 and 2.8): a power of two, packed any number. */
#define VRING_NUM_MAX 32768

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

/* ---- packed ---- */

#define VRING_PACKED_DESC_F_AVAIL (1 << 7)
#define VRING_PACKED_DESC_F_USED  (1 << 15)
#define VRING_PACKED_DESC_F_STATE (VRING_PACKED_DESC_F_AVAIL | VRING_PACKED_DESC_F_USED)

struct vring_packed_desc {
	le64 addr; /* guest-physical */
	le32 len;
	le16 id;
	le16 flags;
};
static_assert(sizeof(struct vring_packed_desc) == 16, "virtio 1.2, 2.8.13");

/*
 * Event suppression (2.8.10): one for the device to read, which the driver writes, and the reverse. A
 * le16 with a place in the ring in the lower half, a le16 of flags in the upper: read and written as
 * one, so that the two always belong together.
 */
struct vring_packed_event {
	le32 place_flags;
};

#define VRING_PACKED_EVENT_ENABLE  0U
#define VRING_PACKED_EVENT_DISABLE 1U
#define VRING_PACKED_EVENT_DESC    2U

#define VRING_PACKED_DESC_ALIGN  16
#define VRING_PACKED_EVENT_ALIGN 4

/*
 * A *place* is a position in the ring with the wrap counter of the lap (2.8.1) in the top bit: what
 * the event suppression and vhost-user's ring base have.
 */
#define VRING_PACKED_WRAP  0x8000U
#define VRING_PACKED_START VRING_PACKED_WRAP

static inline uint16_t vring_packed_pos(uint16_t place)
{
	return place & (uint16_t)~VRING_PACKED_WRAP;
}

/* @cnt <= @num descriptors further. */
static inline uint16_t vring_packed_step(uint16_t place, unsigned cnt, unsigned num)
{
	unsigned pos = vring_packed_pos(place) + cnt, wrap = place & VRING_PACKED_WRAP;

	return (uint16_t)(pos < num ? pos | wrap : (pos - num) | (wrap ^ VRING_PACKED_WRAP));
}

/* How far @to, at most a lap ahead, is from @from. */
static inline unsigned vring_packed_ahead(uint16_t from, uint16_t to, unsigned num)
{
	bool lap = ((from ^ to) & VRING_PACKED_WRAP) != 0;

	return vring_packed_pos(to) + (lap ? num : 0) - vring_packed_pos(from);
}

/* The AVAIL and USED bits of a descriptor at @place that is made available, or used. */
static inline uint16_t vring_packed_avail(uint16_t place)
{
	return place & VRING_PACKED_WRAP ? VRING_PACKED_DESC_F_AVAIL : VRING_PACKED_DESC_F_USED;
}

static inline uint16_t vring_packed_used(uint16_t place)
{
	return place & VRING_PACKED_WRAP ? VRING_PACKED_DESC_F_STATE : 0;
}

/*
 * Does the other side want a signal, with @event as it wrote it, now that @cnt descriptors from some
 * place up to @place have changed?
 */
static inline bool vring_packed_need_event(uint32_t event, bool event_idx, uint16_t place,
					   unsigned cnt, unsigned num)
{
	uint16_t wanted = (uint16_t)event;
	unsigned flags = event >> 16 & 3;

	if (flags != VRING_PACKED_EVENT_DESC || !event_idx)
		return flags != VRING_PACKED_EVENT_DISABLE;
	/* The last one that changed is @place - 1. */
	return cnt >= num || vring_packed_ahead(wanted, place, num) - 1 < cnt;
}

#endif
