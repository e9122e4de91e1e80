/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * uvhost bench: load on a back end, and what becomes of it.
 *
 * DOC: every frame is a probe frame (base/probe_frame.h) with a sequence number of its flow and a checksum, written
 * anew for each sending, so a frame that is lost, doubled, late or damaged is seen on the receiving side
 * whoever is between. bench.c has the options and the report, bench_load.c moves the frames.
 */
#ifndef UVHOST_CMD_BENCH_H
#define UVHOST_CMD_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/histogram.h"
#include "uvhost/driver.h"

#define BENCH_FLOWS_MAX 256

enum bench_mode { BENCH_TX, BENCH_RX, BENCH_LOOP, BENCH_RR };

struct bench_cfg {
	enum bench_mode mode;
	const char *socket_path;
	const char *kernel_tap; /* or the kernel's vhost-net, with this tap behind it */
	bool listen;
	unsigned size;   /* bytes of a frame */
	unsigned burst;  /* frames of a sending */
	unsigned window; /* frames on their way, at most */
	unsigned flows;
	unsigned queues;
	unsigned ring;
	uint64_t rate;  /* frames a second, 0: as many as go */
	uint64_t count; /* frames in all, 0: until the time is over */
	double seconds, warmup;
	unsigned jitter_us; /* pause before each sending, at random up to this */
	size_t memory;      /* bytes to share besides */
	bool hugepages;
	bool sleep; /* on interrupts, instead of looking all the time */
	uint64_t leave_out;
};

/* Between warm-up and end, except where it says otherwise. */
struct bench_result {
	double seconds;
	uint64_t setup_ns;  /* from nothing to the first frame that is back */
	uint64_t tx_frames; /* that the back end has returned */
	uint64_t rx_frames;
	double backlog; /* transmit ring: mean share in use */
	uint64_t kicks, interrupts;
	/* From the first frame to the last. */
	uint64_t sent, good, missing, late, doubled, damaged, other;
	struct histogram rtt; /* ns */
	struct uvhost_driver_info info;
};

/* 0, or -errno with *@what: what went wrong. */
int bench_run(const struct bench_cfg *cfg, struct bench_result *res, const char **what);

#endif
