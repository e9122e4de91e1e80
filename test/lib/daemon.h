/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A uvhostd of the test's own: started, watched, stopped.
 *
 * Every stop checks that it exits with 0 and in time, that no sanitizer complained, and that it has as
 * many open files as at its start.
 */
#ifndef UVHOST_TEST_DAEMON_H
#define UVHOST_TEST_DAEMON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DAEMON_DEVS 64

struct daemon {
	pid_t pid;
	char dir[32];
	char path[DAEMON_DEVS][64]; /* sockets: DIR/N */
	unsigned dev_cnt;
	unsigned fds; /* open files when it was ready */
	int out, err; /* files that it writes to */
	off_t out_at; /* how far out was read */
};

/* The engine for daemons that are started from here on: "uring" or "plain". */
extern const char *daemon_io;

/*
 * Starts a daemon with a device for each of @ports, named by its number; a port may be followed by
 * more keys, "loop:,mtu=9000". @ports and @args end with NULL; @args NULL is none.
 */
void daemon_start(struct daemon *d, const char *const *ports, const char *const *args);
#define DAEMON_START(d, ...) daemon_start(d, (const char *const[]){ __VA_ARGS__, NULL }, NULL)
/* Starts it with exactly @args; does not wait for it. */
void daemon_spawn(struct daemon *d, const char *const *args);
/* Waits until it serves. */
void daemon_ready(struct daemon *d);
void daemon_stop(struct daemon *d);
/* Waits for its end without asking for it; the status of waitpid(). */
int daemon_wait(struct daemon *d, unsigned ms);
/* Frees what daemon_wait() leaves: files, the folder. */
void daemon_forget(struct daemon *d);
/* Kills what a failed test left. */
void daemon_kill_all(void);

unsigned daemon_fds(const struct daemon *d);
/* Waits until it has as many as when it was ready; fails when that does not come. */
void daemon_fds_flat(const struct daemon *d);
long daemon_rss_kib(const struct daemon *d);
/* CPU time of all its threads, in nanoseconds. */
uint64_t daemon_cpu_ns(const struct daemon *d);

/* What it wrote to standard error so far; to be freed. */
char *daemon_log(const struct daemon *d);
/* Lines of it that hold @text. */
unsigned daemon_log_lines(const struct daemon *d, const char *text);

/* The counters, by SIGUSR1: a new reference. */
json_t *daemon_stats(struct daemon *d);
/* One of them: "tx.frames", "rx.drops.stale", "connected" (as 0 or 1) of device @dev. */
long long daemon_count(struct daemon *d, unsigned dev, const char *key);
/* Waits until it is @value. */
void daemon_count_wait(struct daemon *d, unsigned dev, const char *key, long long value);

/* ---- the house's own ---- */

/* Built with a sanitizer? Then loops are shorter and waits longer. */
bool test_sanitized(void);
/* @n, or less. */
unsigned test_scale(unsigned n);
/* How long anything may take that ought to come at once. */
unsigned test_patience_ms(void);
void test_sleep_us(unsigned us);
uint32_t test_random(void);
void test_seed(uint32_t seed);

/* Runs @tests (of cmocka) with both engines; what main() returns. UVHOST_TEST=test_some* in the
 * environment runs those only. */
#define TEST_BOTH(tests) test_both(tests, sizeof(tests) / sizeof((tests)[0]))
struct CMUnitTest;
int test_both(const struct CMUnitTest *tests, size_t cnt);
void test_engine(const char *io);
/* As a teardown of every test. */
int test_teardown(void **state);
#define TEST(f) cmocka_unit_test_setup_teardown(f, NULL, test_teardown)

#endif
