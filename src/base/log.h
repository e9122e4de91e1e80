/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log: one line an event on standard error, `level name: text key=value ...`.
 *
 * DOC: whatever a guest or a front end can trigger is written through log_limited(), which lets a
 * burst of LOG_BURST lines a LOG_PERIOD through for each limiter and reports how many it held back.
 */
#ifndef UVHOST_BASE_LOG_H
#define UVHOST_BASE_LOG_H

#include <stdatomic.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

#define LOG_BURST     5
#define LOG_PERIOD_NS (10 * 1000000000ULL)

/* A limiter belongs to one thread; all zero is its start. */
struct log_limit {
	uint64_t since_ns;
	unsigned written, held;
};

/* Lines above this level are not written. Any thread. */
void log_set_level(enum log_level level);

/* @name is the device or part that speaks. Any thread; one line is one write. */
void log_write(enum log_level level, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

void log_limited(struct log_limit *limit, enum log_level level, const char *name, const char *fmt,
		 ...) __attribute__((format(printf, 4, 5)));

/* The name of the error that @err, a -errno, stands for: "ENOENT". */
const char *log_errname(int err);

#define log_error(name, ...) log_write(LOG_LEVEL_ERROR, name, __VA_ARGS__)
#define log_warn(name, ...)  log_write(LOG_LEVEL_WARN, name, __VA_ARGS__)
#define log_info(name, ...)  log_write(LOG_LEVEL_INFO, name, __VA_ARGS__)
#define log_debug(name, ...) log_write(LOG_LEVEL_DEBUG, name, __VA_ARGS__)

#endif
