/* SPDX-License-Identifier: BSD-2-Clause */
/* Listening UNIX sockets with a name. */
#ifndef UVHOST_BASE_UNIX_SOCKET_H
#define UVHOST_BASE_UNIX_SOCKET_H

#include <sys/types.h>
#include <sys/un.h>

/* Fills @addr; -ENAMETOOLONG with *@err: @path has more than 107 bytes. */
int unix_address(struct sockaddr_un *addr, const char *path, const char **err);

/*
 * A stream socket bound to @addr with permissions @mode, O_NONBLOCK, not listening yet: its descriptor.
 * A socket that a dead process left there is replaced; whatever else is there stays. -errno with a text
 * in *@err that says what to do.
 */
int unix_bind(const struct sockaddr_un *addr, mode_t mode, const char **err);

#endif
