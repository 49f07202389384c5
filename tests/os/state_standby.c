/* SPDX-License-Identifier: MIT */
/*
 * Description: a hot standby has all sealed state mapped in advance, also what is sealed while it waits, so that
 * a function that asks for it after the promotion gets it for one question to the ward; and it does not keep
 * what is dropped. `prepare` of every worker may map sealed state, or make it.
 *
 * Runs in: host and worker in one program, on the emulated GPU. Whether a piece was mapped in advance is told
 * by the steps that its map takes (state_worker.h).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../softgpu.h"
#include "../world.h"
#include "state_host.h"

#define PIECES 40

#define OPS(...)                                                                                   \
	(const struct state_op[STATE_OPS + 1])                                                     \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

/* A question and its answer; without the mapping in advance an import, a map, an access and a release too. */
#define STEPS_IN_ADVANCE 2
#define STEPS_OTHERWISE	 6

static void sealed_state_is_mapped_before_the_promotion(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open_hot(1);
	(void)state_run(pool, OPS({OP_MANY, .seed = PIECES, .bytes = MIB, .name = "w"},
				  {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
				  {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT}));
	/* The second of these standbys was started when all was sealed. */
	for (int i = 0; i < 2; i++) {
		state_wait_hot(pool);
		state_replace_worker(pool, 0);
		report = state_run(pool, OPS({OP_MAP_MANY, .seed = PIECES, .name = "w"},
					     {OP_CHECK_LAST, .name = "w.7"}));
		assert_int_equal(report.ops[1].value, 0);
		report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"},
					     {OP_CHECK_LAST, .name = "cache"}));
		assert_int_equal(report.ops[0].info.epoch, 1);
		assert_int_equal(report.ops[1].value, 0);
	}
	state_wait_hot(pool);
	state_replace_worker(pool, 0);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .name = "w.0"},
				     {OP_MAP, GW_STATE_READ, .name = "w.0"}));
	assert_int_equal(report.steps, STEPS_IN_ADVANCE);
	gw_pool_close(pool);
	soft_dir_free();
}

static void without_a_standby_it_is_mapped_when_it_is_asked_for(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	(void)state_run(pool, OPS({OP_MANY, .seed = 2, .bytes = MIB, .name = "w"}));
	state_replace_worker(pool, 0);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .name = "w.0"},
				     {OP_MAP, GW_STATE_READ, .name = "w.0"}));
	assert_int_equal(report.steps, STEPS_OTHERWISE);
	gw_pool_close(pool);
	soft_dir_free();
}

/* Asks the ward again and again until no piece is left, dropped ones included. */
static void wait_for_no_piece(struct gw_pool *pool)
{
	struct state_report report;

	for (int i = 0; i < 100000; i++) {
		report = state_run(pool, OPS({OP_LIST}));
		if (report.ops[0].result == 0)
			return;
	}
	fail_msg("a dropped piece is kept: %s", report.ops[0].info.name);
}

/* A standby, and a worker that was one and has not asked for the piece, let go of it. */
static void what_is_dropped_is_not_kept_by_standbys(void **state)
{
	struct gw_pool *pool;
	uint64_t fresh;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open_hot(1);
	fresh = soft_used_bytes(0);
	(void)state_run(pool, OPS({OP_MANY, .seed = PIECES, .bytes = MIB, .name = "w"}));
	assert_true(soft_used_bytes(0) >= fresh + PIECES * 2 * MIB);
	state_replace_worker(pool, 0);
	state_wait_hot(pool);
	for (uint32_t i = 0; i < PIECES; i++) {
		struct state_op ops[STATE_OPS + 1] = {{OP_DROP}};

		(void)snprintf(ops[0].name, sizeof(ops[0].name), "w.%u", i);
		(void)state_run(pool, ops);
	}
	wait_for_no_piece(pool);
	assert_int_equal(state_stat_of(pool).state_bytes, 0);
	gw_pool_close(pool);
	soft_dir_free();
}

static void an_idle_worker_lets_go_of_what_another_drops(void **state)
{
	struct gw_pool *pool;
	uint64_t began;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open_hot(2);
	(void)state_run(pool, OPS({OP_MANY, .seed = 2, .bytes = MIB, .name = "w"}));
	/* Both workers were standbys then, which have mapped the pieces in advance. */
	for (uint32_t i = 0; i < 2; i++) {
		state_wait_hot(pool);
		state_replace_worker(pool, i);
		state_wait_ready(pool, 2);
	}
	state_wait_hot(pool);
	began = state_stat_of(pool).state_pieces;
	assert_int_equal(began, 2);
	(void)state_run(pool, OPS({OP_DROP, .name = "w.0"}, {OP_DROP, .name = "w.1"}));
	wait_for_no_piece(pool);
	gw_pool_close(pool);
	soft_dir_free();
}

/* However many workers and standbys prepare at once, one makes the piece, and all have it. */
static void prepare_may_map_and_make(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	assert_int_equal(setenv(STATE_PREPARE_ENV, "weights", 1), 0);
	pool = state_open_hot(4);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(state_stat_of(pool).state_pieces, 1);
		report = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .name = "weights"},
					     {OP_CHECK, .seed = 3, .name = "weights"}));
		assert_int_equal(report.ops[1].value, 0);
		/* It is in hand already. */
		assert_int_equal(report.ops[0].info.bytes, 2 * MIB);
		state_replace_worker(pool, 0);
		state_wait_ready(pool, 4);
		state_wait_hot(pool);
	}
	assert_int_equal(unsetenv(STATE_PREPARE_ENV), 0);
	gw_pool_close(pool);
	soft_dir_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(sealed_state_is_mapped_before_the_promotion),
		world_test(without_a_standby_it_is_mapped_when_it_is_asked_for),
		world_test(what_is_dropped_is_not_kept_by_standbys),
		world_test(an_idle_worker_lets_go_of_what_another_drops),
		world_test(prepare_may_map_and_make),
	};

	if (gw_is_worker())
		return state_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
