/* SPDX-License-Identifier: MIT */
/*
 * Description: a pool on the emulated GPU: faults of kernels are survived and told, tasks go to the device
 * that they name, a missing device or driver is one clear error, and whatever dies, no byte of device
 * memory and no process is left.
 *
 * Runs in: host and worker in one program. Read next: pool_gpu_worker.c for the functions.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
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

#include "../gate.h"
#include "../softgpu.h"
#include "../world.h"
#include "gpu/cuda.h"
#include "pool_gpu_worker.h"

#define MIB UINT64_C(1048576)
#define MS  UINT64_C(1000000)

/* ---- helpers ---- */

static int try_open(struct gw_pool **ret_pool, const int *devices, uint32_t n_devices,
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

static struct gw_pool *open_pool(const int *devices, uint32_t n_devices, uint32_t workers)
{
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	if (try_open(&pool, devices, n_devices, workers, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	return pool;
}

static const int device_0[] = {0};

static struct gw_task *start(struct gw_pool *pool, const char *name, const struct gpu_job *job,
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

static struct gw_outcome wait_for(struct gw_task *task)
{
	struct gw_outcome outcome = {0};

	if (gw_task_wait(task, 20000 * MS, &outcome, NULL) != 1)
		fail_msg("a task does not end");
	return outcome;
}

/* Runs a good job and gives its answer. */
static struct gpu_answer compute(struct gw_pool *pool, int device)
{
	struct gpu_job job = {.words = 1000, .seed = 7};
	struct gw_task *task = start(pool, "kernel", &job, device, 0);
	struct gw_outcome outcome = wait_for(task);
	struct gpu_answer answer;

	assert_int_equal(outcome.kind, GW_DONE);
	assert_int_equal(outcome.output_bytes, sizeof(answer));
	answer = *(const struct gpu_answer *)outcome.output;
	assert_int_equal(answer.wrong_words, 0);
	assert_int_equal(outcome.device, answer.device);
	gw_task_free(task);
	return answer;
}

static void step(struct gw_pool *pool)
{
	struct pollfd fd = {.fd = gw_pool_fd(pool), .events = POLLIN};

	if (poll(&fd, 1, 10000) != 1)
		fail_msg("no news of the pool");
	(void)gw_pool_dispatch(pool, NULL);
}

static struct gw_pool_stat stat_of(struct gw_pool *pool)
{
	struct gw_pool_stat stat = {0};

	assert_int_equal(gw_pool_stat(pool, &stat), 0);
	return stat;
}

static void wait_ready(struct gw_pool *pool, uint32_t workers)
{
	while (stat_of(pool).workers_ready < workers)
		step(pool);
}

static int32_t worker_pid(struct gw_pool *pool, uint32_t slot)
{
	struct gw_worker_info info = {0};

	assert_int_equal(gw_pool_worker(pool, slot, &info), 0);
	return info.pid;
}

/* Waits until slot 0 has another process than OLD. */
static int32_t wait_successor(struct gw_pool *pool, int32_t old)
{
	int32_t pid;

	while ((pid = worker_pid(pool, 0)) == old || pid < 0)
		step(pool);
	return pid;
}

static void send_signal(int32_t pid, int number)
{
	assert_true(pid > 1);
	assert_int_equal(kill(pid, number), 0);
}

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
	assert_int_equal(exit.source, GW_SOURCE_RESULT);
	assert_int_equal(exit.device, 0);
	assert_int_equal(exit.slot, 0);
	assert_true(exit.pid > 1);
	assert_true(exit.started_ns < exit.noticed_ns);
	assert_true(exit.noticed_ns <= exit.gone_ns);
	assert_non_null(strstr(exit.text, gw_cuda_name(cuda)));
}

static void each_fault_is_run_again(void **state)
{
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_pool(device_0, 1, 1);
	for (size_t i = 0; i < N_FAULTS; i++) {
		struct gpu_job job = {.bad_attempts = 1, .wait = true, .words = 100};
		struct gw_outcome outcome;
		struct gw_task *task;

		(void)snprintf(job.kernel, sizeof(job.kernel), "%s", faults[i].kernel);
		task = start(pool, "kernel", &job, -1, 0);
		outcome = wait_for(task);
		assert_int_equal(outcome.kind, GW_DONE);
		assert_int_equal(outcome.attempts, 1);
		assert_int_equal(((const struct gpu_answer *)outcome.output)->wrong_words, 0);
		check_story(task, faults[i].cuda);
		assert_int_equal(gw_task_attempt(task, 1, &(struct gw_exit){0}), -ENOENT);
		gw_task_free(task);
	}
	assert_int_equal(stat_of(pool).recoveries, N_FAULTS);
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
	pool = open_pool(device_0, 1, 1);
	for (size_t i = 0; i < N_FAULTS; i++) {
		struct gpu_job bad = {.bad_attempts = 1, .words = 100};
		struct gw_task *tasks[3];

		(void)snprintf(bad.kernel, sizeof(bad.kernel), "%s", faults[i].kernel);
		tasks[0] = start(pool, "kernel", &good, -1, 0);
		tasks[1] = start(pool, "kernel", &bad, -1, 0);
		tasks[2] = start(pool, "kernel", &good, -1, 0);
		for (int t = 0; t < 3; t++) {
			struct gw_outcome outcome = wait_for(tasks[t]);

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
	pool = open_pool(device_0, 1, 1);
	task = start(pool, "kernel", &job, -1, 0);
	outcome = wait_for(task);
	assert_int_equal(outcome.kind, GW_POISON);
	assert_int_equal(outcome.attempts, 3);
	assert_non_null(strstr(outcome.message, "719"));
	gw_task_free(task);
	(void)compute(pool, -1);
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
	pool = open_pool(device_0, 1, 1);
	pid = worker_pid(pool, 0);
	task = start(pool, "hold", &job, -1, 0);
	outcome = wait_for(task);
	assert_int_equal(outcome.kind, GW_FAILED);
	assert_int_equal(outcome.value, 2);
	gw_task_free(task);
	(void)compute(pool, -1);
	assert_int_equal(worker_pid(pool, 0), pid);
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
	pool = open_pool(devices, 2, 2);
	wait_ready(pool, 4);
	for (int i = 0; i < 20; i++) {
		answers[i % 2] = compute(pool, i % 2);
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
	pool = open_pool(devices, 2, 1);
	wait_ready(pool, 2);
	other = worker_pid(pool, 1);
	task = start(pool, "kernel", &job, 0, 0);
	(void)compute(pool, 1);
	assert_int_equal(wait_for(task).device, 0);
	assert_int_equal(worker_pid(pool, 1), other);
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
	pool = open_pool(devices, 3, 1);
	wait_ready(pool, 3);
	for (int i = 0; i < 3; i++)
		all[i] = compute(pool, i);
	gw_pool_close(pool);
	assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "2", 1), 0);
	pool = open_pool(device_0, 1, 1);
	narrow = compute(pool, 0);
	assert_string_equal(narrow.bus_id, all[2].bus_id);
	gw_pool_close(pool);
	assert_int_equal(try_open(&pool, hidden, 1, 1, &error), -ENODEV);
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
	assert_int_equal(try_open(&pool, missing, 1, 1, &error), -ENODEV);
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
	pool = open_pool(devices, 2, 1);
	options.input_bytes = sizeof(job);
	options.set_device = true;
	options.device = 5;
	if (gw_task_start(pool, "kernel", &job, &options, &early, NULL) == 0) {
		outcome = wait_for(early);
		assert_int_equal(outcome.kind, GW_LOST);
		assert_non_null(strstr(outcome.message, "device 5"));
		gw_task_free(early);
	}
	while (stat_of(pool).workers_failed < 1)
		step(pool);
	assert_int_equal(gw_task_start(pool, "kernel", &job, &options, &task, &error),
			 GW_EPOOLFAILED);
	assert_non_null(strstr(error.msg, "device 5"));
	(void)compute(pool, 0);
	(void)compute(pool, -1);
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
	result = try_open(&pool, device_0, 1, 1, &error);
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
	pool = open_pool(device_0, 1, 1);
	gw_pool_close(pool);
	forbid_device();
	child = fork();
	if (child == 0) {
		/* Root may open everything. */
		if (getuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(2);
		_exit(try_open(&pool, device_0, 1, 1, &error) == -EACCES &&
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
	assert_true(compute(pool, -1).by_command);
	gw_pool_close(pool);
	pool = open_pool(device_0, 1, 1);
	assert_false(compute(pool, -1).by_command);
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
	pools[0] = open_pool(device_0, 1, 1);
	pools[1] = open_pool(device_1, 1, 2);
	pools[2] = open_pool(device_0, 1, 1);
	for (int i = 0; i < 3; i++)
		tasks[i] = start(pools[i], "kernel", &bad, -1, 0);
	for (int i = 0; i < 3; i++) {
		struct gw_outcome outcome = wait_for(tasks[i]);

		assert_int_equal(outcome.kind, GW_DONE);
		assert_int_equal(outcome.device, i % 2);
		assert_int_equal(outcome.attempts, 1);
		gw_task_free(tasks[i]);
	}
	gw_pool_close(pools[1]);
	(void)compute(pools[0], -1);
	(void)compute(pools[2], -1);
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
	pool = open_pool(device_0, 1, 1);
	(void)compute(pool, 0);
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

/* ---- ends ---- */

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
	pool = open_pool(device_0, 1, 1);
	pid = worker_pid(pool, 0);
	fresh = soft_used_bytes(0);
	task = start(pool, "hold", &hold, -1, 0);
	assert_int_equal(wait_for(task).kind, GW_DONE);
	gw_task_free(task);
	assert_true(soft_used_bytes(0) >= fresh + 64 * MIB);
	(void)snprintf(job.gate, sizeof(job.gate), "%s", gate.path);
	task = start(pool, "kernel", &job, -1, 0);
	(void)gate_expect(&gate);
	send_signal(pid, SIGTERM);
	gate_open(&gate);
	/* It was in hand: it is finished, and not run again. */
	outcome = wait_for(task);
	assert_int_equal(outcome.kind, GW_DONE);
	assert_int_equal(outcome.attempts, 0);
	gw_task_free(task);
	(void)wait_successor(pool, pid);
	stat = stat_of(pool);
	assert_int_equal(stat.last_exit.end, GW_END_EXIT);
	assert_int_equal(stat.last_exit.value, 0);
	assert_int_equal(stat.last_exit.pid, pid);
	assert_int_equal(soft_used_bytes(0), fresh);
	(void)compute(pool, -1);
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
	pool = open_pool(device_0, 1, 1);
	task = start(pool, "kernel", &job, -1, 50 * MS);
	outcome = wait_for(task);
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
	(void)start(pool, "kernel", &job, -1, 0);
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
	pool = open_pool(device_0, 1, 1);
	task = start(pool, "hold", &hold, -1, 0);
	assert_int_equal(wait_for(task).kind, GW_DONE);
	gw_task_free(task);
	pid = worker_pid(pool, 0);
	world_kill(pid);
	pid = wait_successor(pool, pid);
	(void)compute(pool, -1);
	/* Stopped for good: the deadline of its task ends it. */
	send_signal(pid, SIGSTOP);
	task = start(pool, "hold", &hold, -1, 50 * MS);
	assert_int_equal(wait_for(task).kind, GW_DONE);
	gw_task_free(task);
	assert_int_not_equal(worker_pid(pool, 0), pid);
	/* And one that is stopped when the pool closes. */
	send_signal(worker_pid(pool, 0), SIGSTOP);
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
	pool = open_pool(device_0, 1, 2);
	wait_ready(pool, 2);
	pids[0] = worker_pid(pool, 0);
	pids[1] = worker_pid(pool, 1);
	task = start(pool, "kernel", &spin, -1, 0);
	world_kill(stat_of(pool).ward_pid);
	assert_int_equal(wait_for(task).kind, GW_LOST);
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
		struct gw_pool *pool = open_pool(device_0, 1, 2);

		(void)start(pool, "kernel", &spin, -1, 0);
		wait_ready(pool, 2);
		pids[0] = stat_of(pool).ward_pid;
		pids[1] = worker_pid(pool, 0);
		pids[2] = worker_pid(pool, 1);
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
		world_test(sigterm_lets_a_worker_finish_and_leave),
		world_test(an_endless_kernel_ends_at_its_deadline),
		world_test(closing_ends_an_endless_kernel),
		world_test(killed_and_stopped_workers_leave_no_memory),
		world_test(a_killed_ward_leaves_no_memory),
		world_test(a_killed_host_leaves_no_memory),
	};

	if (gw_is_worker())
		return gpu_worker_run(argc > 1 && strcmp(argv[1], "--as-command") == 0);
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
