/* SPDX-License-Identifier: MIT */
/*
 * Description: whichever call of the driver, message or allocation fails while a worker makes, maps, seals,
 * commits, rolls back, unmaps or drops surviving state, there is one clear refusal (or, once a commit counts,
 * the end of the process), nothing is lost or left, and afterwards everything works; and a signal handler that calls
 * such a function in the middle of another one is refused, and changes nothing.
 *
 * Runs in: host and worker in one program, on the emulated GPU. A job that does all of it is run again and
 * again, and what fails is one step later each time (state_worker.h), until it gets through.
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
#include "state_host.h"

#define STEPS_MAX 300

#define OPS(...)                                                                                   \
	(const struct state_op[STATE_OPS + 1])                                                     \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

static const struct state_job everything = {
	.stop = STOP_FAIL,
	.ops = {{OP_MAP, GW_STATE_WRITE, .name = "cache"},
		{OP_FILL_NEXT, .name = "cache"},
		{OP_COMMIT, .name = "cache"},
		{OP_FILL, .seed = 9999, .name = "cache"},
		{OP_ROLL_BACK, .name = "cache"},
		{OP_UNMAP, .name = "cache"},
		{OP_MAP, GW_STATE_READ, .name = "weights"},
		{OP_UNMAP, .name = "weights"},
		{OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "new"},
		{OP_SEAL, .name = "new"},
		{OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "newer"},
		{OP_DROP, .name = "newer"}},
};

/* Whatever the job has left is put away, and the two old pieces are as they must be. Returns the epoch. */
static uint64_t check_rest(struct gw_pool *pool, uint64_t used)
{
	struct state_report report;

	(void)state_run(pool, OPS({OP_UNMAP, .expect = STATE_ANY, .name = "cache"},
				  {OP_UNMAP, .expect = STATE_ANY, .name = "weights"},
				  {OP_DROP, .expect = STATE_ANY, .name = "new"},
				  {OP_DROP, .expect = STATE_ANY, .name = "newer"}));
	report = state_run(
		pool, OPS({OP_LIST}, {OP_MAP, GW_STATE_READ, .name = "weights"},
			  {OP_CHECK, .seed = 7, .name = "weights"}, {OP_UNMAP, .name = "weights"},
			  {OP_MAP, GW_STATE_WRITE, .name = "cache"},
			  {OP_CHECK_LAST, .name = "cache"}, {OP_UNMAP, .name = "cache"}));
	assert_int_equal(report.ops[0].result, 2);
	assert_int_equal(report.ops[2].value, 0);
	assert_int_equal(report.ops[5].value, 0);
	assert_int_equal(soft_used_bytes(0), used);
	return report.ops[4].info.epoch;
}

/* The op that failed says so in words; those before it went well. */
static void check_refusal(const struct state_report *report)
{
	const struct state_done *last = &report->ops[report->done - 1];

	for (uint32_t i = 0; i + 1 < report->done; i++)
		assert_true(report->ops[i].result >= 0);
	if (last->result >= 0)
		return;
	assert_int_equal(last->error.code, last->result);
	assert_true(strlen(last->error.msg) > 20);
}

static struct gw_pool *open_with_two_pieces(void)
{
	struct gw_pool *pool = state_open(1);

	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
				  {OP_FILL, .seed = 7, .name = "weights"},
				  {OP_SEAL, .name = "weights"}, {OP_UNMAP, .name = "weights"},
				  {OP_CREATE, GW_STATE_MUTABLE, .bytes = 3 * MIB, .name = "cache"},
				  {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT},
				  {OP_UNMAP, .name = "cache"}));
	return pool;
}

static void whatever_fails_is_refused_and_nothing_is_lost(void **state)
{
	struct state_job job = everything;
	uint32_t refused = 0, left = 0;
	struct gw_pool *pool;
	uint64_t used, epoch;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with_two_pieces();
	used = soft_used_bytes(0);
	epoch = check_rest(pool, used);
	for (job.stop_at = 0; job.stop_at < STEPS_MAX; job.stop_at++) {
		struct state_report report = {0};
		struct gw_outcome outcome = state_try(pool, &job, &report);
		uint64_t now;

		if (outcome.kind == GW_DONE) {
			check_refusal(&report);
			refused += report.ops[report.done - 1].result < 0;
		} else {
			assert_int_equal(outcome.kind, GW_POISON);
			left++;
		}
		now = check_rest(pool, used);
		assert_in_range(now, epoch, epoch + 1);
		epoch = now;
		if (outcome.kind == GW_DONE && report.steps <= job.stop_at)
			break;
	}
	print_message("%u steps, %u refused, %u ended the process\n", job.stop_at, refused, left);
	assert_true(job.stop_at > 60 && job.stop_at < STEPS_MAX);
	assert_true(refused > 40);
	/* The copy, its wait, and the settling of a commit that counts. */
	assert_int_equal(left, 3);
	gw_pool_close(pool);
	soft_dir_free();
}

static void a_signal_handler_is_refused_in_the_middle_of_a_call(void **state)
{
	struct state_job job = everything;
	struct gw_pool *pool;
	uint64_t used, epoch;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with_two_pieces();
	used = soft_used_bytes(0);
	epoch = check_rest(pool, used);
	job.stop = STOP_SIGNAL;
	for (job.stop_at = 0; job.stop_at < STEPS_MAX; job.stop_at++) {
		struct state_report report = {0};
		bool interrupted;

		assert_int_equal(state_try(pool, &job, &report).kind, GW_DONE);
		interrupted = report.steps > job.stop_at;
		assert_int_equal(report.done, STATE_OPS);
		assert_int_equal(report.ops[STATE_OPS - 1].result, 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(report.in_handler[i], interrupted ? -EPERM : 0);
		assert_int_equal(check_rest(pool, used), ++epoch);
		if (!interrupted)
			break;
	}
	assert_true(job.stop_at > 60 && job.stop_at < STEPS_MAX);
	gw_pool_close(pool);
	soft_dir_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(whatever_fails_is_refused_and_nothing_is_lost),
		world_test(a_signal_handler_is_refused_in_the_middle_of_a_call),
	};

	if (gw_is_worker())
		return state_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
