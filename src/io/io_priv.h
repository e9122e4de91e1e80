/* SPDX-License-Identifier: BSD-2-Clause */
/* What the engines share, and what the tests may see of them. */
#ifndef UVHOST_IO_IO_PRIV_H
#define UVHOST_IO_IO_PRIV_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/list.h"
#include "io/io.h"

/* How long an operation may hold up its engine. */
#define WATCHDOG_NS 100000000L

struct watchdog {
	timer_t timer;
	bool ticking;
};

/* For the calling thread. 0 or -errno. */
int watchdog_init(struct watchdog *dog);
void watchdog_fini(struct watchdog *dog);
/* Before operations. A system call only when it does not tick yet. */
void watchdog_start(struct watchdog *dog);
/* When the engine's sleep was interrupted, most likely by a tick. */
void watchdog_stop(struct watchdog *dog);

struct io_engine {
	enum io_kind kind;
	int (*open)(struct io **io);
	void (*close)(struct io *io);
	/* @f has its fd and class; O_NONBLOCK is set. */
	int (*file_add)(struct io *io, struct io_file *f);
	void (*file_del)(struct io *io, struct io_file *f);
	/* Executes io->ops, collects with io_fire(), sleeps while io_left() says so. */
	int (*enter)(struct io *io, int64_t wait_ns);
	bool (*pending)(struct io *io);
	int (*arm)(struct io *io, struct io_watch *w);
	void (*disarm)(struct io *io, struct io_watch *w);
};

extern const struct io_engine uring_engine;
extern const struct io_engine plain_engine;

/* The first member of either engine. */
struct io {
	const struct io_engine *engine;
	struct list fired;
	bool woken; /* io_wake() was seen, and no sleep has ended by it yet */
	bool wary;  /* an operation has blocked */
	struct watchdog dog;
	int wake_fd;
	struct io_file wake_file;
	struct io_watch wake_watch;
	uint64_t entries; /* entries into the kernel that collect, so far */
	/* The array that is being filled, and the one whose results are being read. */
	unsigned op_cnt;
	struct io_op *ops;
	struct io_op arrays[2][IO_OPS_MAX];
};

/* @w fired. */
void io_fire(struct io *io, struct io_watch *w);
/* For how long to sleep now: 0 not at all, -1 without a limit. @deadline_ns ends a positive wait. */
int64_t io_left(const struct io *io, int64_t wait_ns, uint64_t deadline_ns);
/* Writes a call at once; 8, or -errno as the kernel gave it. */
int32_t io_call(const struct io_file *f);
/* The kernel gave @res. */
void io_done(struct io *io, struct io_op *op, int32_t res);

/* For the tests: what the kernel says to an operation on @f that the engine never uses. */
int uring_try(struct io *io, const struct io_file *f, uint8_t opcode);

#endif
