/* SPDX-License-Identifier: MIT */
/*
 * Description: however host, ward or worker end on the emulated GPU, no byte of device memory and no process
 * is left, and a healthy worker that is asked to end finishes its task first.
 *
 * Runs in: host and worker in one program. Read next: pool_gpu_worker.c for the functions.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../gate.h"
#include "../softgpu.h"
#include "../world.h"
#include "pool_gpu_host.h"

static void sigterm_lets_a_worker_finish_and_leave(void **state)
{
	struct gpu_job hold = {.hold_bytes = 64 * MIB};
	struct gpu_job job = {.words = 10};
	struct gw_pool_stat stat;
	struct gw_outcome outcome;
	struct gw_pool *pool;
	struct gw_task *task;
	struct gate gate;
	uint64_t fresh;
	int32_t pid;

	(void)state;
	soft_dir_new(NULL);
	gate_new(&gate, "term");
	pool = gpu_open_pool(device_0, 1, 1);
	pid = gpu_worker_pid(pool, 0);
	fresh = soft_used_bytes(0);
	task = gpu_start(pool, "hold", &hold, -1, 0);
	assert_int_equal(gpu_wait_for(task).kind, GW_DONE);
	gw_task_free(task);
	assert_true(soft_used_bytes(0) >= fresh + 64 * MIB);
	(void)snprintf(job.gate, sizeof(job.gate), "%s", gate.path);
	task = gpu_start(pool, "kernel", &job, -1, 0);
	(void)gate_expect(&gate);
	gpu_send_signal(pid, SIGTERM);
	gate_open(&gate);
	/* It was in hand: it is finished, and not run again. */
	outcome = gpu_wait_for(task);
	assert_int_equal(outcome.kind, GW_DONE);
	assert_int_equal(outcome.attempts, 0);
	gw_task_free(task);
	(void)gpu_wait_successor(pool, pid);
	stat = gpu_stat_of(pool);
	assert_int_equal(stat.last_exit.end, GW_END_EXIT);
	assert_int_equal(stat.last_exit.value, 0);
	assert_int_equal(stat.last_exit.pid, pid);
	assert_int_equal(soft_used_bytes(0), fresh);
	(void)gpu_compute(pool, -1);
	gw_pool_close(pool);
	gate_done(&gate);
	soft_dir_free();
}

static void an_endless_kernel_ends_at_its_deadline(void **state)
{
	struct gpu_job job = {.kernel = "spin", .bad_attempts = 1, .wait = true, .words = 10};
	struct gw_outcome outcome;
	struct gw_exit exit = {0};
	struct gw_pool *pool;
	struct gw_task *task;

	(void)state;
	soft_dir_new(NULL);
	pool = gpu_open_pool(device_0, 1, 1);
	task = gpu_start(pool, "kernel", &job, -1, 50 * MS);
	outcome = gpu_wait_for(task);
	assert_int_equal(outcome.kind, GW_DONE);
	assert_int_equal(outcome.attempts, 1);
	assert_int_equal(gw_task_attempt(task, 0, &exit), 0);
	assert_int_equal(exit.end, GW_END_DEADLINE);
	gw_task_free(task);
	gw_pool_close(pool);
	soft_dir_free();
}

/* Closing does not wait for a kernel that never ends. */
static void closing_ends_an_endless_kernel(void **state)
{
	struct gpu_job job = {.kernel = "spin", .bad_attempts = 1, .wait = true};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_pool *pool = NULL;

	(void)state;
	soft_dir_new(NULL);
	options.devices = device_0;
	options.n_devices = 1;
	options.stop_deadline_ns = 50 * MS;
	assert_int_equal(gw_pool_open(&pool, &options, NULL), 0);
	(void)gpu_start(pool, "kernel", &job, -1, 0);
	gw_pool_close(pool);
	assert_int_equal(soft_used_bytes(0), 0);
	soft_dir_free();
}

static void killed_and_stopped_workers_leave_no_memory(void **state)
{
	struct gpu_job hold = {.hold_bytes = 64 * MIB};
	struct gw_pool *pool;
	struct gw_task *task;
	int32_t pid;

	(void)state;
	soft_dir_new(NULL);
	pool = gpu_open_pool(device_0, 1, 1);
	task = gpu_start(pool, "hold", &hold, -1, 0);
	assert_int_equal(gpu_wait_for(task).kind, GW_DONE);
	gw_task_free(task);
	pid = gpu_worker_pid(pool, 0);
	world_kill(pid);
	pid = gpu_wait_successor(pool, pid);
	(void)gpu_compute(pool, -1);
	/* Stopped for good: the deadline of its task ends it. */
	gpu_send_signal(pid, SIGSTOP);
	task = gpu_start(pool, "hold", &hold, -1, 50 * MS);
	assert_int_equal(gpu_wait_for(task).kind, GW_DONE);
	gw_task_free(task);
	assert_int_not_equal(gpu_worker_pid(pool, 0), pid);
	/* And one that is stopped when the pool closes. */
	gpu_send_signal(gpu_worker_pid(pool, 0), SIGSTOP);
	gw_pool_close(pool);
	assert_int_equal(soft_used_bytes(0), 0);
	soft_dir_free();
}

static void a_killed_ward_leaves_no_memory(void **state)
{
	struct gpu_job spin = {.kernel = "spin", .bad_attempts = 1, .wait = true};
	struct gw_pool *pool;
	struct gw_task *task;
	int32_t pids[2];

	(void)state;
	soft_dir_new(NULL);
	pool = gpu_open_pool(device_0, 1, 2);
	gpu_wait_ready(pool, 2);
	pids[0] = gpu_worker_pid(pool, 0);
	pids[1] = gpu_worker_pid(pool, 1);
	task = gpu_start(pool, "kernel", &spin, -1, 0);
	world_kill(gpu_stat_of(pool).ward_pid);
	assert_int_equal(gpu_wait_for(task).kind, GW_LOST);
	gw_task_free(task);
	gw_pool_close(pool);
	assert_int_equal(soft_used_bytes(0), 0);
	for (int i = 0; i < 2; i++)
		world_wait_gone(pids[i]);
	soft_dir_free();
}

static void a_killed_host_leaves_no_memory(void **state)
{
	struct gpu_job spin = {.kernel = "spin", .bad_attempts = 1, .wait = true};
	int pipe_fds[2];
	int32_t pids[3];
	int status;
	pid_t host;

	(void)state;
	soft_dir_new(NULL);
	assert_int_equal(pipe(pipe_fds), 0);
	host = fork();
	if (host == 0) {
		struct gw_pool *pool = gpu_open_pool(device_0, 1, 2);

		(void)gpu_start(pool, "kernel", &spin, -1, 0);
		gpu_wait_ready(pool, 2);
		pids[0] = gpu_stat_of(pool).ward_pid;
		pids[1] = gpu_worker_pid(pool, 0);
		pids[2] = gpu_worker_pid(pool, 1);
		(void)!write(pipe_fds[1], pids, sizeof(pids));
		for (;;)
			(void)pause();
	}
	assert_int_equal(read(pipe_fds[0], pids, sizeof(pids)), sizeof(pids));
	world_kill(host);
	assert_int_equal(waitpid(host, &status, 0), host);
	for (int i = 0; i < 3; i++)
		world_wait_gone(pids[i]);
	assert_int_equal(soft_used_bytes(0), 0);
	(void)close(pipe_fds[0]);
	(void)close(pipe_fds[1]);
	soft_dir_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(sigterm_lets_a_worker_finish_and_leave),
		world_test(an_endless_kernel_ends_at_its_deadline),
		world_test(closing_ends_an_endless_kernel),
		world_test(killed_and_stopped_workers_leave_no_memory),
		world_test(a_killed_ward_leaves_no_memory),
		world_test(a_killed_host_leaves_no_memory),
	};

	if (gw_is_worker())
		return gpu_worker_run(false);
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
