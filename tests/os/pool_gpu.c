/* SPDX-License-Identifier: MIT */
/*
 * Description: a pool on the emulated GPU: faults of kernels are survived and told, tasks go to the device
 * that they name, and a missing device or driver is one clear error.
 *
 * Runs in: host and worker in one program. Read next: pool_gpu_worker.c for the functions,
 * pool_gpu_ends.c for what is left of those that die.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../softgpu.h"
#include "../world.h"
#include "gpu/cuda.h"
#include "pool_gpu_host.h"

/* ---- faults ---- */

static const struct {
	const char *kernel;
	int cuda;
} faults[] = {
	{"fault_null", 700},	   {"fault_oob", 700},	  {"fault_stack", 700},
	{"fault_misaligned", 716}, {"fault_assert", 710}, {"fault_shared", 715},
	{"fault_trap", 719},
};

#define N_FAULTS (sizeof(faults) / sizeof(faults[0]))

static void check_story(struct gw_task *task, int cuda)
{
	struct gw_exit exit = {0};

	assert_int_equal(gw_task_attempt(task, 0, &exit), 0);
	assert_int_equal(exit.end, GW_END_CUDA);
	assert_int_equal(exit.cuda, cuda);
	assert_int_equal(exit.value, cuda);
	assert_int_equal(exit.source, GW_SOURCE_ERROR_LOG);
	assert_int_equal(exit.device, 0);
	assert_int_equal(exit.slot, 0);
	assert_true(exit.pid > 1);
	assert_true(exit.started_ns < exit.noticed_ns);
	assert_true(exit.noticed_ns <= exit.gone_ns);
	assert_non_null(strstr(exit.text, gw_cuda_name(cuda)));
	/* Whole, and without the advice that the pool has followed already. */
	assert_true(strlen(exit.text) < sizeof(exit.text) - 1);
	assert_null(strstr(exit.text, "only a new"));
}

static void each_fault_is_run_again(void **state)
{
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = gpu_open_pool(device_0, 1, 1);
	for (size_t i = 0; i < N_FAULTS; i++) {
		struct gpu_job job = {.bad_attempts = 1, .wait = true, .words = 100};
		struct gw_outcome outcome;
		struct gw_task *task;

		(void)snprintf(job.kernel, sizeof(job.kernel), "%s", faults[i].kernel);
		task = gpu_start(pool, "kernel", &job, -1, 0);
		outcome = gpu_wait_for(task);
		assert_int_equal(outcome.kind, GW_DONE);
		assert_int_equal(outcome.attempts, 1);
		assert_int_equal(((const struct gpu_answer *)outcome.output)->wrong_words, 0);
		check_story(task, faults[i].cuda);
		assert_int_equal(gw_task_attempt(task, 1, &(struct gw_exit){0}), -ENOENT);
		gw_task_free(task);
	}
	assert_int_equal(gpu_stat_of(pool).recoveries, N_FAULTS);
	gw_pool_close(pool);
	soft_dir_free();
}

/* The function returns at once; its kernel faults later. The tasks behind it are innocent. */
static void a_fault_is_charged_to_its_task(void **state)
{
	struct gpu_job good = {.words = 100};
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = gpu_open_pool(device_0, 1, 1);
	for (size_t i = 0; i < N_FAULTS; i++) {
		struct gpu_job bad = {.bad_attempts = 1, .words = 100};
		struct gw_task *tasks[3];

		(void)snprintf(bad.kernel, sizeof(bad.kernel), "%s", faults[i].kernel);
		tasks[0] = gpu_start(pool, "kernel", &good, -1, 0);
		tasks[1] = gpu_start(pool, "kernel", &bad, -1, 0);
		tasks[2] = gpu_start(pool, "kernel", &good, -1, 0);
		for (int t = 0; t < 3; t++) {
			struct gw_outcome outcome = gpu_wait_for(tasks[t]);

			assert_int_equal(outcome.kind, GW_DONE);
			assert_int_equal(outcome.attempts, t == 1);
		}
		check_story(tasks[1], faults[i].cuda);
		for (int t = 0; t < 3; t++)
			gw_task_free(tasks[t]);
	}
	gw_pool_close(pool);
	soft_dir_free();
}

static void a_task_that_always_faults_is_poison(void **state)
{
	struct gpu_job job = {.kernel = "fault_trap", .bad_attempts = 100};
	struct gw_pool *pool;
	struct gw_outcome outcome;
	struct gw_task *task;

	(void)state;
	soft_dir_new(NULL);
	pool = gpu_open_pool(device_0, 1, 1);
	task = gpu_start(pool, "kernel", &job, -1, 0);
	outcome = gpu_wait_for(task);
	assert_int_equal(outcome.kind, GW_POISON);
	assert_int_equal(outcome.attempts, 3);
	assert_non_null(strstr(outcome.message, "719"));
	gw_task_free(task);
	(void)gpu_compute(pool, -1);
	gw_pool_close(pool);
	soft_dir_free();
}

static void out_of_memory_fails_the_task_alone(void **state)
{
	struct gpu_job job = {.hold_bytes = 4096 * MIB};
	struct gw_pool *pool;
	struct gw_outcome outcome;
	struct gw_task *task;
	int32_t pid;

	(void)state;
	soft_dir_new("memory_mib=2048\n");
	pool = gpu_open_pool(device_0, 1, 1);
	pid = gpu_worker_pid(pool, 0);
	task = gpu_start(pool, "hold", &job, -1, 0);
	outcome = gpu_wait_for(task);
	assert_int_equal(outcome.kind, GW_FAILED);
	assert_int_equal(outcome.value, 2);
	gw_task_free(task);
	(void)gpu_compute(pool, -1);
	assert_int_equal(gpu_worker_pid(pool, 0), pid);
	gw_pool_close(pool);
	soft_dir_free();
}

/* ---- devices ---- */

static void tasks_go_to_the_device_that_they_name(void **state)
{
	static const int devices[] = {0, 1};
	struct gpu_answer answers[2];
	struct gw_pool *pool;
	int both = 0;

	(void)state;
	soft_dir_new("devices=2\n");
	pool = gpu_open_pool(devices, 2, 2);
	gpu_wait_ready(pool, 4);
	for (int i = 0; i < 20; i++) {
		answers[i % 2] = gpu_compute(pool, i % 2);
		assert_int_equal(answers[i % 2].device, i % 2);
	}
	/* They are two devices, and not one with two numbers. */
	assert_string_not_equal(answers[0].bus_id, answers[1].bus_id);
	for (uint32_t slot = 0; slot < 4; slot++) {
		struct gw_worker_info info = {0};

		assert_int_equal(gw_pool_worker(pool, slot, &info), 0);
		both |= 1 << info.device;
	}
	assert_int_equal(both, 3);
	gw_pool_close(pool);
	soft_dir_free();
}

static void a_dead_worker_leaves_the_others_devices_alone(void **state)
{
	static const int devices[] = {0, 1};
	struct gpu_job job = {.kernel = "fault_null", .bad_attempts = 1, .words = 10};
	struct gw_pool *pool;
	struct gw_task *task;
	int32_t other;

	(void)state;
	soft_dir_new("devices=2\n");
	pool = gpu_open_pool(devices, 2, 1);
	gpu_wait_ready(pool, 2);
	other = gpu_worker_pid(pool, 1);
	task = gpu_start(pool, "kernel", &job, 0, 0);
	(void)gpu_compute(pool, 1);
	assert_int_equal(gpu_wait_for(task).device, 0);
	assert_int_equal(gpu_worker_pid(pool, 1), other);
	gw_task_free(task);
	gw_pool_close(pool);
	soft_dir_free();
}

static void the_hosts_visible_devices_narrow_the_pool(void **state)
{
	static const int devices[] = {0, 1, 2};
	static const int hidden[] = {1};
	struct gw_error error = {0};
	struct gpu_answer all[3], narrow;
	struct gw_pool *pool = NULL;

	(void)state;
	soft_dir_new("devices=3\n");
	pool = gpu_open_pool(devices, 3, 1);
	gpu_wait_ready(pool, 3);
	for (int i = 0; i < 3; i++)
		all[i] = gpu_compute(pool, i);
	gw_pool_close(pool);
	assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "2", 1), 0);
	pool = gpu_open_pool(device_0, 1, 1);
	narrow = gpu_compute(pool, 0);
	assert_string_equal(narrow.bus_id, all[2].bus_id);
	gw_pool_close(pool);
	assert_int_equal(gpu_try_open(&pool, hidden, 1, 1, &error), -ENODEV);
	assert_non_null(strstr(error.msg, "CUDA_VISIBLE_DEVICES"));
	assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
	soft_dir_free();
}

static void a_device_that_is_not_there_is_named(void **state)
{
	static const int missing[] = {5};
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	(void)state;
	soft_dir_new("devices=2\n");
	assert_int_equal(gpu_try_open(&pool, missing, 1, 1, &error), -ENODEV);
	assert_non_null(strstr(error.msg, "device 5"));
	assert_null(pool);
	soft_dir_free();
}

/* One device of two is not there: its tasks end with the reason, before and after that is known. */
static void tasks_of_a_missing_device_do_not_wait(void **state)
{
	static const int devices[] = {0, 5};
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gpu_job job = {.words = 10};
	struct gw_error error = {0};
	struct gw_outcome outcome;
	struct gw_task *early = NULL, *task = NULL;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new("devices=2\n");
	pool = gpu_open_pool(devices, 2, 1);
	options.input_bytes = sizeof(job);
	options.set_device = true;
	options.device = 5;
	if (gw_task_start(pool, "kernel", &job, &options, &early, NULL) == 0) {
		outcome = gpu_wait_for(early);
		assert_int_equal(outcome.kind, GW_LOST);
		assert_non_null(strstr(outcome.message, "device 5"));
		gw_task_free(early);
	}
	while (gpu_stat_of(pool).workers_failed < 1)
		gpu_step(pool);
	assert_int_equal(gw_task_start(pool, "kernel", &job, &options, &task, &error),
			 GW_EPOOLFAILED);
	assert_non_null(strstr(error.msg, "device 5"));
	(void)gpu_compute(pool, 0);
	(void)gpu_compute(pool, -1);
	gw_pool_close(pool);
	soft_dir_free();
}

/* ---- a driver that cannot be used ---- */

static void a_missing_driver_is_one_clear_error(void **state)
{
	char *path = strdup(getenv("LD_LIBRARY_PATH"));
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;
	int result;

	(void)state;
	assert_non_null(path);
	assert_int_equal(setenv("LD_LIBRARY_PATH", "/nowhere", 1), 0);
	result = gpu_try_open(&pool, device_0, 1, 1, &error);
	assert_int_equal(setenv("LD_LIBRARY_PATH", path, 1), 0);
	free(path);
	if (result == 0) {
		gw_pool_close(pool);
		print_message("skipped: this machine has a driver of its own\n");
		skip();
	}
	assert_int_equal(result, GW_EDRIVER);
	assert_non_null(strstr(error.msg, "libcuda.so.1"));
}

/* Makes the machine's files as a system does: all may use it, but not its device. */
static void forbid_device(void)
{
	static const char *const files[] = {"state", "kmsg", "events", "dev/nvidiactl",
					    "dev/nvidia-uvm"};
	char path[300];

	assert_int_equal(chmod(soft_dir(), 0777), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", soft_dir(), files[i]);
		(void)chmod(path, 0666);
	}
	(void)snprintf(path, sizeof(path), "%s/dev", soft_dir());
	assert_int_equal(chmod(path, 0777), 0);
	(void)snprintf(path, sizeof(path), "%s/dev/nvidia0", soft_dir());
	assert_int_equal(chmod(path, 0), 0);
}

static void no_permission_is_one_clear_error(void **state)
{
	struct gw_error error = {0};
	struct gw_pool *pool;
	int status;
	pid_t child;

	(void)state;
	soft_dir_new(NULL);
	pool = gpu_open_pool(device_0, 1, 1);
	gw_pool_close(pool);
	forbid_device();
	child = fork();
	if (child == 0) {
		/* Root may open everything. */
		if (getuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(2);
		_exit(gpu_try_open(&pool, device_0, 1, 1, &error) == -EACCES &&
				      strstr(error.msg, "dev/nvidia0")
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	soft_dir_free();
}

/* ---- programs and pools ---- */

static void a_command_can_be_the_worker(void **state)
{
	char self[300] = "";
	const char *const command[] = {self, "--as-command", NULL};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	(void)state;
	soft_dir_new(NULL);
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	options.command = command;
	options.devices = device_0;
	options.n_devices = 1;
	if (gw_pool_open(&pool, &options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	assert_true(gpu_compute(pool, -1).by_command);
	gw_pool_close(pool);
	pool = gpu_open_pool(device_0, 1, 1);
	assert_false(gpu_compute(pool, -1).by_command);
	gw_pool_close(pool);
	soft_dir_free();
}

static void several_pools_live_side_by_side(void **state)
{
	static const int device_1[] = {1};
	struct gpu_job bad = {.kernel = "fault_trap", .bad_attempts = 1, .words = 10};
	struct gw_pool *pools[3];
	struct gw_task *tasks[3];

	(void)state;
	soft_dir_new("devices=2\n");
	pools[0] = gpu_open_pool(device_0, 1, 1);
	pools[1] = gpu_open_pool(device_1, 1, 2);
	pools[2] = gpu_open_pool(device_0, 1, 1);
	for (int i = 0; i < 3; i++)
		tasks[i] = gpu_start(pools[i], "kernel", &bad, -1, 0);
	for (int i = 0; i < 3; i++) {
		struct gw_outcome outcome = gpu_wait_for(tasks[i]);

		assert_int_equal(outcome.kind, GW_DONE);
		assert_int_equal(outcome.device, i % 2);
		assert_int_equal(outcome.attempts, 1);
		gw_task_free(tasks[i]);
	}
	gw_pool_close(pools[1]);
	(void)gpu_compute(pools[0], -1);
	(void)gpu_compute(pools[2], -1);
	gw_pool_close(pools[0]);
	gw_pool_close(pools[2]);
	soft_dir_free();
}

static void *sleep_in_thread(void *argument)
{
	for (;;)
		(void)pause();
	return argument;
}

/* Runs in a child: a host with a context of its own and a thread. Returns its exit code. */
static int host_with_cuda(void)
{
	struct cuda_context *context;
	struct gw_error error = {0};
	struct cuda_door door;
	struct gw_pool *pool;
	pthread_t thread;

	if (cuda_open(&door, &error) < 0 || cuda_start_device(&door, 0, &context, &error) < 0 ||
	    pthread_create(&thread, NULL, sleep_in_thread, NULL) != 0)
		return 2;
	pool = gpu_open_pool(device_0, 1, 1);
	(void)gpu_compute(pool, 0);
	/* The host's own context is as good as before. */
	if (door.cuCtxSynchronize() != 0)
		return 3;
	gw_pool_close(pool);
	return door.cuCtxSynchronize() == 0 ? 0 : 4;
}

static void a_host_with_cuda_and_threads_opens_a_pool(void **state)
{
	int status;
	pid_t child;

	(void)state;
	soft_dir_new(NULL);
	child = fork();
	if (child == 0)
		_exit(host_with_cuda());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	soft_dir_free();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		world_test(each_fault_is_run_again),
		world_test(a_fault_is_charged_to_its_task),
		world_test(a_task_that_always_faults_is_poison),
		world_test(out_of_memory_fails_the_task_alone),
		world_test(tasks_go_to_the_device_that_they_name),
		world_test(a_dead_worker_leaves_the_others_devices_alone),
		world_test(the_hosts_visible_devices_narrow_the_pool),
		world_test(a_device_that_is_not_there_is_named),
		world_test(tasks_of_a_missing_device_do_not_wait),
		world_test(a_missing_driver_is_one_clear_error),
		world_test(no_permission_is_one_clear_error),
		world_test(a_command_can_be_the_worker),
		world_test(several_pools_live_side_by_side),
		world_test(a_host_with_cuda_and_threads_opens_a_pool),
	};

	if (gw_is_worker())
		return gpu_worker_run(argc > 1 && strcmp(argv[1], "--as-command") == 0);
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
