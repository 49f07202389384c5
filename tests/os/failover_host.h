/* SPDX-License-Identifier: MIT */
/*
 * What the tests of fail-over do as a host: open pools with standbys on the emulated GPU, bring their processes
 * into situations, and wait for what comes of it.
 *
 * Runs in: host, the test's own process. Each fails the test where the pool does not do as it should, and none
 * waits for ever. Read next: failover_worker.h.
 */
#ifndef TESTS_OS_FAILOVER_HOST_H
#define TESTS_OS_FAILOVER_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

#include "../gate.h"
#include "failover_worker.h"

#define MIB UINT64_C(1048576)
#define MS  UINT64_C(1000000)

/* Pools on device 0, in which only a function's own result tells of a fault. */
struct gw_pool_options failover_options(uint32_t workers, enum gw_standby standby,
					uint32_t standbys);
/* Opens it and waits until all workers are ready. */
struct gw_pool *failover_open(const struct gw_pool_options *options);

/* From now on processes that come to this point do this: "WHO POINT ACTION [GATE]", where WHO is standby, worker
 * or any, POINT one of enum failover_point, and ACTION is gate, exit, kill, stop, or (at prepare) fault.
 * NULL: nothing special. */
void failover_situation(const char *text);
/* The same with the action "gate": WHO comes to GATE at POINT. */
void failover_hold(const char *who, const char *point, const struct gate *gate);

/* Starts "work" or another function. DEVICE -1: on any. DEADLINE_NS 0: none. */
struct gw_task *failover_start(struct gw_pool *pool, const char *function,
			       const struct failover_job *job, int device, uint64_t deadline_ns);
/* Waits for the end of TASK, which must be good, frees it and gives its answer. */
struct failover_answer failover_end(struct gw_task *task, uint32_t seed);
/* One good job. */
struct failover_answer failover_work(struct gw_pool *pool, int device);

struct gw_pool_stat failover_stat(struct gw_pool *pool);
int32_t failover_pid(struct gw_pool *pool, uint32_t slot);
/* Any child of the ward that is neither a worker nor the probe; -1 where there is none. */
int32_t failover_standby_pid(struct gw_pool *pool);

/* Wait for so many standbys that are hot, and primed. */
struct gw_pool_stat failover_wait_standbys(struct gw_pool *pool, uint32_t hot, uint32_t primed);
void failover_wait_ready(struct gw_pool *pool, uint32_t workers);
/* Waits until recovery NUMBER has begun, has a process that goes on, or is complete. */
struct gw_recovery failover_wait_begun(struct gw_pool *pool, uint64_t number);
struct gw_recovery failover_wait_successor(struct gw_pool *pool, uint64_t number);
struct gw_recovery failover_wait_complete(struct gw_pool *pool, uint64_t number);
/* A moment of a wait: fails the test with WHAT once START_NS is long ago. */
void failover_wait_a_bit(uint64_t start_ns, const char *what);

/* Waits until the ward hears NVML's events. */
void failover_wait_probe(struct gw_pool *pool);
/* How often the ward has gone to sleep. */
uint64_t failover_switches(struct gw_pool *pool);
/* Waits until it has COUNT times more. */
void failover_wait_switches(struct gw_pool *pool, uint64_t count);

/* Nothing of the pool on DEVICE is left. Closes the pool and ends the emulated machine. */
void failover_close(struct gw_pool *pool);

#endif
