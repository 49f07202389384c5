/* SPDX-License-Identifier: MIT */
/*
 * --soft: runs a program on an emulated GPU.
 *
 * Runs in: command line. The emulated driver is found through LD_LIBRARY_PATH and its machine through
 * GPUWARD_SOFT_DIR, so both are set for a child, which everything else runs in; this process stays, passes
 * signals on, and removes the machine's folder at the end. If it is killed, a process that waits for nothing else
 * does that. A folder that the caller has named is used as it is and stays. Read next:
 * ../../softgpu/README.md.
 */
#ifndef GPUWARD_CLI_SOFT_H
#define GPUWARD_CLI_SOFT_H

#include <stdbool.h>

#define SOFT_ENV     "GPUWARD_SOFT"
#define SOFT_DIR_ENV "GPUWARD_SOFT_DIR"

/* Whether this process is a child of soft_run_self(), or runs on an emulated GPU anyway. */
bool soft_is_inside(void);

/* Whether the emulated machine takes the time that a real one takes. */
bool soft_is_measured(void);

/* Runs this tool again with ARGV, or PROGRAM (found in PATH). Returns its exit code, or 128 + signal. */
int soft_run_self(int argc, char **argv);
int soft_run_program(char **argv);

#endif
