// SPDX-License-Identifier: BSD-2-Clause
/*
 * The driver library and a device in one process, over a socket as always: the thread sanitizer sees
 * both sides of each ring. It goes by addresses, so a file that both map is mapped once (linked with
 * --wrap; with large files, which meson asks for, mmap() is mmap64()).
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "bench.h"
#include "dev/dev.h"
#include "mem/mem.h"
#include "wire/virtio_net.h"
#include "wire/virtio_ring.h"

/* ---- one mapping of a file ---- */

struct shared {
	ino_t ino;
	off_t offset;
	void *addr;
	size_t len;
	unsigned users;
};

static struct shared shared[8];
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned met; /* mappings that were there already */

void *__real_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *addr, size_t len);
void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
int __wrap_munmap(void *addr, size_t len);

static struct shared *find(ino_t ino, off_t offset, const void *addr)
{
	for (unsigned i = 0; i < ARRAY_SIZE(shared); i++) {
		struct shared *s = &shared[i];

		if (s->users > 0 &&
		    (addr != NULL ? s->addr == addr : s->ino == ino && s->offset == offset))
			return s;
	}
	return NULL;
}

static void *map_once(ino_t ino, size_t len, int prot, int flags, int fd, off_t offset)
{
	struct shared *s = find(ino, offset, NULL);

	if (s != NULL && s->len == len) {
		s->users++;
		met++;
		return s->addr;
	}
	for (s = shared; s->users > 0; s++)
		assert_true(s < &shared[ARRAY_SIZE(shared) - 1]);
	*s = (struct shared){ .ino = ino, .offset = offset, .len = len, .users = 1 };
	s->addr = __real_mmap64(NULL, len, prot, flags, fd, offset);
	return s->addr;
}

void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	struct stat st;
	void *map;

	if (fd < 0 || !(flags & MAP_SHARED) || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return __real_mmap64(addr, len, prot, flags, fd, offset);
	pthread_mutex_lock(&shared_lock);
	map = map_once(st.st_ino, len, prot, flags, fd, offset);
	pthread_mutex_unlock(&shared_lock);
	return map;
}

int __wrap_munmap(void *addr, size_t len)
{
	struct shared *s;
	bool last;

	pthread_mutex_lock(&shared_lock);
	s = find(0, 0, addr);
	last = s == NULL || --s->users == 0;
	pthread_mutex_unlock(&shared_lock);
	return last ? __real_munmap(addr, len) : 0;
}

/* ---- the device ---- */

struct device {
	struct worker *control, *worker;
	struct scratch *scratch;
	struct vq_iovs pieces;
	struct dev *dev;
	struct dev_cfg cfg;
	sem_t closed;
	int rc;
	char dir[32], path[64];
};

static struct device device;

static void on_closed(void *ctx)
{
	struct device *d = ctx;

	sem_post(&d->closed);
}

static void make(void *arg)
{
	struct device *d = arg;
	struct dev_env env = { .control = d->control,
			       .worker = d->worker,
			       .scratch = d->scratch,
			       .pieces = &d->pieces,
			       .closed = on_closed,
			       .ctx = d };

	d->rc = dev_new(&d->dev, &d->cfg, &env);
}

static void start_close(void *arg)
{
	struct device *d = arg;

	dev_close(d->dev);
}

static void release(void *arg)
{
	struct device *d = arg;

	dev_free(d->dev);
}

static void device_start(struct device *d, enum io_kind io)
{
	struct work_config control = { .name = "control", .io = IO_PLAIN };
	struct work_config worker = { .name = "worker0",
				      .io = io,
				      .weight_frames = WORK_WEIGHT_FRAMES,
				      .weight_bytes = WORK_WEIGHT_BYTES };

	memset(d, 0, sizeof(*d));
	strcpy(d->dir, "/tmp/uvhost-XXXXXX");
	assert_non_null(mkdtemp(d->dir));
	snprintf(d->path, sizeof(d->path), "%s/s", d->dir);
	d->cfg = (struct dev_cfg){
		.socket_path = d->path, .fd = -1, .socket_mode = 0600, .port = "loop:"
	};
	sem_init(&d->closed, 0, 0);
	assert_int_equal(scratch_new(&d->scratch), 0);
	assert_int_equal(worker_spawn(&d->control, &control), 0);
	assert_int_equal(worker_spawn(&d->worker, &worker), 0);
	worker_call(d->control, make, d);
	assert_int_equal(d->rc, 0);
}

static void device_stop(struct device *d)
{
	worker_call(d->control, start_close, d);
	sem_wait(&d->closed);
	worker_call(d->control, release, d);
	worker_join(d->worker);
	worker_join(d->control);
	scratch_free(d->scratch);
	rmdir(d->dir);
}

/* ---- tests ---- */

/* All that were sent come back; with interrupts, each side sleeps whenever it has nothing to do. */
static void exchange(enum bench_mode mode, uint64_t count, uint64_t leave_out)
{
	static struct bench_result res;
	struct bench_cfg cfg = {
		.mode = mode,
		.socket_path = device.path,
		.size = 200,
		.burst = mode == BENCH_RR ? 1 : 8,
		.window = mode == BENCH_RR ? 1 : 32,
		.flows = 2,
		.queues = 1,
		.ring = 64,
		.count = count,
		.seconds = 60,
		.jitter_us = mode == BENCH_RR ? 20 : 0,
		.sleep = true,
		.leave_out = leave_out,
	};
	const char *what = "";
	int rc;

	met = 0;
	rc = bench_run(&cfg, &res, &what);
	if (rc < 0)
		fail_msg("%s: %s", what, strerrorname_np(-rc));
	assert_int_equal(met, 1);
	assert_int_equal(res.info.features & leave_out, 0);
	assert_int_equal(res.good, res.sent);
	assert_true(res.sent >= count);
	assert_int_equal(res.doubled + res.damaged + res.missing, 0);
}

static void all_features(enum io_kind io)
{
	static const uint64_t bits[] = { 1ULL << VIRTIO_NET_F_MRG_RXBUF,
					 1ULL << VIRTIO_F_RING_INDIRECT_DESC,
					 1ULL << VIRTIO_F_RING_EVENT_IDX,
					 1ULL << VIRTIO_F_RING_PACKED, 1ULL << VIRTIO_F_IN_ORDER };

	device_start(&device, io);
	for (unsigned combo = 0; combo < 1U << ARRAY_SIZE(bits); combo++) {
		uint64_t leave_out = 0;

		for (unsigned i = 0; i < ARRAY_SIZE(bits); i++)
			leave_out |= combo >> i & 1 ? bits[i] : 0;
		exchange(BENCH_LOOP, 10000, leave_out);
		exchange(BENCH_RR, 1000, leave_out);
	}
	device_stop(&device);
}

static void test_uring(void **state)
{
	all_features(IO_URING);
}

static void test_plain(void **state)
{
	all_features(IO_PLAIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uring),
		cmocka_unit_test(test_plain),
	};

	if (mem_guard_install() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
