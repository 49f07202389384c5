/* SPDX-License-Identifier: MIT */
/*
 * Description: a source that is switched off, cannot be read or hangs is said in the statistics, once, and the
 * next one is used; and the heartbeat, which finds what is stopped, does not take a ward or a machine that was
 * stopped for a fault of the workers.
 *
 * Runs in: host and worker in one program, on the emulated GPU. Read next: failover_host.h, sources.c.
 */
#include <errno.h>
#include <poll.h>
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

static struct gw_pool *open_with(uint32_t detect, const char *log)
{
	struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gw_pool *pool;

	options.detect = detect;
	assert_int_equal(setenv("GPUWARD_KERNEL_LOG", log, 1), 0);
	pool = failover_open(&options);
	(void)failover_wait_standbys(pool, 1, 0);
	return pool;
}

static struct gw_recovery recover(struct gw_pool *pool, const char *kernel, bool wait,
				  enum failover_then then, uint64_t deadline_ns)
{
	struct failover_job job = {.bad_attempts = 1, .wait = wait, .then = then};
	uint64_t number = failover_stat(pool).recoveries;

	(void)snprintf(job.kernel, sizeof(job.kernel), "%s", kernel);
	(void)failover_end(failover_start(pool, "work", &job, -1, deadline_ns), 0);
	return failover_wait_complete(pool, number);
}

static void sources_that_are_off_say_so(void **state)
{
	struct gw_recovery recovery;
	struct gw_pool_stat stat;
	struct gw_pool *pool;
	char log[300];

	(void)state;
	soft_dir_new(NULL);
	(void)snprintf(log, sizeof(log), "%s/kmsg", soft_dir());
	pool = open_with(GW_DETECT_RESULT_ONLY, log);
	stat = failover_stat(pool);
	assert_int_equal(stat.source_error[GW_SOURCE_KERNEL_LOG], GW_ENOTUSED);
	assert_int_equal(stat.source_error[GW_SOURCE_NVML], GW_ENOTUSED);
	assert_int_equal(stat.source_error[GW_SOURCE_ERROR_LOG], GW_ENOTUSED);
	/* All of them could have spoken of this. */
	recovery = recover(pool, "fault_trap", true, THEN_HANG, 150 * MS);
	assert_int_equal(recovery.exit.source, GW_SOURCE_DEADLINE);
	assert_int_equal(recovery.spoke_ns[GW_SOURCE_KERNEL_LOG], GW_UNKNOWN);
	assert_int_equal(recovery.spoke_ns[GW_SOURCE_NVML], GW_UNKNOWN);
	assert_int_equal(recovery.spoke_ns[GW_SOURCE_ERROR_LOG], GW_UNKNOWN);
	failover_close(pool);
}

/* With all of them the first one wins, and what the others say later is on record too. */
static void all_sources_together_are_in_order(void **state)
{
	struct gw_recovery recovery;
	struct gw_pool_stat stat;
	struct gw_pool *pool;
	char log[300];

	(void)state;
	soft_dir_new(NULL);
	(void)snprintf(log, sizeof(log), "%s/kmsg", soft_dir());
	pool = open_with(0, log);
	stat = failover_stat(pool);
	assert_int_equal(stat.source_error[GW_SOURCE_KERNEL_LOG], 0);
	assert_int_equal(stat.source_error[GW_SOURCE_NVML], GW_ENOTUSED);
	assert_int_equal(stat.source_error[GW_SOURCE_ERROR_LOG], 0);
	recovery = recover(pool, "fault_trap", true, THEN_RETURN, 0);
	assert_true(recovery.exit.source == GW_SOURCE_KERNEL_LOG ||
		    recovery.exit.source == GW_SOURCE_ERROR_LOG ||
		    recovery.exit.source == GW_SOURCE_RESULT);
	for (int i = 0; i < GW_SOURCES; i++)
		assert_true(recovery.spoke_ns[i] >= recovery.spoke_ns[recovery.exit.source]);
	assert_int_equal(recovery.spoke_ns[GW_SOURCE_DEADLINE], GW_UNKNOWN);
	failover_close(pool);
}

/* A folder is no log. */
static void an_unreadable_kernel_log_is_said_and_nvml_is_used(void **state)
{
	struct gw_recovery recovery;
	struct gw_pool_stat stat;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(GW_DETECT_KERNEL_LOG | GW_DETECT_NVML, soft_dir());
	failover_wait_probe(pool);
	stat = failover_stat(pool);
	assert_int_equal(stat.source_error[GW_SOURCE_KERNEL_LOG], -EINVAL);
	assert_int_equal(stat.source_error[GW_SOURCE_NVML], 0);
	recovery = recover(pool, "fault_trap", false, THEN_HANG, 0);
	assert_int_equal(recovery.exit.source, GW_SOURCE_NVML);
	assert_int_equal(recovery.spoke_ns[GW_SOURCE_KERNEL_LOG], GW_UNKNOWN);
	failover_close(pool);
	/* Without leave for NVML the rest does it. */
	soft_dir_new(NULL);
	pool = open_with(GW_DETECT_KERNEL_LOG, soft_dir());
	assert_int_equal(failover_stat(pool).source_error[GW_SOURCE_NVML], GW_ENOTUSED);
	recovery = recover(pool, "fault_trap", true, THEN_RETURN, 0);
	assert_int_equal(recovery.exit.source, GW_SOURCE_RESULT);
	failover_close(pool);
}

/* The ward goes on, and so does all that it does. */
static void a_hanging_nvml_holds_nobody_up(void **state)
{
	struct gw_recovery recovery;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new("nvml_hang=1\n");
	pool = open_with(GW_DETECT_NVML, "/nowhere");
	for (int i = 0; i < 3; i++) {
		recovery = recover(pool, "fault_trap", true, THEN_RETURN, 0);
		assert_int_equal(recovery.exit.source, GW_SOURCE_RESULT);
		(void)failover_wait_standbys(pool, 1, 0);
	}
	failover_close(pool);
}

static void an_nvml_that_fails_is_said(void **state)
{
	uint64_t start_ns = now_ns();
	struct gw_pool *pool;

	(void)state;
	soft_dir_new("nvml_error=999\n");
	pool = open_with(GW_DETECT_NVML, "/nowhere");
	while (failover_stat(pool).source_error[GW_SOURCE_NVML] == 0)
		failover_wait_a_bit(start_ns, "NVML's error");
	(void)failover_work(pool, -1);
	failover_close(pool);
}

/* ---- heartbeat ---- */

#define HEARTBEAT_NS (400 * MS)

static struct gw_pool *open_with_heartbeat(uint32_t workers)
{
	struct gw_pool_options options = failover_options(workers, GW_STANDBY_HOT, 1);
	struct gw_pool *pool;

	options.heartbeat_ns = HEARTBEAT_NS;
	pool = failover_open(&options);
	(void)failover_wait_standbys(pool, 1, 0);
	return pool;
}

static void a_heartbeat_finds_what_is_stopped(void **state)
{
	struct gw_recovery recovery;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with_heartbeat(1);
	recovery = recover(pool, "", false, THEN_STOP, 0);
	assert_int_equal(recovery.exit.source, GW_SOURCE_HEARTBEAT);
	assert_int_equal(recovery.exit.end, GW_END_DEADLINE);
	assert_non_null(strstr(recovery.exit.text, "did not answer"));
	assert_true(recovery.spoke_ns[GW_SOURCE_HEARTBEAT] <= recovery.fenced_ns);
	assert_int_equal(failover_stat(pool).noticed_by[GW_SOURCE_HEARTBEAT], 1);
	failover_close(pool);
}

/* One that computes for long answers all the same. */
static void a_heartbeat_leaves_what_is_busy(void **state)
{
	struct failover_job job = {.seed = 4};
	struct gw_pool *pool;
	struct gw_task *task;
	struct gate gate;

	(void)state;
	soft_dir_new(NULL);
	gate_new(&gate, "busy");
	(void)snprintf(job.gate, sizeof(job.gate), "%s", gate.path);
	pool = open_with_heartbeat(1);
	task = failover_start(pool, "work", &job, -1, 0);
	(void)gate_expect(&gate);
	failover_wait_switches(pool, 12);
	gate_open(&gate);
	(void)failover_end(task, job.seed);
	assert_int_equal(failover_stat(pool).recoveries, 0);
	gate_done(&gate);
	failover_close(pool);
}

static void work_for(struct gw_pool *pool, uint64_t ns)
{
	uint64_t end_ns = now_ns() + ns;

	while (now_ns() < end_ns)
		(void)failover_work(pool, -1);
}

static void a_ward_that_was_stopped_blames_nobody(void **state)
{
	struct gw_pool *pool;
	int32_t ward;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with_heartbeat(2);
	ward = failover_stat(pool).ward_pid;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kill(ward, SIGSTOP), 0);
		/* The workers do not need it. */
		work_for(pool, 2 * HEARTBEAT_NS);
		assert_int_equal(kill(ward, SIGCONT), 0);
		failover_wait_switches(pool, 6);
	}
	assert_int_equal(failover_stat(pool).recoveries, 0);
	assert_int_equal(failover_stat(pool).standbys_hot, 1);
	failover_close(pool);
}

/* As where a container is paused, or a debugger holds all of it: an answer is owed, and could not be given. */
static void a_pool_that_was_stopped_whole_blames_nobody(void **state)
{
	struct gw_pool *pool;
	int32_t ward, pids[3];

	(void)state;
	soft_dir_new(NULL);
	pool = open_with_heartbeat(2);
	ward = failover_stat(pool).ward_pid;
	pids[0] = failover_pid(pool, 0);
	pids[1] = failover_pid(pool, 1);
	pids[2] = failover_standby_pid(pool);
	for (int i = 0; i < 3; i++)
		assert_int_equal(kill(pids[i], SIGSTOP), 0);
	failover_wait_switches(pool, 1);
	assert_int_equal(kill(ward, SIGSTOP), 0);
	(void)poll(NULL, 0, (int)(2 * HEARTBEAT_NS / MS));
	assert_int_equal(kill(ward, SIGCONT), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(kill(pids[i], SIGCONT), 0);
	failover_wait_switches(pool, 8);
	assert_int_equal(failover_stat(pool).recoveries, 0);
	assert_int_equal(failover_standby_pid(pool), pids[2]);
	failover_close(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(sources_that_are_off_say_so),
		world_test(all_sources_together_are_in_order),
		world_test(an_unreadable_kernel_log_is_said_and_nvml_is_used),
		world_test(a_hanging_nvml_holds_nobody_up),
		world_test(an_nvml_that_fails_is_said),
		world_test(a_heartbeat_finds_what_is_stopped),
		world_test(a_heartbeat_leaves_what_is_busy),
		world_test(a_ward_that_was_stopped_blames_nobody),
		world_test(a_pool_that_was_stopped_whole_blames_nobody),
	};

	if (gw_is_worker())
		return failover_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
