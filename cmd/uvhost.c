// SPDX-License-Identifier: BSD-2-Clause
/* uvhost: the tool beside uvhostd, one subcommand a file. */
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "commands.h"
#include "uvhost/driver.h"

#define PROGRAM "uvhost"

static const struct {
	const char *name, *help;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "bench", "load a back end with checked frames, and measure", bench_main },
	{ "nic", "a Linux interface that a back end is behind", nic_main },
};

static void print_help(FILE *to)
{
	fputs("Usage: " PROGRAM " COMMAND [OPTION...]\n\n", to);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
	fputs("\n'" PROGRAM " COMMAND --help' says the rest; --version prints the version.\n", to);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (strcmp(name, "--help") == 0) {
		print_help(stdout);
		return 0;
	}
	if (strcmp(name, "--version") == 0) {
		printf(PROGRAM " %s\n", uvhost_version());
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strcmp(name, commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	}
	if (*name != '\0')
		fprintf(stderr, PROGRAM ": there is no command '%s'\n\n", name);
	print_help(stderr);
	return 2;
}
