/* SPDX-License-Identifier: MIT */
/*
 * Description: state that was kept before a reset of the GPU, or by another instance of its driver, takes nothing but
 * itself away: the pool opens, its workers live, and whoever asks for that piece is told what there is to do.
 *
 * Runs in: host and worker in one program, with real keepers, on the emulated GPU. Read next: keeper_host.h.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../softgpu.h"
#include "../world.h"
#include "keeper_host.h"

#define OPS(...)                                                                                   \
	(const struct state_op[STATE_OPS + 1])                                                     \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

/* A sealed piece and a mutable one, kept when the machine begins anew. Returns the keeper's pid. */
static int32_t leave_stale_state(const char *name)
{
	struct gw_pool *pool = keeper_pool(name, 0);
	struct keeper_view view;

	(void)state_run(pool,
			OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
			    {OP_FILL, .seed = 7, .name = "weights"}, {OP_SEAL, .name = "weights"},
			    {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
			    {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT}));
	gw_pool_close(pool);
	assert_true(keeper_look(name, &view));
	soft_reset();
	return view.welcome.keeper_pid;
}

static void expect_way_out(const char *text, const char *name, int32_t keeper)
{
	char wanted[200];

	(void)snprintf(wanted, sizeof(wanted),
		       "state '%s' of another GPU or driver instance cannot be mapped (keeper pid "
		       "%d): drop it with `gpuward state rm service`",
		       name, keeper);
	if (!strstr(text, wanted))
		fail_msg("'%s' does not say: %s", text, wanted);
}

/* Asks for both pieces, in vain. Returns the worker's pid. */
static int32_t ask_in_vain(struct gw_pool *pool, int32_t keeper)
{
	const struct state_op cache[STATE_OPS + 1] = {
		{OP_MAP, GW_STATE_WRITE, .expect = -ESTALE, .name = "cache"}};
	const struct state_op weights[STATE_OPS + 1] = {
		{OP_MAP, GW_STATE_READ, .expect = -ESTALE, .name = "weights"}};
	struct state_report report = state_run(pool, weights);

	expect_way_out(report.ops[0].error.msg, "weights", keeper);
	report = state_run(pool, cache);
	expect_way_out(report.ops[0].error.msg, "cache", keeper);
	return report.pid;
}

static void a_pool_lives_with_state_of_before_a_reset(void **state)
{
	struct gw_pool *pool;
	int32_t keeper, worker;

	(void)state;
	keeper_world(NULL);
	keeper = leave_stale_state("service");
	pool = keeper_pool("service", 0);
	worker = ask_in_vain(pool, keeper);
	assert_int_equal(ask_in_vain(pool, keeper), worker);
	assert_int_equal(state_stat_of(pool).recoveries, 0);
	gw_pool_close(pool);
	keeper_world_done();
}

static void a_function_can_make_stale_state_anew(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	keeper_world(NULL);
	(void)leave_stale_state("service");
	pool = keeper_pool("service", 0);
	(void)state_run(pool,
			OPS({OP_MAP, GW_STATE_READ, .expect = -ESTALE, .name = "weights"},
			    {OP_DROP, .name = "weights"},
			    {OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
			    {OP_FILL, .seed = 8, .name = "weights"}, {OP_SEAL, .name = "weights"}));
	gw_pool_close(pool);
	pool = keeper_pool("service", 0);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .name = "weights"},
				     {OP_CHECK, .seed = 8, .name = "weights"}));
	assert_int_equal(report.ops[1].value, 0);
	gw_pool_close(pool);
	keeper_world_done();
}

static void a_standby_lives_with_state_of_before_a_reset(void **state)
{
	struct gw_pool *pool;
	int32_t keeper;

	(void)state;
	keeper_world(NULL);
	keeper = leave_stale_state("service");
	pool = keeper_pool_hot("service");
	state_wait_hot(pool);
	state_replace_worker(pool, 0);
	(void)ask_in_vain(pool, keeper);
	assert_int_equal(state_stat_of(pool).recoveries, 1);
	gw_pool_close(pool);
	keeper_world_done();
}

static void the_way_out_is_safe_to_paste(void **state)
{
	static const char *const names[][2] = {{"$(id)", "rm '$(id)'"},
					       {"-rf", "rm -- '-rf'"},
					       {"it's", "rm 'it'\\''s'"},
					       {"llm-7b.eu_1", "rm llm-7b.eu_1"}};
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	keeper_world(NULL);
	for (size_t i = 0; i < 4; i++) {
		(void)leave_stale_state(names[i][0]);
		pool = keeper_pool(names[i][0], 0);
		report = state_run(
			pool, OPS({OP_MAP, GW_STATE_READ, .expect = -ESTALE, .name = "weights"}));
		assert_non_null(strstr(report.ops[0].error.msg, names[i][1]));
		gw_pool_close(pool);
	}
	keeper_world_done();
}

static void a_pool_whose_prepare_needs_stale_state_says_so(void **state)
{
	struct gw_error error = {0};
	struct gw_pool *pool;
	int32_t keeper;

	(void)state;
	keeper_world(NULL);
	keeper = leave_stale_state("service");
	assert_int_equal(setenv(STATE_PREPARE_ENV, "weights", 1), 0);
	assert_int_equal(keeper_try_pool("service", 0, &pool, &error), GW_EPOOLFAILED);
	expect_way_out(error.msg, "weights", keeper);
	/* As it was said. */
	assert_int_equal(keeper_remove("service", "", NULL), 0);
	keeper_wait_gone(keeper);
	pool = keeper_pool("service", 0);
	gw_pool_close(pool);
	assert_int_equal(unsetenv(STATE_PREPARE_ENV), 0);
	keeper_world_done();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		world_test(a_pool_lives_with_state_of_before_a_reset),
		world_test(a_function_can_make_stale_state_anew),
		world_test(a_standby_lives_with_state_of_before_a_reset),
		world_test(the_way_out_is_safe_to_paste),
		world_test(a_pool_whose_prepare_needs_stale_state_says_so),
	};

	(void)argc;
	(void)argv;
	if (gw_is_worker())
		return state_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
