/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control queue (virtio 1.2, section 5.1.6.5), served by the control thread. Every command is
 * answered at once, also an unknown or malformed one: a driver spins until it has its answer.
 */
#ifndef UVHOST_NET_CTRLQ_H
#define UVHOST_NET_CTRLQ_H

#include "net/queue.h"
#include "net/scratch.h"

/* Commands of one turn; the thread has other work. */
#define CTRLQ_BURST 16

struct ctrlq {
	struct work_src src;
	struct queue q;
	struct vq_iovs *pieces; /* the control thread's, in use within one turn */
	struct counter ok, refused;
};

void ctrlq_init(struct ctrlq *c, struct worker *control, const char *device,
		struct vq_iovs *pieces);

#endif
