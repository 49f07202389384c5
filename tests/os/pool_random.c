/* SPDX-License-Identifier: MIT */
/*
 * Description: workers are killed at random, 2,000 times under load, and every task's result reaches the
 * host exactly once and right. The same on the emulated GPU with fewer kills, where no byte of device
 * memory is left.
 *
 * Runs in: host and worker in one program. The main thread keeps many tasks under way and kills; two more
 * threads start tasks and wait for each. Signals go through a pidfd, after a look whether the process is
 * the ward's child: no other process can be hit. The seed is printed; GPUWARD_TEST_SEED repeats the
 * choices, though not the timing.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../seed.h"
#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"
#include "pool_gpu_worker.h"

enum {
	WINDOW = 150,
	THREADS = 2,
	WORDS_MAX = 3000,
	SLOTS_MAX = 8,
};

/* How tasks of a kind are made and checked. */
struct kind {
	const char *function;
	uint64_t output_bytes;
	uint64_t (*fill)(void *input, uint64_t number); /* returns the input's bytes */
	bool (*is_right)(const void *output, uint64_t number);
};

struct job {
	struct gw_task *task;
	uint64_t number;
	uint32_t ended;
};

struct storm {
	struct gw_pool *pool;
	const struct kind *kind;
	struct seed seed;
	uint32_t n_slots;
	int32_t killed[SLOTS_MAX]; /* the last one in each slot */
	int32_t ward_pid;
	struct job jobs[WINDOW];
	_Atomic uint64_t started;
	_Atomic uint64_t right;
	uint64_t attempts;
	atomic_bool over;
};

/* ---- tasks on the CPU ---- */

static uint64_t mix(uint64_t number, uint64_t words)
{
	struct seed seed = {number};
	uint64_t sum = 0;

	for (uint64_t i = 0; i < words; i++)
		sum = sum * 31 + seed_next(&seed);
	return sum;
}

static uint64_t words_of(uint64_t number)
{
	return 1 + number * 7919 % WORDS_MAX;
}

/* The input is the numbers themselves, and the output is one of as many. */
static uint64_t fill_mix(void *input, uint64_t number)
{
	struct seed seed = {number};
	uint64_t *words = input;

	for (uint64_t i = 0; i < words_of(number); i++)
		words[i] = seed_next(&seed);
	return words_of(number) * sizeof(*words);
}

static bool mix_is_right(const void *output, uint64_t number)
{
	return *(const uint64_t *)output == mix(number, words_of(number));
}

static int run_mix(struct gw_call *call)
{
	const uint64_t *words = call->input;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < call->input_bytes / sizeof(*words); i++) {
		sum = sum * 31 + words[i];
		/* A result that is half done must never be seen. */
		*(volatile uint64_t *)call->output = sum;
	}
	call->output_bytes = sizeof(sum);
	return 0;
}

static const struct kind cpu_kind = {
	.function = "mix", .output_bytes = 8, .fill = fill_mix, .is_right = mix_is_right};

/* ---- tasks on the GPU ---- */

static uint64_t fill_kernel(void *input, uint64_t number)
{
	*(struct gpu_job *)input =
		(struct gpu_job){.words = (uint32_t)words_of(number), .seed = (uint32_t)number};
	return sizeof(struct gpu_job);
}

static bool kernel_is_right(const void *output, uint64_t number)
{
	(void)number;
	return ((const struct gpu_answer *)output)->wrong_words == 0;
}

static const struct kind gpu_kind = {.function = "kernel",
				     .output_bytes = sizeof(struct gpu_answer),
				     .fill = fill_kernel,
				     .is_right = kernel_is_right};

/* ---- the host ---- */

static struct gw_task *start(struct storm *storm, uint64_t number, struct job *job)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	uint64_t input[WORDS_MAX + 1];
	struct gw_error error = {0};
	struct gw_task *task = NULL;

	options.input_bytes = storm->kind->fill(input, number);
	options.output_bytes = storm->kind->output_bytes;
	options.user = job;
	if (gw_task_start(storm->pool, storm->kind->function, input, &options, &task, &error) != 0)
		fail_msg("gw_task_start: %s", error.msg);
	return task;
}

static bool is_right(const struct storm *storm, const struct gw_outcome *outcome, uint64_t number)
{
	return outcome->kind == GW_DONE && outcome->output_bytes == storm->kind->output_bytes &&
	       storm->kind->is_right(outcome->output, number);
}

static void refill(struct storm *storm)
{
	for (int i = 0; i < WINDOW; i++) {
		struct job *job = &storm->jobs[i];

		if (job->task)
			continue;
		job->number = atomic_fetch_add(&storm->started, 1);
		job->ended = 0;
		job->task = start(storm, job->number, job);
	}
}

static void take(struct storm *storm, struct job *job, const struct gw_outcome *outcome)
{
	assert_int_equal(job->ended++, 0);
	if (!is_right(storm, outcome, job->number))
		fail_msg("task %" PRIu64 ": outcome %u, value %d, %u attempts: %s", job->number,
			 outcome->kind, outcome->value, outcome->attempts, outcome->message);
	storm->attempts += outcome->attempts;
	atomic_fetch_add(&storm->right, 1);
	gw_task_free(job->task);
	job->task = NULL;
}

/* Any one of those that are under way. gw_pool_next() would give out the other threads' tasks too. */
static void take_one(struct storm *storm)
{
	struct job *job = &storm->jobs[seed_below(&storm->seed, WINDOW)];
	struct gw_outcome outcome = {0};

	if (!job->task)
		return;
	if (gw_task_wait(job->task, UINT64_C(20000000000), &outcome, NULL) != 1)
		fail_msg("task %" PRIu64 " does not end", job->number);
	take(storm, job, &outcome);
}

/* Now this thread is alone: every task that is left comes once, and no other does. */
static void take_all(struct storm *storm)
{
	struct gw_task *task;

	while (gw_pool_next(storm->pool, UINT64_C(20000000000), &task, NULL) == 1) {
		struct job *job = gw_task_user(task);
		struct gw_outcome outcome = {0};

		assert_non_null(job);
		assert_ptr_equal(job->task, task);
		assert_int_equal(gw_task_poll(task, &outcome, NULL), 1);
		take(storm, job, &outcome);
	}
	for (int i = 0; i < WINDOW; i++)
		assert_null(storm->jobs[i].task);
}

/* A task at a time, as a simple host does it. */
static void *simple_host(void *argument)
{
	struct storm *storm = argument;

	while (!atomic_load(&storm->over)) {
		uint64_t number = atomic_fetch_add(&storm->started, 1);
		struct gw_task *task = start(storm, number, NULL);
		struct gw_outcome outcome = {0};

		if (gw_task_wait(task, UINT64_C(20000000000), &outcome, NULL) == 1 &&
		    is_right(storm, &outcome, number))
			atomic_fetch_add(&storm->right, 1);
		gw_task_free(task);
	}
	return NULL;
}

/* ---- killing ---- */

static int parent_of(int32_t pid)
{
	char path[64], text[512] = "";
	const char *end;
	int parent = -1;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return -1;
	(void)!fread(text, 1, sizeof(text) - 1, file);
	(void)fclose(file);
	end = strrchr(text, ')');
	if (end && sscanf(end + 1, " %*c %d", &parent) != 1)
		return -1;
	return parent;
}

/* Returns whether there was a living worker to be killed. */
static bool kill_one(struct storm *storm)
{
	static const int signals[] = {SIGKILL, SIGKILL, SIGKILL, SIGHUP, SIGABRT, SIGTERM};
	uint32_t slot = (uint32_t)seed_below(&storm->seed, storm->n_slots);
	int number = signals[seed_below(&storm->seed, sizeof(signals) / sizeof(signals[0]))];
	struct gw_worker_info info = {0};
	int pidfd;
	bool sent;

	assert_int_equal(gw_pool_worker(storm->pool, slot, &info), 0);
	if (info.pid <= 1 || info.pid == storm->killed[slot])
		return false;
	pidfd = (int)syscall(SYS_pidfd_open, info.pid, 0);
	if (pidfd < 0)
		return false;
	sent = parent_of(info.pid) == storm->ward_pid &&
	       syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) == 0;
	(void)close(pidfd);
	if (sent)
		storm->killed[slot] = info.pid;
	return sent;
}

static void run_storm(struct storm *storm, uint32_t kills)
{
	uint32_t done = 0;

	while (done < kills) {
		refill(storm);
		for (uint64_t n = seed_below(&storm->seed, 8); n > 0; n--)
			take_one(storm);
		done += kill_one(storm);
	}
}

static void finish(struct storm *storm, pthread_t threads[THREADS])
{
	atomic_store(&storm->over, true);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	take_all(storm);
}

static struct gw_pool *open_pool(const struct gw_pool_options *chosen)
{
	struct gw_pool_options options = *chosen;
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	options.total_input_bytes = options.total_output_bytes = 64 << 20;
	options.max_input_bytes = options.max_output_bytes = 1 << 20;
	options.max_attempts = UINT32_MAX;
	options.max_start_failures = 1000000;
	options.restart_min_ns = options.restart_max_ns = 1000000;
	if (gw_pool_open(&pool, &options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	return pool;
}

static void survive(struct storm *storm, const struct gw_pool_options *options, uint32_t kills)
{
	struct gw_pool_stat stat = {0};
	pthread_t threads[THREADS];

	storm->pool = open_pool(options);
	assert_int_equal(gw_pool_stat(storm->pool, &stat), 0);
	assert_true(stat.ward_pid > 1);
	storm->ward_pid = stat.ward_pid;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, simple_host, storm), 0);
	run_storm(storm, kills);
	finish(storm, threads);
	assert_int_equal(gw_pool_stat(storm->pool, &stat), 0);
	(void)fprintf(stderr,
		      "%u kills, %" PRIu64 " workers replaced, %" PRIu64 " tasks, %" PRIu64
		      " attempts that died\n",
		      kills, stat.recoveries, storm->started, storm->attempts);
	/* Each task was counted once by the pool, and once here. */
	assert_int_equal(storm->right, storm->started);
	assert_int_equal(stat.tasks_done, storm->started);
	assert_int_equal(stat.tasks_pending, 0);
	assert_int_equal(stat.input_bytes, 0);
	assert_int_equal(stat.output_bytes, 0);
	assert_int_equal(stat.workers_failed, 0);
	/* The last kills may not have been told of yet. */
	assert_true(stat.recoveries + storm->n_slots >= kills);
	assert_true(storm->attempts > 0);
	gw_pool_close(storm->pool);
}

static void results_survive_two_thousand_kills(void **state)
{
	static struct storm storm = {.kind = &cpu_kind, .n_slots = 4};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);

	(void)state;
	storm.seed = seed_new("2,000 kills");
	options.workers_per_device = storm.n_slots;
	survive(&storm, &options, 2000);
}

static void results_survive_kills_on_the_gpu(void **state)
{
	static const int devices[] = {0, 1};
	static struct storm storm = {.kind = &gpu_kind, .n_slots = 4};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	char self[300] = "";
	const char *const command[] = {self, "--gpu", NULL};

	(void)state;
	soft_dir_new("devices=2\n");
	storm.seed = seed_new("kills on the GPU");
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	options.devices = devices;
	options.n_devices = 2;
	options.workers_per_device = 2;
	options.command = command;
	survive(&storm, &options, 200);
	assert_int_equal(soft_used_bytes(0) + soft_used_bytes(1), 0);
	soft_dir_free();
}

int main(int argc, char **argv)
{
	static const struct gw_function functions[] = {
		{.name = "mix", .run = run_mix},
		{.name = NULL},
	};
	const struct CMUnitTest tests[] = {
		world_test(results_survive_two_thousand_kills),
		world_test(results_survive_kills_on_the_gpu),
	};
	const struct rlimit no_core = {0, 0};

	if (gw_is_worker())
		return argc > 1 && strcmp(argv[1], "--gpu") == 0 ? gpu_worker_run(true)
								 : gw_worker_run(functions);
	world_begin();
	(void)setrlimit(RLIMIT_CORE, &no_core);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
