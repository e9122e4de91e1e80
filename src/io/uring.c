// SPDX-License-Identifier: BSD-2-Clause
/* The engine on io_uring: the array, the watches and the sleep are one system call. */
/*
 * DOC: how operations are kept from staying in the kernel. A read of an empty O_NONBLOCK tap does not
 * fail in io_uring: the kernel keeps the operation, with its buffer, until a frame arrives. Three
 * answers, by file:
 *
 * - RWF_NOWAIT makes it fail at once, where the file supports that: an eventfd does, a pipe, a socket
 *   or a tap does only on kernels newer than 6.1. io_file_add() asks the kernel: an operation on no
 *   bytes has no effect, but its flags are checked.
 * - MSG_DONTWAIT does the same for a send.
 * - Elsewhere each run of operations on one file is followed by a cancel of all that this file has in
 *   the kernel. That takes the file's own watches, too; they are armed again, after the run.
 *
 * The first two are *instant*: they are complete when they are submitted, whatever happens.
 *
 * DOC: one system call. An instant call says nothing when it succeeds (CQE_SKIP_SUCCESS), every other
 * operation has one completion. To sleep is to wait for one completion more than there are operations
 * out: a watch that fires, the wake, or a call that failed and may have to be repeated.
 *
 * DOC: the ring is bound to its thread (SINGLE_ISSUER) and completes nothing behind its back
 * (DEFER_TASKRUN): what fires only raises the TASKRUN flag, in memory, and is collected by the next
 * entry, about 20 at a time. The ring starts disabled and is restricted to what stands in
 * restrict_ring() before it is enabled: seccomp does not see what a ring does.
 *
 * DOC: a record is what the kernel knows of an armed watch (its address is the user data), and stays
 * until the kernel has said its last word about that poll, however long ago the watch was cancelled
 * and freed. A kick eventfd is never read: its multishot poll tells that it was written since the last
 * entry, not how often.
 */
#include "io/io_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"

#define SQ_ENTRIES 1024
#define CQ_ENTRIES (4 * SQ_ENTRIES)
#define FILES_MAX  16384

/* The kernel runs about 20 deferred completions an entry: after fewer than these there are no more,
 * or they have just come, and wait for the next round. */
#define TASKRUN_BATCH  16
#define TASKRUN_PASSES 64

#define RECORDS_CHUNK 64

/* No result yet: the operation is with the kernel. */
#define RES_OUT INT32_MIN

struct io_record {
	struct list node;       /* free, to be armed, or to be removed; in no list: armed */
	struct io_watch *watch; /* NULL when cancelled */
	bool in_kernel;
};

struct chunk {
	struct chunk *next;
	struct io_record records[RECORDS_CHUNK];
};

struct uring {
	struct io io;
	struct io_uring ring;
	unsigned out; /* operations that the kernel still owes a completion */
	struct list arm, remove, unused;
	struct chunk *chunks;
	int try_res;
	/* Slots of files: below slot_top some are free again, above it all are free. */
	int slot_top, slot_cnt;
	int free_cnt;
	int free_slots[FILES_MAX];
};

/* What a completion belongs to: the low bits of the user data. */
enum tag {
	TAG_OP,     /* and an index into the array */
	TAG_RECORD, /* and the address of a record */
	TAG_TRY,
	TAG_NONE,
	TAG_MASK = 3,
};

static struct uring *to_uring(struct io *io)
{
	return container_of(io, struct uring, io);
}

/* Set-up. */

/* All that the ring may do from here on. */
static int restrict_ring(struct uring *u)
{
	static const uint8_t ops[] = {
		IORING_OP_READ, IORING_OP_READV,    IORING_OP_WRITE,       IORING_OP_WRITEV,
		IORING_OP_SEND, IORING_OP_POLL_ADD, IORING_OP_POLL_REMOVE, IORING_OP_ASYNC_CANCEL,
	};
	static const uint8_t registers[] = {
		IORING_REGISTER_FILES_UPDATE,
		IORING_UNREGISTER_RING_FDS, /* else a freed ring stays until its thread ends */
	};
	struct io_uring_restriction list[ARRAY_SIZE(ops) + ARRAY_SIZE(registers) + 1] = { {
		.opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED,
		.sqe_flags = IOSQE_FIXED_FILE | IOSQE_CQE_SKIP_SUCCESS,
	} };
	struct io_uring_restriction *item = list;

	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++) {
		(++item)->opcode = IORING_RESTRICTION_SQE_OP;
		item->sqe_op = ops[i];
	}
	for (unsigned i = 0; i < ARRAY_SIZE(registers); i++) {
		(++item)->opcode = IORING_RESTRICTION_REGISTER_OP;
		item->register_op = registers[i];
	}
	/* liburing 2.3 declares a wrapper and does not export it; the same for ENABLE_RINGS. */
	return io_uring_register((unsigned)u->ring.ring_fd, IORING_REGISTER_RESTRICTIONS, list,
				 ARRAY_SIZE(list));
}

static int setup_ring(struct uring *u)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER |
			 IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
			 IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE,
		.cq_entries = CQ_ENTRIES,
	};
	struct rlimit files;
	int err;

	err = io_uring_queue_init_params(SQ_ENTRIES, &u->ring, &params);
	if (err)
		return err;
	/* The kernel allows no more slots than the process may have files. */
	getrlimit(RLIMIT_NOFILE, &files);
	u->slot_cnt = (int)min_size(files.rlim_cur, FILES_MAX);
	err = io_uring_register_files_sparse(&u->ring, (unsigned)u->slot_cnt);
	if (err)
		goto err_ring;
	/* Saves looking the ring up in each entry; a thread with many rings has to do without. */
	io_uring_register_ring_fd(&u->ring);
	err = restrict_ring(u);
	if (err)
		goto err_ring;
	err = io_uring_register((unsigned)u->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
	if (err)
		goto err_ring;
	return 0;

err_ring:
	io_uring_queue_exit(&u->ring);
	return err;
}

static int uring_open(struct io **io)
{
	struct uring *u = calloc(1, sizeof(*u));
	int err;

	if (!u)
		return -ENOMEM;
	list_init(&u->arm);
	list_init(&u->remove);
	list_init(&u->unused);
	err = setup_ring(u);
	if (err) {
		free(u);
		return err;
	}
	*io = &u->io;
	return 0;
}

static void uring_close(struct io *io)
{
	struct uring *u = to_uring(io);
	struct chunk *next;

	io_uring_queue_exit(&u->ring);
	for (struct chunk *c = u->chunks; c; c = next) {
		next = c->next;
		free(c);
	}
	free(u);
}

/* Submission. */

/* The next entry of the submission queue; a queue that is full is submitted first. */
static struct io_uring_sqe *next_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (!sqe && io_uring_submit(&u->ring) > 0)
		sqe = io_uring_get_sqe(&u->ring);
	return sqe;
}

static bool is_instant(const struct io_op *op)
{
	return op->file->nowait || (op->opcode == IO_OP_CALL && op->file->class == IO_SOCKET);
}

/* Has a completion only when it fails. */
static bool is_silent(const struct io_op *op)
{
	return op->opcode == IO_OP_CALL && is_instant(op);
}

static void prep_call(struct uring *u, struct io_uring_sqe *sqe, const struct io_op *op)
{
	static const uint64_t one = 1;
	const struct io_file *f = op->file;

	if (f->class == IO_SOCKET) {
		io_uring_prep_send(sqe, f->slot, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL);
		return;
	}
	/* Without RWF_NOWAIT (pipes before Linux 6.4) only O_NONBLOCK keeps it from blocking. */
	if (!f->nowait && u->io.wary)
		fd_set_nonblock(f->fd);
	io_uring_prep_write(sqe, f->slot, &one, sizeof(one), 0);
}

static void prep_rw(struct io_uring_sqe *sqe, const struct io_op *op)
{
	const bool write = op->opcode == IO_OP_WRITE;
	const struct iovec *iov = op->iov;

	if (op->iov_cnt == 1)
		io_uring_prep_rw(write ? IORING_OP_WRITE : IORING_OP_READ, sqe, op->file->slot,
				 iov->iov_base, (unsigned)iov->iov_len, 0);
	else
		io_uring_prep_rw(write ? IORING_OP_WRITEV : IORING_OP_READV, sqe, op->file->slot,
				 iov, op->iov_cnt, 0);
}

static int prep_op(struct uring *u, struct io_op *op)
{
	const bool silent = is_silent(op);
	struct io_uring_sqe *sqe = next_sqe(u);

	if (!sqe)
		return -EBUSY;
	if (op->opcode == IO_OP_CALL)
		prep_call(u, sqe, op);
	else
		prep_rw(sqe, op);
	if (op->file->nowait && sqe->opcode != IORING_OP_SEND)
		sqe->rw_flags = RWF_NOWAIT;
	sqe->flags = IOSQE_FIXED_FILE | (silent ? IOSQE_CQE_SKIP_SUCCESS : 0);
	sqe->user_data = ((uint64_t)(op - u->io.ops) << 2) | TAG_OP;
	op->res = silent ? (int32_t)sizeof(uint64_t) : RES_OUT;
	u->out += !silent;
	return 0;
}

/* Takes back everything that the kernel still has of a file. */
static int prep_cancel(struct uring *u, const struct io_file *f)
{
	struct io_uring_sqe *sqe = next_sqe(u);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_cancel_fd(sqe, f->slot,
				IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_FD_FIXED);
	sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
	sqe->user_data = TAG_NONE;
	return 0;
}

static int prep_ops(struct uring *u)
{
	const struct io_op *end = u->io.ops + u->io.op_cnt;
	bool may_stay = false;
	int err = 0;

	for (struct io_op *op = u->io.ops; op < end && !err; op++) {
		err = prep_op(u, op);
		may_stay |= !is_instant(op);
		if (err || (op + 1 < end && op[1].file == op->file))
			continue;
		if (may_stay)
			err = prep_cancel(u, op->file);
		may_stay = false;
	}
	return err;
}

/* The cancel came too early for what is still out: the kernel had it on the way to a thread. */
static int cancel_late(struct uring *u)
{
	int err = 0;

	for (unsigned i = 0; i < u->io.op_cnt && !err; i++)
		if (u->io.ops[i].res == RES_OUT)
			err = prep_cancel(u, u->io.ops[i].file);
	return err;
}

static int prep_poll(struct uring *u, struct io_record *rec)
{
	struct io_uring_sqe *sqe = next_sqe(u);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_poll_add(sqe, rec->watch->file->slot, rec->watch->events);
	sqe->len = rec->watch->multishot ? IORING_POLL_ADD_MULTI : 0;
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->user_data = (uintptr_t)rec | TAG_RECORD;
	rec->in_kernel = true;
	list_del(&rec->node);
	return 0;
}

static int prep_unpoll(struct uring *u, struct io_record *rec)
{
	struct io_uring_sqe *sqe = next_sqe(u);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_poll_remove(sqe, (uintptr_t)rec | TAG_RECORD);
	sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
	sqe->user_data = TAG_NONE;
	list_del(&rec->node);
	return 0;
}

/* After the operations, whose cancels would take what is armed here. */
static int prep_polls(struct uring *u)
{
	int err = 0;

	while (!err && !list_empty(&u->remove))
		err = prep_unpoll(u, list_first(&u->remove, struct io_record, node));
	while (!err && !list_empty(&u->arm))
		err = prep_poll(u, list_first(&u->arm, struct io_record, node));
	return err;
}

/* Completion. */

/* io_uring starts no write to an eventfd that lost its O_NONBLOCK, whether it is full or not. */
static int32_t call_again(const struct io_file *f)
{
	const int flags = fcntl(f->fd, F_GETFL);

	if (flags < 0 || flags & O_NONBLOCK)
		return -EAGAIN;
	fd_set_nonblock(f->fd);
	return io_call(f);
}

static void complete_op(struct uring *u, struct io_op *op, int32_t res)
{
	u->out -= !is_silent(op);
	if (res == -ECANCELED)
		res = -EAGAIN;
	else if (res == -EAGAIN && op->opcode == IO_OP_CALL && op->file->class == IO_EVENT)
		res = call_again(op->file);
	io_done(&u->io, op, res);
}

static struct io_record *to_record(const struct io_uring_cqe *cqe)
{
	return (void *)((char *)io_uring_cqe_get_data(cqe) - TAG_RECORD);
}

static void complete_record(struct uring *u, struct io_record *rec, int32_t res, bool last)
{
	struct io_watch *w = rec->watch;

	if (last) {
		const bool again = w && (w->multishot || res == -ECANCELED);

		/* A multishot poll ends when the completion queue is full, any poll by the cancel
		 * of its file. In the list to remove it may stand, too: then this saves that. */
		rec->in_kernel = false;
		list_del(&rec->node);
		list_add_tail(again ? &u->arm : &u->unused, &rec->node);
	}
	/* An error is for the owner to find, by the operation that it waits to do. */
	if (w && res != -ECANCELED)
		io_fire(&u->io, w);
}

/* Takes all completions out of the queue; the number of those that belong to watches. */
static unsigned reap(struct uring *u)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0, watch_cnt = 0;

	io_uring_for_each_cqe(&u->ring, head, cqe) {
		const uint64_t data = cqe->user_data;

		n++;
		switch (data & TAG_MASK) {
		case TAG_OP:
			complete_op(u, &u->io.ops[data >> 2], cqe->res);
			break;
		case TAG_RECORD:
			complete_record(u, to_record(cqe), cqe->res,
					!(cqe->flags & IORING_CQE_F_MORE));
			watch_cnt++;
			break;
		case TAG_TRY:
			u->try_res = cqe->res;
			break;
		default:
			break; /* a cancel or a removal that found nothing */
		}
	}
	io_uring_cq_advance(&u->ring, n);
	return watch_cnt;
}

/* Does the kernel have completions that only an entry brings into the queue? */
static bool is_flagged(const struct uring *u)
{
	return IO_URING_READ_ONCE(*u->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

/* One system call. */
static int enter_kernel(struct uring *u, int64_t left_ns)
{
	const unsigned wait_cnt = u->out + (left_ns != 0);
	struct __kernel_timespec limit;
	struct io_uring_cqe *cqe;
	int ret;

	u->io.entries++;
	if (!wait_cnt) {
		ret = io_uring_submit_and_get_events(&u->ring);
		return ret < 0 ? ret : 0;
	}
	/* What is out is not waited for without a limit: see cancel_late(). */
	if (!left_ns)
		left_ns = WATCHDOG_NS;
	limit.tv_sec = left_ns / (int64_t)NSEC_PER_SEC;
	limit.tv_nsec = left_ns % (int64_t)NSEC_PER_SEC;
	ret = io_uring_submit_and_wait_timeout(&u->ring, &cqe, wait_cnt,
					       left_ns < 0 ? NULL : &limit, NULL);
	return ret < 0 && ret != -ETIME && ret != -EINTR ? ret : 0;
}

static int uring_enter(struct io *io, int64_t wait_ns)
{
	const uint64_t deadline = wait_ns > 0 ? clock_ns() + (uint64_t)wait_ns : 0;
	struct uring *u = to_uring(io);
	unsigned passes = TASKRUN_PASSES;
	bool more = is_flagged(u);
	int64_t left = io_left(io, wait_ns, deadline);
	int err;

	err = prep_ops(u);
	if (!err)
		err = prep_polls(u);
	while (!err && (left || more || u->out || io_uring_sq_ready(&u->ring))) {
		err = enter_kernel(u, left);
		more = reap(u) >= TASKRUN_BATCH && is_flagged(u) && --passes > 0;
		left = io_left(io, wait_ns, deadline);
		if (!err && u->out)
			err = cancel_late(u);
		if (!err && left)
			err = prep_polls(u);
		if (left && !u->out)
			watchdog_stop(&io->dog);
	}
	return err;
}

static bool uring_pending(struct io *io)
{
	const struct uring *u = to_uring(io);

	return io_uring_cq_ready(&u->ring) || is_flagged(u);
}

/* Files. */

static int take_slot(struct uring *u)
{
	if (u->free_cnt)
		return u->free_slots[--u->free_cnt];
	return u->slot_top < u->slot_cnt ? u->slot_top++ : -ENFILE;
}

static int set_slot(struct uring *u, int slot, int fd)
{
	int ret = io_uring_register_files_update(&u->ring, (unsigned)slot, &fd, 1);

	return ret < 0 ? ret : 0;
}

/* *@res is what the kernel says to an operation on no bytes; 0, or -errno of the ring itself. */
static int try_op(struct uring *u, const struct io_file *f, uint8_t opcode, int *res)
{
	struct io_uring_sqe *sqe = next_sqe(u);
	int ret;

	if (!sqe)
		return -EBUSY;
	io_uring_prep_rw(opcode, sqe, f->slot, NULL, 0, 0);
	sqe->rw_flags = RWF_NOWAIT;
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->user_data = TAG_TRY;
	ret = io_uring_submit(&u->ring);
	reap(u);
	*res = u->try_res;
	return ret < 0 ? ret : 0;
}

int uring_try(struct io *io, const struct io_file *f, uint8_t opcode)
{
	int res, err = try_op(to_uring(io), f, opcode, &res);

	return err ? err : res;
}

static void uring_file_del(struct io *io, struct io_file *f)
{
	struct uring *u = to_uring(io);

	set_slot(u, f->slot, -1);
	u->free_slots[u->free_cnt++] = f->slot;
}

static int uring_file_add(struct io *io, struct io_file *f)
{
	const bool readable = (fcntl(f->fd, F_GETFL) & O_ACCMODE) != O_WRONLY;
	struct uring *u = to_uring(io);
	int err, res = 0;

	f->slot = take_slot(u);
	if (f->slot < 0)
		return f->slot;
	err = set_slot(u, f->slot, f->fd);
	if (!err)
		err = try_op(u, f, readable ? IORING_OP_READ : IORING_OP_WRITE, &res);
	if (err)
		uring_file_del(io, f);
	f->nowait = res != -EOPNOTSUPP;
	return err;
}

/* Watches. */

static int add_records(struct uring *u)
{
	struct chunk *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->next = u->chunks;
	u->chunks = c;
	for (unsigned i = 0; i < RECORDS_CHUNK; i++)
		list_add_tail(&u->unused, &c->records[i].node);
	return 0;
}

static int uring_arm(struct io *io, struct io_watch *w)
{
	struct uring *u = to_uring(io);

	if (list_empty(&u->unused) && add_records(u))
		return -ENOMEM;
	w->record = list_first(&u->unused, struct io_record, node);
	w->record->watch = w;
	list_del(&w->record->node);
	list_add_tail(&u->arm, &w->record->node);
	return 0;
}

static void uring_disarm(struct io *io, struct io_watch *w)
{
	struct uring *u = to_uring(io);
	struct io_record *rec = w->record;

	rec->watch = NULL;
	list_del(&rec->node);
	list_add_tail(rec->in_kernel ? &u->remove : &u->unused, &rec->node);
}

const struct io_engine uring_engine = {
	.kind = IO_URING,
	.open = uring_open,
	.close = uring_close,
	.file_add = uring_file_add,
	.file_del = uring_file_del,
	.enter = uring_enter,
	.pending = uring_pending,
	.arm = uring_arm,
	.disarm = uring_disarm,
};
