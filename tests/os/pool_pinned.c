/* SPDX-License-Identifier: MIT */
/*
 * Description: with GW_POOL_PINNED each worker of a pool on the emulated GPU pins the memory of tasks once, and
 * holds it until it is gone; what cannot be pinned is left and told; what the machine cannot carry is refused
 * before anything is taken.
 *
 * Runs in: host and worker in one program.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"
#include "common/wire.h"
#include "gpu/cuda.h"
#include "lib/pinned.h"
#include "linux/meminfo.h"
#include "pool_gpu_host.h"

/* What a pool of these tests pins, per worker: twice its totals. */
#define TOTAL_INPUT  (4 * MIB)
#define TOTAL_OUTPUT (2 * MIB)
#define PINNED_INPUT (2 * TOTAL_INPUT)
#define PINNED	     (2 * TOTAL_INPUT + 2 * TOTAL_OUTPUT)

#define BOTH (GW_CALL_INPUT_PINNED | GW_CALL_OUTPUT_PINNED)

/* ---- the worker ---- */

/* The first words of an input: what the worker is to do beside the copy. */
struct order {
	uint32_t die_in_attempts; /* SIGKILL to itself in so many */
	uint32_t flags;		  /* of the call, as they should be */
};

static struct cuda_door door;

static int prepare(int device)
{
	struct gw_error error;

	(void)device;
	return cuda_open(&door, &error) < 0 ? 999 : 0;
}

/* Only registered memory has an address for the device. */
static bool is_registered(void *memory)
{
	uint64_t address;

	return door.cuMemHostGetDevicePointer_v2(&address, memory, 0) == CUDA_SUCCESS;
}

static int check_flags(struct gw_call *call, uint32_t wanted)
{
	uint32_t found =
		(is_registered((void *)(uintptr_t)call->input) ? GW_CALL_INPUT_PINNED : 0U) |
		(is_registered(call->output) ? GW_CALL_OUTPUT_PINNED : 0U);

	if (call->flags == wanted && found == wanted)
		return 0;
	(void)snprintf(call->message, sizeof(call->message), "flags %u, registered %u, wanted %u",
		       call->flags, found, wanted);
	return 1;
}

/* The input goes to the device and from there to the output, with no memory between. */
static int run_copy(struct gw_call *call)
{
	struct order order;
	uint64_t memory = 0;
	int result;

	memcpy(&order, call->input, sizeof(order));
	if (call->attempt < order.die_in_attempts)
		(void)raise(SIGKILL);
	result = check_flags(call, order.flags);
	if (result == 0)
		result = (int)door.cuMemAlloc_v2(&memory, call->input_bytes);
	if (result == 0)
		result = (int)door.cuMemcpyHtoDAsync_v2(memory, call->input, call->input_bytes,
							NULL);
	if (result == 0)
		result = (int)door.cuMemcpyDtoHAsync_v2(call->output, memory, call->input_bytes,
							NULL);
	if (result == 0)
		result = (int)door.cuCtxSynchronize();
	if (memory != 0)
		(void)door.cuMemFree_v2(memory);
	call->output_bytes = call->input_bytes;
	return result;
}

static const struct gw_function functions[] = {
	{.name = "copy", .run = run_copy, .prepare = prepare},
	{.name = NULL},
};

/* ---- the host ---- */

static struct gw_pool_options options_of(uint32_t workers, uint32_t flags)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);

	options.devices = device_0;
	options.n_devices = 1;
	options.workers_per_device = workers;
	options.total_input_bytes = TOTAL_INPUT;
	options.total_output_bytes = TOTAL_OUTPUT;
	options.max_input_bytes = options.max_output_bytes = TOTAL_OUTPUT;
	options.flags = flags;
	return options;
}

static struct gw_pool *open_pool(uint32_t workers, uint32_t flags)
{
	struct gw_pool_options options = options_of(workers, flags);
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	if (gw_pool_open(&pool, &options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	gpu_wait_ready(pool, workers);
	return pool;
}

static struct gw_task *start_copy(struct gw_pool *pool, uint64_t bytes, struct order order)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};
	struct gw_task *task = NULL;
	uint8_t *input;

	options.input_bytes = options.output_bytes = bytes;
	if (gw_task_new(pool, "copy", &options, &task, &error) != 0)
		fail_msg("gw_task_new: %s", error.msg);
	input = gw_task_input(task);
	for (uint64_t i = 0; i < bytes; i++)
		input[i] = (uint8_t)(i * 7 + i / 4096);
	memcpy(input, &order, sizeof(order));
	assert_int_equal(gw_task_submit(task, &error), 0);
	return task;
}

static void end_copy(struct gw_task *task, uint64_t bytes)
{
	struct gw_outcome outcome = gpu_wait_for(task);

	if (outcome.kind != GW_DONE)
		fail_msg("the copy ended as %u, %d: %s", outcome.kind, outcome.value,
			 outcome.message);
	assert_int_equal(outcome.output_bytes, bytes);
	assert_memory_equal(outcome.output, gw_task_input(task), bytes);
	gw_task_free(task);
}

static void copy(struct gw_pool *pool, uint64_t bytes, struct order order)
{
	end_copy(start_copy(pool, bytes, order), bytes);
}

static void wait_pinned(uint64_t bytes)
{
	uint64_t deadline = now_ns() + 10000 * MS;

	while (soft_pinned_bytes() != bytes && now_ns() < deadline)
		(void)sched_yield();
	assert_int_equal(soft_pinned_bytes(), bytes);
}

static void each_worker_pins_once(void **state)
{
	struct gw_task *tasks[8];
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_pool(2, GW_POOL_PINNED);
	assert_int_equal(soft_pinned_bytes(), 2 * PINNED);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 8; i++)
			tasks[i] = start_copy(pool, 200000, (struct order){.flags = BOTH});
		for (int i = 0; i < 8; i++)
			end_copy(tasks[i], 200000);
	}
	copy(pool, TOTAL_OUTPUT, (struct order){.flags = BOTH});
	assert_int_equal(soft_pinned_bytes(), 2 * PINNED);
	assert_int_equal(gpu_stat_of(pool).recoveries, 0);
	gw_pool_close(pool);
	assert_int_equal(soft_pinned_bytes(), 0);
	soft_dir_free();
}

static void nothing_is_pinned_without_the_flag(void **state)
{
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_pool(1, 0);
	copy(pool, 100000, (struct order){.flags = 0});
	assert_int_equal(soft_pinned_bytes(), 0);
	gw_pool_close(pool);
	soft_dir_free();
}

static void the_death_of_a_worker_unpins(void **state)
{
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_pool(1, GW_POOL_PINNED);
	for (uint32_t i = 1; i <= 3; i++) {
		copy(pool, MIB, (struct order){.die_in_attempts = 1, .flags = BOTH});
		assert_int_equal(gpu_stat_of(pool).recoveries, i);
		wait_pinned(PINNED);
	}
	gw_pool_close(pool);
	assert_int_equal(soft_pinned_bytes(), 0);
	soft_dir_free();
}

/* The bytes of pages in the channel of the pool's first worker. */
static uint64_t channel_pages(struct gw_pool *pool)
{
	struct stat status = {0};
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", gpu_worker_pid(pool, 0),
		       WIRE_WORKER_CHANNEL);
	assert_int_equal(stat(path, &status), 0);
	return (uint64_t)status.st_blocks * 512;
}

/* How many bytes of pages are gone after more large outputs were freed than are kept. */
static uint64_t lost_pages(uint32_t flags, uint32_t call_flags)
{
	struct gw_pool_options options = options_of(1, flags);
	struct gw_pool *pool = NULL;
	struct gw_task *tasks[4];
	uint64_t before, after;

	options.total_input_bytes = options.total_output_bytes = 4 * MIB;
	assert_int_equal(gw_pool_open(&pool, &options, NULL), 0);
	for (int i = 0; i < 4; i++)
		tasks[i] = start_copy(pool, MIB, (struct order){.flags = call_flags});
	for (int i = 0; i < 4; i++)
		(void)gpu_wait_for(tasks[i]);
	before = channel_pages(pool);
	assert_true(before >= 4 * MIB);
	for (int i = 0; i < 4; i++)
		end_copy(tasks[i], MIB);
	after = channel_pages(pool);
	gw_pool_close(pool);
	return before - after;
}

/* A GPU goes on with the pages that were pinned: a hole in the file would part it from the host. */
static void pinned_pages_stay_in_the_file(void **state)
{
	(void)state;
	soft_dir_new(NULL);
	assert_true(lost_pages(0, 0) >= MIB);
	assert_int_equal(lost_pages(GW_POOL_PINNED, BOTH), 0);
	soft_dir_free();
}

/* ---- what cannot be pinned ---- */

static void check_fallback(const char *settings, uint32_t flags, uint64_t pinned)
{
	struct gw_pool *pool;

	soft_dir_new(settings);
	pool = open_pool(1, GW_POOL_PINNED);
	copy(pool, 100000, (struct order){.flags = flags});
	copy(pool, 100000, (struct order){.die_in_attempts = 1, .flags = flags});
	wait_pinned(pinned);
	gw_pool_close(pool);
	soft_dir_free();
}

static void what_the_driver_cannot_pin_is_told(void **state)
{
	(void)state;
	check_fallback("read_only_register=0\n", GW_CALL_OUTPUT_PINNED, PINNED - PINNED_INPUT);
	check_fallback("host_register=0\n", 0, 0);
	check_fallback("pinnable_mib=9\n", GW_CALL_INPUT_PINNED, PINNED_INPUT);
	check_fallback("pinnable_mib=5\n", GW_CALL_OUTPUT_PINNED, PINNED - PINNED_INPUT);
}

static int refused(struct gw_pool_options options, struct gw_error *ret_error)
{
	struct gw_pool *pool = NULL;
	int result = gw_pool_open(&pool, &options, ret_error);

	if (result == 0)
		gw_pool_close(pool);
	assert_int_equal(ret_error->code, result);
	return result;
}

static void more_than_the_machine_has_is_refused(void **state)
{
	struct gw_pool_options options = options_of(2, GW_POOL_PINNED);
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;
	uint64_t available;

	(void)state;
	soft_dir_new(NULL);
	assert_int_equal(meminfo_available("", &available), 0);
	options.total_output_bytes = available;
	assert_int_equal(refused(options, &error), -ENOMEM);
	assert_non_null(strstr(error.msg, "GW_POOL_PINNED would take "));
	assert_non_null(strstr(error.msg, "3 rooms"));
	assert_non_null(strstr(error.msg, "lower total_input_bytes and total_output_bytes"));
	assert_true(strlen(error.msg) < sizeof(error.msg) - 1);
	options.standby = GW_STANDBY_HOT;
	options.standbys_per_device = 3;
	assert_int_equal(pinned_check(&options, &error), -ENOMEM);
	assert_non_null(strstr(error.msg, "6 rooms"));
	options.total_input_bytes = options.total_output_bytes = INT64_MAX / 4;
	assert_int_equal(pinned_check(&options, &error), -ENOMEM);
	options.total_input_bytes = available / 2 + MIB;
	options.total_output_bytes = 4096;
	assert_int_equal(pinned_check(&options, &error), -ENOMEM);
	/* No process was ever started. */
	assert_int_equal(soft_clients(), 0);
	/* Memory that is not pinned is taken when it is touched. */
	options = options_of(1, 0);
	options.total_output_bytes = available;
	assert_int_equal(gw_pool_open(&pool, &options, &error), 0);
	gw_pool_close(pool);
	soft_dir_free();
}

static void a_pool_without_devices_is_refused(void **state)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error = {0};

	(void)state;
	options.flags = GW_POOL_PINNED;
	assert_int_equal(refused(options, &error), -EINVAL);
	assert_non_null(strstr(error.msg, "GW_POOL_PINNED"));
	assert_non_null(strstr(error.msg, "leave the flag out"));
}

static void the_default_is_one_largest_task(void **state)
{
	struct gw_pool_options options = options_of(1, GW_POOL_PINNED);
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	(void)state;
	soft_dir_new(NULL);
	options.total_input_bytes = options.total_output_bytes = 0;
	options.max_input_bytes = MIB;
	options.max_output_bytes = 3 * MIB;
	assert_int_equal(gw_pool_open(&pool, &options, &error), 0);
	assert_int_equal(soft_pinned_bytes(), 8 * MIB);
	copy(pool, MIB, (struct order){.flags = BOTH});
	gw_pool_close(pool);
	soft_dir_free();
}

static void the_start_has_time_to_pin(void **state)
{
	struct gw_pool_options options = options_of(1, 0);

	(void)state;
	options.start_deadline_ns = 1000 * MS;
	assert_int_equal(pinned_start_deadline_ns(&options), 1000 * MS);
	options.flags = GW_POOL_PINNED;
	options.total_input_bytes = 1024 * MIB;
	options.total_output_bytes = 3 * 1024 * MIB;
	assert_true(pinned_start_deadline_ns(&options) >= 1000 * MS + 8 * 40 * MS);
	assert_true(pinned_start_deadline_ns(&options) <= 60000 * MS);
	options.total_input_bytes = options.total_output_bytes = INT64_MAX / 4;
	assert_true(pinned_start_deadline_ns(&options) > 1000 * MS);
	options.start_deadline_ns = GW_FOREVER;
	assert_int_equal(pinned_start_deadline_ns(&options), GW_FOREVER);
}

/* ---- a machine whose memory runs out ---- */

static void write_meminfo(const char *path, unsigned long long mib)
{
	FILE *file = fopen(path, "we");

	if (!file || fprintf(file, "MemAvailable: %llu kB\n", mib * 1024) < 0 || fclose(file) != 0)
		_exit(3);
}

/* Puts a /proc/meminfo of this test's own in place, for this process and its children. */
static bool replace_meminfo(const char *path)
{
	if (unshare(CLONE_NEWNS) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount(path, "/proc/meminfo", NULL, MS_BIND, NULL) == 0;
}

/* Runs in a child: 0, 1 a fault of the pool, 77 this system does not allow the test. */
static int open_and_run_out(const char *path)
{
	struct gw_pool_options options = options_of(1, GW_POOL_PINNED);
	struct gw_error error = {0};
	struct gw_pool *pool;

	write_meminfo(path, 1);
	if (!replace_meminfo(path))
		return 77;
	if (gw_pool_open(&pool, &options, &error) != -ENOMEM)
		return 1;
	write_meminfo(path, 1024);
	pool = open_pool(1, GW_POOL_PINNED);
	copy(pool, 100000, (struct order){.flags = BOTH});
	write_meminfo(path, 1);
	/* Inputs are there already, and cost no new page. */
	copy(pool, 100000, (struct order){.die_in_attempts = 1, .flags = GW_CALL_INPUT_PINNED});
	write_meminfo(path, 1024);
	copy(pool, 100000, (struct order){.die_in_attempts = 1, .flags = BOTH});
	gw_pool_close(pool);
	return 0;
}

static void a_worker_starts_unpinned_when_memory_runs_out(void **state)
{
	char path[300];
	int status;
	pid_t child;

	(void)state;
	soft_dir_new(NULL);
	(void)snprintf(path, sizeof(path), "%s/meminfo", soft_dir());
	child = fork();
	if (child == 0)
		_exit(open_and_run_out(path));
	assert_int_equal(waitpid(child, &status, 0), child);
	(void)unlink(path);
	soft_dir_free();
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("skipped: no mount namespace can be made here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(each_worker_pins_once),
		world_test(nothing_is_pinned_without_the_flag),
		world_test(the_death_of_a_worker_unpins),
		world_test(pinned_pages_stay_in_the_file),
		world_test(what_the_driver_cannot_pin_is_told),
		world_test(more_than_the_machine_has_is_refused),
		world_test(a_pool_without_devices_is_refused),
		world_test(the_default_is_one_largest_task),
		world_test(the_start_has_time_to_pin),
		world_test(a_worker_starts_unpinned_when_memory_runs_out),
	};

	if (gw_is_worker())
		return gw_worker_run(functions);
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
