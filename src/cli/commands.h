/* SPDX-License-Identifier: MIT */
/*
 * The commands of the tool. Each parses its options, calls the library or the drill, and prints.
 *
 * Runs in: command line. A command gets the arguments from its own name on and returns the exit code:
 * 0 done, 1 something did not work, 2 usage, 4 the driver does not answer.
 */
#ifndef GPUWARD_CLI_COMMANDS_H
#define GPUWARD_CLI_COMMANDS_H

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_NO_ANSWER = 4,
};

/* Flushes standard output. Returns CLI_OK, or CLI_FAILED with a line on standard error. */
int cli_printed(void);

int command_drill(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_pools(int argc, char **argv);
int command_ps(int argc, char **argv);
int command_state(int argc, char **argv);

/* Not for people: a process that holds device memory for `drill release`. */
int command_drill_holder(int argc, char **argv);
int command_drill_bystander(int argc, char **argv);

#endif
