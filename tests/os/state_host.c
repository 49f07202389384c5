/* SPDX-License-Identifier: MIT */
#include "state_host.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../world.h"
#include "common/fd.h"

static struct gw_pool *open_pool(uint32_t workers, uint64_t max_state_bytes, bool hot)
{
	static const int device_0[] = {0};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	options.devices = device_0;
	options.n_devices = 1;
	options.workers_per_device = workers;
	options.total_input_bytes = options.total_output_bytes = 16 * MIB;
	options.max_input_bytes = options.max_output_bytes = MIB;
	options.stop_deadline_ns = 300 * MS;
	options.restart_min_ns = options.restart_max_ns = 1;
	options.max_state_bytes = max_state_bytes;
	options.standby = hot ? GW_STANDBY_HOT : GW_STANDBY_COLD;
	if (gw_pool_open(&pool, &options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	return pool;
}

struct gw_pool *state_open_with(uint32_t workers, uint64_t max_state_bytes)
{
	return open_pool(workers, max_state_bytes, false);
}

struct gw_pool *state_open(uint32_t workers)
{
	return open_pool(workers, 0, false);
}

struct gw_pool *state_open_hot(uint32_t workers)
{
	struct gw_pool *pool = open_pool(workers, 0, true);

	state_wait_ready(pool, workers);
	state_wait_hot(pool);
	return pool;
}

struct gw_task *state_start(struct gw_pool *pool, const struct state_job *job)
{
	return state_start_until(pool, job, 0);
}

struct gw_task *state_start_until(struct gw_pool *pool, const struct state_job *job,
				  uint64_t deadline_ns)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};
	struct gw_task *task = NULL;

	options.input_bytes = sizeof(*job);
	options.output_bytes = sizeof(struct state_report);
	options.max_attempts = 1;
	options.deadline_ns = deadline_ns;
	if (gw_task_start(pool, "state", job, &options, &task, &error) != 0)
		fail_msg("gw_task_start: %s", error.msg);
	return task;
}

struct gw_outcome state_end(struct gw_task *task, struct state_report *ret_report)
{
	struct gw_outcome outcome = {0};

	if (gw_task_wait(task, 60000 * MS, &outcome, NULL) != 1)
		fail_msg("a task does not end");
	if (outcome.output_bytes == sizeof(*ret_report))
		memcpy(ret_report, outcome.output, sizeof(*ret_report));
	outcome.output = NULL;
	gw_task_free(task);
	return outcome;
}

struct gw_outcome state_try(struct gw_pool *pool, const struct state_job *job,
			    struct state_report *ret_report)
{
	return state_end(state_start(pool, job), ret_report);
}

struct state_report state_run(struct gw_pool *pool, const struct state_op *ops)
{
	struct state_job job = {0};
	struct state_report report = {0};
	struct gw_outcome outcome;
	uint32_t count = 0;

	for (; count < STATE_OPS && ops[count].kind != OP_NONE; count++)
		job.ops[count] = ops[count];
	outcome = state_try(pool, &job, &report);
	if (outcome.kind != GW_DONE)
		fail_msg("the job ended with %u: %s", outcome.kind, outcome.message);
	for (uint32_t i = 0; i < report.done; i++) {
		const struct state_done *done = &report.ops[i];

		if (ops[i].expect != STATE_ANY && done->result != ops[i].expect &&
		    !(done->result > 0 && ops[i].expect == 0))
			fail_msg("op %u (%u on '%s') returned %d: %s", i, ops[i].kind, ops[i].name,
				 done->result, done->error.msg);
	}
	assert_int_equal(report.cuda != 0 && ops[report.done - 1].expect == 0, 0);
	assert_int_equal(report.done, count);
	return report;
}

struct gw_pool_stat state_stat_of(struct gw_pool *pool)
{
	struct gw_pool_stat stat = {0};

	assert_int_equal(gw_pool_stat(pool, &stat), 0);
	return stat;
}

/* What the ward does is seen in the pool's page; not all of it makes the descriptor readable. */
static void wait_a_bit(struct gw_pool *pool, uint64_t start_ns)
{
	struct pollfd fd = {.fd = gw_pool_fd(pool), .events = POLLIN};

	if (now_ns() - start_ns > 20000 * MS)
		fail_msg("what is waited for does not come");
	(void)poll(&fd, 1, 1);
	(void)gw_pool_dispatch(pool, NULL);
}

void state_wait_hot(struct gw_pool *pool)
{
	uint64_t start_ns = now_ns();

	while (state_stat_of(pool).standbys_hot == 0)
		wait_a_bit(pool, start_ns);
}

void state_wait_ready(struct gw_pool *pool, uint32_t workers)
{
	uint64_t start_ns = now_ns();

	while (state_stat_of(pool).workers_ready < workers)
		wait_a_bit(pool, start_ns);
}

static int32_t pid_of(struct gw_pool *pool, uint32_t slot)
{
	struct gw_worker_info info = {0};

	assert_int_equal(gw_pool_worker(pool, slot, &info), 0);
	return info.pid;
}

void state_replace_worker(struct gw_pool *pool, uint32_t slot)
{
	int32_t old = pid_of(pool, slot);
	uint64_t start_ns = now_ns();

	world_kill(old);
	while (pid_of(pool, slot) == old || pid_of(pool, slot) < 0)
		wait_a_bit(pool, start_ns);
}
