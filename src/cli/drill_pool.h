/* SPDX-License-Identifier: MIT */
/*
 * The pool in which the drill breaks things: one worker, and what is to take its place.
 *
 * Runs in: command line, the host of the pool.
 */
#ifndef GPUWARD_CLI_DRILL_POOL_H
#define GPUWARD_CLI_DRILL_POOL_H

#include "cli/drill.h"

/* Opens it for LEVEL, and runs a good task. Returns 0 or a code. Owns: gw_pool_close(). */
int drill_pool_open(struct drill *drill, enum drill_level level, struct gw_pool **ret_pool,
		    struct gw_error *ret_error);

/* Waits until the standby that LEVEL wants is there, or will not be: that is noted. Returns 0, or the code of what
 * ended the wait; *RET_STANDBY is what there is. */
int drill_pool_await_standby(struct drill *drill, struct gw_pool *pool, enum drill_level level,
			     enum gw_standby *ret_standby, struct gw_error *ret_error);

/* Waits until the replacement of worker PID, which is recovery FIRST or a later one, is complete. Returns whether
 * it is; *RET_RECOVERY has what is known. */
bool drill_pool_await_recovery(struct gw_pool *pool, uint64_t first, int32_t pid,
			       struct gw_recovery *ret_recovery);

/* Makes the sealed state. Returns 0 or a code. */
int drill_pool_make_state(struct gw_pool *pool, uint64_t bytes, struct gw_error *ret_error);

#endif
