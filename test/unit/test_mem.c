// SPDX-License-Identifier: BSD-2-Clause
/* Guest memory: what a table refuses, what it finds, and how it survives that memory goes away. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/memfd.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/iov.h"
#include "base/util.h"
#include "mem/mem.h"

#define PAGE    4096ULL
#define CANARY  0xc5
#define THREADS 4

/* Of most regions here: 16 pages. */
#define SIZE (16 * PAGE)

static int file_of(size_t len)
{
	int fd = memfd_create("test_mem", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	return fd;
}

static char *map_of(int fd, size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

/* Puts the file over what is mapped at @base; 0 or -errno. */
static int map_over(char *base, int fd, size_t len)
{
	void *p = mmap(base, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);

	/* cppcheck-suppress memleak ; it is @base, which the caller has */
	return p == base ? 0 : -errno;
}

static struct mem_region_cfg region(uint64_t gpa, uint64_t uva, uint64_t size, uint64_t offset,
				    int fd)
{
	return (struct mem_region_cfg){ { gpa }, { uva }, size, offset, fd };
}

/* Lines of /proc/self/maps that name our files. */
static unsigned mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned cnt = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps) != NULL)
		cnt += strstr(line, "memfd:test_mem") != NULL;
	fclose(maps);
	return cnt;
}

/* ---- what is refused ---- */

static int try_one(struct mem_region_cfg r, unsigned flags)
{
	struct mem *mem = NULL;
	int ret = mem_new(&mem, &r, 1, flags, "test");

	assert_int_equal(ret == 0, mem != NULL);
	mem_free(mem, NULL);
	return ret;
}

static int try_two(struct mem_region_cfg a, struct mem_region_cfg b)
{
	const struct mem_region_cfg both[] = { a, b };
	struct mem *mem = NULL;
	int ret = mem_new(&mem, both, 2, 0, "test");

	assert_int_equal(ret == 0, mem != NULL);
	mem_free(mem, NULL);
	return ret;
}

static void test_refuses_places(void **state)
{
	int fd = file_of(SIZE);
	struct mem_region_cfg many[MEM_REGIONS_MAX + 1];
	struct mem *mem = NULL;

	assert_int_equal(try_one(region(0, 0, SIZE, 0, fd), 0), 0);
	assert_int_equal(try_one(region(0, 0, 0, 0, fd), 0), -EINVAL);
	assert_int_equal(try_one(region(-SIZE, -SIZE, SIZE, 0, fd), 0), 0);
	assert_int_equal(try_one(region(-SIZE + 1, 0, SIZE, 0, fd), 0), -EINVAL);
	assert_int_equal(try_one(region(0, -SIZE + 1, SIZE, 0, fd), 0), -EINVAL);
	assert_int_equal(try_one(region(PAGE, PAGE, ~0ULL, 0, fd), 0), -EINVAL);
	assert_int_equal(try_one(region(0, 0, PAGE, ~0ULL, fd), 0), -EINVAL);

	for (unsigned i = 0; i <= MEM_REGIONS_MAX; i++)
		many[i] = region(i * PAGE, i * PAGE, PAGE, 0, fd);
	assert_int_equal(mem_new(&mem, many, 0, 0, "test"), -EINVAL);
	assert_int_equal(mem_new(&mem, many, MEM_REGIONS_MAX + 1, 0, "test"), -EINVAL);
	assert_int_equal(mem_new(&mem, many, MEM_REGIONS_MAX, 0, "test"), 0);
	mem_free(mem, NULL);
	close(fd);
}

static void test_refuses_overlaps(void **state)
{
	int fd = file_of(SIZE);
	struct mem_region_cfg a = region(8 * PAGE, 100 * PAGE, 4 * PAGE, 0, fd);

	/* From before it, past it, inside it, around it; then both sides that only touch it. */
	for (uint64_t at = 0; at < 20; at++) {
		for (uint64_t len = 1; len <= 8; len++) {
			bool overlaps = at < 12 && at + len > 8;
			struct mem_region_cfg b = region(at * PAGE, 0, len * PAGE, 0, fd);
			struct mem_region_cfg u = region(0, (at + 92) * PAGE, len * PAGE, 0, fd);

			if (u.size > 8 * PAGE)
				continue;
			assert_int_equal(try_two(a, b), overlaps ? -EINVAL : 0);
			assert_int_equal(try_two(b, a), overlaps ? -EINVAL : 0);
			assert_int_equal(try_two(a, u), overlaps ? -EINVAL : 0);
		}
	}
	close(fd);
}

static void test_refuses_files(void **state)
{
	char path[] = "test_mem.XXXXXX";
	int fd = file_of(SIZE), disk = mkstemp(path), fds[2], ro;
	char name[64];

	unlink(path);
	assert_int_equal(try_one(region(0, 0, SIZE + 1, 0, fd), 0), -ENXIO);
	assert_int_equal(try_one(region(0, 0, SIZE, 1, fd), 0), -ENXIO);
	assert_int_equal(try_one(region(0, 0, 1, SIZE - 1, fd), 0), 0);
	assert_int_equal(try_one(region(0, 0, 1, SIZE, fd), 0), -ENXIO);
	assert_int_equal(try_one(region(0, 0, 1, ~0ULL - 1, fd), 0), -ENXIO);
	assert_int_equal(try_one(region(0, 0, 1ULL << 63, 1ULL << 62, fd), 0), -ENXIO);
	assert_int_equal(try_one(region(0, 0, PAGE, 0, -1), 0), -EBADF);

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(try_one(region(0, 0, PAGE, 0, fds[0]), 0), -EMEDIUMTYPE);
	assert_int_equal(try_one(region(0, 0, PAGE, 0, fds[0]), MEM_ANY_FILE), -ENXIO);
	close(fds[0]);
	close(fds[1]);

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	ro = open(name, O_RDONLY | O_CLOEXEC);
	assert_true(ro >= 0);
	assert_int_equal(try_one(region(0, 0, PAGE, 0, ro), 0), -EACCES);
	close(ro);
	close(fd);

	/* The build folder lies on a disk, nearly always. */
	assert_true(disk >= 0);
	assert_int_equal(ftruncate(disk, SIZE), 0);
	if (try_one(region(0, 0, SIZE, 0, disk), 0) == 0)
		print_message("the working directory is tmpfs: no disk to refuse\n");
	else
		assert_int_equal(try_one(region(0, 0, SIZE, 0, disk), 0), -EMEDIUMTYPE);
	assert_int_equal(try_one(region(0, 0, SIZE, 0, disk), MEM_ANY_FILE), 0);
	close(disk);
}

/* Field case 48: the third of five regions is bad; nothing stays, and a good table works. */
static void test_all_or_nothing(void **state)
{
	int fd = file_of(SIZE), fds[2];
	struct mem_region_cfg r[5];
	struct mem *mem = NULL;

	assert_int_equal(pipe(fds), 0);
	for (unsigned i = 0; i < 5; i++)
		r[i] = region(i * SIZE, i * SIZE, SIZE, 0, fd);
	for (unsigned kind = 0; kind < 3; kind++) {
		r[2] = region(2 * SIZE, 2 * SIZE, SIZE, kind == 0, kind == 1 ? fds[0] : fd);
		if (kind == 2)
			r[2].gpa = r[1].gpa;
		assert_true(mem_new(&mem, r, 5, 0, "test") < 0);
		assert_null(mem);
		assert_int_equal(mapped(), 0);
	}
	r[2] = region(2 * SIZE, 2 * SIZE, SIZE, 0, fd);
	assert_int_equal(mem_new(&mem, r, 5, 0, "test"), 0);
	assert_true(mapped() > 0);
	mem_free(mem, NULL);
	mem_free(NULL, NULL);
	assert_int_equal(mapped(), 0);
	close(fds[0]);
	close(fds[1]);
	close(fd);
}

/* ---- what is found ---- */

/* Field case 51: one file, a hole in guest memory, the front end's addresses the other way round, and
 * an offset that is not even a page's. */
static void test_two_address_spaces(void **state)
{
	const uint64_t low = PAGE + 808, high = 9 * PAGE + 16;
	int fd = file_of(SIZE);
	char *file = map_of(fd, SIZE);
	const struct mem_region_cfg r[] = {
		region(0, 0x7fff00000000, 5 * PAGE, low, fd),
		region(1ULL << 32, 0x700000000000, 6 * PAGE, high, fd),
	};
	struct mem *mem = NULL;
	struct iovec iov;

	assert_int_equal(mem_new(&mem, r, 2, 0, "test"), 0);
	for (uint64_t at = 0; at < 5 * PAGE; at += 8) {
		memcpy(file + low + at, &at, sizeof(at));
		assert_memory_equal(mem_at_uva(mem, (struct uva){ 0x7fff00000000 + at }, 8), &at,
				    8);
		assert_int_equal(mem_pieces(mem, (struct gpa){ at }, 8, &iov, 1), 1);
		assert_memory_equal(iov.iov_base, &at, 8);
	}
	for (uint64_t at = 0; at < 6 * PAGE; at += 8) {
		uint64_t mark = ~at;

		assert_int_equal(mem_pieces(mem, (struct gpa){ (1ULL << 32) + at }, 8, &iov, 1), 1);
		assert_int_equal(iov.iov_len, 8);
		memcpy(iov.iov_base, &mark, sizeof(mark));
		assert_memory_equal(file + high + at, &mark, 8);
		assert_memory_equal(mem_at_uva(mem, (struct uva){ 0x700000000000 + at }, 8), &mark,
				    8);
	}
	mem_free(mem, NULL);
	munmap(file, SIZE);
	close(fd);
}

/* Field case 14: what is nowhere. */
static void test_not_found(void **state)
{
	int fd = file_of(SIZE);
	struct mem_region_cfg r = region(1ULL << 20, 1ULL << 30, SIZE, 0, fd);
	const uint64_t start = 1ULL << 20, end = start + SIZE;
	const struct {
		uint64_t at, len;
	} bad[] = {
		{ 0, 1 },          { start - 1, 1 },  { start - 1, 2 },
		{ end, 1 },        { end - 1, 2 },    { ~0ULL, 1 },
		{ ~0ULL, 2 },      { ~0ULL, ~0ULL },  { start, SIZE + 1 },
		{ start, ~0ULL },  { start, -start }, { start + 8, -8 },
		{ start + 8, -4 }, { 1ULL << 30, 1 },
	};
	struct mem *mem = NULL;
	struct iovec iov[2];

	assert_int_equal(mem_new(&mem, &r, 1, 0, "test"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct uva uva = { bad[i].at - start + (1ULL << 30) };

		assert_int_equal(mem_pieces(mem, (struct gpa){ bad[i].at }, bad[i].len, iov, 2),
				 -EFAULT);
		assert_null(mem_at_uva(mem, uva, bad[i].len));
		/* Field case 5: no bytes lie nowhere wrong. */
		assert_int_equal(mem_pieces(mem, (struct gpa){ bad[i].at }, 0, iov, 2), 0);
	}
	assert_int_equal(mem_pieces(mem, (struct gpa){ start }, SIZE, iov, 1), 1);
	assert_int_equal(iov[0].iov_len, SIZE);
	assert_int_equal(mem_pieces(mem, (struct gpa){ end - 1 }, 1, iov, 1), 1);
	assert_int_equal(mem_pieces(mem, (struct gpa){ end - 1 }, 1, iov, 0), -E2BIG);
	mem_free(mem, NULL);
	close(fd);
}

/* Field case 4: adjoining regions of sizes that are no pages', mapped apart, in files that go on
 * behind them: a buffer over all of them carries its bytes and touches no others. */
static void test_across_regions(void **state)
{
	const uint64_t sizes[] = { 100, PAGE, PAGE + 1, 3, 2 * PAGE - 5 };
	const uint64_t gpa = 0x12345;
	struct mem_region_cfg r[ARRAY_SIZE(sizes)];
	char *files[ARRAY_SIZE(sizes)];
	char text[5 * PAGE], back[5 * PAGE];
	uint64_t total = 0;
	struct mem *mem = NULL;

	/* Given in another order than they lie. */
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		int fd = file_of(4 * PAGE);

		files[i] = map_of(fd, 4 * PAGE);
		memset(files[i], CANARY, 4 * PAGE);
		r[ARRAY_SIZE(sizes) - 1 - i] =
			region(gpa + total, i * SIZE, sizes[i], 50ULL * i, fd);
		total += sizes[i];
	}
	assert_int_equal(mem_new(&mem, r, ARRAY_SIZE(sizes), 0, "test"), 0);
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)(i * 11 + (i >> 8));
	for (uint64_t from = 0; from < total; from += 37) {
		struct iovec iov[ARRAY_SIZE(sizes)];
		struct iov_cursor c;
		int cnt = mem_pieces(mem, (struct gpa){ gpa + from }, total - from, iov,
				     ARRAY_SIZE(sizes));

		assert_true(cnt > 0);
		assert_int_equal(iov_bytes(iov, (unsigned)cnt), total - from);
		c = iov_cursor(iov, (unsigned)cnt);
		assert_int_equal(iov_write(&c, text + from, total), total - from);
		c = iov_cursor(iov, (unsigned)cnt);
		assert_int_equal(iov_read(&c, back, sizeof(back)), total - from);
		assert_memory_equal(back, text + from, total - from);
		assert_int_equal(mem_pieces(mem, (struct gpa){ gpa + from }, total - from, iov,
					    (unsigned)cnt - 1),
				 -E2BIG);
		assert_int_equal(mem_pieces(mem, (struct gpa){ gpa + from }, total - from + 1, iov,
					    ARRAY_SIZE(sizes)),
				 -EFAULT);
	}
	for (uint64_t i = 0, at = 0; i < ARRAY_SIZE(sizes); at += sizes[i++]) {
		assert_memory_equal(files[i] + 50 * i, text + at, sizes[i]);
		for (uint64_t k = 0; k < 4 * PAGE; k++) {
			if (k < 50 * i || k >= 50 * i + sizes[i])
				assert_int_equal((unsigned char)files[i][k], CANARY);
		}
		/* A ring's part must not cross (field case 16). */
		assert_non_null(mem_at_uva(mem, (struct uva){ i * SIZE }, sizes[i]));
		assert_null(mem_at_uva(mem, (struct uva){ i * SIZE }, sizes[i] + 1));
		munmap(files[i], 4 * PAGE);
		close(r[ARRAY_SIZE(sizes) - 1 - i].fd);
	}
	mem_free(mem, NULL);
}

/* The end of the address space does not adjoin its beginning. */
static void test_no_wrap(void **state)
{
	int fd = file_of(SIZE);
	const struct mem_region_cfg r[] = {
		region(0, 0, PAGE, 0, fd),
		region(-PAGE, PAGE, PAGE, 0, fd),
	};
	struct mem *mem = NULL;
	struct iovec iov[2];

	assert_int_equal(mem_new(&mem, r, 2, 0, "test"), 0);
	assert_int_equal(mem_pieces(mem, (struct gpa){ -PAGE }, PAGE, iov, 2), 1);
	assert_int_equal(mem_pieces(mem, (struct gpa){ -PAGE }, PAGE + 1, iov, 2), -EFAULT);
	mem_free(mem, NULL);
	close(fd);
}

/* Field case 52: the time of 64 GiB is that of a table, and not one page comes into being. */
static void test_large_sparse(void **state)
{
	const uint64_t size = 64ULL << 30;
	int fd = file_of(size);
	struct mem_region_cfg r = region(0, 0, size, 0, fd);
	struct mem *mem = NULL;
	struct stat st;
	uint64_t start = clock_ns();

	assert_int_equal(mem_new(&mem, &r, 1, 0, "test"), 0);
	assert_true(clock_ns() - start < 1000 * NSEC_PER_MSEC);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_blocks, 0);
	memset(mem_at_uva(mem, (struct uva){ size - 8 }, 8), 1, 8);
	mem_free(mem, NULL);
	close(fd);
}

/* ---- memory that goes away ---- */

/* cmocka puts a handler of its own in place before each test. */
static void guard(void)
{
	assert_int_equal(mem_guard_install(), 0);
}

static struct mem *table_of(int fd, uint64_t size, char **base)
{
	struct mem_region_cfg r = region(0, 0, size, 0, fd);
	struct mem *mem = NULL;

	assert_int_equal(mem_new(&mem, &r, 1, 0, "test"), 0);
	*base = mem_at_uva(mem, (struct uva){ 0 }, size);
	return mem;
}

static void test_truncated(void **state)
{
	int fd = file_of(SIZE), other_fd = file_of(SIZE);
	char *base, *other_base;
	struct mem *mem = table_of(fd, SIZE, &base);
	struct mem *other = table_of(other_fd, SIZE, &other_base);

	guard();
	memset(base, 1, SIZE);
	memset(other_base, 2, SIZE);
	assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
	/* What is still there is there, and nothing has happened yet. */
	assert_int_equal(base[PAGE], 1);
	assert_false(mem_broken(mem));
	/* Read, then write. */
	assert_int_equal(*(volatile char *)(base + 5 * PAGE + 7), 0);
	assert_true(mem_broken(mem));
	base[SIZE - 1] = 3;
	assert_int_equal(base[SIZE - 1], 3);
	/* The whole region is zero pages now, also where the file has pages. */
	assert_int_equal(base[PAGE], 0);
	assert_false(mem_broken(other));
	assert_int_equal(other_base[SIZE - 1], 2);
	mem_free(mem, NULL);
	/* A new table of the same file begins whole. */
	assert_int_equal(ftruncate(fd, SIZE), 0);
	mem = table_of(fd, SIZE, &base);
	assert_false(mem_broken(mem));
	assert_int_equal(base[PAGE], 1);
	mem_free(mem, NULL);
	mem_free(other, NULL);
	close(fd);
	close(other_fd);
}

/* The first access is a write, into a region that begins inside a page, of a table that has more. */
static void test_truncated_write(void **state)
{
	int fd = file_of(SIZE);
	const struct mem_region_cfg r[] = {
		region(0, 0, 2 * PAGE, 0, fd),
		region(SIZE, SIZE, 3 * PAGE, 4 * PAGE + 100, fd),
	};
	struct mem *mem = NULL;
	char *low, *high;

	guard();
	assert_int_equal(mem_new(&mem, r, 2, 0, "test"), 0);
	low = mem_at_uva(mem, (struct uva){ 0 }, 1);
	high = mem_at_uva(mem, (struct uva){ SIZE }, 3 * PAGE);
	memset(low, 1, 2 * PAGE);
	memset(high, 1, 3 * PAGE);
	assert_int_equal(ftruncate(fd, 4 * PAGE), 0);
	memset(high, 7, 3 * PAGE);
	assert_int_equal(high[3 * PAGE - 1], 7);
	assert_true(mem_broken(mem));
	/* The other region is untouched. */
	assert_int_equal(low[0], 1);
	mem_free(mem, NULL);
	close(fd);
}

struct faults {
	pthread_barrier_t start;
	char *base;
	_Atomic unsigned sum;
};

static void *fault_all_over(void *arg)
{
	struct faults *f = arg;

	pthread_barrier_wait(&f->start);
	for (uint64_t at = 0; at < SIZE; at += PAGE)
		f->sum += *(volatile unsigned char *)(f->base + at);
	return NULL;
}

/* Several threads fault in one region at once. */
static void test_truncated_threads(void **state)
{
	guard();
	for (unsigned round = 0; round < 200; round++) {
		pthread_t threads[THREADS];
		struct faults f = { 0 };
		int fd = file_of(SIZE);
		struct mem *mem = table_of(fd, SIZE, &f.base);

		pthread_barrier_init(&f.start, NULL, THREADS);
		memset(f.base, 1, SIZE);
		assert_int_equal(ftruncate(fd, 0), 0);
		for (unsigned i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, fault_all_over, &f);
		for (unsigned i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		assert_int_equal(f.sum, 0);
		assert_true(mem_broken(mem));
		pthread_barrier_destroy(&f.start);
		mem_free(mem, NULL);
		close(fd);
	}
}

struct again {
	char *base;
	int fd; /* of no bytes */
	bool failed;
};

/* Faults again and again in a table of its own: the file is put back over the zero pages. */
static void *fault_again(void *arg)
{
	struct again *a = arg;

	for (unsigned i = 0; i < 2000 && !a->failed; i++)
		a->failed = *(volatile char *)a->base != 0 || map_over(a->base, a->fd, SIZE) < 0;
	return NULL;
}

/* The handler reads the registry while the control thread makes and frees other tables. */
static void test_truncated_while_tables_change(void **state)
{
	int fd = file_of(SIZE), good_fd = file_of(SIZE);
	struct again again = { .fd = fd };
	struct mem *mem = table_of(fd, SIZE, &again.base);
	pthread_t thread;

	guard();
	assert_int_equal(ftruncate(fd, 0), 0);
	pthread_create(&thread, NULL, fault_again, &again);
	for (unsigned i = 0; i < 2000; i++) {
		char *base;
		struct mem *good = table_of(good_fd, SIZE, &base);

		base[i % SIZE] = 1;
		assert_false(mem_broken(good));
		mem_free(good, NULL);
	}
	pthread_join(thread, NULL);
	assert_false(again.failed);
	assert_true(mem_broken(mem));
	mem_free(mem, NULL);
	close(fd);
	close(good_fd);
}

/* Pages of 2 MiB; the offset is a page's, not a huge page's. */
static void test_truncated_huge(void **state)
{
	const size_t huge = 2 << 20;
	int fd = memfd_create("test_mem", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
	struct mem_region_cfg r = region(0, 0, huge, PAGE, fd);
	struct mem *mem = NULL;
	char *base;
	void *probe;

	guard();
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)(2 * huge)), 0);
	probe = mmap(NULL, 2 * huge, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (probe == MAP_FAILED) {
		print_message("no huge pages of 2 MiB: 2 are needed (vm.nr_hugepages)\n");
		close(fd);
		skip();
		return;
	}
	assert_int_equal(mem_new(&mem, &r, 1, 0, "test"), 0);
	base = mem_at_uva(mem, (struct uva){ 0 }, huge);
	base[huge - 1] = 1;
	assert_int_equal(((char *)probe)[huge + PAGE - 1], 1);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(*(volatile char *)(base + huge - 1), 0);
	assert_true(mem_broken(mem));
	base[0] = 1;
	mem_free(mem, NULL);
	/* All of it was unmapped: what is left of our file is the probe. */
	assert_int_equal(mapped(), 1);
	munmap(probe, 2 * huge);
	close(fd);
}

/* How a child ends that does this. */
static int status_of(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		const struct rlimit no_core = { 0, 0 };

		setrlimit(RLIMIT_CORE, &no_core);
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static bool dies_of_sigbus(void (*fn)(void))
{
	int status = status_of(fn);

	return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

static void fault_elsewhere(void)
{
	int fd = file_of(PAGE);
	volatile char *p = map_of(fd, PAGE);

	if (ftruncate(fd, 0) == 0)
		*p = 1;
}

static void fault_behind(void)
{
	int fd = file_of(SIZE);
	char *base;

	/* The table is gone, so its range is nobody's any more. */
	mem_free(table_of(fd, SIZE, &base), NULL);
	if (map_over(base, fd, SIZE) == 0 && ftruncate(fd, 0) == 0)
		(void)*(volatile char *)base;
}

/* Even when it says that it came from guest memory. */
static void send_sigbus(void)
{
	int fd = file_of(SIZE);
	siginfo_t info = { .si_signo = SIGBUS, .si_code = SI_QUEUE };
	char *base;

	table_of(fd, SIZE, &base);
	info.si_addr = base;
	syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &info);
}

static void fault_inside(void)
{
	int fd = file_of(SIZE);
	char *base;

	table_of(fd, SIZE, &base);
	if (ftruncate(fd, 0) == 0)
		*(volatile char *)base = 1;
}

/* From here on the kernel has no memory for mappings of 4 GiB and more. */
static bool refuse_large_mappings(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		/* The upper half of the length. */
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]) + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = ARRAY_SIZE(filter), .filter = filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0;
}

/* The host refuses as much private memory as the region is large, as strict overcommit does; the
 * pages that are touched can still be had. */
static void fault_without_credit(void)
{
	const uint64_t size = 4ULL << 30;
	int fd = file_of(size);
	char *base;
	struct mem *mem = table_of(fd, size, &base);

	if (ftruncate(fd, 0) < 0 || !refuse_large_mappings())
		_exit(1);
	errno = 12345;
	for (uint64_t at = 0; at < 64 * PAGE; at += PAGE / 2)
		base[at + 5] = 1;
	/* errno is the interrupted code's. */
	if (errno != 12345 || !mem_broken(mem) || base[63 * PAGE + 5] != 1 || base[63 * PAGE] != 0)
		_exit(1);
}

static void test_truncated_without_credit(void **state)
{
	guard();
	assert_int_equal(status_of(fault_without_credit), 0);
}

/* A SIGBUS that is not the front end's doing ends the process as ever. */
static void test_other_sigbus(void **state)
{
	guard();
	assert_true(dies_of_sigbus(fault_elsewhere));
	assert_true(dies_of_sigbus(fault_behind));
	assert_true(dies_of_sigbus(send_sigbus));
	assert_false(dies_of_sigbus(fault_inside));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refuses_places),
		cmocka_unit_test(test_refuses_overlaps),
		cmocka_unit_test(test_refuses_files),
		cmocka_unit_test(test_all_or_nothing),
		cmocka_unit_test(test_two_address_spaces),
		cmocka_unit_test(test_not_found),
		cmocka_unit_test(test_across_regions),
		cmocka_unit_test(test_no_wrap),
		cmocka_unit_test(test_large_sparse),
		cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_truncated_write),
		cmocka_unit_test(test_truncated_threads),
		cmocka_unit_test(test_truncated_while_tables_change),
		cmocka_unit_test(test_truncated_huge),
		cmocka_unit_test(test_truncated_without_credit),
		cmocka_unit_test(test_other_sigbus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
