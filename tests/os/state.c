/* SPDX-License-Identifier: MIT */
/*
 * Description: surviving state outlives its worker: sealed pieces are found whole, at the same address and
 * read-only, by every later worker; mutable ones as they were at the last commit. Each mistake gets one
 * clear refusal, and nothing of it is left behind.
 *
 * Runs in: host and worker in one program, on the emulated GPU. Read next: state_worker.h, state_host.h.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../gate.h"
#include "../softgpu.h"
#include "../world.h"
#include "common/state_wire.h"
#include "state_host.h"

#define OPS(...)                                                                                   \
	(const struct state_op[STATE_OPS + 1])                                                     \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

/* Ends the worker of slot 0 and waits for its successor. */
static void replace_worker(struct gw_pool *pool)
{
	struct gw_worker_info info = {0};
	uint64_t recoveries = state_stat_of(pool).recoveries;

	assert_int_equal(gw_pool_worker(pool, 0, &info), 0);
	world_kill(info.pid);
	while (state_stat_of(pool).recoveries == recoveries)
		assert_true(gw_pool_dispatch(pool, NULL) >= 0);
	state_wait_ready(pool, 1);
}

static void sealed_state_is_found_by_the_next_worker(void **state)
{
	const uint64_t bytes = 5 * MIB + 4;
	struct state_report first, second;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	first = state_run(pool,
			  OPS({OP_CREATE, GW_STATE_SEALED, .bytes = bytes, .name = "weights"},
			      {OP_FILL, .seed = 7, .name = "weights"}, {OP_SEAL, .name = "weights"},
			      {OP_CHECK, .seed = 7, .name = "weights"}));
	assert_int_equal(first.ops[3].value, 0);
	assert_int_equal(first.ops[0].value, STATE_BASE);
	replace_worker(pool);
	second = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .name = "weights"},
				     {OP_CHECK, .seed = 7, .name = "weights"},
				     {OP_MAP, GW_STATE_READ, .name = "weights"}));
	assert_int_not_equal(second.pid, first.pid);
	assert_int_equal(second.ops[0].info.address, first.ops[0].value);
	assert_int_equal(second.ops[0].info.bytes, bytes);
	assert_int_equal(second.ops[0].info.held_bytes, 6 * MIB);
	assert_int_equal(second.ops[0].info.kind, GW_STATE_SEALED);
	assert_int_equal(second.ops[0].info.status, GW_STATE_READY);
	assert_int_equal(second.ops[0].info.owner_pid, -1);
	assert_int_equal(second.ops[1].value, 0);
	assert_int_equal(second.ops[2].info.address, first.ops[0].value);
	gw_pool_close(pool);
	assert_int_equal(soft_used_bytes(0), 0);
	soft_dir_free();
}

static void mutable_state_is_found_as_it_was_committed(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	(void)state_run(pool,
			OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = 3 * MIB, .name = "cache"},
			    {OP_CHECK_LAST, .name = "cache"}, {OP_FILL, .seed = 1, .name = "cache"},
			    {OP_COMMIT, .name = "cache"}, {OP_FILL, .seed = 2, .name = "cache"}));
	replace_worker(pool);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"},
				     {OP_CHECK_LAST, .name = "cache"},
				     {OP_FILL, .seed = 2, .name = "cache"}, {OP_COMMIT},
				     {OP_FILL, .seed = 3, .name = "cache"}, {OP_ROLL_BACK},
				     {OP_CHECK_LAST, .name = "cache"}));
	assert_int_equal(report.ops[0].info.epoch, 1);
	assert_int_equal(report.ops[0].info.task, 1);
	assert_int_equal(report.ops[0].info.owner_pid, report.pid);
	assert_int_equal(report.ops[0].info.held_bytes, 8 * MIB);
	assert_int_equal(report.ops[1].value, 0);
	assert_int_equal(report.ops[6].info.epoch, 2);
	assert_int_equal(report.ops[6].info.task, 2);
	assert_int_equal(report.ops[6].value, 0);
	gw_pool_close(pool);
	assert_int_equal(soft_used_bytes(0), 0);
	soft_dir_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(sealed_state_is_found_by_the_next_worker),
		world_test(mutable_state_is_found_as_it_was_committed),
	};

	if (gw_is_worker())
		return state_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
