/* SPDX-License-Identifier: MIT */
/*
 * What tests of pools on the (emulated) GPU do as a host: open, start, wait, compute, and look.
 *
 * Runs in: host, the test's own process. Each fails the test where the pool does not do as it should, and
 * none waits for ever. Read next: pool_gpu_worker.h for the tasks.
 */
#ifndef TESTS_OS_POOL_GPU_HOST_H
#define TESTS_OS_POOL_GPU_HOST_H

#include <stdint.h>

#include <gpuward.h>

#include "pool_gpu_worker.h"

#define MIB UINT64_C(1048576)
#define MS  UINT64_C(1000000)

static const int device_0[] = {0};

/* gw_pool_open() with the limits of these tests. */
int gpu_try_open(struct gw_pool **ret_pool, const int *devices, uint32_t n_devices,
		 uint32_t workers, struct gw_error *ret_error);
struct gw_pool *gpu_open_pool(const int *devices, uint32_t n_devices, uint32_t workers);

/* Starts task NAME on DEVICE, or on any one if it is negative. */
struct gw_task *gpu_start(struct gw_pool *pool, const char *name, const struct gpu_job *job,
			  int device, uint64_t deadline_ns);
struct gw_outcome gpu_wait_for(struct gw_task *task);

/* Runs a good job and gives its answer. */
struct gpu_answer gpu_compute(struct gw_pool *pool, int device);

/* Waits for news of the pool. */
void gpu_step(struct gw_pool *pool);
struct gw_pool_stat gpu_stat_of(struct gw_pool *pool);
void gpu_wait_ready(struct gw_pool *pool, uint32_t workers);
int32_t gpu_worker_pid(struct gw_pool *pool, uint32_t slot);

/* Waits until slot 0 has another process than OLD. */
int32_t gpu_wait_successor(struct gw_pool *pool, int32_t old);

void gpu_send_signal(int32_t pid, int number);

#endif
