/* SPDX-License-Identifier: MIT */
/*
 * gpuward: the command line tool. A table of commands, and the options that come before them.
 *
 * Runs in: command line, and worker: the drill's workers are this program again, started by a ward. It
 * loads no GPU driver otherwise. Read next: commands.h, soft.h for --soft.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpuward.h>

#include "cli/commands.h"
#include "cli/drill_worker.h"
#include "cli/soft.h"

struct command {
	const char *name;
	const char *summary; /* NULL: not for people */
	int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
	{"drill", "stage GPU faults and memory releases, and watch the recovery", command_drill},
	{"explain", "say why memory of a GPU is in use, and what to do", command_explain},
	{"pools", "show what all pools of workers are doing", command_pools},
	{"ps", "show who holds a GPU, and how much of its memory", command_ps},
	{"state", "show and remove device memory that is kept beyond its pool", command_state},
	{DRILL_HOLDER, NULL, command_drill_holder},
	{DRILL_BYSTANDER, NULL, command_drill_bystander},
};

static void print_help(FILE *to)
{
	(void)fputs("usage: gpuward [--soft] COMMAND [OPTION ...]\n"
		    "       gpuward --soft -- PROGRAM [ARGUMENT ...]\n\n"
		    "Keeps GPU work alive through CUDA faults.\n\n"
		    "commands:\n",
		    to);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (commands[i].summary)
			(void)fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
	}
	(void)fputs(
		"\noptions:\n"
		"  --soft     use an emulated GPU, for the command and all that it starts (also:\n"
		"             GPUWARD_SOFT=1 in the environment)\n"
		"  --help     this text; also after a command\n"
		"  --version  the version\n",
		to);
}

/* What was asked for and could not be written is no success. */
int cli_printed(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CLI_OK;
	(void)fprintf(stderr, "gpuward: cannot print: %s\n", strerror(errno));
	return CLI_FAILED;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	}
	return NULL;
}

static int usage(const char *what, const char *which)
{
	(void)fprintf(stderr, "gpuward: %s '%s'; see gpuward --help\n", what, which);
	return CLI_USAGE;
}

static int run_command(int argc, char **argv)
{
	const struct command *command = find_command(argv[0]);

	if (strcmp(argv[0], "--") == 0)
		return usage("a program is run with --soft only; unexpected", "--");
	if (!command)
		return usage("unknown command", argv[0]);
	return command->run(argc, argv);
}

/* On the emulated GPU everything runs in a child: a driver is found by the environment at a start. */
static int run_soft(int argc, char **argv)
{
	if (strcmp(argv[0], "--") == 0)
		return argc > 1 ? soft_run_program(argv + 1) : usage("no program after", "--");
	if (!find_command(argv[0]))
		return usage("a program needs '--' before it; unknown command", argv[0]);
	return soft_run_self(argc, argv);
}

/* Set by run_soft() for the child: it is on the emulated GPU already. */
static bool wants_soft(void)
{
	const char *value = getenv(SOFT_ENV);

	return value && strcmp(value, "0") != 0 && value[0] != '\0' && !soft_is_inside();
}

int main(int argc, char **argv)
{
	bool soft = wants_soft();
	int at = 1;

	if (gw_is_worker())
		return gw_worker_run(drill_functions);
	for (; at < argc && argv[at][0] == '-' && strcmp(argv[at], "--") != 0; at++) {
		if (strcmp(argv[at], "--soft") == 0) {
			soft = true;
		} else if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
			print_help(stdout);
			return cli_printed();
		} else if (strcmp(argv[at], "--version") == 0) {
			(void)printf("gpuward %s\n", gw_version());
			return cli_printed();
		} else {
			return usage("unknown option", argv[at]);
		}
	}
	if (at == argc) {
		print_help(stderr);
		return CLI_USAGE;
	}
	return soft && !soft_is_inside() ? run_soft(argc - at, argv + at)
					 : run_command(argc - at, argv + at);
}
