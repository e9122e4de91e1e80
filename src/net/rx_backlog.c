// SPDX-License-Identifier: BSD-2-Clause
/* Frames that arrived before the guest had buffers for them. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "net/rx_priv.h"

int rx_backlog_init(struct rx_backlog *b)
{
	*b = (struct rx_backlog){ 0 };
	b->memory = mmap(NULL, RX_BACKLOG_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return b->memory == MAP_FAILED ? -ENOMEM : 0;
}

void rx_backlog_fini(struct rx_backlog *b)
{
	munmap(b->memory, RX_BACKLOG_BYTES);
}

bool rx_backlog_add(struct rx_backlog *b, const struct rx_frame *f)
{
	struct rx_frame *slot;

	if (b->cnt == RX_BACKLOG_FRAMES || f->len > RX_BACKLOG_BYTES - b->used)
		return false;
	memcpy(b->memory + b->used, f->data, f->len);
	slot = &b->frames[(b->first + b->cnt++) % RX_BACKLOG_FRAMES];
	*slot = *f;
	slot->data = b->memory + b->used;
	b->used += f->len;
	return true;
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
		b->first = (b->first + 1) % RX_BACKLOG_FRAMES;
		b->cnt--;
	}
	b->used = 0;
	return bytes;
}

unsigned rx_backlog_clear(struct rx_backlog *b)
{
	unsigned cnt = b->cnt;

	b->cnt = b->first = 0;
	b->used = 0;
	return cnt;
}
