/* SPDX-License-Identifier: MIT */
/*
 * Description: state with a name outlives its pool, whoever is killed, and the next pool of that name finds it:
 * addresses, contents, epochs, devices. One pool at a time, of one user. Nothing is left when nothing is kept.
 *
 * Runs in: host and worker in one program, with real keepers, on the emulated GPU. Read next: keeper_host.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../gate.h"
#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"
#include "common/keep_place.h"
#include "common/packet.h"
#include "common/state_wire.h"
#include "keeper_host.h"

#define OPS(...)                                                                                   \
	(const struct state_op[STATE_OPS + 1])                                                     \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

/* A sealed piece and a mutable one at epoch 2, with more written to it than was committed. */
static struct state_report make_state(struct gw_pool *pool)
{
	return state_run(pool,
			 OPS({OP_CREATE, GW_STATE_SEALED, .bytes = 3 * MIB, .name = "weights"},
			     {OP_FILL, .seed = 7, .name = "weights"}, {OP_SEAL, .name = "weights"},
			     {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
			     {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT},
			     {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT},
			     {OP_FILL_NEXT, .name = "cache"}));
}

static struct state_report check_state(struct gw_pool *pool, uint64_t epoch)
{
	struct state_report report = state_run(pool, OPS({OP_MAP, GW_STATE_READ, .name = "weights"},
							 {OP_CHECK, .seed = 7, .name = "weights"},
							 {OP_MAP, GW_STATE_WRITE, .name = "cache"},
							 {OP_CHECK_LAST, .name = "cache"}));

	assert_int_equal(report.ops[1].value, 0);
	assert_int_equal(report.ops[2].info.epoch, epoch);
	assert_int_equal(report.ops[3].value, 0);
	return report;
}

static void the_next_pool_finds_all(void **state)
{
	struct state_report first, second;
	struct keeper_view view;
	struct gw_pool *pool;

	(void)state;
	keeper_world(NULL);
	pool = keeper_pool("service", 0);
	first = make_state(pool);
	assert_true(keeper_look("service", &view));
	assert_int_equal(view.welcome.ward_pid, state_stat_of(pool).ward_pid);
	assert_int_equal(view.n_pieces, 2);
	gw_pool_close(pool);
	assert_true(soft_used_bytes(0) > 0);
	pool = keeper_pool("service", 0);
	second = check_state(pool, 2);
	assert_int_equal(second.ops[0].info.address, first.ops[0].value);
	assert_int_equal(second.ops[2].info.address, first.ops[3].value);
	assert_int_equal(state_stat_of(pool).state_pieces, 2);
	(void)state_run(pool, OPS({OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT},
				  {OP_DROP, .name = "weights"},
				  {OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "other"},
				  {OP_SEAL, .name = "other"}));
	gw_pool_close(pool);
	assert_true(keeper_look("service", &view));
	assert_int_equal(view.n_pieces, 2);
	assert_int_equal(view.welcome.ward_pid, -1);
	pool = keeper_pool("service", 0);
	(void)state_run(pool, OPS({OP_MAP, GW_STATE_READ, .expect = -ENOENT, .name = "weights"}));
	(void)state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"},
				  {OP_CHECK_LAST, .name = "cache"},
				  {OP_MAP, GW_STATE_READ, .name = "other"}));
	gw_pool_close(pool);
	keeper_world_done();
}

/* Each pool has one task, whose number is 1: that of another pool is none of its own. */
static void a_task_of_each_pool_counts_once(void **state)
{
	const struct state_op twice[STATE_OPS + 1] = {{OP_COUNT, .name = "counter"},
						      {OP_COUNT, .name = "counter"}};
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	keeper_world(NULL);
	pool = keeper_pool("service", 0);
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = 8, .name = "counter"},
				  {OP_COUNT, .name = "counter"}));
	gw_pool_close(pool);
	for (uint64_t count = 2; count < 5; count++) {
		pool = keeper_pool("service", 0);
		report = state_run(pool, twice);
		assert_int_equal(report.ops[0].info.task, 0);
		assert_int_equal(report.ops[0].value, count);
		assert_int_equal(report.ops[1].info.task, 1);
		assert_int_equal(report.ops[1].value, count);
		if (count % 2)
			keeper_lose_ward(pool);
		else
			gw_pool_close(pool);
	}
	keeper_world_done();
}

static void a_keeper_that_holds_nothing_is_gone_with_the_pool(void **state)
{
	struct keeper_view view;
	struct gw_pool *pool;

	(void)state;
	keeper_world(NULL);
	pool = keeper_pool("service", 0);
	assert_true(keeper_look("service", &view));
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
				  {OP_DROP, .name = "cache"}));
	gw_pool_close(pool);
	assert_false(keeper_look("service", &view));
	keeper_world_done();
}

static void the_devices_of_a_restarted_host_have_other_numbers(void **state)
{
	struct state_report report;
	struct gw_pool *pool;

	(void)state;
	keeper_world("devices=2\n");
	pool = keeper_pool("service", 0);
	(void)make_state(pool);
	gw_pool_close(pool);
	/* Only device 1 of before: the pool sees its pieces, and has none itself. */
	assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "1,0", 1), 0);
	pool = keeper_pool("service", 0);
	report =
		state_run(pool, OPS({OP_MAP, GW_STATE_READ, .expect = -ENOENT, .name = "weights"}));
	assert_non_null(strstr(report.ops[0].error.msg, "the one that is kept is of GPU-"));
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_SEALED, .bytes = MIB, .name = "weights"},
				  {OP_SEAL, .name = "weights"}));
	gw_pool_close(pool);
	pool = keeper_pool("service", 1);
	(void)check_state(pool, 2);
	gw_pool_close(pool);
	assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
	keeper_world_done();
}

static void a_second_pool_is_told_who_has_the_state(void **state)
{
	struct gw_error error = {0};
	struct gw_pool *pool, *second;
	char pid[32];

	(void)state;
	keeper_world(NULL);
	pool = keeper_pool("service", 0);
	(void)make_state(pool);
	assert_int_equal(keeper_try_pool("service", 0, &second, &error), -EBUSY);
	(void)snprintf(pid, sizeof(pid), "ward pid %d", state_stat_of(pool).ward_pid);
	assert_non_null(strstr(error.msg, pid));
	assert_int_equal(keeper_remove("service", "", &error), -EBUSY);
	assert_non_null(strstr(error.msg, pid));
	second = keeper_pool("another", 0);
	gw_pool_close(second);
	gw_pool_close(pool);
	assert_int_equal(keeper_remove("service", "nothing", &error), -ENOENT);
	assert_int_equal(keeper_remove("service", "weights", NULL), 0);
	pool = keeper_pool("service", 0);
	(void)state_run(pool, OPS({OP_MAP, GW_STATE_READ, .expect = -ENOENT, .name = "weights"}));
	gw_pool_close(pool);
	keeper_world_done();
}

static void a_ward_that_is_killed(void **state)
{
	struct gw_pool *pool;

	(void)state;
	keeper_world(NULL);
	pool = keeper_pool("service", 0);
	(void)make_state(pool);
	for (uint64_t epoch = 2; epoch < 5; epoch++) {
		keeper_lose_ward(pool);
		pool = keeper_pool("service", 0);
		(void)check_state(pool, epoch);
		(void)state_run(pool, OPS({OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT},
					  {OP_FILL_NEXT, .name = "cache"}));
	}
	gw_pool_close(pool);
	keeper_world_done();
}

/* The ward dies while its worker is at step AT of a commit of two pieces. Returns false when there is no such step. */
static bool lose_ward_at(uint32_t at, const struct gate *gate)
{
	struct state_job job = {.ops = {{OP_MAP, GW_STATE_WRITE, .name = "cache"},
					{OP_MAP, GW_STATE_WRITE, .name = "other"},
					{OP_FILL_NEXT, .name = "cache"},
					{OP_FILL_NEXT, .name = "other"},
					{OP_COMMIT},
					{OP_FILL_NEXT, .name = "cache"}},
				.stop = STOP_HOLD,
				.stop_at = at};
	struct gw_pool *pool = keeper_pool("service", 0);
	struct state_report report = {0};
	struct gate_visit visit = {0};
	struct gw_task *task;
	bool held;

	memcpy(job.gate, gate->path, sizeof(gate->path));
	task = state_start(pool, &job);
	for (;;) {
		struct pollfd fds[] = {{.fd = gate->arrived_fd, .events = POLLIN},
				       {.fd = gw_pool_fd(pool), .events = POLLIN}};
		struct gw_outcome outcome;

		assert_true(poll(fds, 2, 20000) > 0);
		held = fds[0].revents & POLLIN;
		(void)gw_pool_dispatch(pool, NULL);
		if (held || gw_task_poll(task, &outcome, NULL) == 1)
			break;
	}
	if (held) {
		visit = gate_expect(gate);
		world_kill(visit.parent);
	}
	(void)state_end(task, &report);
	gw_pool_close(pool);
	if (held)
		world_wait_gone(visit.pid);
	return held;
}

static void a_ward_that_is_killed_at_any_step_of_a_commit(void **state)
{
	uint64_t last = 0;
	struct gate gate;
	struct gw_pool *pool;
	uint32_t steps = 0;
	bool held = true;

	(void)state;
	keeper_world(NULL);
	gate_new(&gate, "gpuward-keeper");
	pool = keeper_pool("service", 0);
	(void)state_run(pool, OPS({OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "cache"},
				  {OP_CREATE, GW_STATE_MUTABLE, .bytes = MIB, .name = "other"}));
	gw_pool_close(pool);
	while (held) {
		struct state_report report;

		held = lose_ward_at(++steps, &gate);
		pool = keeper_pool("service", 0);
		report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"},
					     {OP_MAP, GW_STATE_WRITE, .name = "other"},
					     {OP_CHECK_LAST, .name = "cache"},
					     {OP_CHECK_LAST, .name = "other"}));
		assert_int_equal(report.ops[0].info.epoch, report.ops[1].info.epoch);
		assert_int_equal(report.ops[2].value + report.ops[3].value, 0);
		assert_true(report.ops[0].info.epoch - last <= 1);
		last = report.ops[0].info.epoch;
		gw_pool_close(pool);
	}
	assert_true(steps > 10);
	assert_true(last > 1);
	gate_done(&gate);
	keeper_world_done();
}

static void a_keeper_that_is_killed_is_replaced(void **state)
{
	struct keeper_view view;
	struct gw_pool *pool;
	int32_t first;

	(void)state;
	keeper_world(NULL);
	pool = keeper_pool("service", 0);
	(void)make_state(pool);
	assert_true(keeper_look("service", &view));
	first = view.welcome.keeper_pid;
	world_kill(first);
	world_wait_gone(first);
	(void)state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"},
				  {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT}));
	assert_true(keeper_look("service", &view));
	assert_int_not_equal(view.welcome.keeper_pid, first);
	assert_int_equal(view.n_pieces, 2);
	gw_pool_close(pool);
	pool = keeper_pool("service", 0);
	(void)check_state(pool, 3);
	gw_pool_close(pool);
	keeper_world_done();
}

static void a_keeper_that_is_stopped_is_replaced(void **state)
{
	struct keeper_view view;
	struct state_report report;
	struct gw_pool *pool;
	uint64_t epoch = 2;

	(void)state;
	keeper_world(NULL);
	pool = keeper_pool("service", 0);
	(void)make_state(pool);
	assert_true(keeper_look("service", &view));
	assert_int_equal(kill(view.welcome.keeper_pid, SIGSTOP), 0);
	/* Its socket takes some hundred messages before a commit has to wait. */
	for (int i = 0; i < 60; i++, epoch += 5)
		(void)state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"},
					  {OP_FILL_NEXT, .name = "cache"}, {OP_COMMIT}, {OP_COMMIT},
					  {OP_COMMIT}, {OP_COMMIT}, {OP_FILL_NEXT, .name = "cache"},
					  {OP_COMMIT}));
	world_wait_gone(view.welcome.keeper_pid);
	gw_pool_close(pool);
	pool = keeper_pool("service", 0);
	report = state_run(pool, OPS({OP_MAP, GW_STATE_WRITE, .name = "cache"}));
	assert_int_equal(report.ops[0].info.epoch, epoch);
	gw_pool_close(pool);
	keeper_world_done();
}

static void a_worker_that_lives_on_as_a_fork_keeps_its_state(void **state)
{
	struct gw_error error = {0};
	struct gw_pool *pool;
	struct gate gate;
	struct state_job job = {.ops = {{OP_MAP, GW_STATE_WRITE, .name = "cache"}, {OP_FORK}}};
	struct state_report report = {0};

	(void)state;
	keeper_world(NULL);
	gate_new(&gate, "gpuward-keeper");
	memcpy(job.gate, gate.path, sizeof(gate.path));
	pool = keeper_pool("service", 0);
	(void)make_state(pool);
	assert_int_equal(state_end(state_start(pool, &job), &report).kind, GW_DONE);
	keeper_lose_ward(pool);
	assert_int_equal(keeper_try_pool("service", 0, &pool, &error), -EBUSY);
	assert_non_null(strstr(error.msg, "may still write 'cache'"));
	gate_open(&gate);
	pool = keeper_pool("service", 0);
	(void)check_state(pool, 2);
	gw_pool_close(pool);
	(void)waitpid(-1, NULL, 0);
	gate_done(&gate);
	keeper_world_done();
}

static void state_that_nobody_uses_is_let_go_of_in_time(void **state)
{
	struct keeper_view view;
	struct gw_pool *pool;

	(void)state;
	keeper_world(NULL);
	pool = keeper_pool("service", 0);
	(void)make_state(pool);
	keeper_hold_for("service", 50 * MS);
	assert_true(keeper_look("service", &view));
	assert_int_equal(view.welcome.for_ns, 50 * MS);
	assert_int_equal(view.welcome.left_ns, GW_UNKNOWN);
	gw_pool_close(pool);
	keeper_wait_gone(view.welcome.keeper_pid);
	assert_int_equal(soft_used_bytes(0), 0);
	keeper_world_done();
}

static void a_keeper_without_its_socket_ends(void **state)
{
	struct keeper_view view;
	struct gw_pool *pool;
	char path[300];

	(void)state;
	keeper_world(NULL);
	pool = keeper_pool("service", 0);
	(void)make_state(pool);
	assert_true(keeper_look("service", &view));
	gw_pool_close(pool);
	(void)snprintf(path, sizeof(path), "%s/gpuward/service.state", soft_dir());
	assert_int_equal(unlink(path), 0);
	keeper_wait_gone(view.welcome.keeper_pid);
	keeper_world_done();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		world_test(the_next_pool_finds_all),
		world_test(a_task_of_each_pool_counts_once),
		world_test(a_keeper_that_holds_nothing_is_gone_with_the_pool),
		world_test(the_devices_of_a_restarted_host_have_other_numbers),
		world_test(a_second_pool_is_told_who_has_the_state),
		world_test(a_ward_that_is_killed),
		world_test(a_ward_that_is_killed_at_any_step_of_a_commit),
		world_test(a_keeper_that_is_killed_is_replaced),
		world_test(a_keeper_that_is_stopped_is_replaced),
		world_test(a_worker_that_lives_on_as_a_fork_keeps_its_state),
		world_test(state_that_nobody_uses_is_let_go_of_in_time),
		world_test(a_keeper_without_its_socket_ends),
	};

	(void)argc;
	(void)argv;
	if (gw_is_worker())
		return state_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
