// SPDX-License-Identifier: BSD-2-Clause
/* uvhostd: serves virtio-net devices over vhost-user. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "dev/dev.h"
#include "mem/mem.h"
#include "options.h"
#include "work/worker.h"

#define PROGRAM   "uvhostd"
#define STDOUT_MS 100 /* that a reader of the counters may take */

struct daemon {
	struct options opts;
	struct worker *control, *worker;
	struct scratch *scratch;
	struct vq_iovs pieces;
	struct dev **devs;
	unsigned dev_cnt, open_cnt; /* open: not closed yet */
	int signal_fd;
	struct io_file signal_file;
	struct work_src signals;
	struct work_watch signal_watch;
	struct log_limit limit;
};

/* ---- counters ---- */

/* Nobody has to read them, and then nobody waits: a pipe that can be written takes PIPE_BUF bytes. */
static int write_patiently(int fd, const char *text, size_t len)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };
	uint64_t deadline = clock_ns() + STDOUT_MS * NSEC_PER_MSEC;

	while (len > 0) {
		uint64_t now = clock_ns();
		ssize_t n = -1;

		if (poll(&pfd, 1, now < deadline ? (int)((deadline - now) / NSEC_PER_MSEC) : 0) ==
		    1)
			n = write(fd, text, min_size(len, PIPE_BUF));
		if (n < 0)
			return -1;
		text += n;
		len -= (size_t)n;
	}
	return 0;
}

static void print_stats(struct daemon *d)
{
	json_t *devs = json_array(), *all;
	char *text;

	for (unsigned i = 0; i < d->dev_cnt; i++)
		json_array_append_new(devs, dev_stats(d->devs[i]));
	all = json_pack("{s:s, s:o}", "io",
			io_kind(worker_io(d->worker)) == IO_URING ? "uring" : "plain", "devices",
			devs);
	text = json_dumps(all, JSON_COMPACT);
	if (text == NULL || write_patiently(STDOUT_FILENO, text, strlen(text)) < 0 ||
	    write_patiently(STDOUT_FILENO, "\n", 1) < 0)
		log_limited(&d->limit, LOG_LEVEL_WARN, PROGRAM,
			    "cannot print the counters: nobody reads standard output");
	free(text);
	json_decref(all);
}

/* ---- signals ---- */

static void close_devices(struct daemon *d)
{
	for (unsigned i = 0; i < d->dev_cnt; i++)
		dev_close(d->devs[i]);
}

static struct work_used take_signals(struct work_src *src, struct work_room room)
{
	struct daemon *d = container_of(src, struct daemon, signals);
	struct signalfd_siginfo info;

	(void)room;
	while (read(d->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGUSR1)
			print_stats(d);
		else
			close_devices(d);
	}
	return (struct work_used){ 0 };
}

static const struct work_ops signal_ops = { .prepare = take_signals };

/* Before any thread is made: each inherits the mask. */
static int open_signals(struct daemon *d)
{
	sigset_t set;
	int rc;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	rc = -pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (rc < 0)
		return rc;
	d->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return d->signal_fd < 0 ? -errno : 0;
}

static int watch_signals(struct daemon *d)
{
	struct io *io = worker_io(d->control);
	int rc = io_file_add(io, &d->signal_file, d->signal_fd);

	if (rc < 0)
		return rc;
	work_src_init(&d->signals, d->control, &signal_ops);
	work_watch_init(&d->signal_watch, &d->signals, &d->signal_file, POLLIN, true);
	return io_watch_arm(io, &d->signal_watch.io);
}

/* ---- life ---- */

/* The device that ended is freed after the control worker has stopped. */
static void device_closed(void *ctx)
{
	struct daemon *d = ctx;

	if (--d->open_cnt == 0)
		worker_stop(d->control);
}

/* Each guest needs a few descriptors; the usual soft limit is for programs that use select(). */
static void raise_fd_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
}

static int start_workers(struct daemon *d)
{
	struct work_config control = { .name = "control", .io = IO_PLAIN };
	struct work_config worker = {
		.name = "worker0",
		.io = d->opts.io,
		.poll_ns = d->opts.poll_us * NSEC_PER_USEC,
		.weight_frames = WORK_WEIGHT_FRAMES,
		.weight_bytes = WORK_WEIGHT_BYTES,
	};
	int rc = worker_new(&d->control, &control);

	if (rc < 0)
		return rc;
	rc = worker_spawn(&d->worker, &worker);
	if (rc < 0)
		log_error(PROGRAM, "cannot start a worker%s: error=%s",
			  d->opts.io == IO_URING ?
				  ": io_uring is not to be had here, try --io=auto" :
				  "",
			  log_errname(rc));
	return rc;
}

static int open_devices(struct daemon *d)
{
	struct dev_env env = {
		.control = d->control,
		.worker = d->worker,
		.scratch = d->scratch,
		.pieces = &d->pieces,
		.closed = device_closed,
		.ctx = d,
	};

	d->devs = calloc(d->opts.dev_cnt, sizeof(struct dev *));
	if (d->devs == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < d->opts.dev_cnt; i++) {
		int rc = dev_new(&d->devs[i], &d->opts.devs[i], &env);

		if (rc < 0)
			return rc;
		d->dev_cnt = ++d->open_cnt;
	}
	return 0;
}

static void shut_down(struct daemon *d)
{
	for (unsigned i = 0; i < d->dev_cnt; i++)
		dev_free(d->devs[i]);
	free(d->devs);
	if (d->worker != NULL)
		worker_join(d->worker);
	if (d->control != NULL)
		worker_free(d->control);
	if (d->scratch != NULL)
		scratch_free(d->scratch);
	fd_close(&d->signal_fd);
}

static int serve(struct daemon *d)
{
	int rc;

	raise_fd_limit();
	rc = mem_guard_install();
	if (rc == 0)
		rc = open_signals(d);
	if (rc == 0)
		rc = scratch_new(&d->scratch);
	if (rc == 0)
		rc = start_workers(d);
	if (rc == 0)
		rc = watch_signals(d);
	if (rc == 0)
		rc = open_devices(d);
	if (rc == 0)
		rc = worker_run(d->control);
	if (rc == 0 && d->opts.stats)
		print_stats(d);
	shut_down(d);
	return rc;
}

int main(int argc, char **argv)
{
	static struct daemon d = { .signal_fd = -1 };
	int rc;

	if (options_parse(&d.opts, argc, argv) < 0)
		return 2;
	if (d.opts.verbose)
		log_set_level(LOG_LEVEL_DEBUG);
	switch (d.opts.action) {
	case ACTION_HELP:
		options_print_help();
		return 0;
	case ACTION_VERSION:
		puts(PROGRAM " " UVHOST_VERSION);
		return 0;
	case ACTION_CAPABILITIES:
		puts("{\"type\": \"net\"}");
		return 0;
	case ACTION_SERVE:
		break;
	}
	rc = serve(&d);
	/* Values that no machine would take belong to the command line. */
	return rc == -EINVAL || rc == -ENAMETOOLONG ? 2 : rc < 0;
}
