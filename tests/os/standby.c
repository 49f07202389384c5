/* SPDX-License-Identifier: MIT */
/*
 * Description: a standby takes the place of a faulted worker as it is, hot, primed or half made; it serves all
 * workers of its device; where it is missing, faulty or does not fit, the cold way is open.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"
#include "pool_gpu_host.h"

static struct gw_pool *open_pool(uint32_t workers, uint32_t standby, uint32_t standbys)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;

	options.devices = device_0;
	options.n_devices = 1;
	options.workers_per_device = workers;
	options.total_input_bytes = options.total_output_bytes = 16 * MIB;
	options.max_input_bytes = options.max_output_bytes = MIB;
	options.standby = standby;
	options.standbys_per_device = standbys;
	options.detect = GW_DETECT_RESULT_ONLY;
	if (gw_pool_open(&pool, &options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	return pool;
}

/* The statistics, once COUNT standbys are hot, primed, and without room. */
static struct gw_pool_stat wait_standbys(struct gw_pool *pool, uint32_t hot, uint32_t primed)
{
	uint64_t late = now_ns() + 15000 * MS;

	for (;;) {
		struct gw_pool_stat stat = gpu_stat_of(pool);

		if (stat.standbys_hot == hot && stat.standbys_primed == primed)
			return stat;
		if (now_ns() > late)
			fail_msg("%u hot, %u primed, %u starting, %u failed", stat.standbys_hot,
				 stat.standbys_primed, stat.standbys_starting,
				 stat.standbys_failed);
		(void)poll(NULL, 0, 1);
	}
}

static struct gw_recovery wait_complete(struct gw_pool *pool, uint64_t number)
{
	uint64_t late = now_ns() + 15000 * MS;
	struct gw_recovery recovery = {0};

	while (gw_pool_recovery(pool, number, &recovery) != 0 || !recovery.complete) {
		if (now_ns() > late)
			fail_msg("recovery %llu is not complete", (unsigned long long)number);
		(void)poll(NULL, 0, 1);
	}
	return recovery;
}

static void fault_once(struct gw_pool *pool, const char *kernel)
{
	struct gpu_job job = {.bad_attempts = 1, .wait = true, .words = 100};
	struct gw_outcome outcome;
	struct gw_task *task;

	(void)snprintf(job.kernel, sizeof(job.kernel), "%s", kernel);
	task = gpu_start(pool, "kernel", &job, -1, 0);
	outcome = gpu_wait_for(task);
	assert_int_equal(outcome.kind, GW_DONE);
	assert_int_equal(outcome.attempts, 1);
	assert_int_equal(((const struct gpu_answer *)outcome.output)->wrong_words, 0);
	gw_task_free(task);
}

static void a_hot_standby_takes_over(void **state)
{
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_pool(1, GW_STANDBY_HOT, 1);
	for (uint64_t i = 0; i < 5; i++) {
		struct gw_recovery recovery;

		(void)wait_standbys(pool, 1, 0);
		fault_once(pool, "fault_trap");
		recovery = wait_complete(pool, i);
		assert_int_equal(recovery.number, i);
		assert_int_equal(recovery.standby, GW_STANDBY_HOT);
		assert_int_equal(recovery.exit.end, GW_END_CUDA);
		assert_int_equal(recovery.exit.source, GW_SOURCE_RESULT);
		assert_int_equal(recovery.new_pid, gpu_worker_pid(pool, 0));
		assert_true(recovery.spoke_ns[GW_SOURCE_RESULT] <= recovery.fenced_ns);
		assert_true(recovery.fenced_ns <= recovery.ready_ns);
		assert_true(recovery.ready_ns < recovery.exit.gone_ns);
		assert_int_equal(recovery.spoke_ns[GW_SOURCE_NVML], GW_UNKNOWN);
	}
	assert_int_equal(gw_pool_recovery(pool, 5, &(struct gw_recovery){0}), -ENOENT);
	assert_int_equal(gpu_stat_of(pool).noticed_by[GW_SOURCE_RESULT], 5);
	gw_pool_close(pool);
	soft_dir_free();
}

static void a_primed_standby_makes_its_context_then(void **state)
{
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_pool(1, GW_STANDBY_PRIMED, 1);
	(void)wait_standbys(pool, 0, 1);
	fault_once(pool, "fault_null");
	assert_int_equal(wait_complete(pool, 0).standby, GW_STANDBY_PRIMED);
	(void)wait_standbys(pool, 0, 1);
	gw_pool_close(pool);
	soft_dir_free();
}

static void without_a_standby_it_is_cold(void **state)
{
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_pool(1, GW_STANDBY_COLD, 0);
	fault_once(pool, "fault_null");
	assert_int_equal(wait_complete(pool, 0).standby, GW_STANDBY_COLD);
	gw_pool_close(pool);
	soft_dir_free();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		world_test(a_hot_standby_takes_over),
		world_test(a_primed_standby_makes_its_context_then),
		world_test(without_a_standby_it_is_cold),
	};

	(void)argc;
	(void)argv;
	if (gw_is_worker())
		return gpu_worker_run(false);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
