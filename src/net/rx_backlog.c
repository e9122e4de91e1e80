// SPDX-License-Identifier: BSD-2-Clause
/* Frames that arrived before the guest had buffers for them. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "net/rx_priv.h"

#define BACKLOG_BYTES ((size_t)RX_BURST_MAX * VIRTIO_NET_FRAME_MAX)
#define BACKLOG_KEEP  (256U << 10) /* more than this goes back to the host when it is empty */

int rx_backlog_init(struct rx_backlog *b)
{
	*b = (struct rx_backlog){ 0 };
	b->memory = mmap(NULL, BACKLOG_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return b->memory == MAP_FAILED ? -ENOMEM : 0;
}

void rx_backlog_fini(struct rx_backlog *b)
{
	munmap(b->memory, BACKLOG_BYTES);
}

void rx_backlog_add(struct rx_backlog *b, const struct rx_frame *f)
{
	struct rx_frame *slot;

	assert(b->first + b->cnt < RX_BURST_MAX && f->len <= BACKLOG_BYTES - b->used);
	memcpy(b->memory + b->used, f->data, f->len);
	slot = &b->frames[b->first + b->cnt++];
	*slot = *f;
	slot->data = b->memory + b->used;
	b->used += f->len;
}

unsigned rx_backlog_clear(struct rx_backlog *b)
{
	unsigned cnt = b->cnt;

	if (b->used > BACKLOG_KEEP)
		madvise(b->memory, b->used, MADV_DONTNEED);
	b->cnt = b->first = 0;
	b->used = 0;
	return cnt;
}

unsigned rx_backlog_deliver(struct rx *rx, unsigned *frames)
{
	struct rx_backlog *b = &rx->backlog;
	unsigned bytes = 0;

	while (b->cnt > 0) {
		struct rx_frame *f = &b->frames[b->first];

		if (rx_deliver(rx, f) == RX_NO_ROOM)
			return bytes;
		bytes += f->len;
		(*frames)++;
		b->first++;
		b->cnt--;
	}
	rx_backlog_clear(b);
	return bytes;
}
