/* SPDX-License-Identifier: MIT */
#include "subject.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS    UINT64_C(1000000)
#define TASKS 20
#define FDS   256

/* ---- the worker ---- */

static int run_reverse(struct gw_call *call)
{
	const uint8_t *input = call->input;
	uint8_t *output = call->output;

	for (uint64_t i = 0; i < call->input_bytes; i++)
		output[i] = input[call->input_bytes - 1 - i];
	call->output_bytes = call->input_bytes;
	return 0;
}

static int run_die_once(struct gw_call *call)
{
	if (call->attempt == 0)
		_exit(9);
	return 0;
}

const struct gw_function subject_functions[] = {
	{.name = "reverse", .run = run_reverse},
	{.name = "die-once", .run = run_die_once},
	{.name = NULL},
};

/* ---- what is left ---- */

static int count_fds(void)
{
	struct stat status;
	int count = 0;

	/* Not by fcntl() or /proc: those are calls that fail here. */
	for (int fd = 0; fd < FDS; fd++)
		count += fstat(fd, &status) == 0;
	return count;
}

static enum subject_end wrong(const char *what, int value)
{
	(void)printf("wrong: %s (%d)\n", what, value);
	(void)fflush(stdout);
	return SUBJECT_WRONG;
}

static enum subject_end refused(const struct gw_error *error, int code)
{
	if (code >= 0 || error->code >= 0 || strlen(error->msg) < 12)
		return wrong("a failure without words", code);
	(void)printf("refused: %s\n", error->msg);
	(void)fflush(stdout);
	return SUBJECT_REFUSED;
}

/* Nothing may be left, however it ended. */
static enum subject_end check_rest(enum subject_end end, int fds_before)
{
	siginfo_t info = {0};
	int more = count_fds() - fds_before;

	if (more > 0)
		return wrong("descriptors are left", more);
	if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
		return wrong("a child is left", info.si_pid);
	return end;
}

/* ---- a pool ---- */

static int open_pool(struct gw_pool **ret_pool, struct gw_error *ret_error)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);

	options.total_input_bytes = options.total_output_bytes = 1 << 20;
	options.max_input_bytes = options.max_output_bytes = 1 << 16;
	options.start_deadline_ns = 2000 * MS;
	options.stop_deadline_ns = 500 * MS;
	options.restart_min_ns = MS;
	options.restart_max_ns = 20 * MS;
	/* Deadlines make the ward use its timers. */
	options.task_deadline_ns = 3000 * MS;
	return gw_pool_open(ret_pool, &options, ret_error);
}

static int start_task(struct gw_pool *pool, int number, struct gw_task **ret_task,
		      struct gw_error *ret_error)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	uint8_t input[64];

	memset(input, number, sizeof(input));
	input[0] = 1;
	options.input_bytes = options.output_bytes = sizeof(input);
	return gw_task_start(pool, number == TASKS / 2 ? "die-once" : "reverse", input, &options,
			     ret_task, ret_error);
}

static enum subject_end judge(struct gw_task *task, int number)
{
	struct gw_outcome outcome = {0};
	struct gw_error error = {0};
	int result = gw_task_wait(task, 5000 * MS, &outcome, &error);

	if (result < 0)
		return refused(&error, result);
	if (result == 0)
		return wrong("a task did not end", number);
	if (outcome.kind == GW_LOST || outcome.kind == GW_POISON) {
		error.code = -1;
		(void)snprintf(error.msg, sizeof(error.msg), "task: %s", outcome.message);
		return refused(&error, -1);
	}
	if (outcome.kind != GW_DONE)
		return wrong("a task failed", (int)outcome.kind);
	if (number != TASKS / 2 &&
	    (outcome.output_bytes != 64 || ((const uint8_t *)outcome.output)[63] != 1))
		return wrong("a result is not what it must be", number);
	return SUBJECT_DONE;
}

static enum subject_end run_tasks(struct gw_pool *pool)
{
	struct gw_task *tasks[TASKS] = {NULL};
	enum subject_end end = SUBJECT_DONE;
	struct gw_error error = {0};

	for (int i = 0; i < TASKS && end == SUBJECT_DONE; i++) {
		int result = start_task(pool, i, &tasks[i], &error);

		if (result < 0)
			end = refused(&error, result);
		/* The first one is alone: no later task gives it another push. */
		else if (i == 0)
			end = judge(tasks[i], i);
	}
	for (int i = 0; i < TASKS; i++) {
		enum subject_end one = tasks[i] ? judge(tasks[i], i) : SUBJECT_DONE;

		if (end != SUBJECT_WRONG && one != SUBJECT_DONE)
			end = one;
		gw_task_free(tasks[i]);
	}
	return end;
}

enum subject_end subject_pool(void)
{
	int fds_before = count_fds();
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;
	enum subject_end end;
	int result = open_pool(&pool, &error);

	if (result < 0)
		return check_rest(refused(&error, result), fds_before);
	end = run_tasks(pool);
	gw_pool_close(pool);
	return check_rest(end, fds_before);
}

/* ---- gw_isolate ---- */

static int crash_once(const struct gw_isolated *run)
{
	if (run->attempt == 0)
		_exit(9);
	*(int *)run->shared = 42;
	return 0;
}

enum subject_end subject_isolate(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	int fds_before = count_fds();
	struct gw_error error = {0};
	struct gw_exit exit = {0};
	void *shared = NULL;
	enum subject_end end = SUBJECT_DONE;
	int result;

	options.deadline_ns = 3000 * MS;
	result = gw_isolate(crash_once, &options, &shared, &exit, &error);
	if (result < 0)
		end = refused(&error, result);
	else if (result == 1)
		end = wrong(exit.text, exit.value);
	else if (*(const int *)shared != 42)
		end = wrong("the result is not what it must be", *(const int *)shared);
	gw_isolate_free_shared(shared, 0);
	return check_rest(end, fds_before);
}
