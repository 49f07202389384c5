/* SPDX-License-Identifier: MIT */
/*
 * Description: a standby takes the place of a worker as it is, hot, primed or half made, and goes on from there;
 * it serves all workers of its device; without one the cold way is open.
 *
 * Runs in: host and worker in one program, on the emulated GPU. Read next: failover_host.h, failover_worker.h.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../world.h"
#include "failover_host.h"

/* A task that poisons its first worker. Returns the answer of the second. */
static struct failover_answer fault_once(struct gw_pool *pool, const char *kernel, int device)
{
	struct failover_job job = {.bad_attempts = 1, .wait = 1, .seed = 5};

	(void)snprintf(job.kernel, sizeof(job.kernel), "%s", kernel);
	return failover_end(failover_start(pool, "work", &job, device, 0), job.seed);
}

static void a_hot_standby_takes_over(void **state)
{
	static const char *const kernels[] = {"fault_null", "fault_assert", "fault_trap",
					      "fault_misaligned", "fault_shared"};
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gw_pool_stat stat;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = failover_open(&options);
	for (uint64_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		struct gw_recovery recovery;
		int32_t standby, old = failover_pid(pool, 0);

		(void)failover_wait_standbys(pool, 1, 0);
		standby = failover_standby_pid(pool);
		assert_int_equal(fault_once(pool, kernels[i], -1).pid, standby);
		recovery = failover_wait_complete(pool, i);
		assert_int_equal(recovery.number, i);
		assert_int_equal(recovery.standby, GW_STANDBY_HOT);
		assert_int_equal(recovery.exit.source, GW_SOURCE_RESULT);
		assert_int_equal(recovery.exit.end, GW_END_CUDA);
		assert_int_equal(recovery.exit.pid, old);
		assert_int_equal(recovery.new_pid, standby);
		assert_true(recovery.spoke_ns[GW_SOURCE_RESULT] <= recovery.fenced_ns);
		assert_true(recovery.fenced_ns <= recovery.ready_ns);
		assert_true(recovery.ready_ns < recovery.exit.gone_ns);
		assert_int_equal(recovery.spoke_ns[GW_SOURCE_NVML], GW_UNKNOWN);
	}
	assert_int_equal(gw_pool_recovery(pool, 5, &(struct gw_recovery){0}), -ENOENT);
	stat = failover_stat(pool);
	assert_int_equal(stat.recoveries, 5);
	assert_int_equal(stat.noticed_by[GW_SOURCE_RESULT], 5);
	failover_close(pool);
}

static void a_primed_standby_makes_its_context_then(void **state)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_PRIMED, 1);
	struct gw_pool_stat stat;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = failover_open(&options);
	stat = failover_wait_standbys(pool, 0, 1);
	/* It stays so because that is wanted, not for lack of room. */
	assert_int_equal(stat.standbys_no_room, 0);
	(void)fault_once(pool, "fault_null", -1);
	assert_int_equal(failover_wait_complete(pool, 0).standby, GW_STANDBY_PRIMED);
	(void)failover_wait_standbys(pool, 0, 1);
	failover_close(pool);
}

static void without_a_standby_it_is_cold(void **state)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_COLD, 0);
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = failover_open(&options);
	(void)fault_once(pool, "fault_null", -1);
	assert_int_equal(failover_wait_complete(pool, 0).standby, GW_STANDBY_COLD);
	assert_int_equal(failover_stat(pool).standbys_starting, 0);
	failover_close(pool);
}

static void one_standby_serves_all_workers_of_a_device(void **state)
{
	const struct gw_pool_options options = failover_options(3, GW_STANDBY_HOT, 1);
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = failover_open(&options);
	for (uint32_t i = 0; i < 6; i++) {
		int32_t old = failover_pid(pool, i % 3);
		struct gw_recovery recovery;

		(void)failover_wait_standbys(pool, 1, 0);
		world_kill(old);
		recovery = failover_wait_complete(pool, i);
		assert_int_equal(recovery.exit.pid, old);
		assert_int_equal(recovery.exit.slot, i % 3);
		assert_int_equal(recovery.standby, GW_STANDBY_HOT);
		assert_int_equal(failover_pid(pool, i % 3), recovery.new_pid);
		(void)failover_work(pool, -1);
	}
	failover_close(pool);
}

static void each_device_has_standbys_of_its_own(void **state)
{
	static const int devices[] = {0, 1};
	struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gw_pool *pool;

	(void)state;
	soft_dir_new("devices=2\n");
	options.devices = devices;
	options.n_devices = 2;
	pool = failover_open(&options);
	for (uint32_t i = 0; i < 4; i++) {
		int device = (int)(i % 2);
		struct failover_answer answer;

		(void)failover_wait_standbys(pool, 2, 0);
		answer = fault_once(pool, "fault_trap", device);
		assert_int_equal(answer.device, device);
		assert_int_equal(answer.was_standby, 1);
		assert_int_equal(failover_wait_complete(pool, i).standby, GW_STANDBY_HOT);
	}
	assert_true(soft_used_bytes(1) > 0);
	gw_pool_close(pool);
	assert_int_equal(soft_used_bytes(0) + soft_used_bytes(1), 0);
	soft_dir_free();
}

static void a_pool_without_devices_has_standbys(void **state)
{
	struct gw_pool_options options = failover_options(2, GW_STANDBY_HOT, 2);
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	options.devices = NULL;
	options.n_devices = 0;
	pool = failover_open(&options);
	for (uint32_t i = 0; i < 4; i++) {
		(void)failover_wait_standbys(pool, 2, 0);
		world_kill(failover_pid(pool, i % 2));
		assert_int_equal(failover_wait_complete(pool, i).standby, GW_STANDBY_HOT);
	}
	failover_close(pool);
}

/* A standby of another device is of no use. */
static void a_standby_stays_with_its_device(void **state)
{
	static const int devices[] = {0, 1};
	struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gate gate;
	struct gate_visit held;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new("devices=2\n");
	gate_new(&gate, "device");
	options.devices = devices;
	options.n_devices = 2;
	pool = failover_open(&options);
	(void)failover_wait_standbys(pool, 2, 0);
	/* The one of device 1 is used up, and its successor is held before it has done anything. */
	failover_hold("standby", "exec", &gate);
	(void)fault_once(pool, "fault_trap", 1);
	held = gate_expect(&gate);
	failover_situation(NULL);
	world_kill(failover_pid(pool, 1));
	assert_int_equal(failover_wait_successor(pool, 1).new_pid, held.pid);
	assert_int_equal(failover_stat(pool).standbys_hot, 1);
	gate_open(&gate);
	assert_int_equal(failover_wait_complete(pool, 1).standby, GW_STANDBY_COLD);
	assert_int_equal(failover_work(pool, 1).pid, held.pid);
	(void)failover_wait_standbys(pool, 2, 0);
	gw_pool_close(pool);
	gate_done(&gate);
	soft_dir_free();
}

/* Each standby is held at POINT, and taken there. */
static void take_half_made(const char *point, enum gw_standby how_far)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct failover_job job = {.seed = 3};
	struct gw_recovery recovery;
	struct gate_visit held;
	struct gw_pool *pool;
	struct gw_task *task;
	struct gate gate;

	soft_dir_new(NULL);
	gate_new(&gate, point);
	failover_hold("standby", point, &gate);
	pool = failover_open(&options);
	held = gate_expect(&gate);
	failover_situation(NULL);
	assert_int_equal(failover_stat(pool).standbys_starting, 1);
	world_kill(failover_pid(pool, 0));
	recovery = failover_wait_successor(pool, 0);
	assert_int_equal(recovery.new_pid, held.pid);
	assert_int_equal(recovery.standby, how_far);
	assert_int_equal(recovery.ready_ns, GW_UNKNOWN);
	task = failover_start(pool, "work", &job, -1, 0);
	gate_open(&gate);
	assert_int_equal(failover_end(task, job.seed).pid, held.pid);
	recovery = failover_wait_complete(pool, 0);
	assert_int_equal(recovery.new_pid, held.pid);
	(void)failover_wait_standbys(pool, 1, 0);
	gate_done(&gate);
	failover_close(pool);
}

static void a_standby_that_has_only_started_goes_on_as_worker(void **state)
{
	(void)state;
	take_half_made("exec", GW_STANDBY_COLD);
}

static void a_standby_that_makes_its_context_goes_on_as_worker(void **state)
{
	(void)state;
	take_half_made("context", GW_STANDBY_PRIMED);
}

static void a_standby_that_prepares_goes_on_as_worker(void **state)
{
	(void)state;
	take_half_made("prepare", GW_STANDBY_PRIMED);
}

/* Of two standbys one makes its context, and the other waits for its turn: both are taken. */
static void a_standby_that_waits_for_its_turn_goes_on_as_worker(void **state)
{
	const struct gw_pool_options options = failover_options(2, GW_STANDBY_HOT, 2);
	struct gate_visit first, second;
	struct gw_pool *pool;
	struct gate gate;

	(void)state;
	soft_dir_new(NULL);
	gate_new(&gate, "turn");
	failover_hold("standby", "context", &gate);
	pool = failover_open(&options);
	first = gate_expect(&gate);
	(void)failover_wait_standbys(pool, 0, 1);
	world_kill(failover_pid(pool, 0));
	world_kill(failover_pid(pool, 1));
	assert_int_equal(failover_wait_successor(pool, 0).new_pid, first.pid);
	(void)failover_wait_begun(pool, 1);
	/* It has its turn only when the first one's context is up. */
	gate_open(&gate);
	second = gate_expect(&gate);
	assert_int_equal(failover_wait_successor(pool, 1).new_pid, second.pid);
	assert_int_equal(failover_wait_successor(pool, 1).standby, GW_STANDBY_PRIMED);
	failover_situation(NULL);
	gate_open(&gate);
	(void)failover_wait_complete(pool, 0);
	(void)failover_wait_complete(pool, 1);
	(void)failover_work(pool, -1);
	(void)failover_wait_standbys(pool, 2, 0);
	gate_done(&gate);
	failover_close(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(a_hot_standby_takes_over),
		world_test(a_primed_standby_makes_its_context_then),
		world_test(without_a_standby_it_is_cold),
		world_test(one_standby_serves_all_workers_of_a_device),
		world_test(each_device_has_standbys_of_its_own),
		world_test(a_pool_without_devices_has_standbys),
		world_test(a_standby_stays_with_its_device),
		world_test(a_standby_that_has_only_started_goes_on_as_worker),
		world_test(a_standby_that_makes_its_context_goes_on_as_worker),
		world_test(a_standby_that_prepares_goes_on_as_worker),
		world_test(a_standby_that_waits_for_its_turn_goes_on_as_worker),
	};

	if (gw_is_worker())
		return failover_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
