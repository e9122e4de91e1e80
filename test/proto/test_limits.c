// SPDX-License-Identifier: BSD-2-Clause
/* What the daemon may cost: system calls a frame, processor time when idle. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "lib/daemon.h"
#include "lib/guest.h"
#include "port/net_ns.h"

#define FLOOD_FRAMES 100000
#define IDLE_SECONDS 30

static struct guest g;

/* ---- system calls ---- */

static pid_t strace_start(const struct daemon *d, const char *out)
{
	char pid_arg[16];
	pid_t pid;

	snprintf(pid_arg, sizeof(pid_arg), "%d", d->pid);
	pid = fork();
	MUST(pid >= 0);
	if (pid == 0) {
		/* Says when it has attached, which is of no interest. */
		dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
		execlp("strace", "strace", "-c", "-f", "-U", "calls,name", "-o", out, "-p", pid_arg,
		       (char *)NULL);
		_exit(127);
	}
	return pid;
}

/* Every thread has a tracer. */
static void wait_traced(const struct daemon *d, pid_t tracer)
{
	uint64_t deadline = clock_ns() + test_patience_ms() * NSEC_PER_MSEC;
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "! grep -q 'TracerPid:.0$' /proc/%d/task/*/status", d->pid);
	while (system(cmd) != 0) {
		MUST(clock_ns() < deadline && waitpid(tracer, NULL, WNOHANG) == 0);
		test_sleep_us(1000);
	}
}

static unsigned long strace_stop(pid_t tracer, const char *out)
{
	unsigned long calls, sum = 0;
	char line[256], name[64];
	FILE *f;

	kill(tracer, SIGINT);
	waitpid(tracer, NULL, 0);
	f = fopen(out, "r");
	MUST(f != NULL);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%lu %63s", &calls, name) == 2 && strcmp(name, "total") != 0)
			sum += calls;
	}
	fclose(f);
	unlink(out);
	return sum;
}

/* Keeps the ring full. */
static void keep_full(unsigned cnt)
{
	uint8_t bytes[VIRTIO_NET_HDR_LEN + 64] = { 0 };
	unsigned sent = 0;

	frame_fill(bytes + VIRTIO_NET_HDR_LEN, 64, 1);
	while (sent < cnt) {
		while (sent < cnt && guest_send_raw(&g, bytes, sizeof(bytes), NULL, 0))
			sent++;
		guest_kick(&g, GUEST_TX);
		guest_reap(&g);
	}
	GUEST_UNTIL(&g, guest_tx_done(&g));
}

static void calls_a_frame(const char *port)
{
	struct guest_cfg cfg = { .features = F_DEFAULT | F_EVENT_IDX };
	unsigned long calls;
	struct daemon d;
	char out[80];
	pid_t tracer;

	DAEMON_START(&d, port);
	if (strncmp(port, "tap:", 4) == 0)
		OK(if_set_up(port + 4, true));
	guest_up(&g, &cfg, d.path[0]);
	keep_full(1000);
	snprintf(out, sizeof(out), "%s/strace", d.dir);
	tracer = strace_start(&d, out);
	wait_traced(&d, tracer);
	keep_full(FLOOD_FRAMES);
	calls = strace_stop(tracer, out);
	print_message("%s %s: %u frames, %lu system calls\n", daemon_io, port, FLOOD_FRAMES, calls);
	MUST(calls > 0);
	if (calls > FLOOD_FRAMES / 32)
		FAIL("%lu system calls for %u frames", calls, FLOOD_FRAMES);
	guest_down(&g);
	daemon_stop(&d);
}

static void need_strace(void)
{
	if (system("command -v strace >/dev/null") == 0)
		return;
	print_message("strace is not installed: tools/deps.sh test\n");
	skip();
}

static void test_calls(void **state)
{
	need_strace();
	calls_a_frame("null:");
}

static void test_calls_tap(void **state)
{
	need_strace();
	calls_a_frame("tap:uvlimits0");
}

/* ---- idle ---- */

static void test_idle(void **state)
{
	static struct guest guests[DAEMON_DEVS];
	const char *ports[DAEMON_DEVS + 1] = { 0 };
	unsigned seconds = test_sanitized() ? 3 : IDLE_SECONDS;
	struct daemon d;
	uint64_t cpu;

	for (unsigned i = 0; i < DAEMON_DEVS; i++)
		ports[i] = i % 2 == 0 ? "loop:" : "null:";
	daemon_start(&d, ports, NULL);
	for (unsigned i = 0; i < DAEMON_DEVS; i++)
		guest_up(&guests[i], NULL, d.path[i]);
	test_sleep_us(200000);
	cpu = daemon_cpu_ns(&d);
	test_sleep_us(seconds * 1000000);
	cpu = daemon_cpu_ns(&d) - cpu;
	print_message("%s: %llu us of CPU in %u s\n", daemon_io, (unsigned long long)cpu / 1000,
		      seconds);
	/* Sanitizers have threads of their own. */
	MUST(cpu < seconds * NSEC_PER_SEC / (test_sanitized() ? 20 : 1000));
	for (unsigned i = 0; i < DAEMON_DEVS; i++) {
		if (i % 2 == 0)
			guest_exchange(&guests[i], 20, 100, 16);
		guest_down(&guests[i]);
	}
	daemon_stop(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_calls), TEST(test_idle) };
	/* Without io_uring a frame to a tap is a system call. */
	const struct CMUnitTest tap_tests[] = { TEST(test_calls_tap) };
	int failed = TEST_BOTH(tests);

	if (!netns_enter())
		return failed;
	test_engine("uring");
	return failed + cmocka_run_group_tests_name("uring", tap_tests, NULL, NULL);
}
