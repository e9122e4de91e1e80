/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An engine executes an array of operations at one point.
 *
 * DOC: there are two kinds of work for the kernel.
 *
 * *Now*: a read, a write, a call (the interrupt to a guest). The owner collects them in an array
 * with io_reserve(); io_enter() executes all of them and none is out when it returns, so nothing of
 * a guest's memory is on loan between two rounds. Results stand in the operations themselves.
 *
 * *Later*: a watch waits until a file can be read or written. It never holds memory of a guest.
 * io_enter() collects those that fired, io_fired() hands them out.
 *
 * With io_uring the whole array, all arming of watches and the sleep are one system call; the plain
 * engine runs the same array with readv(), writev() and epoll. An engine belongs to one thread; only
 * io_wake() may be called from others.
 */
#ifndef UVHOST_IO_IO_H
#define UVHOST_IO_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"

enum io_kind { IO_AUTO, IO_URING, IO_PLAIN };

/* What a file is decides how an operation on it is kept from blocking; found by io_file_add(). */
enum io_class {
	IO_FILE,  /* a tap or a pipe of ours, set to O_NONBLOCK */
	IO_EVENT, /* an eventfd, timerfd or the like */
	IO_SOCKET,
};

struct io_file {
	int fd; /* borrowed: the caller closes it after io_file_del() */
	enum io_class class;
	int call_err; /* the first call on it that failed other than by being full: -errno */
	/* the engine's own */
	bool nowait;         /* uring: RWF_NOWAIT works on it */
	int slot;            /* uring: in the ring's table of files */
	bool polled;         /* plain: epoll knows it */
	struct list watches; /* plain: those that are armed */
};

enum io_opcode {
	IO_OP_READ,  /* readv into iov; 0 or more bytes, -EAGAIN when there is nothing */
	IO_OP_WRITE, /* writev from iov */
	IO_OP_CALL,  /* add 1 to an eventfd, or write 8 bytes to a socket; no iov */
};

struct io_op {
	struct io_file *file;
	const struct iovec *iov;
	uint16_t iov_cnt;
	uint8_t opcode;
	/*
	 * After io_enter(): bytes, or -errno. A call that found its file full is -EAGAIN (the reader
	 * has a signal that it did not take yet); one that would have blocked is -ETIMEDOUT.
	 */
	int32_t res;
};

/*
 * Operations that fit into one entry, calls included. Turns may use IO_OPS_TURNS of them, so that
 * the interrupts of the harvest always fit.
 */
#define IO_OPS_MAX   768
#define IO_OPS_TURNS 512

struct io_watch {
	struct io_file *file;
	uint32_t events; /* POLLIN, POLLOUT */
	bool multishot; /* fires at each new event until cancelled; else once, then is idle again */
	/* the engine's own */
	bool armed;
	struct list fired;        /* in the list of those that fired */
	struct list peers;        /* plain: among the watches of its file */
	struct io_record *record; /* uring: what the kernel answers to */
};

struct io;

/*
 * Makes an engine for the calling thread, which must be the one to use and to free it (io_uring
 * binds a ring to one thread). IO_AUTO takes io_uring where it works and says in *@why, a static
 * text, why it does not where it falls back (else NULL).
 * -ENOSYS, -EPERM, -ENOMEM, ... when a forced kind is not to be had.
 *
 * The thread's signal mask changes: SIGPIPE is blocked (a write to a closed pipe is -EPIPE), the
 * watchdog's signal is not (watchdog.c).
 */
int io_new(struct io **io, enum io_kind kind, const char **why);
void io_free(struct io *io);
enum io_kind io_kind(const struct io *io);

/*
 * Makes @fd known; sets O_NONBLOCK. -EINVAL for files that cannot be polled (regular files), -ENFILE
 * when the engine's table is full.
 */
int io_file_add(struct io *io, struct io_file *f, int fd);
/* No watch and no operation on it may be left. */
void io_file_del(struct io *io, struct io_file *f);

/* Operations that still fit into the next entry. */
unsigned io_room(const struct io *io);

/* @cnt consecutive operations of the next entry, zeroed; NULL when they do not fit. They stay
 * valid, with their results, until the end of the round after the entry that executed them, that is
 * until the next io_enter(). */
struct io_op *io_reserve(struct io *io, unsigned cnt);

/*
 * Executes what was reserved, collects the watches that fired. With @wait_ns != 0 it sleeps until
 * one fires, io_wake() is called, or that time has passed (-1: no limit). 0, or -errno when the
 * engine itself is broken.
 */
int io_enter(struct io *io, int64_t wait_ns);

/* Ends the sleep of the engine's thread, now or the next time. Any thread. */
void io_wake(struct io *io);

/* Does memory alone show that io_enter() would collect something? No system call. */
bool io_pending(struct io *io);

/* Prepares a watch: idle, belonging to @file. */
void io_watch_init(struct io_watch *w, struct io_file *file, uint32_t events, bool multishot);
/* No effect on an armed one. Takes part in the next io_enter(). 0 or -errno. */
int io_watch_arm(struct io *io, struct io_watch *w);
/* The watch may be forgotten when this returns: what comes late ends in the engine's own record. */
void io_watch_cancel(struct io *io, struct io_watch *w);

/* The next watch that fired and was not handed out yet, or NULL. */
struct io_watch *io_fired(struct io *io);

#endif
