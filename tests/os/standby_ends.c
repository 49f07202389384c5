/* SPDX-License-Identifier: MIT */
/*
 * Description: however standbys end, and wherever they are when a pool closes, workers go on, the cold way stays
 * open, and nothing is left behind.
 *
 * Runs in: host and worker in one program, on the emulated GPU. Read next: failover_host.h, failover_worker.h.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"
#include "failover_host.h"

/* Waits for a standby's process that is not OLD. */
static int32_t wait_other_standby(struct gw_pool *pool, int32_t old)
{
	uint64_t start_ns = now_ns();
	int32_t pid;

	while ((pid = failover_standby_pid(pool)) == old || pid < 0)
		failover_wait_a_bit(start_ns, "another standby");
	return pid;
}

static void a_killed_standby_is_replaced(enum gw_standby level)
{
	const struct gw_pool_options options = failover_options(1, level, 1);
	uint32_t hot = level == GW_STANDBY_HOT, primed = level == GW_STANDBY_PRIMED;
	struct gw_pool *pool;
	int32_t worker;

	soft_dir_new(NULL);
	pool = failover_open(&options);
	worker = failover_pid(pool, 0);
	for (int i = 0; i < 5; i++) {
		int32_t standby;

		(void)failover_wait_standbys(pool, hot, primed);
		standby = failover_standby_pid(pool);
		world_kill(standby);
		(void)wait_other_standby(pool, standby);
	}
	(void)failover_wait_standbys(pool, hot, primed);
	/* Nobody else has noticed anything. */
	assert_int_equal(failover_work(pool, -1).pid, worker);
	assert_int_equal(failover_stat(pool).recoveries, 0);
	failover_close(pool);
}

static void a_hot_standby_that_is_killed_is_replaced(void **state)
{
	(void)state;
	a_killed_standby_is_replaced(GW_STANDBY_HOT);
}

static void a_primed_standby_that_is_killed_is_replaced(void **state)
{
	(void)state;
	a_killed_standby_is_replaced(GW_STANDBY_PRIMED);
}

static void a_stopped_standby_is_replaced_by_its_heartbeat(enum gw_standby level)
{
	struct gw_pool_options options = failover_options(1, level, 1);
	struct gw_pool *pool;
	int32_t standby;

	soft_dir_new(NULL);
	options.heartbeat_ns = 200 * MS;
	pool = failover_open(&options);
	(void)failover_wait_standbys(pool, level == GW_STANDBY_HOT, level == GW_STANDBY_PRIMED);
	standby = failover_standby_pid(pool);
	assert_int_equal(kill(standby, SIGSTOP), 0);
	(void)wait_other_standby(pool, standby);
	(void)failover_wait_standbys(pool, level == GW_STANDBY_HOT, level == GW_STANDBY_PRIMED);
	assert_int_equal(failover_stat(pool).recoveries, 0);
	failover_close(pool);
}

static void a_hot_standby_that_is_stopped_is_replaced(void **state)
{
	(void)state;
	a_stopped_standby_is_replaced_by_its_heartbeat(GW_STANDBY_HOT);
}

/* Otherwise it would be found only when it is needed, and cost a start deadline then. */
static void a_primed_standby_that_is_stopped_is_replaced(void **state)
{
	(void)state;
	a_stopped_standby_is_replaced_by_its_heartbeat(GW_STANDBY_PRIMED);
}

static void a_standby_that_stops_while_it_prepares_is_replaced(void **state)
{
	struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	options.heartbeat_ns = 200 * MS;
	failover_situation("standby prepare stop");
	pool = failover_open(&options);
	(void)wait_other_standby(pool, wait_other_standby(pool, -1));
	failover_situation(NULL);
	(void)failover_wait_standbys(pool, 1, 0);
	failover_close(pool);
}

/* Without a heartbeat nobody sees it, and it takes the place of a worker: its task's deadline ends it then. */
static void a_stopped_standby_costs_a_deadline_at_worst(void **state)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct failover_job job = {.seed = 8};
	struct gw_pool *pool;
	struct gw_task *task;
	int32_t standby;

	(void)state;
	soft_dir_new(NULL);
	pool = failover_open(&options);
	(void)failover_wait_standbys(pool, 1, 0);
	standby = failover_standby_pid(pool);
	assert_int_equal(kill(standby, SIGSTOP), 0);
	world_kill(failover_pid(pool, 0));
	assert_int_equal(failover_wait_complete(pool, 0).new_pid, standby);
	task = failover_start(pool, "work", &job, -1, 50 * MS);
	assert_int_not_equal(failover_end(task, job.seed).pid, standby);
	assert_int_equal(failover_wait_complete(pool, 1).exit.pid, standby);
	assert_int_equal(failover_wait_complete(pool, 1).exit.source, GW_SOURCE_DEADLINE);
	failover_close(pool);
}

/* All standbys end at POINT by ACTION, until no further one is tried. */
static void all_standbys_fail(const char *situation, uint32_t detect)
{
	struct gw_pool_options options = failover_options(2, GW_STANDBY_HOT, 2);
	uint64_t start_ns = now_ns();
	struct gw_pool_stat stat;
	struct gw_pool *pool;

	soft_dir_new(NULL);
	options.max_start_failures = 3;
	options.detect = detect;
	failover_situation(situation);
	pool = failover_open(&options);
	while (failover_stat(pool).standbys_failed < 2)
		failover_wait_a_bit(start_ns, "the end of all standbys");
	stat = failover_stat(pool);
	assert_int_equal(stat.standbys_hot + stat.standbys_primed + stat.standbys_starting, 0);
	assert_int_equal(stat.workers_ready, 2);
	assert_int_equal(stat.workers_failed, 0);
	assert_int_equal(stat.recoveries, 0);
	assert_int_equal(failover_standby_pid(pool), -1);
	/* The cold way. */
	for (uint32_t i = 0; i < 2; i++) {
		world_kill(failover_pid(pool, i));
		assert_int_equal(failover_wait_complete(pool, i).standby, GW_STANDBY_COLD);
		assert_int_equal(failover_work(pool, -1).was_standby, 0);
	}
	assert_int_equal(failover_stat(pool).standbys_failed, 2);
	failover_close(pool);
}

static void standbys_that_fault_in_prepare_leave_the_cold_way(void **state)
{
	(void)state;
	all_standbys_fail("standby prepare fault", GW_DETECT_RESULT_ONLY);
}

/* The ward hears of it before `prepare` returns. */
static void standbys_whose_fault_is_heard_leave_the_cold_way(void **state)
{
	(void)state;
	all_standbys_fail("standby prepare fault", GW_DETECT_ERROR_LOG);
}

static void standbys_that_exit_in_prepare_leave_the_cold_way(void **state)
{
	(void)state;
	all_standbys_fail("standby prepare exit", GW_DETECT_RESULT_ONLY);
}

static void standbys_that_die_before_all_leave_the_cold_way(void **state)
{
	(void)state;
	all_standbys_fail("standby exec kill", GW_DETECT_RESULT_ONLY);
}

static void standbys_that_die_at_their_context_leave_the_cold_way(void **state)
{
	(void)state;
	all_standbys_fail("standby context kill", GW_DETECT_RESULT_ONLY);
}

/* A standby that was ready again and again has served its purpose, whatever happened to those that were taken. */
static void standbys_that_are_used_up_are_not_given_up(void **state)
{
	struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	options.max_quick_deaths = 3;
	pool = failover_open(&options);
	for (uint32_t i = 0; i < 8; i++) {
		int32_t standby;

		/* One that is hot dies, the next one is taken. */
		(void)failover_wait_standbys(pool, 1, 0);
		standby = failover_standby_pid(pool);
		world_kill(standby);
		(void)wait_other_standby(pool, standby);
		(void)failover_wait_standbys(pool, 1, 0);
		(void)failover_work(pool, -1);
		world_kill(failover_pid(pool, 0));
		assert_int_equal(failover_wait_complete(pool, i).standby, GW_STANDBY_HOT);
		(void)failover_work(pool, -1);
	}
	assert_int_equal(failover_stat(pool).standbys_failed, 0);
	failover_close(pool);
}

/* ---- closing ---- */

/* A standby is held at POINT while the pool closes; where TAKEN, as a worker. */
static void close_while_held(const char *point, bool taken)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gate_visit held;
	struct gw_pool *pool;
	struct gate gate;

	soft_dir_new(NULL);
	gate_new(&gate, "close");
	failover_hold("standby", point, &gate);
	pool = failover_open(&options);
	held = gate_expect(&gate);
	if (taken) {
		world_kill(failover_pid(pool, 0));
		assert_int_equal(failover_wait_successor(pool, 0).new_pid, held.pid);
	}
	failover_close(pool);
	gate_done(&gate);
}

static void a_pool_closes_while_a_standby_comes_up(void **state)
{
	static const char *const points[] = {"exec", "context", "prepare"};

	(void)state;
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		close_while_held(points[i], false);
		close_while_held(points[i], true);
	}
}

static void a_pool_closes_beside_standbys_that_wait(void **state)
{
	struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 2);
	struct gw_pool *pool;
	struct gate gate;

	(void)state;
	/* Hot; primed. */
	for (int primed = 0; primed < 2; primed++) {
		soft_dir_new(NULL);
		options.standby = primed ? GW_STANDBY_PRIMED : GW_STANDBY_HOT;
		pool = failover_open(&options);
		(void)failover_wait_standbys(pool, primed ? 0 : 2, primed ? 2 : 0);
		failover_close(pool);
	}
	/* One makes its context, and the other waits for its turn. */
	soft_dir_new(NULL);
	gate_new(&gate, "turn");
	failover_hold("standby", "context", &gate);
	options.standby = GW_STANDBY_HOT;
	pool = failover_open(&options);
	(void)gate_expect(&gate);
	(void)failover_wait_standbys(pool, 0, 1);
	failover_close(pool);
	gate_done(&gate);
	/* All have failed. */
	soft_dir_new(NULL);
	failover_situation("standby exec exit");
	options.max_start_failures = 1;
	pool = failover_open(&options);
	while (failover_stat(pool).standbys_failed < 2)
		failover_wait_a_bit(now_ns(), "the end of all standbys");
	failover_close(pool);
}

/* Stopped ones need a SIGKILL, and one that is leaving may not be gone yet. */
static void a_pool_closes_beside_what_is_stopped_or_leaving(void **state)
{
	struct gw_pool_options options = failover_options(2, GW_STANDBY_HOT, 1);
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	options.stop_deadline_ns = 100 * MS;
	pool = failover_open(&options);
	(void)failover_wait_standbys(pool, 1, 0);
	assert_int_equal(kill(failover_standby_pid(pool), SIGSTOP), 0);
	assert_int_equal(kill(failover_pid(pool, 1), SIGSTOP), 0);
	world_kill(failover_pid(pool, 0));
	failover_close(pool);
}

/* ---- the end of ward and host ---- */

static void a_killed_ward_leaves_no_standby(void **state)
{
	static const char *const points[] = {NULL, "exec", "context", "prepare"};
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);

	(void)state;
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		struct gw_pool *pool;
		struct gate gate;
		int32_t pids[2], ward;

		soft_dir_new(NULL);
		gate_new(&gate, "ward");
		if (points[i])
			failover_hold("standby", points[i], &gate);
		pool = failover_open(&options);
		if (points[i])
			(void)gate_expect(&gate);
		else
			(void)failover_wait_standbys(pool, 1, 0);
		pids[0] = failover_pid(pool, 0);
		pids[1] = failover_standby_pid(pool);
		ward = failover_stat(pool).ward_pid;
		world_kill(ward);
		gw_pool_close(pool);
		world_wait_gone(pids[0]);
		world_wait_gone(pids[1]);
		gate_done(&gate);
		soft_dir_free();
	}
}

/* Opens a pool, tells who is in it, and waits for its end. */
static _Noreturn void be_host(int fd)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gw_pool *pool = failover_open(&options);
	int32_t pids[3];

	(void)failover_wait_standbys(pool, 1, 0);
	pids[0] = failover_stat(pool).ward_pid;
	pids[1] = failover_pid(pool, 0);
	pids[2] = failover_standby_pid(pool);
	(void)!write(fd, pids, sizeof(pids));
	for (;;)
		(void)pause();
}

/* Of a stopped ward too: workers and standbys watch the host themselves. */
static void a_killed_host_leaves_no_standby(void **state)
{
	(void)state;
	for (int stopped = 0; stopped < 2; stopped++) {
		int32_t pids[3];
		int pipe_fds[2];
		pid_t host;

		soft_dir_new(NULL);
		assert_int_equal(pipe(pipe_fds), 0);
		host = fork();
		if (host == 0)
			be_host(pipe_fds[1]);
		assert_int_equal(read(pipe_fds[0], pids, sizeof(pids)), sizeof(pids));
		if (stopped)
			assert_int_equal(kill(pids[0], SIGSTOP), 0);
		world_kill(host);
		assert_int_equal(waitpid(host, NULL, 0), host);
		world_wait_gone(pids[1]);
		world_wait_gone(pids[2]);
		/* The kernel would do that if this test were not the ward's parent now. */
		if (stopped)
			assert_int_equal(kill(pids[0], SIGCONT), 0);
		world_wait_gone(pids[0]);
		(void)close(pipe_fds[0]);
		(void)close(pipe_fds[1]);
		soft_dir_free();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(a_hot_standby_that_is_killed_is_replaced),
		world_test(a_primed_standby_that_is_killed_is_replaced),
		world_test(a_hot_standby_that_is_stopped_is_replaced),
		world_test(a_primed_standby_that_is_stopped_is_replaced),
		world_test(a_standby_that_stops_while_it_prepares_is_replaced),
		world_test(a_stopped_standby_costs_a_deadline_at_worst),
		world_test(standbys_that_fault_in_prepare_leave_the_cold_way),
		world_test(standbys_whose_fault_is_heard_leave_the_cold_way),
		world_test(standbys_that_exit_in_prepare_leave_the_cold_way),
		world_test(standbys_that_die_before_all_leave_the_cold_way),
		world_test(standbys_that_die_at_their_context_leave_the_cold_way),
		world_test(standbys_that_are_used_up_are_not_given_up),
		world_test(a_pool_closes_while_a_standby_comes_up),
		world_test(a_pool_closes_beside_standbys_that_wait),
		world_test(a_pool_closes_beside_what_is_stopped_or_leaving),
		world_test(a_killed_ward_leaves_no_standby),
		world_test(a_killed_host_leaves_no_standby),
	};

	if (gw_is_worker())
		return failover_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
