/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a device meets its front end: a socket that it listens on, one that it connects to again and
 * again, or one that it was given. One front end at a time; another one is turned away.
 *
 * All functions are the control thread's.
 */
#ifndef UVHOST_DEV_ENDPOINT_H
#define UVHOST_DEV_ENDPOINT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/later.h"
#include "work/worker.h"

struct endpoint_cfg {
	const char *name;
	const char *path;  /* NULL: @fd */
	int fd;            /* listening or connected; owned from endpoint_new() on. -1: @path */
	bool client;       /* connect to @path, for ever */
	mode_t mode;       /* of a socket made at @path */
	const char *group; /* of it; NULL: as the process */
	struct worker *control;
	struct later *later; /* closes connections that are turned away */
	/* A front end is there; @fd is the receiver's. */
	void (*connected)(void *ctx, int fd);
	void *ctx;
};

struct endpoint;

/* 0 or -errno, with a static text in *@err that says what to do about it. */
int endpoint_new(struct endpoint **out, const struct endpoint_cfg *cfg, const char **err);
/* Removes the socket that it made. */
void endpoint_free(struct endpoint *ep);

/* Begins: @connected may be called from here on. */
void endpoint_start(struct endpoint *ep);
/* The front end has gone: wait for the next, which is not taken in before @rest_ns are over. False:
 * there will be none (a connected @fd). */
bool endpoint_next(struct endpoint *ep, uint64_t rest_ns);

#endif
