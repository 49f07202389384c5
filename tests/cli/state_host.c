/* SPDX-License-Identifier: MIT */
/*
 * A host for the test of `gpuward state`: opens a pool whose state is kept as its argument, makes a sealed piece and
 * a mutable one with a commit if they are not there, prints the ward's pid and what it found, and ends when its
 * standard input does.
 *
 *	state_host NAME
 *
 * Runs in: host and worker. It prints "failed: " and the error's code and text where the pool cannot be opened.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gpuward.h>

#define BYTES (UINT64_C(3) << 20)

/* Returns the epoch in call->output. */
static int run_make(struct gw_call *call)
{
	struct gw_state_info info = {.size = sizeof(info)};
	uint64_t address;

	if (gw_state_map("weights", GW_STATE_READ, NULL, NULL) == -ENOENT &&
	    (gw_state_create("weights", BYTES, GW_STATE_SEALED, &address, NULL) < 0 ||
	     gw_state_seal("weights", NULL) < 0))
		return 1;
	if (gw_state_map("cache", GW_STATE_WRITE, &info, NULL) == -ENOENT &&
	    gw_state_create("cache", 1, GW_STATE_MUTABLE, &address, NULL) < 0)
		return 2;
	if (gw_state_commit(NULL, NULL) < 0)
		return 3;
	*(uint64_t *)call->output = info.epoch;
	call->output_bytes = sizeof(uint64_t);
	return 0;
}

static int run_task(struct gw_pool *pool, uint64_t *ret_epoch)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_task *task = NULL;
	struct gw_outcome outcome = {0};
	struct gw_error error = {0};

	options.output_bytes = sizeof(*ret_epoch);
	if (gw_task_start(pool, "make", NULL, &options, &task, &error) < 0 ||
	    gw_task_wait(task, GW_FOREVER, &outcome, &error) != 1 || outcome.kind != GW_DONE) {
		(void)fprintf(stderr, "%s %s %d\n", error.msg, outcome.message, outcome.value);
		return -1;
	}
	memcpy(ret_epoch, outcome.output, sizeof(*ret_epoch));
	gw_task_free(task);
	return 0;
}

int main(int argc, char **argv)
{
	const struct gw_function functions[] = {{.name = "make", .run = run_make}, {0}};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	const int devices[] = {0};
	struct gw_pool_stat stat = {0};
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;
	uint64_t epoch = 0;
	char c;

	if (gw_is_worker())
		return gw_worker_run(functions);
	options.devices = devices;
	options.n_devices = 1;
	options.state_name = argc > 1 ? argv[1] : NULL;
	if (gw_pool_open(&pool, &options, &error) < 0) {
		(void)printf("failed: %d %s\n", error.code, error.msg);
		return 1;
	}
	if (run_task(pool, &epoch) < 0)
		return 1;
	(void)gw_pool_stat(pool, &stat);
	(void)printf("%d %llu\n", stat.ward_pid, (unsigned long long)epoch);
	(void)fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		continue;
	gw_pool_close(pool);
	return 0;
}
