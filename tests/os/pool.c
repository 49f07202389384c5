/* SPDX-License-Identifier: MIT */
/*
 * Description: a pool of workers without a GPU: tasks end exactly once with the right result, whatever
 * happens to workers, ward and host; nothing is left behind.
 */
#include <errno.h>
#include <fcntl.h>
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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "world.h"

/* ---- the worker's functions ---- */

static int run_empty(struct gw_call *call)
{
	(void)call;
	return 0;
}

static int run_reverse(struct gw_call *call)
{
	const char *input = call->input;
	char *output = call->output;

	for (uint64_t i = 0; i < call->input_bytes; i++)
		output[i] = input[call->input_bytes - 1 - i];
	call->output_bytes = call->input_bytes;
	return 0;
}

static int run_fail(struct gw_call *call)
{
	(void)snprintf(call->message, sizeof(call->message), "attempt %u says no", call->attempt);
	return 42;
}

static int run_abort(struct gw_call *call)
{
	(void)call;
	abort();
	return 0;
}

/* Dies in the first INPUT[0] attempts, then answers. */
static int run_die_until(struct gw_call *call)
{
	if (call->attempt < *(const uint32_t *)call->input)
		_exit(9);
	*(uint32_t *)call->output = call->attempt;
	call->output_bytes = sizeof(uint32_t);
	return 0;
}

static int run_hang(struct gw_call *call)
{
	(void)call;
	for (;;)
		(void)pause();
	return 0;
}

static int run_pid(struct gw_call *call)
{
	*(int32_t *)call->output = getpid();
	call->output_bytes = sizeof(int32_t);
	return 0;
}

static int run_too_much(struct gw_call *call)
{
	call->output_bytes = call->output_capacity_bytes + 1;
	return 0;
}

static int run_write_input(struct gw_call *call)
{
	/* A sanitizer's handler would turn it into something else. */
	(void)signal(SIGSEGV, SIG_DFL);
	*(volatile char *)(uintptr_t)call->input = 1;
	return 0;
}

static const struct gw_function functions[] = {
	{.name = "empty", .run = run_empty},
	{.name = "reverse", .run = run_reverse},
	{.name = "fail", .run = run_fail},
	{.name = "abort", .run = run_abort},
	{.name = "die-until", .run = run_die_until},
	{.name = "hang", .run = run_hang},
	{.name = "pid", .run = run_pid},
	{.name = "too-much", .run = run_too_much},
	{.name = "write-input", .run = run_write_input},
	{.name = NULL},
};

/* ---- helpers ---- */

static struct gw_pool *open_pool(uint32_t workers)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	options.workers_per_device = workers;
	options.total_input_bytes = options.total_output_bytes = 64 << 20;
	options.max_input_bytes = options.max_output_bytes = 32 << 20;
	options.stop_deadline_ns = 500000000;
	if (gw_pool_open(&pool, &options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	return pool;
}

static struct gw_task *start(struct gw_pool *pool, const char *name, const void *input,
			     uint64_t input_bytes, uint64_t output_bytes)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};
	struct gw_task *task = NULL;

	options.input_bytes = input_bytes;
	options.output_bytes = output_bytes;
	if (gw_task_start(pool, name, input, &options, &task, &error) != 0)
		fail_msg("gw_task_start: %s", error.msg);
	return task;
}

static struct gw_outcome wait_for(struct gw_task *task)
{
	struct gw_outcome outcome = {0};
	struct gw_error error = {0};

	if (gw_task_wait(task, UINT64_C(20000000000), &outcome, &error) != 1)
		fail_msg("gw_task_wait: %s", error.code ? error.msg : "timed out");
	return outcome;
}

/* Waits until all WORKERS are ready. */
static void wait_ready(struct gw_pool *pool, uint32_t workers)
{
	struct gw_pool_stat stat = {0};
	struct pollfd fd = {.fd = gw_pool_fd(pool), .events = POLLIN};

	while (gw_pool_stat(pool, &stat) == 0 && stat.workers_ready < workers) {
		assert_int_equal(poll(&fd, 1, 10000), 1);
		assert_true(gw_pool_dispatch(pool, NULL) >= 0);
	}
}

static int32_t worker_pid(struct gw_pool *pool, uint32_t slot)
{
	struct gw_worker_info info;

	assert_int_equal(gw_pool_worker(pool, slot, &info), 0);
	assert_true(info.pid > 1);
	return info.pid;
}

/* ---- results ---- */

static void results_are_right(void **state)
{
	struct gw_pool *pool = open_pool(1);
	struct gw_task *task = start(pool, "reverse", "hello", 5, 16);
	struct gw_outcome outcome = wait_for(task);

	(void)state;
	assert_int_equal(outcome.kind, GW_DONE);
	assert_int_equal(outcome.output_bytes, 5);
	assert_memory_equal(outcome.output, "olleh", 5);
	assert_true(outcome.ended_ns >= outcome.started_ns);
	gw_task_free(task);

	task = start(pool, "fail", NULL, 0, 0);
	outcome = wait_for(task);
	assert_int_equal(outcome.kind, GW_FAILED);
	assert_int_equal(outcome.value, 42);
	assert_string_equal(outcome.message, "attempt 0 says no");
	gw_task_free(task);
	gw_pool_close(pool);
}

static void large_payloads_travel(void **state)
{
	struct gw_pool *pool = open_pool(2);
	const uint64_t bytes = 20 << 20;
	uint8_t *input = malloc(bytes);

	(void)state;
	for (uint64_t i = 0; i < bytes; i++)
		input[i] = (uint8_t)(i * 7);
	for (int round = 0; round < 3; round++) {
		struct gw_task *task = start(pool, "reverse", input, bytes, bytes);
		struct gw_outcome outcome = wait_for(task);
		const uint8_t *output = outcome.output;

		assert_int_equal(outcome.kind, GW_DONE);
		assert_int_equal(output[0], input[bytes - 1]);
		assert_int_equal(output[bytes - 1], input[0]);
		gw_task_free(task);
	}
	free(input);
	gw_pool_close(pool);
}

static void many_tasks_end_once_each(void **state)
{
	enum {
		COUNT = 3000
	};
	static struct gw_task *tasks[COUNT];
	struct gw_pool *pool = open_pool(3);
	struct gw_task *task;
	int seen = 0;

	(void)state;
	for (int i = 0; i < COUNT; i++)
		tasks[i] = start(pool, "reverse", &i, sizeof(i), sizeof(i));
	while (gw_pool_next(pool, UINT64_C(20000000000), &task, NULL) == 1) {
		assert_int_equal(gw_task_poll(task, NULL, NULL), 1);
		seen++;
	}
	assert_int_equal(seen, COUNT);
	for (int i = 0; i < COUNT; i++)
		gw_task_free(tasks[i]);
	gw_pool_close(pool);
}

/* ---- crashes ---- */

static void a_crash_is_run_again(void **state)
{
	struct gw_pool *pool = open_pool(1);
	uint32_t deaths = 2;
	struct gw_task *task = start(pool, "die-until", &deaths, sizeof(deaths), 4);
	struct gw_outcome outcome = wait_for(task);
	struct gw_exit exit;

	(void)state;
	assert_int_equal(outcome.kind, GW_DONE);
	assert_int_equal(*(const uint32_t *)outcome.output, 2);
	assert_int_equal(outcome.attempts, 2);
	assert_int_equal(gw_task_attempt(task, 0, &exit), 0);
	assert_int_equal(exit.end, GW_END_EXIT);
	assert_int_equal(exit.value, 9);
	assert_int_equal(gw_task_attempt(task, 1, &exit), 0);
	assert_int_equal(gw_task_attempt(task, 2, &exit), -ENOENT);
	gw_task_free(task);
	gw_pool_close(pool);
}

static void a_poison_task_tells_each_story(void **state)
{
	struct gw_pool *pool = open_pool(1);
	struct gw_task *poison = start(pool, "abort", NULL, 0, 0);
	struct gw_task *good = start(pool, "reverse", "ab", 2, 2);
	struct gw_outcome outcome = wait_for(poison);
	struct gw_exit exit;

	(void)state;
	assert_int_equal(outcome.kind, GW_POISON);
	assert_int_equal(outcome.attempts, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(gw_task_attempt(poison, i, &exit), 0);
		assert_int_equal(exit.end, GW_END_SIGNAL);
		assert_int_equal(exit.value, SIGABRT);
		assert_true(exit.gone_ns >= exit.started_ns);
	}
	assert_int_equal(wait_for(good).kind, GW_DONE);
	gw_task_free(poison);
	gw_task_free(good);
	gw_pool_close(pool);
}

static void inputs_cannot_be_written_by_a_worker(void **state)
{
	struct gw_pool *pool = open_pool(1);
	struct gw_task *task = start(pool, "write-input", "x", 1, 0);
	struct gw_exit exit;

	(void)state;
	assert_int_equal(wait_for(task).kind, GW_POISON);
	assert_int_equal(gw_task_attempt(task, 0, &exit), 0);
	assert_int_equal(exit.value, SIGSEGV);
	assert_memory_equal(gw_task_input(task), "x", 1);
	gw_task_free(task);
	gw_pool_close(pool);
}

static void an_output_over_its_room_is_refused(void **state)
{
	struct gw_pool *pool = open_pool(1);
	struct gw_task *task = start(pool, "too-much", NULL, 0, 8);
	struct gw_outcome outcome = wait_for(task);

	(void)state;
	assert_int_equal(outcome.kind, GW_FAILED);
	assert_int_equal(outcome.output_bytes, 0);
	gw_task_free(task);
	gw_pool_close(pool);
}

static void killed_and_stopped_workers_are_replaced(void **state)
{
	struct gw_pool *pool = open_pool(2);
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_task *task;
	struct gw_exit exit;

	(void)state;
	wait_ready(pool, 2);
	assert_int_equal(wait_for(start(pool, "empty", NULL, 0, 0)).kind, GW_DONE);
	world_kill(worker_pid(pool, 0));
	for (int i = 0; i < 50; i++) {
		task = start(pool, "reverse", "ab", 2, 2);
		assert_int_equal(wait_for(task).kind, GW_DONE);
		gw_task_free(task);
	}
	/* A hang in host code, with a deadline. */
	options.deadline_ns = 100000000;
	options.max_attempts = 1;
	assert_int_equal(gw_task_start(pool, "hang", NULL, &options, &task, NULL), 0);
	assert_int_equal(wait_for(task).kind, GW_POISON);
	assert_int_equal(gw_task_attempt(task, 0, &exit), 0);
	assert_int_equal(exit.end, GW_END_DEADLINE);
	gw_task_free(task);
	gw_pool_close(pool);
}

/* ---- cancel ---- */

static void queued_tasks_are_cancelled(void **state)
{
	struct gw_pool *pool = open_pool(1);
	struct gw_task *running = start(pool, "hang", NULL, 0, 0);
	struct gw_task *queued = start(pool, "empty", NULL, 0, 0);

	(void)state;
	assert_int_equal(gw_task_cancel(queued, false, NULL), 1);
	assert_int_equal(wait_for(queued).kind, GW_CANCELLED);
	assert_int_equal(gw_task_cancel(running, true, NULL), 1);
	assert_int_equal(wait_for(running).kind, GW_CANCELLED);
	gw_task_free(running);
	gw_task_free(queued);
	running = start(pool, "empty", NULL, 0, 0);
	assert_int_equal(wait_for(running).kind, GW_DONE);
	gw_task_free(running);
	gw_pool_close(pool);
}

/* ---- bad input ---- */

static void bad_input_gives_one_clear_line(void **state)
{
	struct gw_pool *pool = open_pool(1);
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};
	struct gw_task *task = NULL;

	(void)state;
	assert_int_equal(gw_task_new(pool, "nope", NULL, &task, &error), GW_ENOFUNCTION);
	assert_non_null(strstr(error.msg, "'nope'"));
	assert_non_null(strstr(error.msg, "reverse"));
	options.input_bytes = 33 << 20;
	assert_int_equal(gw_task_new(pool, "empty", &options, &task, &error), -EMSGSIZE);
	options.input_bytes = 0;
	options.set_device = true;
	options.device = 3;
	assert_int_equal(gw_task_new(pool, "empty", &options, &task, &error), -ENODEV);
	assert_null(task);
	gw_pool_close(pool);
}

static void limits_are_kept_and_given_back(void **state)
{
	struct gw_pool *pool = open_pool(1);
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_task *held[4];
	struct gw_task *task = NULL;
	struct gw_error error = {0};
	int n = 0;

	(void)state;
	options.input_bytes = 32 << 20;
	for (n = 0; n < 4; n++) {
		if (gw_task_new(pool, "empty", &options, &held[n], &error) != 0)
			break;
	}
	assert_int_equal(n, 2);
	assert_int_equal(error.code, GW_ELIMIT);
	for (int i = 0; i < n; i++)
		gw_task_free(held[i]);
	assert_int_equal(gw_task_new(pool, "empty", &options, &task, &error), 0);
	gw_task_free(task);
	gw_pool_close(pool);
}

static int open_command(const char *const *command, struct gw_error *error)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_pool *pool = NULL;

	options.command = command;
	options.max_start_failures = 2;
	options.start_deadline_ns = 300000000;
	return gw_pool_open(&pool, &options, error);
}

static void a_bad_program_is_named(void **state)
{
	const char *const missing[] = {"/nowhere/worker", NULL};
	const char *const directory[] = {"/tmp", NULL};
	const char *const silent[] = {"sleep", "100", NULL};
	const char *const quits[] = {"true", NULL};
	struct gw_error error = {0};

	(void)state;
	assert_int_equal(open_command(missing, &error), -ENOENT);
	assert_non_null(strstr(error.msg, "/nowhere/worker"));
	assert_int_equal(open_command(directory, &error), -EACCES);
	assert_true(open_command(silent, &error) < 0);
	assert_true(error.msg[0] != '\0');
	assert_true(open_command(quits, &error) < 0);
}

/* ---- the ward and the host die ---- */

static void the_wards_death_is_an_error_not_a_hang(void **state)
{
	struct gw_pool *pool = open_pool(1);
	struct gw_task *task = start(pool, "hang", NULL, 0, 0);
	struct gw_pool_stat stat;
	struct gw_error error = {0};
	struct gw_task *more = NULL;
	int32_t worker = worker_pid(pool, 0);

	(void)state;
	assert_int_equal(gw_pool_stat(pool, &stat), 0);
	world_kill(stat.ward_pid);
	assert_int_equal(wait_for(task).kind, GW_LOST);
	assert_int_equal(gw_task_new(pool, "empty", NULL, &more, &error), GW_EWARDLOST);
	gw_task_free(task);
	gw_pool_close(pool);
	assert_int_equal(world_reap(worker), 1);
}

static void a_forked_child_can_close_and_nothing_else(void **state)
{
	struct gw_pool *pool = open_pool(1);
	struct gw_task *task = start(pool, "reverse", "ab", 2, 2);
	struct gw_error error;
	int status;
	pid_t child = fork();

	(void)state;
	if (child == 0) {
		int code = gw_task_submit(task, &error) == GW_EFORKED &&
					   gw_task_wait(task, 0, NULL, &error) == GW_EFORKED
				   ? 0
				   : 1;

		gw_task_free(task);
		gw_pool_close(pool);
		_exit(code);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(wait_for(task).kind, GW_DONE);
	gw_task_free(task);
	gw_pool_close(pool);
}

static void a_killed_host_leaves_nothing(void **state)
{
	int pipe_fds[2];
	int32_t pids[3];
	int status;
	pid_t host;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	host = fork();
	if (host == 0) {
		struct gw_pool *pool = open_pool(2);
		struct gw_pool_stat stat;

		(void)start(pool, "hang", NULL, 0, 0);
		wait_ready(pool, 2);
		(void)gw_pool_stat(pool, &stat);
		pids[0] = stat.ward_pid;
		pids[1] = worker_pid(pool, 0);
		pids[2] = worker_pid(pool, 1);
		(void)!write(pipe_fds[1], pids, sizeof(pids));
		for (;;)
			pause();
	}
	assert_int_equal(read(pipe_fds[0], pids, sizeof(pids)), sizeof(pids));
	world_kill(host);
	assert_int_equal(waitpid(host, &status, 0), host);
	for (int i = 0; i < 3; i++)
		world_wait_gone(pids[i]);
	(void)close(pipe_fds[0]);
	(void)close(pipe_fds[1]);
}

/* ---- event loops and threads ---- */

static void the_descriptor_tells_of_ended_tasks(void **state)
{
	struct gw_pool *pool = open_pool(2);
	struct pollfd fd = {.events = POLLIN};
	int seen = 0;

	(void)state;
	fd.fd = gw_pool_fd(pool);
	for (int i = 0; i < 100; i++)
		(void)start(pool, "reverse", &i, sizeof(i), sizeof(i));
	while (seen < 100) {
		struct gw_task *task;

		assert_int_equal(poll(&fd, 1, 10000), 1);
		assert_true(gw_pool_dispatch(pool, NULL) >= 0);
		while (gw_pool_next(pool, 0, &task, NULL) == 1) {
			gw_task_free(task);
			seen++;
		}
	}
	gw_pool_close(pool);
}

static void *thread_of_tasks(void *argument)
{
	struct gw_pool *pool = argument;

	for (int i = 0; i < 300; i++) {
		struct gw_task *task = start(pool, "reverse", &i, sizeof(i), sizeof(i));
		struct gw_outcome outcome = wait_for(task);

		if (outcome.kind != GW_DONE)
			return argument;
		gw_task_free(task);
	}
	return NULL;
}

static void threads_share_a_pool(void **state)
{
	struct gw_pool *pool = open_pool(2);
	pthread_t threads[6];
	void *result;

	(void)state;
	wait_ready(pool, 2);
	for (int i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, thread_of_tasks, pool), 0);
	world_kill(worker_pid(pool, 0));
	for (int i = 0; i < 6; i++) {
		assert_int_equal(pthread_join(threads[i], &result), 0);
		assert_null(result);
	}
	gw_pool_close(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(results_are_right),
		world_test(large_payloads_travel),
		world_test(many_tasks_end_once_each),
		world_test(a_crash_is_run_again),
		world_test(a_poison_task_tells_each_story),
		world_test(inputs_cannot_be_written_by_a_worker),
		world_test(an_output_over_its_room_is_refused),
		world_test(killed_and_stopped_workers_are_replaced),
		world_test(queued_tasks_are_cancelled),
		world_test(bad_input_gives_one_clear_line),
		world_test(limits_are_kept_and_given_back),
		world_test(a_bad_program_is_named),
		world_test(the_wards_death_is_an_error_not_a_hang),
		world_test(a_forked_child_can_close_and_nothing_else),
		world_test(a_killed_host_leaves_nothing),
		world_test(the_descriptor_tells_of_ended_tasks),
		world_test(threads_share_a_pool),
	};

	if (gw_is_worker())
		return gw_worker_run(functions);
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
