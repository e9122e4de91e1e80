/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line of uvhostd, from one table. */
#ifndef UVHOST_CMD_OPTIONS_H
#define UVHOST_CMD_OPTIONS_H

#include <stdbool.h>

#include "dev/dev.h"
#include "io/io.h"

enum action { ACTION_SERVE, ACTION_HELP, ACTION_VERSION, ACTION_CAPABILITIES };

struct options {
	enum action action;
	enum io_kind io;
	unsigned poll_us;
	bool stats;
	bool verbose;
	struct dev_cfg *devs;
	unsigned dev_cnt;
};

/* Fills @o; strings are borrowed from @argv or live as long as the process. 0; -EINVAL: what is wrong
 * was written to standard error. */
int options_parse(struct options *o, int argc, char **argv);
void options_print_help(void);

#endif
