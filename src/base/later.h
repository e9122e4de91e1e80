/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What may take long to end, ended in a thread of its own.
 *
 * DOC: to close a descriptor can wait: for data that lingers in a TCP socket, for the server of a FUSE
 * file, for the descriptors that lie unread in a UNIX socket; to unmap the memory of a guest that has
 * died frees all of it. A front end chooses what it sends, so whatever came from one is closed here,
 * one thing after the other, and only the things of the same device wait for each other.
 *
 * The thread is there while there is something to do. Whoever hands things over looks at later_busy()
 * before it takes in more of them.
 */
#ifndef UVHOST_BASE_LATER_H
#define UVHOST_BASE_LATER_H

#include <stdbool.h>
#include <stddef.h>

struct later;

/* NULL: out of memory. */
struct later *later_new(void);
/* What it still has to do is done all the same. */
void later_free(struct later *l);

/* Any thread. @l may be NULL: at once, as it is when no thread is to be had or too much waits. *@fd
 * becomes -1. */
void later_close(struct later *l, int *fd);
void later_unmap(struct later *l, void *addr, size_t len);

/* So much waits that no more should be taken in. NULL is never busy. */
bool later_busy(struct later *l);

#endif
