// SPDX-License-Identifier: BSD-2-Clause
/* The engine for where io_uring is not to be had: a system call an operation, and epoll. */
/*
 * DOC: epoll knows a file once, a file may have several watches. So each file is registered for what
 * its armed watches want together, and an event goes to those that wanted it.
 *
 * Edge-triggered if one of them is multishot: a kick eventfd, which is never read, is reported when
 * it is written and not again. Else one-shot: the file falls silent when it fires, without a system
 * call, and each (re-)arming is one EPOLL_CTL_MOD, which also looks whether the file is ready now.
 */
#include "io/io_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"

/* Events of one entry. The kernel takes the files in turn, so none is left out for ever. */
#define EVENTS_MAX 256

struct plain {
	struct io io;
	int epoll_fd;
	bool coarse; /* no epoll_pwait2() before Linux 5.11 */
	struct epoll_event events[EVENTS_MAX];
};

static struct plain *to_plain(struct io *io)
{
	return container_of(io, struct plain, io);
}

static int plain_open(struct io **io)
{
	struct plain *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (p->epoll_fd < 0) {
		err = -errno;
		free(p);
		return err;
	}
	*io = &p->io;
	return 0;
}

static void plain_close(struct io *io)
{
	struct plain *p = to_plain(io);

	fd_close(&p->epoll_fd);
	free(p);
}

static int plain_file_add(struct io *io, struct io_file *f)
{
	return 0;
}

static void forget_file(struct plain *p, struct io_file *f)
{
	if (f->polled)
		epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, f->fd, NULL);
	f->polled = false;
}

static void plain_file_del(struct io *io, struct io_file *f)
{
	forget_file(to_plain(io), f);
}

/* Tells epoll what the armed watches of the file, at least one, want. */
static int poll_file(struct plain *p, struct io_file *f)
{
	struct epoll_event event = { .data.ptr = f };
	bool multishot = false;

	list_for_each(it, n, &f->watches) {
		const struct io_watch *w = list_entry(it, struct io_watch, peers);

		event.events |= w->events;
		multishot |= w->multishot;
	}
	event.events |= multishot ? EPOLLET : EPOLLONESHOT;
	if (epoll_ctl(p->epoll_fd, f->polled ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, f->fd, &event))
		return -errno;
	f->polled = true;
	return 0;
}

static int plain_arm(struct io *io, struct io_watch *w)
{
	int err;

	list_add_tail(&w->file->watches, &w->peers);
	err = poll_file(to_plain(io), w->file);
	if (err)
		list_del(&w->peers);
	return err;
}

static void plain_disarm(struct io *io, struct io_watch *w)
{
	list_del(&w->peers);
	/* What the others want was registered before: an event too many hurts nobody. */
	if (list_empty(&w->file->watches))
		forget_file(to_plain(io), w->file);
}

static void deliver(struct plain *p, const struct epoll_event *event)
{
	struct io_file *f = event->data.ptr;
	bool multishot = false;

	list_for_each(it, n, &f->watches) {
		struct io_watch *w = list_entry(it, struct io_watch, peers);

		multishot |= w->multishot;
		if (!(event->events & (w->events | EPOLLERR | EPOLLHUP)))
			continue;
		if (!w->multishot)
			list_del(&w->peers);
		io_fire(&p->io, w);
	}
	/* The one-shot registration went silent for those that did not fire, too. */
	if (!multishot && !list_empty(&f->watches))
		poll_file(p, f);
}

static int32_t run_op(struct plain *p, const struct io_op *op)
{
	ssize_t ret;

	switch (op->opcode) {
	case IO_OP_READ:
		ret = readv(op->file->fd, op->iov, op->iov_cnt);
		break;
	case IO_OP_WRITE:
		ret = writev(op->file->fd, op->iov, op->iov_cnt);
		break;
	default:
		/* One engine must not lose WATCHDOG_NS for each call file of a hostile peer. */
		if (p->io.wary)
			fd_set_nonblock(op->file->fd);
		return io_call(op->file);
	}
	return ret < 0 ? -errno : (int32_t)ret;
}

/* Milliseconds as epoll_wait() takes them: never early. */
static int to_ms(int64_t ns)
{
	if (ns < 0)
		return -1;
	return (int)min_size((size_t)ns / NSEC_PER_MSEC + 1, INT_MAX);
}

/* The number of events, or -errno. */
static int poll_events(struct plain *p, int64_t left_ns)
{
	struct timespec left;
	int n = -1;

	p->io.entries++;
	if (!p->coarse) {
		left.tv_sec = left_ns / (int64_t)NSEC_PER_SEC;
		left.tv_nsec = left_ns % (int64_t)NSEC_PER_SEC;
		n = epoll_pwait2(p->epoll_fd, p->events, EVENTS_MAX, left_ns < 0 ? NULL : &left,
				 NULL);
		p->coarse = n < 0 && errno == ENOSYS;
	}
	if (p->coarse)
		n = epoll_wait(p->epoll_fd, p->events, EVENTS_MAX, left_ns ? to_ms(left_ns) : 0);
	return n < 0 ? -errno : n;
}

static int plain_enter(struct io *io, int64_t wait_ns)
{
	const uint64_t deadline = wait_ns > 0 ? clock_ns() + (uint64_t)wait_ns : 0;
	struct plain *p = to_plain(io);
	int64_t left;
	int n;

	for (struct io_op *op = io->ops; op < io->ops + io->op_cnt; op++)
		io_done(io, op, run_op(p, op));

	left = io_left(io, wait_ns, deadline);
	do {
		n = poll_events(p, left);
		if (n == -EINTR)
			watchdog_stop(&io->dog);
		else if (n < 0)
			return n;
		for (int i = 0; i < n; i++)
			deliver(p, &p->events[i]);
		left = io_left(io, wait_ns, deadline);
	} while (left);
	return 0;
}

static bool plain_pending(struct io *io)
{
	return false; /* epoll shows nothing in memory */
}

const struct io_engine plain_engine = {
	.kind = IO_PLAIN,
	.open = plain_open,
	.close = plain_close,
	.file_add = plain_file_add,
	.file_del = plain_file_del,
	.enter = plain_enter,
	.pending = plain_pending,
	.arm = plain_arm,
	.disarm = plain_disarm,
};
