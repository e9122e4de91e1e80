// SPDX-License-Identifier: BSD-2-Clause
/* The cursor over pieces; and the log, lightly. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/iov.h"
#include "base/log.h"
#include "base/util.h"

#define BYTES  24
#define PIECES 5

/*
 * A text of 24 bytes, cut at random into pieces of their own allocation, so that a sanitizer sees a
 * step past any of them; empty pieces have no memory at all.
 */
struct pieces {
	struct iovec iov[PIECES];
	unsigned cnt;
	char *mem[PIECES];
};

static const char text[BYTES + 1] = "abcdefghijklmnopqrstuvwx";

static void cut(struct pieces *p)
{
	size_t left = BYTES, at = 0;

	p->cnt = PIECES;
	for (unsigned i = 0; i < PIECES; i++) {
		size_t len = i == PIECES - 1 ? left : (size_t)random() % (left + 1);

		p->mem[i] = len > 0 ? malloc(len) : NULL;
		if (len > 0)
			memcpy(p->mem[i], text + at, len);
		p->iov[i] = (struct iovec){ p->mem[i], len };
		at += len;
		left -= len;
	}
}

static void drop(struct pieces *p)
{
	for (unsigned i = 0; i < PIECES; i++)
		free(p->mem[i]);
}

static void test_read_and_skip(void **state)
{
	for (unsigned n = 0; n < 2000; n++) {
		struct pieces p;
		struct iov_cursor c;
		char back[BYTES + 10];
		size_t at = 0;

		cut(&p);
		assert_int_equal(iov_bytes(p.iov, p.cnt), BYTES);
		c = iov_cursor(p.iov, p.cnt);
		while (at < BYTES) {
			size_t len = (size_t)random() % 9, want = min_size(len, BYTES - at);

			if (random() % 2) {
				assert_int_equal(iov_skip(&c, len), want);
			} else {
				assert_int_equal(iov_read(&c, back, len), want);
				assert_memory_equal(back, text + at, want);
			}
			at += want;
		}
		assert_int_equal(iov_read(&c, back, 1), 0);
		assert_int_equal(iov_skip(&c, 1), 0);
		c = iov_cursor(p.iov, p.cnt);
		assert_int_equal(iov_read(&c, back, sizeof(back)), BYTES);
		c = iov_cursor(p.iov, p.cnt);
		assert_int_equal(iov_skip(&c, SIZE_MAX), BYTES);
		drop(&p);
	}
	assert_int_equal(iov_bytes(NULL, 0), 0);
}

static void test_write(void **state)
{
	for (unsigned n = 0; n < 2000; n++) {
		struct pieces p;
		struct iov_cursor c;
		char src[BYTES + 10], back[BYTES];
		size_t from = (size_t)random() % BYTES;

		cut(&p);
		memset(src, 'X', sizeof(src));
		c = iov_cursor(p.iov, p.cnt);
		assert_int_equal(iov_skip(&c, from), from);
		assert_int_equal(iov_write(&c, src, 3), min_size(3, BYTES - from));
		assert_int_equal(iov_write(&c, "Y", 1), from + 3 < BYTES);
		assert_int_equal(iov_write(&c, src, sizeof(src)),
				 from + 4 < BYTES ? BYTES - from - 4 : 0);
		c = iov_cursor(p.iov, p.cnt);
		assert_int_equal(iov_read(&c, back, BYTES), BYTES);
		assert_memory_equal(back, text, from);
		for (size_t i = from; i < BYTES; i++)
			assert_int_equal(back[i], i == from + 3 ? 'Y' : 'X');
		drop(&p);
	}
}

static void test_trim(void **state)
{
	for (size_t front = 0; front <= BYTES; front++) {
		char left[BYTES];
		struct pieces p;
		struct iovec *iov = p.iov;
		struct iov_cursor c;
		unsigned cnt;

		cut(&p);
		cnt = iov_trim_front(&iov, p.cnt, front);
		assert_int_equal(iov_bytes(iov, cnt), BYTES - front);
		c = iov_cursor(iov, cnt);
		assert_int_equal(iov_read(&c, left, sizeof(left)), BYTES - front);
		assert_memory_equal(left, text + front, BYTES - front);
		drop(&p);
	}
}

/* ---- the log ---- */

/* Runs @fn with standard error in a pipe; what it wrote. */
static size_t capture(void (*fn)(void), char *buf, size_t size)
{
	int fds[2], saved = dup(STDERR_FILENO);
	ssize_t len;

	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	close(fds[1]);
	fn();
	dup2(saved, STDERR_FILENO);
	close(saved);
	len = read(fds[0], buf, size - 1);
	close(fds[0]);
	assert_true(len >= 0);
	buf[len] = '\0';
	return (size_t)len;
}

static void log_levels(void)
{
	errno = EBADF;
	log_debug("dev", "hidden");
	log_info("dev", "shown key=%d", 7);
	log_set_level(LOG_LEVEL_ERROR);
	log_warn("dev", "hidden");
	log_error("dev", "%s", "shown");
	log_set_level(LOG_LEVEL_INFO);
}

static void test_log_levels(void **state)
{
	char out[2000];

	capture(log_levels, out, sizeof(out));
	assert_string_equal(out, "info dev: shown key=7\nerror dev: shown\n");
	assert_int_equal(errno, EBADF);
}

static void log_long(void)
{
	char line[3000];

	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	log_error("dev", "%s", line);
	log_error(line, "text");
}

/* Cut off, but a line each. */
static void test_log_long(void **state)
{
	char out[4000];
	size_t len = capture(log_long, out, sizeof(out));

	assert_true(len > 200);
	assert_int_equal(out[len - 1], '\n');
	assert_ptr_equal(strchr(strchr(out, '\n') + 1, '\n'), out + len - 1);
}

static struct log_limit limit;

static void log_flood(void)
{
	for (unsigned i = 0; i < 1000; i++)
		log_limited(&limit, LOG_LEVEL_WARN, "dev", "n=%u", i);
}

static void log_flood_later(void)
{
	limit.since_ns -= LOG_PERIOD_NS;
	log_flood();
}

/* A burst, then nothing for a period; then how much was held back. */
static void test_log_limited(void **state)
{
	char out[4000];

	capture(log_flood, out, sizeof(out));
	assert_string_equal(out, "warning dev: n=0\nwarning dev: n=1\nwarning dev: n=2\n"
				 "warning dev: n=3\nwarning dev: n=4\n");
	capture(log_flood, out, sizeof(out));
	assert_string_equal(out, "");
	capture(log_flood_later, out, sizeof(out));
	assert_non_null(strstr(out, "held back 1995 lines"));
	assert_non_null(strstr(out, "n=4\n"));
	assert_null(strstr(out, "n=5\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_and_skip), cmocka_unit_test(test_write),
		cmocka_unit_test(test_trim),          cmocka_unit_test(test_log_levels),
		cmocka_unit_test(test_log_long),      cmocka_unit_test(test_log_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
