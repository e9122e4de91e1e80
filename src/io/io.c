// SPDX-License-Identifier: BSD-2-Clause
/* What both engines have in common: the array, files and their classes, watches that fired. */
#include "io/io.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "io/io_priv.h"

/* The signal of a write to a closed pipe comes from the kernel's side of the write: no flag of the
 * operation keeps it off, and a library must not change what the whole process does with it. */
static void block_sigpipe(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* The eventfd that io_wake() writes. It is watched like any other file, and never read. */
static int open_wake(struct io *io)
{
	int err;

	io->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (io->wake_fd < 0)
		return -errno;
	err = io_file_add(io, &io->wake_file, io->wake_fd);
	if (err)
		goto err_fd;
	io_watch_init(&io->wake_watch, &io->wake_file, POLLIN, true);
	err = io_watch_arm(io, &io->wake_watch);
	if (err)
		goto err_file;
	return 0;

err_file:
	io_file_del(io, &io->wake_file);
err_fd:
	fd_close(&io->wake_fd);
	return err;
}

static int open_engine(struct io **out, const struct io_engine *engine)
{
	struct io *io;
	int err;

	err = engine->open(&io);
	if (err)
		return err;
	io->engine = engine;
	io->ops = io->arrays[0];
	list_init(&io->fired);
	err = watchdog_init(&io->dog);
	if (err)
		goto err_engine;
	err = open_wake(io);
	if (err)
		goto err_watchdog;
	block_sigpipe();
	*out = io;
	return 0;

err_watchdog:
	watchdog_fini(&io->dog);
err_engine:
	engine->close(io);
	return err;
}

static const char *why_no_uring(int err)
{
	switch (err) {
	case -ENOSYS:
		return "this kernel has no io_uring";
	case -EPERM:
		return "io_uring is forbidden here (EPERM; kernel.io_uring_disabled or a seccomp filter)";
	case -EACCES:
		return "io_uring is forbidden here (EACCES; a security module)";
	case -EINVAL:
		return "io_uring of this kernel is too old (it takes Linux 6.1)";
	case -ENOMEM:
		return "there is not enough memory for io_uring (ENOMEM; perhaps RLIMIT_MEMLOCK)";
	default:
		return "io_uring cannot be set up here";
	}
}

int io_new(struct io **io, enum io_kind kind, const char **why)
{
	int err;

	*why = NULL;
	if (kind == IO_PLAIN)
		return open_engine(io, &plain_engine);
	err = open_engine(io, &uring_engine);
	if (!err || kind == IO_URING)
		return err;
	*why = why_no_uring(err);
	return open_engine(io, &plain_engine);
}

void io_free(struct io *io)
{
	io_watch_cancel(io, &io->wake_watch);
	io_file_del(io, &io->wake_file);
	fd_close(&io->wake_fd);
	watchdog_fini(&io->dog);
	io->engine->close(io);
}

enum io_kind io_kind(const struct io *io)
{
	return io->engine->kind;
}

static int classify(int fd, enum io_class *class)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	switch (st.st_mode & S_IFMT) {
	case 0: /* what has no inode of its own: eventfd, timerfd, epoll, ... */
		*class = IO_EVENT;
		return 0;
	case S_IFSOCK:
		*class = IO_SOCKET;
		return 0;
	case S_IFCHR:
	case S_IFIFO:
		*class = IO_FILE;
		return 0;
	default:
		return -EINVAL;
	}
}

int io_file_add(struct io *io, struct io_file *f, int fd)
{
	int err;

	*f = (struct io_file){ .fd = fd };
	list_init(&f->watches);
	err = classify(fd, &f->class);
	if (err)
		return err;
	err = fd_set_nonblock(fd);
	if (err)
		return err;
	return io->engine->file_add(io, f);
}

void io_file_del(struct io *io, struct io_file *f)
{
	io->engine->file_del(io, f);
}

unsigned io_room(const struct io *io)
{
	return IO_OPS_MAX - io->op_cnt;
}

struct io_op *io_reserve(struct io *io, unsigned cnt)
{
	struct io_op *op = &io->ops[io->op_cnt];

	if (cnt > io_room(io))
		return NULL;
	io->op_cnt += cnt;
	return memset(op, 0, cnt * sizeof(*op));
}

int io_enter(struct io *io, int64_t wait_ns)
{
	int err;

	if (io->op_cnt)
		watchdog_start(&io->dog);
	err = io->engine->enter(io, wait_ns);
	/* The results stay readable while the other array is filled. */
	io->ops = io->arrays[io->ops == io->arrays[0]];
	io->op_cnt = 0;
	if (wait_ns)
		io->woken = false;
	return err;
}

void io_wake(struct io *io)
{
	/* Nobody else has this file, and it takes 2^64 wakes to fill it. */
	eventfd_write(io->wake_fd, 1);
}

bool io_pending(struct io *io)
{
	return io->engine->pending(io);
}

void io_watch_init(struct io_watch *w, struct io_file *file, uint32_t events, bool multishot)
{
	*w = (struct io_watch){ .file = file, .events = events, .multishot = multishot };
	list_init(&w->fired);
	list_init(&w->peers);
}

int io_watch_arm(struct io *io, struct io_watch *w)
{
	int err;

	if (w->armed)
		return 0;
	err = io->engine->arm(io, w);
	w->armed = !err;
	return err;
}

void io_watch_cancel(struct io *io, struct io_watch *w)
{
	list_del(&w->fired);
	if (w->armed)
		io->engine->disarm(io, w);
	w->armed = false;
}

struct io_watch *io_fired(struct io *io)
{
	struct io_watch *w = list_first(&io->fired, struct io_watch, fired);

	if (w)
		list_del(&w->fired);
	return w;
}

void io_fire(struct io *io, struct io_watch *w)
{
	w->armed = w->multishot;
	if (w == &io->wake_watch)
		io->woken = true;
	else if (list_empty(&w->fired))
		list_add_tail(&io->fired, &w->fired);
}

int64_t io_left(const struct io *io, int64_t wait_ns, uint64_t deadline_ns)
{
	uint64_t now;

	if (io->woken || !list_empty(&io->fired))
		return 0;
	if (wait_ns <= 0)
		return wait_ns;
	now = clock_ns();
	return now < deadline_ns ? (int64_t)(deadline_ns - now) : 0;
}

int32_t io_call(const struct io_file *f)
{
	static const uint64_t one = 1;
	ssize_t ret;

	if (f->class == IO_SOCKET)
		ret = send(f->fd, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		ret = write(f->fd, &one, sizeof(one));
	return ret < 0 ? -errno : (int32_t)ret;
}

void io_done(struct io *io, struct io_op *op, int32_t res)
{
	/* Only what sleeps is interrupted: a peer has cleared O_NONBLOCK, and may do so again. */
	if (res == -EINTR) {
		io->wary = true;
		res = -ETIMEDOUT;
	}
	if (op->opcode == IO_OP_CALL && res < 0 && res != -EAGAIN && !op->file->call_err)
		op->file->call_err = res;
	op->res = res;
}
