/* SPDX-License-Identifier: BSD-2-Clause */
/* The subcommands of uvhost. Each takes its own name as argv[0] and returns the exit status. */
#ifndef UVHOST_CMD_COMMANDS_H
#define UVHOST_CMD_COMMANDS_H

int bench_main(int argc, char **argv);
int nic_main(int argc, char **argv);

#endif
