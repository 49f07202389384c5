/* SPDX-License-Identifier: MIT */
/*
 * Starts the keeper's process.
 *
 * Runs in: ward. Read next: keep.h, ../keeper/main.c.
 */
#ifndef GPUWARD_WARD_KEEP_START_H
#define GPUWARD_WARD_KEEP_START_H

#include <limits.h>

#include <gpuward.h>

#include "linux/spawn.h"

/* A keeper of the state NAME, with SOCKET (borrowed) as its first connection. Returns 0 with *RET_CHILD and the path of
 * its PROGRAM, or a negative code. */
int keep_start(const char *name, int socket, char program[PATH_MAX], struct spawned *ret_child,
	       struct gw_error *ret_error);

#endif
