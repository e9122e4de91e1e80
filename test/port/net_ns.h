/* SPDX-License-Identifier: BSD-2-Clause */
/* A network namespace of the test's own, and what happens to interfaces in it. */
#ifndef UVHOST_TEST_PORT_NET_NS_H
#define UVHOST_TEST_PORT_NET_NS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Puts the calling thread, and those that it will start, into a new and quiet network namespace.
 * False, with the reason printed, when that or a tap is not to be had. */
bool netns_enter(void);

/* Each is 0 or -errno. */
int if_set_up(const char *name, bool up);
int if_set_mtu(const char *name, int mtu);
int if_rename(const char *name, const char *to);
int if_delete(const char *name);
bool if_exists(const char *name);
/* Into the network namespace that the descriptor stands for. */
int if_move(const char *name, int netns_fd);

/* A tap that stays, made as `ip tuntap add` makes it; @tun: a tun instead. */
int tap_make(const char *name, bool tun);
/* An open tap descriptor with @flags beside IFF_TAP | IFF_NO_PI. */
int tap_fd_open(const char *name, short flags);

/* A packet socket on the interface, with a 10-byte virtio_net_hdr before each frame if @vnet. */
int packet_open(const char *name, bool vnet);

#endif
