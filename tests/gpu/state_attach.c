/* SPDX-License-Identifier: MIT */
/*
 * Description: surviving state does on a GPU what it does on the emulated one: it is at its address in every
 * worker, sealed pieces are whole and read-only, mutable ones as they were committed. Prints how long a new
 * worker takes to have it: 1,000 pieces of 2 MiB, one of up to 100 GiB, mutable state with its roll-back; cold,
 * and mapped in advance by a hot standby.
 *
 * usage: test-state_attach [--emulated]
 *
 * Without --emulated it is skipped where there is no real GPU. Times are printed and judged by people.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../os/state_host.h"
#include "../softgpu.h"
#include "../world.h"
#include "common/state_wire.h"
#include "gpu/nodes.h"

#define GIB (UINT64_C(1) << 30)

static bool emulated;

#define OPS(...)                                                                                   \
	(const struct state_op[STATE_OPS + 1])                                                     \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

static double ms(const struct state_report *report, uint32_t op)
{
	return (double)report->ops[op].ns / 1e6;
}

static int set_up(void **state)
{
	if (emulated)
		soft_dir_new(NULL);
	return world_setup(state);
}

static int tear_down(void **state)
{
	int result = world_teardown(state);

	if (emulated)
		soft_dir_free();
	return result;
}

static void many_small_pieces(void **state)
{
	const uint32_t pieces = emulated ? 100 : 1000;
	struct gw_pool *pool = state_open_hot(1);
	struct state_report report;

	(void)state;
	report = state_run(pool, OPS({OP_MANY, .seed = pieces, .bytes = 2 * MIB, .name = "w"}));
	print_message("%u pieces of 2 MiB: made and sealed in %.1f ms\n", pieces, ms(&report, 0));
	state_replace_worker(pool, 0);
	report = state_run(pool, OPS({OP_MAP_MANY, .seed = pieces, .name = "w"},
				     {OP_MAP, GW_STATE_READ, .name = "w.7"},
				     {OP_CHECK_LAST, .name = "w.7"}));
	print_message("  had by a promoted standby in %.2f ms\n", ms(&report, 0));
	assert_int_equal(report.ops[1].info.address, STATE_BASE + 7 * 2 * STATE_GRANULE);
	assert_int_equal(report.ops[2].value, 0);
	gw_pool_close(pool);
	pool = state_open(1);
	(void)state_run(pool, OPS({OP_MANY, .seed = pieces, .bytes = 2 * MIB, .name = "w"}));
	state_replace_worker(pool, 0);
	report = state_run(pool, OPS({OP_MAP_MANY, .seed = pieces, .name = "w"}));
	print_message("  had by a cold worker in %.2f ms\n", ms(&report, 0));
	gw_pool_close(pool);
}

static void one_large_piece(void **state)
{
	struct gw_pool *pool = state_open(1);
	uint64_t bytes = 100 * GIB;
	struct state_report report;

	(void)state;
	/* As much as the device has room for. */
	for (;; bytes /= 2) {
		report = state_run(pool, OPS({OP_CREATE, GW_STATE_SEALED, .expect = STATE_ANY,
					      .bytes = bytes, .name = "large"}));
		if (report.ops[0].result != -ENOMEM || bytes <= GIB)
			break;
	}
	(void)state_run(pool, OPS({OP_SEAL, .name = "large"}));
	print_message("%llu GiB: made in %.1f ms\n", (unsigned long long)(bytes / GIB),
		      ms(&report, 0));
	state_replace_worker(pool, 0);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .name = "large"},
				     {OP_MAP, GW_STATE_READ, .name = "large"}));
	print_message("  had by a cold worker in %.2f ms, looked up in %.4f ms\n", ms(&report, 0),
		      ms(&report, 1));
	assert_int_equal(report.ops[0].info.address, STATE_BASE);
	assert_int_equal(report.ops[0].info.bytes, bytes);
	gw_pool_close(pool);
}

static void mutable_state_comes_back(void **state)
{
	struct gw_pool *pool = state_open_hot(1);
	const uint64_t bytes = emulated ? 8 * MIB : GIB;
	struct state_report report;

	(void)state;
	report = state_run(pool, OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = bytes, .name = "large"},
				     {OP_COMMIT, .name = "large"},
				     {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
				     {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT, .name = "cache"},
				     {OP_FILL, .seed = 99, .name = "cache"}));
	print_message("mutable, %llu MiB: commit %.2f ms; 1 MiB: commit %.2f ms\n",
		      (unsigned long long)(bytes / MIB), ms(&report, 1), ms(&report, 4));
	state_replace_worker(pool, 0);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "large"},
				     {OP_MAP, GW_STATE_WRITE, .name = "cache"},
				     {OP_CHECK_LAST, .name = "cache"}));
	print_message("  had by a promoted standby, rolled back, in %.2f ms and %.2f ms (the first "
		      "waits for the end of the old process)\n",
		      ms(&report, 0), ms(&report, 1));
	assert_int_equal(report.ops[1].info.epoch, 1);
	assert_int_equal(report.ops[2].value, 0);
	gw_pool_close(pool);
}

static void sealed_state_cannot_be_written(void **state)
{
	struct state_job write = {.ops = {{OP_WRITE, .seed = 8, .name = "weights"},
					  {OP_SEAL, .name = "weights"},
					  {OP_COMMIT}}};
	struct gw_pool *pool = state_open(1);
	struct state_report report;
	struct gw_outcome outcome;

	(void)state;
	(void)state_run(pool,
			OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
			    {OP_FILL, .seed = 7, .name = "weights"}, {OP_SEAL, .name = "weights"}));
	outcome = state_try(pool, &write, &report);
	assert_int_equal(outcome.kind, GW_POISON);
	assert_non_null(strstr(outcome.message, "700"));
	report = state_run(pool, OPS({OP_CHECK, .seed = 7, .name = "weights"}));
	assert_int_equal(report.ops[0].value, 0);
	gw_pool_close(pool);
}

#define attach_test(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		attach_test(many_small_pieces),
		attach_test(one_large_piece),
		attach_test(mutable_state_comes_back),
		attach_test(sealed_state_cannot_be_written),
	};

	if (gw_is_worker())
		return state_worker_run();
	emulated = argc == 2 && strcmp(argv[1], "--emulated") == 0;
	if (!emulated && (nodes_emulated() || !nodes_have_gpu())) {
		printf("skipped: there is no real GPU here\n");
		return 77;
	}
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
