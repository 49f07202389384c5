/* SPDX-License-Identifier: MIT */
/*
 * What tests of surviving state do as a host: they run jobs of state_worker.h and look at what came of it.
 *
 * Runs in: host, the test's own process. Each fails the test where something is not as it should be.
 */
#ifndef TESTS_OS_STATE_HOST_H
#define TESTS_OS_STATE_HOST_H

#include <stdint.h>

#include <gpuward.h>

#include "state_worker.h"

#define MIB UINT64_C(1048576)
#define MS  UINT64_C(1000000)

/* A pool of WORKERS workers on device 0. */
struct gw_pool *state_open(uint32_t workers);
struct gw_pool *state_open_with(uint32_t workers, uint64_t max_state_bytes);
/* The same with a hot standby. */
struct gw_pool *state_open_hot(uint32_t workers);

/* The ops up to one of kind OP_NONE; the text of an op that did not do as expected fails the test. */
struct state_report state_run(struct gw_pool *pool, const struct state_op *ops);

/* The same on a job of which anything may come: *RET_REPORT is filled if it ended well. */
struct gw_outcome state_try(struct gw_pool *pool, const struct state_job *job,
			    struct state_report *ret_report);

/* A job that is under way; it dies at most once. */
struct gw_task *state_start(struct gw_pool *pool, const struct state_job *job);
struct gw_task *state_start_until(struct gw_pool *pool, const struct state_job *job,
				  uint64_t deadline_ns);
struct gw_outcome state_end(struct gw_task *task, struct state_report *ret_report);

/* Ends the worker of SLOT and waits for its successor. */
void state_replace_worker(struct gw_pool *pool, uint32_t slot);

/* Waits until a standby is hot. */
void state_wait_hot(struct gw_pool *pool);
void state_wait_ready(struct gw_pool *pool, uint32_t workers);
struct gw_pool_stat state_stat_of(struct gw_pool *pool);

#endif
