// SPDX-License-Identifier: BSD-2-Clause
/* The log: one line an event on standard error. */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"

#define LINE_MAX_LEN 512

static _Atomic int max_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

__attribute__((format(printf, 3, 0))) static void write_line(enum log_level level, const char *name,
							     const char *fmt, va_list ap)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	char line[LINE_MAX_LEN];
	int saved = errno;
	struct pollfd pfd = { .fd = STDERR_FILENO, .events = POLLOUT };
	ssize_t done = 0;
	size_t len;

	len = (size_t)snprintf(line, sizeof(line), "%s %s: ", names[level], name);
	len = min_size(len, sizeof(line) - 1);
	len += (size_t)vsnprintf(line + len, sizeof(line) - len, fmt, ap);
	len = min_size(len, sizeof(line) - 2);
	line[len++] = '\n';
	/* Where nobody reads it, it is lost. */
	if (poll(&pfd, 1, 0) == 1)
		done = write(STDERR_FILENO, line, len);
	(void)done; /* nobody is left to tell */
	errno = saved;
}

void log_write(enum log_level level, const char *name, const char *fmt, ...)
{
	va_list ap;

	if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	write_line(level, name, fmt, ap);
	va_end(ap);
}

void log_limited(struct log_limit *limit, enum log_level level, const char *name, const char *fmt,
		 ...)
{
	uint64_t now = clock_ns();
	va_list ap;

	if (limit->since_ns == 0 || now - limit->since_ns >= LOG_PERIOD_NS) {
		if (limit->held > 0)
			log_write(level, name, "held back %u lines like the last", limit->held);
		*limit = (struct log_limit){ .since_ns = now };
	}
	if (limit->written >= LOG_BURST) {
		limit->held++;
		return;
	}
	limit->written++;
	if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
		return;
	va_start(ap, fmt);
	write_line(level, name, fmt, ap);
	va_end(ap);
}

const char *log_errname(int err)
{
	const char *name = strerrorname_np(-err);

	return name != NULL ? name : "unknown";
}
