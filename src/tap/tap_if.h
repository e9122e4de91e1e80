/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls that make, set up and look at a tap interface. They may wait for the kernel's network lock.
 */
#ifndef UVHOST_TAP_TAP_IF_H
#define UVHOST_TAP_TAP_IF_H

#include <linux/if_tun.h>
#include <net/if.h>
#include <stdbool.h>

/* A descriptor that has no interface yet, O_NONBLOCK, or -errno. */
int tap_if_open(void);
/* Gives @fd the interface @name, which is created unless it exists, or one more queue of it.
 * *@persistent: it is one that stays without us. */
int tap_if_attach(int fd, const char *name, bool multi_queue, bool *persistent);
/* Checks an inherited descriptor: NULL, or why it cannot be used. */
const char *tap_if_check(int fd);
/* Sets header size, byte order and exactly these offloads, of the TUN_F_ bits: those of frames that we
 * are given. */
int tap_if_setup(int fd, unsigned tun_f);
int tap_if_set_offload(int fd, unsigned tun_f);
/* Has @fd an interface at this moment? */
bool tap_if_attached(int fd);
/* Is its interface up, or nowhere to be seen from the network namespace of the socket @sock? */
bool tap_if_up(int fd, int sock);
/* Its index, 0 when there is none of that name. */
int tap_if_index(int sock, const char *name);
/* Can an interface have this name? */
bool tap_if_name_ok(const char *name);
/* What to do about a failed tap_if_open() or tap_if_attach(). */
const char *tap_if_advice(int err, int sock, const char *name);

#endif
