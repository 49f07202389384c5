/* SPDX-License-Identifier: MIT */
/*
 * Description: whichever instruction a worker dies at while it makes, seals, commits, maps or drops surviving
 * state, the next worker finds what the model says: each mutable piece whole at an epoch that was committed,
 * pieces that are committed together at the same one, sealed pieces whole or not there; and no memory is lost.
 *
 * Runs in: host and worker in one program, on the emulated GPU. A job is run again and again, and its process
 * dies one step later each time (state_worker.h), until it gets through. Every word of a mutable piece is
 * its epoch's pattern, so what a piece holds tells which epoch it is.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../softgpu.h"
#include "../world.h"
#include "common/state_wire.h"
#include "state_host.h"

#define PIECES	  3
#define STEPS_MAX 200

static const char *const names[PIECES] = {"a", "b", "c"};

static void set_ops(struct state_job *job, const struct state_op *ops)
{
	for (uint32_t i = 0; i < STATE_OPS && ops[i].kind != OP_NONE; i++)
		job->ops[i] = ops[i];
}

#define OPS(...)                                                                                   \
	(const struct state_op[STATE_OPS + 1])                                                     \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

/* All pieces at their first epoch, in the hands of one worker. */
static void make_pieces(struct gw_pool *pool)
{
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = 3 * MIB, .name = "a"},
				  {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "b"},
				  {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "c"},
				  {OP_FILL_NEXT, .name = "a"}, {OP_FILL_NEXT, .name = "b"},
				  {OP_FILL_NEXT, .name = "c"}, {OP_COMMIT}));
}

/* Maps all pieces in a fresh worker; each is whole. Returns their epoch, which is the same. */
static uint64_t check_pieces(struct gw_pool *pool)
{
	struct state_report report = state_run(
		pool,
		OPS({OP_MAP, GW_STATE_WRITE, .name = "a"}, {OP_MAP, GW_STATE_WRITE, .name = "b"},
		    {OP_MAP, GW_STATE_WRITE, .name = "c"}, {OP_CHECK_LAST, .name = "a"},
		    {OP_CHECK_LAST, .name = "b"}, {OP_CHECK_LAST, .name = "c"}));

	for (uint32_t i = 0; i < PIECES; i++) {
		assert_int_equal(report.ops[PIECES + i].value, 0);
		assert_int_equal(report.ops[i].info.epoch, report.ops[0].info.epoch);
		assert_string_equal(report.ops[i].info.name, names[i]);
	}
	return report.ops[0].info.epoch;
}

/*
 * Runs JOB with its end at step 0, 1, 2 and so on, calls CHECK after each, and returns the steps that there
 * are. The pool stays, so each run begins with what the last one has left.
 */
static uint32_t die_at_every_step(struct gw_pool *pool, struct state_job *job, enum state_stop how,
				  void (*check)(struct gw_pool *pool))
{
	struct state_report report = {0};

	job->stop = how;
	for (job->stop_at = 0; job->stop_at < STEPS_MAX; job->stop_at++) {
		struct gw_outcome outcome = state_try(pool, job, &report);

		if (outcome.kind == GW_DONE) {
			assert_true(report.steps <= job->stop_at);
			return job->stop_at;
		}
		assert_int_equal(outcome.kind, GW_POISON);
		check(pool);
	}
	fail_msg("the job has more than %d steps", STEPS_MAX);
	return 0;
}

static uint64_t last_epoch;

/* Never back, and at most what the job could commit further. */
static void expect_progress(struct gw_pool *pool)
{
	uint64_t epoch = check_pieces(pool);

	assert_in_range(epoch, last_epoch, last_epoch + 2);
	last_epoch = epoch;
}

static void commit_at_every_step(enum state_stop how)
{
	struct state_job job = {0};
	struct gw_pool *pool;
	uint64_t used;

	soft_dir_new(NULL);
	pool = state_open(1);
	make_pieces(pool);
	used = soft_used_bytes(0);
	last_epoch = check_pieces(pool);
	set_ops(&job,
		OPS({OP_FILL_NEXT, .name = "a"}, {OP_FILL_NEXT, .name = "b"},
		    {OP_FILL_NEXT, .name = "c"}, {OP_COMMIT}, {OP_FILL_NEXT, .name = "a"},
		    {OP_FILL_NEXT, .name = "b"}, {OP_FILL_NEXT, .name = "c"}, {OP_COMMIT},
		    {OP_FILL, .seed = 12345, .name = "a"}, {OP_FILL, .seed = 12345, .name = "b"},
		    {OP_ROLL_BACK}, {OP_FILL, .seed = 12345, .name = "c"}));
	/* Of each commit: 2 waits, 2 questions, 2 answers, and map, access, copy and unmap of each. */
	assert_true(die_at_every_step(pool, &job, how, expect_progress) >= 2 * 18);
	state_replace_worker(pool, 0);
	expect_progress(pool);
	assert_true(last_epoch > 3);
	assert_int_equal(state_stat_of(pool).state_pieces, PIECES);
	assert_int_equal(soft_used_bytes(0), used);
	gw_pool_close(pool);
	soft_dir_free();
}

static void a_commit_is_whole_whenever_its_worker_dies(void **state)
{
	(void)state;
	commit_at_every_step(STOP_KILL);
}

static void a_commit_is_whole_when_half_of_a_copy_was_made(void **state)
{
	(void)state;
	commit_at_every_step(STOP_HALF);
}

/* Leaves all pieces in the middle of a commit that counts, with nothing copied yet. */
static void leave_copying(struct gw_pool *pool)
{
	struct state_job job = {.stop = STOP_KILL, .after = STATE_COMMIT};
	struct gw_state_info infos[PIECES] = {{.size = sizeof(infos[0])}};
	struct state_report report = {0};

	set_ops(&job, OPS({OP_FILL_NEXT, .name = "a"}, {OP_FILL_NEXT, .name = "b"},
			  {OP_FILL_NEXT, .name = "c"}, {OP_COMMIT}));
	assert_int_equal(state_try(pool, &job, &report).kind, GW_POISON);
	assert_int_equal(gw_pool_states(pool, infos, PIECES), PIECES);
	for (uint32_t i = 0; i < PIECES; i++)
		assert_int_equal(infos[i].status, GW_STATE_COPYING);
}

/* The next worker ends what the last one began, or dies at it as well. */
static void a_commit_is_ended_by_a_worker_that_dies_at_it(void **state)
{
	struct state_job map = {.stop = STOP_HALF};
	struct state_report report = {0};
	struct gw_pool *pool;
	uint64_t epoch;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	make_pieces(pool);
	epoch = check_pieces(pool);
	set_ops(&map,
		OPS({OP_MAP, GW_STATE_WRITE, .name = "a"}, {OP_MAP, GW_STATE_WRITE, .name = "b"},
		    {OP_MAP, GW_STATE_WRITE, .name = "c"}));
	for (uint32_t i = 0; i < STEPS_MAX; i++) {
		struct gw_outcome outcome;

		leave_copying(pool);
		map.stop_at = i;
		outcome = state_try(pool, &map, &report);
		assert_int_equal(check_pieces(pool), ++epoch);
		if (outcome.kind == GW_DONE)
			break;
	}
	/* Of each: 2 questions, 2 answers, 2 imports, 2 maps with access, a copy, a wait, a release, an unmap. */
	assert_true(map.stop_at >= 3 * 14);
	gw_pool_close(pool);
	soft_dir_free();
}

/* ---- making, sealing, dropping ---- */

static void expect_new_or_nothing(struct gw_pool *pool)
{
	struct state_report report = {0};
	struct state_job job = {0};

	set_ops(&job, OPS({OP_MAP, GW_STATE_WRITE, .name = "new"}, {OP_CHECK_LAST, .name = "new"},
			  {OP_DROP, .name = "new"}));
	assert_int_equal(state_try(pool, &job, &report).kind, GW_DONE);
	if (report.ops[0].result == 0) {
		assert_int_equal(report.done, 3);
		assert_int_equal(report.ops[0].info.epoch, 0);
		assert_int_equal(report.ops[1].value, 0);
	} else {
		assert_int_equal(report.ops[0].result, -ENOENT);
	}
	assert_int_equal(state_stat_of(pool).state_pieces, 0);
	assert_int_equal(state_stat_of(pool).state_bytes, 0);
}

static void a_piece_is_made_whole_or_not_at_all(void **state)
{
	struct state_job job = {0};
	struct gw_pool *pool;
	uint64_t fresh;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	fresh = soft_used_bytes(0);
	set_ops(&job, OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = 3 * MIB, .name = "new"}));
	assert_int_equal(die_at_every_step(pool, &job, STOP_KILL, expect_new_or_nothing), 17);
	state_replace_worker(pool, 0);
	expect_new_or_nothing(pool);
	assert_int_equal(soft_used_bytes(0), fresh);
	gw_pool_close(pool);
	soft_dir_free();
}

static bool was_sealed;

static void expect_sealed_or_nothing(struct gw_pool *pool)
{
	struct state_report report = {0};
	struct state_job job = {0};

	set_ops(&job, OPS({OP_MAP, GW_STATE_READ, .name = "new"},
			  {OP_CHECK, .seed = 5, .name = "new"}, {OP_DROP, .name = "new"}));
	assert_int_equal(state_try(pool, &job, &report).kind, GW_DONE);
	assert_true(report.ops[0].result == 0 || report.ops[0].result == -ENOENT);
	assert_int_equal(report.ops[1].value, 0);
	/* Once the ward was asked, it is sealed. */
	assert_true(report.ops[0].result == 0 || !was_sealed);
	was_sealed = report.ops[0].result == 0;
	assert_int_equal(report.done, was_sealed ? 3 : 1);
	assert_int_equal(state_stat_of(pool).state_pieces, 0);
}

static void a_piece_is_sealed_whole_or_gone(void **state)
{
	struct state_job job = {0};
	struct gw_pool *pool;
	uint64_t fresh;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	fresh = soft_used_bytes(0);
	was_sealed = false;
	set_ops(&job, OPS({OP_CREATE, GW_STATE_SEALED, .bytes = 3 * MIB, .name = "new"},
			  {OP_FILL, .seed = 5, .name = "new"}, {OP_SEAL, .name = "new"}));
	assert_int_equal(die_at_every_step(pool, &job, STOP_KILL, expect_sealed_or_nothing), 15);
	assert_true(was_sealed);
	state_replace_worker(pool, 0);
	expect_sealed_or_nothing(pool);
	assert_int_equal(soft_used_bytes(0), fresh);
	gw_pool_close(pool);
	soft_dir_free();
}

/* After a worker that died at a drop or an unmap the piece is as it was, or gone with all its memory. */
static void expect_there_or_gone(struct gw_pool *pool)
{
	struct state_report report = {0};
	struct state_job job = {0};

	set_ops(&job, OPS({OP_MAP, GW_STATE_WRITE, .name = "new"}, {OP_CHECK_LAST, .name = "new"},
			  {OP_UNMAP, .name = "new"}));
	assert_int_equal(state_try(pool, &job, &report).kind, GW_DONE);
	assert_int_equal(report.ops[1].value, 0);
	assert_int_equal(state_stat_of(pool).state_pieces, report.ops[0].result == 0);
	if (report.ops[0].result < 0)
		(void)state_run(pool,
				OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "new"},
				    {OP_FILL_NEXT, .name = "new"}, {OP_COMMIT},
				    {OP_UNMAP, .name = "new"}));
}

static void a_drop_loses_no_memory_whenever_its_worker_dies(void **state)
{
	struct state_job job = {0};
	struct gw_pool *pool;
	uint64_t fresh;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	fresh = soft_used_bytes(0);
	expect_there_or_gone(pool);
	set_ops(&job, OPS({OP_MAP, GW_STATE_WRITE, .name = "new"},
			  {OP_FILL, .seed = 99, .name = "new"}, {OP_UNMAP, .name = "new"},
			  {OP_MAP, GW_STATE_WRITE, .name = "new"}, {OP_DROP, .name = "new"}));
	assert_true(die_at_every_step(pool, &job, STOP_KILL, expect_there_or_gone) >= 30);
	assert_int_equal(state_stat_of(pool).state_pieces, 0);
	assert_int_equal(soft_used_bytes(0), fresh);
	gw_pool_close(pool);
	soft_dir_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(a_commit_is_whole_whenever_its_worker_dies),
		world_test(a_commit_is_whole_when_half_of_a_copy_was_made),
		world_test(a_commit_is_ended_by_a_worker_that_dies_at_it),
		world_test(a_piece_is_made_whole_or_not_at_all),
		world_test(a_piece_is_sealed_whole_or_gone),
		world_test(a_drop_loses_no_memory_whenever_its_worker_dies),
	};

	if (gw_is_worker())
		return state_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
