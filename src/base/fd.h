/* SPDX-License-Identifier: BSD-2-Clause */
/* File descriptors: each has one owner, which closes it. */
#ifndef UVHOST_BASE_FD_H
#define UVHOST_BASE_FD_H

/* Closes *fd if it is one and leaves -1; errno is kept, so that error paths may use it freely. */
void fd_close(int *fd);

/* Sets O_NONBLOCK on the file description. 0 or -errno. */
int fd_set_nonblock(int fd);

#endif
