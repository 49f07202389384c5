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
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

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
	state_replace_worker(pool, 0);
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
	state_replace_worker(pool, 0);
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

/* One that was not sealed was never anybody else's. */
static void a_piece_that_was_not_sealed_ends_with_its_maker(void **state)
{
	struct state_report report;
	struct gw_pool *pool;
	uint64_t fresh;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	fresh = soft_used_bytes(0);
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "half"},
				  {OP_FILL, .seed = 7, .name = "half"}));
	assert_int_equal(state_stat_of(pool).state_pieces, 1);
	assert_int_equal(state_stat_of(pool).state_bytes, 2 * MIB);
	state_replace_worker(pool, 0);
	assert_int_equal(state_stat_of(pool).state_pieces, 0);
	assert_int_equal(state_stat_of(pool).state_bytes, 0);
	assert_int_equal(soft_used_bytes(0), fresh);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .expect = -ENOENT, .name = "half"}));
	assert_non_null(strstr(report.ops[0].error.msg, "'half'"));
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "half"},
				  {OP_CHECK_LAST, .name = "half"}));
	gw_pool_close(pool);
	soft_dir_free();
}

static void a_kernel_that_writes_to_sealed_state_faults(void **state)
{
	struct state_job job = {
		.ops = {{OP_MAP, GW_STATE_READ, .name = "weights"},
			{OP_WRITE, .seed = 8, .name = "weights"},
			{OP_COMMIT, .expect = 1}},
	};
	struct state_report report = {0};
	struct gw_outcome outcome;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	(void)state_run(pool,
			OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
			    {OP_FILL, .seed = 7, .name = "weights"}, {OP_SEAL, .name = "weights"}));
	/* Its maker, too. */
	for (int i = 0; i < 2; i++) {
		outcome = state_try(pool, &job, &report);
		assert_int_equal(outcome.kind, GW_POISON);
		assert_non_null(strstr(outcome.message, "700"));
	}
	report = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .name = "weights"},
				     {OP_CHECK, .seed = 7, .name = "weights"}));
	assert_int_equal(report.ops[1].value, 0);
	gw_pool_close(pool);
	soft_dir_free();
}

/* What a kernel that faults has written is neither sealed nor committed. */
static void after_a_fault_nothing_is_sealed_or_committed(void **state)
{
	struct state_job seal = {
		.ops = {{OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
			{OP_FAULT},
			{OP_SEAL, .name = "weights"}},
	};
	struct state_job commit = {
		.ops = {{OP_MAP, GW_STATE_WRITE, .name = "cache"},
			{OP_FILL, .seed = 9, .name = "cache"},
			{OP_FAULT},
			{OP_COMMIT}},
	};
	struct state_report report = {0};
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
				  {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT}));
	assert_int_equal(state_try(pool, &commit, &report).kind, GW_POISON);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"},
				     {OP_CHECK_LAST, .name = "cache"}));
	assert_int_equal(report.ops[0].info.epoch, 1);
	assert_int_equal(report.ops[1].value, 0);
	assert_int_equal(state_try(pool, &seal, &report).kind, GW_POISON);
	(void)state_run(pool, OPS({OP_MAP, GW_STATE_READ, .expect = -ENOENT, .name = "weights"}));
	gw_pool_close(pool);
	soft_dir_free();
}

/* Each slip gets a refusal in words, and changes nothing. */
static void slips_are_refused_in_words(void **state)
{
	static const struct {
		struct state_op op;
		const char *words;
	} slips[] = {
		{{OP_CREATE, GW_STATE_SEALED, 0, -EEXIST, MIB, "weights"}, "already"},
		{{OP_CREATE, GW_STATE_SEALED, 0, -EINVAL, MIB, ""}, "printable"},
		{{OP_CREATE, GW_STATE_SEALED, 0, -EINVAL, MIB, "two words"}, "printable"},
		{{OP_CREATE, GW_STATE_SEALED, 0, -EINVAL, 0, "none"}, "0 bytes"},
		{{OP_CREATE, GW_STATE_SEALED, 0, -EINVAL, UINT64_MAX, "huge"}, "512 GiB"},
		{{OP_CREATE, GW_STATE_SEALED, 0, -ENOMEM, 1ULL << 39, "huge"}, "weights 2 MiB"},
		{{OP_CREATE, 3, 0, -EINVAL, MIB, "kind"}, "kind"},
		{{OP_MAP, GW_STATE_WRITE, 0, -EACCES, 0, "weights"}, "reading only"},
		{{OP_MAP, 7, 0, -EINVAL, 0, "weights"}, "access"},
		{{OP_MAP, GW_STATE_READ, 0, -ENOENT, 0, "nothing"}, "'nothing' on device 0"},
		{{OP_SEAL, 0, 0, -ENOENT, 0, "nothing"}, "'nothing'"},
		{{OP_SEAL, 0, 0, -EINVAL, 0, "cache"}, "mutable"},
		{{OP_COMMIT, 0, 0, -EINVAL, 0, "weights"}, "not mutable"},
		{{OP_COMMIT, 0, 0, -ENOENT, 0, "nothing"}, "'nothing'"},
		{{OP_ROLL_BACK, 0, 0, -EINVAL, 0, "weights"}, "not mutable"},
		{{OP_UNMAP, 0, 0, -ENOENT, 0, "nothing"}, "'nothing'"},
		{{OP_DROP, 0, 0, -ENOENT, 0, "nothing"}, "'nothing'"},
		{{OP_THREAD, 0, 0, -EPERM, 0, ""}, "main thread"},
	};
	struct state_report report;
	struct gw_pool *pool;
	uint64_t used;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
				  {OP_SEAL, .name = "weights"},
				  {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"}));
	used = soft_used_bytes(0);
	for (size_t i = 0; i < sizeof(slips) / sizeof(slips[0]); i++) {
		struct state_op ops[STATE_OPS + 1] = {slips[i].op};

		report = state_run(pool, ops);
		if (!strstr(report.ops[0].error.msg, slips[i].words))
			fail_msg("no '%s' in: %s", slips[i].words, report.ops[0].error.msg);
		assert_int_equal(report.ops[0].error.code, slips[i].op.expect);
		assert_int_equal(state_stat_of(pool).state_pieces, 2);
		assert_int_equal(soft_used_bytes(0), used);
	}
	gw_pool_close(pool);
	soft_dir_free();
}

static void without_a_device_or_a_worker_there_is_no_state(void **state)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_task_options sizes = GW_OPTIONS(struct gw_task_options);
	struct gw_outcome outcome = {0};
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;
	struct gw_task *task = NULL;

	(void)state;
	assert_int_equal(gw_state_list(NULL, 0, &error), -ENOTSUP);
	assert_non_null(strstr(error.msg, "worker"));
	assert_int_equal(gw_pool_open(&pool, &options, &error), 0);
	assert_int_equal(gw_task_start(pool, "list", NULL, &sizes, &task, &error), 0);
	assert_int_equal(gw_task_wait(task, GW_FOREVER, &outcome, &error), 1);
	assert_int_equal(outcome.kind, GW_FAILED);
	assert_int_equal(outcome.value, -ENOTSUP);
	assert_non_null(strstr(outcome.message, "no devices"));
	gw_task_free(task);
	gw_pool_close(pool);
}

/* The end of a process proves nothing there. */
static void under_mps_there_is_no_mutable_state(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	report = state_run(pool, OPS({OP_MPS},
				     {OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
				     {OP_CREATE, GW_STATE_MUTABLE, 0, -ENOTSUP, MIB, "cache"}));
	assert_non_null(strstr(report.ops[2].error.msg, "MPS"));
	gw_pool_close(pool);
	soft_dir_free();
}

/* Something else in the process has the addresses: all of them, or those behind the first GiB. */
static void taken_addresses_are_told_of(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	report = state_run(pool, OPS({OP_TAKE, .bytes = 1024 * MIB},
				     {OP_CREATE, GW_STATE_SEALED, 0, -EADDRINUSE, MIB, "weights"}));
	assert_int_equal(report.ops[0].value, STATE_BASE);
	assert_non_null(strstr(report.ops[1].error.msg, "'weights' lies at 0x680000000000"));
	assert_int_equal(state_stat_of(pool).state_pieces, 0);
	state_replace_worker(pool, 0);
	(void)state_run(pool, OPS({OP_TAKE, .seed = 1 << 30, .bytes = 1024 * MIB},
				  {OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
				  {OP_FILL, .seed = 1, .name = "weights"},
				  {OP_CREATE, GW_STATE_SEALED, 0, -EADDRINUSE, 1024 * MIB, "big"}));
	gw_pool_close(pool);
	soft_dir_free();
}

/* Limits are of the device memory of all copies, and the refusal says who has it. */
static void limits_say_who_uses_how_much(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new("memory_mib=2048\n");
	pool = state_open_with(1, 20 * MIB);
	report = state_run(pool,
			   OPS({OP_CREATE, GW_STATE_SEALED, .bytes = 6 * MIB, .name = "weights"},
			       {OP_CREATE, GW_STATE_MUTABLE, .bytes = 4 * MIB, .name = "cache"},
			       {OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "small"},
			       {OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "tiny"},
			       {OP_CREATE, GW_STATE_MUTABLE, 0, GW_ELIMIT, MIB, "more"}));
	assert_non_null(strstr(report.ops[4].error.msg,
			       "'more' needs 4 MiB, and max_state_bytes is 20 MiB; in use: 4 "
			       "pieces, 18 MiB: cache 8 MiB, weights 6 MiB, small 2 MiB, 1 more"));
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "last"},
				  {OP_CREATE, GW_STATE_SEALED, 0, GW_ELIMIT, MIB, "over"},
				  {OP_DROP, .name = "cache"},
				  {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "more"}));
	gw_pool_close(pool);
	pool = state_open(1);
	report = state_run(pool,
			   OPS({OP_CREATE, GW_STATE_SEALED, .bytes = 6 * MIB, .name = "weights"},
			       {OP_CREATE, GW_STATE_SEALED, 0, -ENOMEM, 4096 * MIB, "big"}));
	assert_int_equal(report.ops[1].error.domain, GW_DOMAIN_CUDA);
	assert_int_equal(report.ops[1].error.native, 2);
	assert_non_null(strstr(report.ops[1].error.msg, "'big' needs 4096 MiB, device 0 has "));
	assert_non_null(strstr(report.ops[1].error.msg, "1 piece, 6 MiB: weights 6 MiB"));
	assert_int_equal(state_stat_of(pool).state_pieces, 1);
	gw_pool_close(pool);
	soft_dir_free();
}

static void a_dropped_piece_gives_its_memory_and_name_back(void **state)
{
	struct state_report report;
	struct gw_pool *pool;
	uint64_t fresh;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	fresh = soft_used_bytes(0);
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "a"},
				  {OP_SEAL, .name = "a"},
				  {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "b"},
				  {OP_UNMAP, .name = "b"}, {OP_DROP, .name = "a"},
				  {OP_DROP, .name = "b"}));
	assert_int_equal(state_stat_of(pool).state_pieces, 0);
	assert_int_equal(soft_used_bytes(0), fresh);
	report = state_run(pool,
			   OPS({OP_LIST}, {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "a"},
			       {OP_CHECK_LAST, .name = "a"}, {OP_LIST}));
	assert_int_equal(report.ops[0].result, 0);
	assert_int_equal(report.ops[1].value, STATE_BASE);
	assert_int_equal(report.ops[2].value, 0);
	assert_int_equal(report.ops[3].result, 1);
	assert_string_equal(report.ops[3].info.name, "a");
	gw_pool_close(pool);
	soft_dir_free();
}

/* What an unmap leaves of a mutable piece is its last commit. */
static void an_unmapped_piece_is_as_it_was_committed(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	report = state_run(pool, OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
				     {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT, .name = "cache"},
				     {OP_FILL, .seed = 99, .name = "cache"},
				     {OP_UNMAP, .name = "cache"}, {OP_COMMIT, .expect = -ENOENT}));
	report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"},
				     {OP_CHECK_LAST, .name = "cache"}));
	assert_int_equal(report.ops[0].info.epoch, 1);
	assert_int_equal(report.ops[1].value, 0);
	gw_pool_close(pool);
	soft_dir_free();
}

/* Two workers of one device: each op of the second, while the first is held at the gate. */
static void a_living_worker_keeps_what_it_has(void **state)
{
	struct state_job hold = {
		.ops = {{OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
			{OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
			{OP_SEAL, .name = "weights"},
			{OP_GATE}},
	};
	struct state_report report = {0};
	struct gw_pool *pool;
	struct gw_task *task;
	struct gate gate;
	char owner[64];

	(void)state;
	soft_dir_new(NULL);
	gate_new(&gate, "state");
	(void)snprintf(hold.gate, sizeof(hold.gate), "%s", gate.path);
	pool = state_open(2);
	state_wait_ready(pool, 2);
	task = state_start(pool, &hold);
	(void)snprintf(owner, sizeof(owner), "worker pid %d has", gate_expect(&gate).pid);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, 0, -EBUSY, 0, "cache"}));
	assert_non_null(strstr(report.ops[0].error.msg, owner));
	report = state_run(pool, OPS({OP_DROP, .expect = -EBUSY, .name = "cache"}));
	assert_non_null(strstr(report.ops[0].error.msg, owner));
	report = state_run(pool, OPS({OP_DROP, .expect = -EBUSY, .name = "weights"}));
	assert_non_null(strstr(report.ops[0].error.msg, owner));
	report = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .name = "weights"},
				     {OP_CHECK_LAST, .name = "weights"}));
	assert_int_equal(report.ops[1].value, 0);
	gate_open(&gate);
	assert_int_equal(state_end(task, &report).kind, GW_DONE);
	gw_pool_close(pool);
	gate_done(&gate);
	soft_dir_free();
}

/* Who maps what is still being filled waits for the seal. */
static void an_unsealed_piece_is_waited_for(void **state)
{
	struct state_job fill = {
		.ops = {{OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
			{OP_GATE},
			{OP_FILL, .seed = 5, .name = "weights"},
			{OP_SEAL, .name = "weights"}},
	};
	struct state_job map = {
		.ops = {{OP_MAP, GW_STATE_READ, .name = "weights"},
			{OP_CHECK, .seed = 5, .name = "weights"}},
	};
	struct state_report report = {0};
	struct gw_task *first, *second;
	struct gw_pool *pool;
	struct gate gate;

	(void)state;
	soft_dir_new(NULL);
	gate_new(&gate, "state");
	(void)snprintf(fill.gate, sizeof(fill.gate), "%s", gate.path);
	pool = state_open(2);
	state_wait_ready(pool, 2);
	/* Filled after all; or its maker is killed. */
	for (int killed = 0; killed < 2; killed++) {
		struct gate_visit maker;

		first = state_start(pool, &fill);
		maker = gate_expect(&gate);
		map.ops[0].expect = killed ? -ENOENT : 0;
		second = state_start(pool, &map);
		if (killed)
			world_kill(maker.pid);
		else
			gate_open(&gate);
		assert_int_equal(state_end(first, &report).kind, killed ? GW_POISON : GW_DONE);
		assert_int_equal(state_end(second, &report).kind, GW_DONE);
		assert_int_equal(report.ops[0].result, killed ? -ENOENT : 0);
		assert_int_equal(report.ops[1].value, 0);
		if (!killed) {
			state_wait_ready(pool, 2);
			(void)gw_pool_dispatch(pool, NULL);
			fill.ops[0].name[0] = map.ops[0].name[0] = 'W';
		}
	}
	gw_pool_close(pool);
	gate_done(&gate);
	soft_dir_free();
}

/*
 * A child that the worker forked holds its descriptors of the GPU, and so its kernels could go on: the piece
 * does not pass on before that child has ended.
 */
static void a_forked_child_keeps_state_from_passing_on(void **state)
{
	struct state_job job = {
		.ops = {{OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
			{OP_FILL_NEXT, .name = "cache"},
			{OP_COMMIT},
			{OP_FORK}},
	};
	struct state_report report = {0};
	struct gate_visit child;
	struct gw_pool *pool;
	struct gate gate;

	(void)state;
	soft_dir_new(NULL);
	gate_new(&gate, "state");
	(void)snprintf(job.gate, sizeof(job.gate), "%s", gate.path);
	pool = state_open(1);
	assert_int_equal(state_try(pool, &job, &report).kind, GW_DONE);
	child = gate_expect(&gate);
	state_replace_worker(pool, 0);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, 0, -EBUSY, 0, "cache"}));
	assert_non_null(strstr(report.ops[0].error.msg, "a process that it forked"));
	world_kill(child.pid);
	world_wait_gone(child.pid);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"},
				     {OP_CHECK_LAST, .name = "cache"}));
	assert_int_equal(report.ops[0].info.epoch, 1);
	assert_int_equal(report.ops[1].value, 0);
	gw_pool_close(pool);
	gate_done(&gate);
	soft_dir_free();
}

/*
 * A worker that is killed and not gone yet: its kernels may still write. The test holds it there, as a tracer
 * may, at the beginning of its exit.
 */
static void state_passes_on_when_the_killed_worker_is_gone(void **state)
{
	struct state_job hold = {
		.ops = {{OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
			{OP_FILL_NEXT, .name = "cache"},
			{OP_COMMIT},
			{OP_GATE}}};
	struct state_job map = {.ops = {{OP_MAP, GW_STATE_WRITE, .name = "cache"},
					{OP_CHECK_LAST, .name = "cache"}}};
	struct gw_task *first, *second;
	struct state_report report = {0};
	struct gw_pool *pool;
	struct gate gate;
	int32_t owner;
	int status;

	(void)state;
	soft_dir_new(NULL);
	gate_new(&gate, "state");
	(void)snprintf(hold.gate, sizeof(hold.gate), "%s", gate.path);
	pool = state_open(1);
	first = state_start_until(pool, &hold, 100 * MS);
	owner = gate_expect(&gate).pid;
	assert_int_equal(ptrace(PTRACE_SEIZE, owner, NULL, (void *)PTRACE_O_TRACEEXIT), 0);
	/* Its deadline has it fenced and killed; the host hears of that at once. */
	assert_int_equal(state_end(first, &report).kind, GW_POISON);
	assert_int_equal(waitpid(owner, &status, __WALL), owner);
	assert_int_equal(status >> 8, SIGTRAP | PTRACE_EVENT_EXIT << 8);
	second = state_start(pool, &map);
	state_wait_ready(pool, 1);
	assert_int_equal(gw_task_wait(second, 50 * MS, NULL, NULL), 0);
	assert_int_equal(ptrace(PTRACE_DETACH, owner, NULL, NULL), 0);
	assert_int_equal(state_end(second, &report).kind, GW_DONE);
	assert_int_equal(report.ops[0].result, 0);
	assert_int_equal(report.ops[0].info.epoch, 1);
	assert_int_equal(report.ops[1].value, 0);
	gw_pool_close(pool);
	gate_done(&gate);
	soft_dir_free();
}

/* The host's list and the worker's are one. */
static void the_host_sees_what_there_is(void **state)
{
	struct gw_state_info infos[4] = {{.size = sizeof(infos[0])}};
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	assert_int_equal(gw_pool_states(pool, NULL, 0), 0);
	assert_int_equal(gw_pool_states(pool, NULL, 1), -EINVAL);
	report = state_run(pool, OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = 3, .name = "cache"},
				     {OP_COMMIT}, {OP_COMMIT},
				     {OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
				     {OP_SEAL, .name = "weights"}, {OP_LIST}));
	assert_int_equal(report.ops[5].result, 2);
	assert_int_equal(gw_pool_states(pool, infos, 1), 2);
	assert_int_equal(gw_pool_states(pool, infos, 4), 2);
	assert_string_equal(infos[0].name, "cache");
	assert_int_equal(infos[0].bytes, 3);
	assert_int_equal(infos[0].held_bytes, 4 * MIB);
	assert_int_equal(infos[0].epoch, 2);
	assert_int_equal(infos[0].task, 1);
	assert_int_equal(infos[0].owner_pid, report.pid);
	assert_int_equal(infos[0].status, GW_STATE_READY);
	assert_string_equal(infos[1].name, "weights");
	assert_int_equal(infos[1].owner_pid, -1);
	assert_int_equal(infos[1].device, 0);
	assert_int_equal(infos[1].size, sizeof(infos[0]));
	assert_int_equal(state_stat_of(pool).state_bytes, 6 * MIB);
	assert_memory_equal(infos[0].name, report.ops[5].info.name, GW_NAME_MAX);
	gw_pool_close(pool);
	soft_dir_free();
}

/* Thousands of small pieces: each is found, and what the host sees adds up. */
static void thousands_of_pieces_are_found(void **state)
{
	const uint32_t pieces = 2000;
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = state_open(1);
	(void)state_run(pool, OPS({OP_MANY, .seed = pieces, .bytes = MIB, .name = "w"}));
	assert_int_equal(gw_pool_states(pool, NULL, 0), pieces);
	assert_int_equal(state_stat_of(pool).state_bytes, pieces * 2 * MIB);
	state_replace_worker(pool, 0);
	report = state_run(pool, OPS({OP_MAP_MANY, .seed = pieces, .name = "w"},
				     {OP_MAP_MANY, .seed = pieces, .name = "w"},
				     {OP_MAP, GW_STATE_READ, .name = "w.1999"},
				     {OP_MAP, GW_STATE_READ, .expect = -ENOENT, .name = "w.2000"}));
	print_message("%u pieces: mapped in %.1f ms, looked up in %.3f ms\n", pieces,
		      (double)report.ops[0].ns / 1e6, (double)report.ops[1].ns / 1e6);
	assert_int_equal(report.ops[2].info.address, STATE_BASE + (pieces - 1) * 2 * STATE_GRANULE);
	gw_pool_close(pool);
	soft_dir_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(sealed_state_is_found_by_the_next_worker),
		world_test(mutable_state_is_found_as_it_was_committed),
		world_test(a_piece_that_was_not_sealed_ends_with_its_maker),
		world_test(a_kernel_that_writes_to_sealed_state_faults),
		world_test(after_a_fault_nothing_is_sealed_or_committed),
		world_test(slips_are_refused_in_words),
		world_test(without_a_device_or_a_worker_there_is_no_state),
		world_test(under_mps_there_is_no_mutable_state),
		world_test(taken_addresses_are_told_of),
		world_test(limits_say_who_uses_how_much),
		world_test(a_dropped_piece_gives_its_memory_and_name_back),
		world_test(an_unmapped_piece_is_as_it_was_committed),
		world_test(a_living_worker_keeps_what_it_has),
		world_test(an_unsealed_piece_is_waited_for),
		world_test(a_forked_child_keeps_state_from_passing_on),
		world_test(state_passes_on_when_the_killed_worker_is_gone),
		world_test(the_host_sees_what_there_is),
		world_test(thousands_of_pieces_are_found),
	};

	if (gw_is_worker())
		return state_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
