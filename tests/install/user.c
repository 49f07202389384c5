/* SPDX-License-Identifier: MIT */
/*
 * A user's program, for the install test: compiled as C11 and as C++17 against the installed copy. Its
 * worker is itself, in a pool without a GPU; its result is the line "42".
 *
 * Exits with the number of the first thing that was not as the header says.
 */
#include <gpuward.h>

#include <stdio.h>
#include <string.h>

static int twice(struct gw_call *call)
{
	const int *input = (const int *)call->input;
	int *output = (int *)call->output;

	if (call->input_bytes != sizeof(*input) || call->output_capacity_bytes < sizeof(*output))
		return 1;
	*output = 2 * *input;
	call->output_bytes = sizeof(*output);
	return 0;
}

static int run_one_task(struct gw_pool *pool)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_outcome outcome;
	struct gw_error error;
	struct gw_task *task;
	const int input = 21;

	options.input_bytes = sizeof(input);
	options.output_bytes = sizeof(input);
	if (gw_task_start(pool, "twice", &input, &options, &task, &error) < 0) {
		fprintf(stderr, "%s\n", error.msg);
		return 4;
	}
	if (gw_task_wait(task, 20000000000ULL, &outcome, &error) != 1 || outcome.kind != GW_DONE ||
	    outcome.output_bytes != sizeof(input))
		return 5;
	printf("%d\n", *(const int *)outcome.output);
	gw_task_free(task);
	return 0;
}

int main(void)
{
	const struct gw_function functions[] = {{"twice", twice, NULL, 0, 0},
						{NULL, NULL, NULL, 0, 0}};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_pool *pool;
	struct gw_error error;
	int status;

	if (gw_is_worker())
		return gw_worker_run(functions);
	if (strcmp(gw_version(), GW_VERSION_TEXT) != 0 || !GW_CHECK_VERSION(0, 1))
		return 1;
	if (gw_cuda_class(719) != GW_FAULT_POISONED || gw_cuda_class(2) != GW_FAULT_RESOURCES)
		return 2;
	if (gw_pool_open(&pool, &options, &error) < 0) {
		fprintf(stderr, "%s\n", error.msg);
		return 3;
	}
	status = run_one_task(pool);
	gw_pool_close(pool);
	return status;
}
