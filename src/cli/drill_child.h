/* SPDX-License-Identifier: MIT */
/*
 * A process of the drill's own that uses the GPU: this program again, with a socket to the drill.
 *
 * Runs in: command line. The child leaves at the end of the socket, and gets SIGKILL when the drill ends, so
 * that nothing outlives the drill. Read next: drill_holder_worker.c, drill_bystander_worker.c.
 */
#ifndef GPUWARD_CLI_DRILL_CHILD_H
#define GPUWARD_CLI_DRILL_CHILD_H

#include <gpuward.h>

#include "cli/drill_worker.h"
#include "linux/spawn.h"

/* The child's socket: the first descriptor after the standard ones. */
#define DRILL_CHILD_SOCKET 3

struct drill_child {
	struct spawned process;
	int socket;
	int passed_fd; /* what came with the hello, or -1 */
};

#define DRILL_CHILD_NONE                                                                           \
	((struct drill_child){.process = SPAWNED_NONE, .socket = -1, .passed_fd = -1})

/* Starts this program with ARGV, and waits for its hello. ENVP may be NULL: the caller's. Whatever is returned,
 * end it with drill_child_stop(). Returns 0 and *RET_HELLO, whose result can be a CUDA error; or a code. */
int drill_child_start(const char *const *argv, const char *const *envp, struct drill_child *child,
		      struct drill_hello *ret_hello, struct gw_error *ret_error);

/* Ends it, and waits for its end. Works on DRILL_CHILD_NONE. */
void drill_child_stop(struct drill_child *child);

#endif
