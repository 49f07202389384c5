/* SPDX-License-Identifier: MIT */
/*
 * Description: workers that die young, ten times or a thousand, are started again after pauses that grow, never in
 * a spin, and are given up in the end with a clear text; the other workers of the pool go on, and so does a worker
 * that dies often but works in between.
 *
 * Runs in: host and worker in one program, on the emulated GPU or without one. Read next: failover_host.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"
#include "failover_host.h"

static struct gw_pool_options brake_options(uint32_t max_quick_deaths, enum gw_standby standby)
{
	struct gw_pool_options options = failover_options(1, standby, 1);

	options.max_quick_deaths = max_quick_deaths;
	options.max_attempts = UINT32_MAX;
	return options;
}

static struct gw_task *start_deadly(struct gw_pool *pool, uint32_t deaths, int device)
{
	struct failover_job job = {.bad_attempts = deaths, .then = THEN_EXIT};

	return failover_start(pool, "work", &job, device, 0);
}

/* The task's end is the end of the worker's slot. */
static void check_given_up(struct gw_pool *pool, struct gw_task *task, uint32_t deaths)
{
	struct gw_outcome outcome = {0};
	char text[80];

	assert_int_equal(gw_task_wait(task, 60000 * MS, &outcome, NULL), 1);
	assert_int_equal(outcome.kind, GW_LOST);
	(void)snprintf(text, sizeof(text), "worker 0 died %u times in a row", deaths);
	if (!strstr(outcome.message, text))
		fail_msg("'%s' does not say '%s'", outcome.message, text);
	gw_task_free(task);
	assert_int_equal(failover_stat(pool).recoveries, deaths);
	assert_int_equal(failover_stat(pool).workers_failed, 1);
}

static void check_pool_failed(struct gw_pool *pool)
{
	struct gw_error error = {0};
	struct gw_task *task = NULL;

	assert_int_equal(gw_task_start(pool, "work", "x", NULL, &task, &error), GW_EPOOLFAILED);
	assert_non_null(strstr(error.msg, "without completing a task, and is not started again"));
}

/* The first restart is at once, the second after restart_min_ns, and so on, twice as long each time. */
static void check_pauses(struct gw_pool *pool, const struct gw_pool_options *options,
			 uint32_t count)
{
	uint64_t pause_ns = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct gw_recovery recovery = {0};

		assert_int_equal(gw_pool_recovery(pool, i, &recovery), 0);
		assert_true(recovery.ready_ns != GW_UNKNOWN);
		assert_true(recovery.ready_ns - recovery.fenced_ns >= pause_ns);
		pause_ns = pause_ns ? 2 * pause_ns : options->restart_min_ns;
		if (pause_ns > options->restart_max_ns)
			pause_ns = options->restart_max_ns;
	}
}

static void ten_deaths(enum gw_standby standby)
{
	struct gw_pool_options options = brake_options(10, standby);
	struct gw_pool *pool;

	soft_dir_new(NULL);
	options.restart_min_ns = 2 * MS;
	options.restart_max_ns = 60 * MS;
	pool = failover_open(&options);
	check_given_up(pool, start_deadly(pool, UINT32_MAX, -1), 10);
	check_pauses(pool, &options, 9);
	check_pool_failed(pool);
	failover_close(pool);
}

static void ten_quick_deaths_end_a_worker(void **state)
{
	(void)state;
	ten_deaths(GW_STANDBY_COLD);
}

/* A standby that is there at once does not make the pauses shorter. */
static void ten_quick_deaths_end_a_worker_with_standbys(void **state)
{
	(void)state;
	ten_deaths(GW_STANDBY_HOT);
}

static uint64_t cpu_ticks(int32_t pid)
{
	char path[64], text[512] = "";
	unsigned long user = 0, kernel = 0;
	const char *end;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	end = strrchr(text, ')');
	assert_non_null(end);
	assert_int_equal(sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
				&user, &kernel),
			 2);
	return user + kernel;
}

static void a_thousand_quick_deaths_do_not_spin(void **state)
{
	struct gw_pool_options options = brake_options(1000, GW_STANDBY_COLD);
	uint64_t start_ns, switches;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	options.devices = NULL;
	options.n_devices = 0;
	pool = failover_open(&options);
	switches = failover_switches(pool);
	start_ns = now_ns();
	check_given_up(pool, start_deadly(pool, UINT32_MAX, -1), 1000);
	/* A pause of a millisecond each, but for the first; and a few messages each. */
	assert_true(now_ns() - start_ns >= 998 * MS);
	assert_in_range(failover_switches(pool) - switches, 1000, 100000);
	check_pool_failed(pool);
	failover_close(pool);
}

/* While a pause lasts the ward sleeps. */
static void a_pause_costs_nothing(void **state)
{
	struct gw_pool_options options = brake_options(10, GW_STANDBY_HOT);
	uint64_t ticks, start_ns;
	struct gw_pool *pool;
	struct gw_task *task;
	int32_t ward;

	(void)state;
	soft_dir_new(NULL);
	options.restart_min_ns = options.restart_max_ns = 800 * MS;
	pool = failover_open(&options);
	ward = failover_stat(pool).ward_pid;
	(void)failover_wait_standbys(pool, 1, 0);
	task = start_deadly(pool, 2, -1);
	start_ns = now_ns();
	while (failover_stat(pool).recoveries < 2)
		failover_wait_a_bit(start_ns, "the second death");
	ticks = cpu_ticks(ward);
	start_ns = now_ns();
	(void)failover_end(task, 0);
	assert_true(now_ns() - start_ns >= 700 * MS);
	/* A tick is 10 ms; a ward that spins has 70 of them. */
	assert_in_range(cpu_ticks(ward) - ticks, 0, 30);
	failover_close(pool);
}

/* Also one that starts after a pause, when nothing else changes. */
static void a_successor_is_named_before_it_is_ready(void **state)
{
	const struct gw_pool_options options = brake_options(10, GW_STANDBY_COLD);
	struct gw_pool *pool;
	struct gate gate;

	(void)state;
	soft_dir_new(NULL);
	gate_new(&gate, "successor");
	pool = failover_open(&options);
	failover_hold("worker", "exec", &gate);
	for (uint64_t i = 0; i < 3; i++) {
		struct gw_recovery recovery;
		struct gate_visit held;

		world_kill(failover_pid(pool, 0));
		held = gate_expect(&gate);
		recovery = failover_wait_successor(pool, i);
		assert_int_equal(recovery.new_pid, held.pid);
		assert_int_equal(recovery.ready_ns, GW_UNKNOWN);
		gate_open(&gate);
		failover_wait_ready(pool, 1);
	}
	failover_situation(NULL);
	(void)failover_work(pool, -1);
	gate_done(&gate);
	failover_close(pool);
}

static void workers_that_die_when_they_are_ready_are_given_up(enum gw_standby standby)
{
	struct gw_pool_options options = brake_options(10, standby);
	uint64_t start_ns = now_ns();
	struct gw_pool *pool;

	soft_dir_new(NULL);
	pool = failover_open(&options);
	if (standby == GW_STANDBY_HOT)
		(void)failover_wait_standbys(pool, 1, 0);
	failover_situation("any serve exit");
	world_kill(failover_pid(pool, 0));
	while (failover_stat(pool).workers_failed == 0)
		failover_wait_a_bit(start_ns, "the worker's last death");
	assert_int_equal(failover_stat(pool).recoveries, 10);
	check_pool_failed(pool);
	failover_close(pool);
}

static void death_right_after_ready_is_given_up(void **state)
{
	(void)state;
	workers_that_die_when_they_are_ready_are_given_up(GW_STANDBY_COLD);
}

static void death_right_after_promotion_is_given_up(void **state)
{
	(void)state;
	workers_that_die_when_they_are_ready_are_given_up(GW_STANDBY_HOT);
}

static void other_workers_go_on(void **state)
{
	static const int devices[] = {0, 1};
	struct gw_pool_options options = brake_options(10, GW_STANDBY_HOT);
	struct gw_task *deadly;
	uint64_t start_ns;
	struct gw_pool *pool;
	int32_t healthy;

	(void)state;
	soft_dir_new("devices=2\n");
	options.devices = devices;
	options.n_devices = 2;
	pool = failover_open(&options);
	healthy = failover_pid(pool, 1);
	deadly = start_deadly(pool, UINT32_MAX, 0);
	while (failover_stat(pool).workers_failed == 0)
		assert_int_equal(failover_work(pool, 1).pid, healthy);
	check_given_up(pool, deadly, 10);
	/* The standby, which nobody needs any more, gives its memory back. (A driver that is initialised takes some
	 * of the first device, whichever it uses.) */
	start_ns = now_ns();
	while (soft_used_bytes(0) > 100 * MIB || failover_stat(pool).standbys_failed == 0)
		failover_wait_a_bit(start_ns, "the end of a standby without a worker");
	assert_int_equal(failover_wait_standbys(pool, 1, 0).standbys_starting, 0);
	/* What may run anywhere runs there. */
	for (int i = 0; i < 20; i++)
		assert_int_equal(failover_work(pool, -1).pid, healthy);
	assert_int_equal(failover_stat(pool).workers_ready, 1);
	failover_close(pool);
}

/* Each death but the first of a row has its pause; a task that is done ends the row. */
static void work_in_between_ends_the_row(void **state)
{
	struct gw_pool_options options = brake_options(4, GW_STANDBY_HOT);
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = failover_open(&options);
	for (int i = 0; i < 5; i++)
		(void)failover_end(start_deadly(pool, 3, -1), 0);
	assert_int_equal(failover_stat(pool).recoveries, 15);
	assert_int_equal(failover_stat(pool).workers_failed, 0);
	failover_close(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(ten_quick_deaths_end_a_worker),
		world_test(ten_quick_deaths_end_a_worker_with_standbys),
		world_test(a_thousand_quick_deaths_do_not_spin),
		world_test(a_pause_costs_nothing),
		world_test(a_successor_is_named_before_it_is_ready),
		world_test(death_right_after_ready_is_given_up),
		world_test(death_right_after_promotion_is_given_up),
		world_test(other_workers_go_on),
		world_test(work_in_between_ends_the_row),
	};

	if (gw_is_worker())
		return failover_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
