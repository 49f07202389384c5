/* SPDX-License-Identifier: MIT */
#include "pool_gpu_host.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

int gpu_try_open(struct gw_pool **ret_pool, const int *devices, uint32_t n_devices,
		 uint32_t workers, struct gw_error *ret_error)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);

	options.devices = devices;
	options.n_devices = n_devices;
	options.workers_per_device = workers;
	options.total_input_bytes = options.total_output_bytes = 16 * MIB;
	options.max_input_bytes = options.max_output_bytes = MIB;
	options.stop_deadline_ns = 300 * MS;
	options.max_start_failures = 2;
	return gw_pool_open(ret_pool, &options, ret_error);
}

struct gw_pool *gpu_open_pool(const int *devices, uint32_t n_devices, uint32_t workers)
{
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	if (gpu_try_open(&pool, devices, n_devices, workers, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	return pool;
}

struct gw_task *gpu_start(struct gw_pool *pool, const char *name, const struct gpu_job *job,
			  int device, uint64_t deadline_ns)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};
	struct gw_task *task = NULL;

	options.input_bytes = sizeof(*job);
	options.output_bytes = sizeof(struct gpu_answer);
	options.device = device;
	options.set_device = device >= 0;
	options.deadline_ns = deadline_ns;
	if (gw_task_start(pool, name, job, &options, &task, &error) != 0)
		fail_msg("gw_task_start: %s", error.msg);
	return task;
}

struct gw_outcome gpu_wait_for(struct gw_task *task)
{
	struct gw_outcome outcome = {0};

	if (gw_task_wait(task, 20000 * MS, &outcome, NULL) != 1)
		fail_msg("a task does not end");
	return outcome;
}

/* Runs a good job and gives its answer. */
struct gpu_answer gpu_compute(struct gw_pool *pool, int device)
{
	struct gpu_job job = {.words = 1000, .seed = 7};
	struct gw_task *task = gpu_start(pool, "kernel", &job, device, 0);
	struct gw_outcome outcome = gpu_wait_for(task);
	struct gpu_answer answer;

	assert_int_equal(outcome.kind, GW_DONE);
	assert_int_equal(outcome.output_bytes, sizeof(answer));
	answer = *(const struct gpu_answer *)outcome.output;
	assert_int_equal(answer.wrong_words, 0);
	assert_int_equal(outcome.device, answer.device);
	gw_task_free(task);
	return answer;
}

void gpu_step(struct gw_pool *pool)
{
	struct pollfd fd = {.fd = gw_pool_fd(pool), .events = POLLIN};

	if (poll(&fd, 1, 10000) != 1)
		fail_msg("no news of the pool");
	(void)gw_pool_dispatch(pool, NULL);
}

struct gw_pool_stat gpu_stat_of(struct gw_pool *pool)
{
	struct gw_pool_stat stat = {0};

	assert_int_equal(gw_pool_stat(pool, &stat), 0);
	return stat;
}

void gpu_wait_ready(struct gw_pool *pool, uint32_t workers)
{
	while (gpu_stat_of(pool).workers_ready < workers)
		gpu_step(pool);
}

int32_t gpu_worker_pid(struct gw_pool *pool, uint32_t slot)
{
	struct gw_worker_info info = {0};

	assert_int_equal(gw_pool_worker(pool, slot, &info), 0);
	return info.pid;
}

/* Waits until slot 0 has another process than OLD. */
int32_t gpu_wait_successor(struct gw_pool *pool, int32_t old)
{
	int32_t pid;

	while ((pid = gpu_worker_pid(pool, 0)) == old || pid < 0)
		gpu_step(pool);
	return pid;
}

void gpu_send_signal(int32_t pid, int number)
{
	assert_true(pid > 1);
	assert_int_equal(kill(pid, number), 0);
}
