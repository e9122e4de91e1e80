// SPDX-License-Identifier: BSD-2-Clause
/* A uvhostd of the test's own. */
#include "daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"
#include "check.h"

#define END_SHOWN 2000
#define ARGS_MAX  (2 * DAEMON_DEVS + 32)

const char *daemon_io = "auto";

/* Those that run, so that a failed test leaves none. */
static struct {
	pid_t pid;
	int out, err;
} running[16];

static void note_running(pid_t old, pid_t pid, int out, int err)
{
	for (unsigned i = 0; i < ARRAY_SIZE(running); i++) {
		if (running[i].pid == old) {
			running[i].pid = pid;
			running[i].out = out;
			running[i].err = err;
			return;
		}
	}
	FAIL("too many daemons");
}

/* A captured file from @from on, as a string. */
static char *captured(int fd, off_t from)
{
	struct stat st;
	char *text;
	ssize_t n;

	MUST(fstat(fd, &st) == 0);
	text = calloc(1, (size_t)(st.st_size - from) + 1);
	MUST(text != NULL);
	n = pread(fd, text, (size_t)(st.st_size - from), from);
	MUST(n >= 0);
	return text;
}

static void show_end(const char *what, int fd)
{
	char *text = captured(fd, 0);
	size_t len = strlen(text);

	fprintf(stderr, "the end of the daemon's %s:\n%s", what,
		len > END_SHOWN ? text + len - END_SHOWN : text);
	free(text);
}

void daemon_kill_all(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(running); i++) {
		pid_t pid = running[i].pid;

		if (pid == 0)
			continue;
		kill(pid, SIGUSR1);
		test_sleep_us(200000); /* it may be stuck: no answer is one, too */
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		show_end("log", running[i].err);
		show_end("counters", running[i].out);
		running[i].pid = 0;
	}
}

/* ---- the house's own ---- */

bool test_sanitized(void)
{
	const char *kind = getenv("UVHOST_SANITIZE");

	return kind != NULL && strcmp(kind, "none") != 0;
}

unsigned test_scale(unsigned n)
{
	return test_sanitized() && n >= 10 ? n / 10 : n;
}

unsigned test_patience_ms(void)
{
	return test_sanitized() ? 30000 : 10000;
}

void test_sleep_us(unsigned us)
{
	struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L };

	nanosleep(&ts, NULL);
}

static uint32_t random_state = 1;

uint32_t test_random(void)
{
	/* xorshift32 */
	random_state ^= random_state << 13;
	random_state ^= random_state >> 17;
	random_state ^= random_state << 5;
	return random_state;
}

void test_seed(uint32_t seed)
{
	random_state = seed != 0 ? seed : 1;
}

void test_engine(const char *io)
{
	daemon_io = io;
	if (getenv("UVHOST_TEST") != NULL)
		cmocka_set_test_filter(getenv("UVHOST_TEST"));
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
}

int test_both(const struct CMUnitTest *tests, size_t cnt)
{
	int failed;

	test_engine("uring");
	failed = _cmocka_run_group_tests("uring", tests, cnt, NULL, NULL);
	test_engine("plain");
	return failed + _cmocka_run_group_tests("plain", tests, cnt, NULL, NULL);
}

int test_teardown(void **state)
{
	test_over();
	daemon_kill_all();
	return 0;
}

/* ---- life ---- */

static int open_capture(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	MUST(fd >= 0);
	return fd;
}

void daemon_spawn(struct daemon *d, const char *const *args)
{
	const char *program = getenv("UVHOSTD");
	char *argv[ARGS_MAX] = { 0 };
	unsigned argc = 0;

	if (program == NULL)
		FAIL("UVHOSTD is not set: the path of the daemon");
	argv[argc++] = (char *)(uintptr_t)program;
	while (*args != NULL && argc + 1 < ARGS_MAX)
		argv[argc++] = (char *)(uintptr_t)*args++;
	d->out = open_capture("stdout");
	d->err = open_capture("stderr");
	d->out_at = 0;
	d->pid = fork();
	MUST(d->pid >= 0);
	if (d->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(d->out, STDOUT_FILENO);
		dup2(d->err, STDERR_FILENO);
		execv(program, argv);
		_exit(127);
	}
	note_running(0, d->pid, d->out, d->err);
}

void daemon_start(struct daemon *d, const char *const *ports, const char *const *args)
{
	const char *argv[ARGS_MAX] = { "--io", daemon_io };
	static char specs[DAEMON_DEVS][192];
	unsigned argc = 2;

	*d = (struct daemon){ 0 };
	strcpy(d->dir, "/tmp/uvhost.XXXXXX");
	MUST(mkdtemp(d->dir) != NULL);
	for (; ports[d->dev_cnt] != NULL; d->dev_cnt++) {
		unsigned i = d->dev_cnt;

		MUST(i < DAEMON_DEVS);
		snprintf(d->path[i], sizeof(d->path[i]), "%s/%u", d->dir, i);
		snprintf(specs[i], sizeof(specs[i]), "socket-path=%s,port=%s", d->path[i],
			 ports[i]);
		argv[argc++] = "--device";
		argv[argc++] = specs[i];
	}
	while (args != NULL && *args != NULL)
		argv[argc++] = *args++;
	daemon_spawn(d, argv);
	daemon_ready(d);
}

/* A line of /proc/PID/status as a number of the given base. */
static unsigned long long status_field(const struct daemon *d, const char *key, int base)
{
	unsigned long long value = 0;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", d->pid);
	f = fopen(path, "r");
	if (f == NULL)
		return 0;
	while (fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, key, strlen(key)) == 0)
			value = strtoull(line + strlen(key), NULL, base);
	}
	fclose(f);
	return value;
}

/* Has it blocked the signals that it takes, and only those? While a thread is made all are blocked. */
static bool takes_signals(const struct daemon *d)
{
	unsigned long long mask = status_field(d, "SigBlk:", 16);

	return (mask >> (SIGUSR1 - 1) & 1) && !(mask >> (SIGHUP - 1) & 1);
}

void daemon_ready(struct daemon *d)
{
	uint64_t deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;

	/* From then on one waits for it; this one it answers when all is open. */
	while (!takes_signals(d)) {
		int status;

		if (clock_ns() > deadline || waitpid(d->pid, &status, WNOHANG) == d->pid) {
			note_running(d->pid, 0, -1, -1);
			FAIL("the daemon did not start: %s", daemon_log(d));
		}
		test_sleep_us(500);
	}
	json_decref(daemon_stats(d));
	d->fds = daemon_fds(d);
}

int daemon_wait(struct daemon *d, unsigned ms)
{
	uint64_t deadline = clock_ns() + ms * NSEC_PER_MSEC;
	int status;

	while (waitpid(d->pid, &status, WNOHANG) != d->pid) {
		if (clock_ns() > deadline)
			FAIL("the daemon did not end in %u ms", ms);
		test_sleep_us(500);
	}
	note_running(d->pid, 0, -1, -1);
	return status;
}

void daemon_forget(struct daemon *d)
{
	fd_close(&d->out);
	fd_close(&d->err);
	if (d->dir[0] != '\0')
		rmdir(d->dir);
}

static void check_sanitizers(const struct daemon *d)
{
	static const char *const signs[] = { "Sanitizer", "runtime error", "Assertion" };
	char *log = daemon_log(d);

	for (unsigned i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
		if (strstr(log, signs[i]) != NULL)
			FAIL("the daemon complained:\n%s", log);
	}
	free(log);
}

void daemon_stop(struct daemon *d)
{
	int status;

	daemon_fds_flat(d);
	OK(kill(d->pid, SIGTERM) < 0 ? -errno : 0);
	status = daemon_wait(d, test_patience_ms());
	check_sanitizers(d);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		FAIL("the daemon ended with status %#x", status);
	for (unsigned i = 0; i < d->dev_cnt; i++) {
		if (access(d->path[i], F_OK) == 0)
			FAIL("the daemon left its socket %s", d->path[i]);
	}
	daemon_forget(d);
}

/* ---- looking at it ---- */

unsigned daemon_fds(const struct daemon *d)
{
	char path[64];
	unsigned cnt = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", d->pid);
	dir = opendir(path);
	MUST(dir != NULL);
	/* cppcheck-suppress readdirCalled; each stream has one reader */
	while (readdir(dir) != NULL)
		cnt++;
	closedir(dir);
	return cnt;
}

void daemon_fds_flat(const struct daemon *d)
{
	uint64_t deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;

	while (daemon_fds(d) != d->fds) {
		if (clock_ns() > deadline)
			FAIL("the daemon has %u files open, %u at its start", daemon_fds(d),
			     d->fds);
		test_sleep_us(1000);
	}
}

long daemon_rss_kib(const struct daemon *d)
{
	return (long)status_field(d, "VmRSS:", 10);
}

uint64_t daemon_cpu_ns(const struct daemon *d)
{
	char path[300];
	struct dirent *e;
	uint64_t sum = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", d->pid);
	dir = opendir(path);
	MUST(dir != NULL);
	/* cppcheck-suppress readdirCalled; each stream has one reader */
	while ((e = readdir(dir)) != NULL) {
		unsigned long long ns;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", d->pid, e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (f == NULL)
			continue;
		if (fscanf(f, "%llu", &ns) == 1)
			sum += ns;
		fclose(f);
	}
	closedir(dir);
	return sum;
}

char *daemon_log(const struct daemon *d)
{
	return captured(d->err, 0);
}

unsigned daemon_log_lines(const struct daemon *d, const char *text)
{
	char *log = daemon_log(d), *save = NULL;
	unsigned cnt = 0;

	for (char *line = strtok_r(log, "\n", &save); line != NULL;
	     line = strtok_r(NULL, "\n", &save))
		cnt += strstr(line, text) != NULL;
	free(log);
	return cnt;
}

json_t *daemon_stats(struct daemon *d)
{
	uint64_t deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;
	json_t *stats;
	char *line, *end;

	OK(kill(d->pid, SIGUSR1) < 0 ? -errno : 0);
	for (;;) {
		line = captured(d->out, d->out_at);
		end = strchr(line, '\n');
		if (end != NULL)
			break;
		free(line);
		if (clock_ns() > deadline)
			FAIL("no counters came; the log: %s", daemon_log(d));
		test_sleep_us(300);
	}
	*end = '\0';
	stats = json_loads(line, 0, NULL);
	if (stats == NULL)
		FAIL("the counters are no JSON: %s", line);
	d->out_at += end + 1 - line;
	free(line);
	return stats;
}

long long daemon_count(struct daemon *d, unsigned dev, const char *key)
{
	json_t *stats = daemon_stats(d);
	const json_t *at = json_array_get(json_object_get(stats, "devices"), dev);
	char part[64], *save = NULL;
	long long value;

	snprintf(part, sizeof(part), "%s", key);
	for (char *s = strtok_r(part, ".", &save); s != NULL; s = strtok_r(NULL, ".", &save))
		at = json_object_get(at, s);
	if (at == NULL)
		FAIL("there is no counter %s", key);
	value = json_is_boolean(at) ? json_is_true(at) : json_integer_value(at);
	json_decref(stats);
	return value;
}

void daemon_count_wait(struct daemon *d, unsigned dev, const char *key, long long value)
{
	uint64_t deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;
	long long is;

	while ((is = daemon_count(d, dev, key)) != value) {
		if (clock_ns() > deadline)
			FAIL("counter %s of device %u is %lld, not %lld", key, dev, is, value);
		test_sleep_us(1000);
	}
}
