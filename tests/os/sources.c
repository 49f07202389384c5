/* SPDX-License-Identifier: MIT */
/*
 * Description: each source of detection finds the end of a worker alone, where no other one can; what it says and
 * when stands in the record of the recovery; and what is no sign of a worker's fault does nothing.
 *
 * Runs in: host and worker in one program, on the emulated GPU. The function ignores its error, or hangs, so that
 * only the source in question can tell. Read next: failover_host.h; sources_off.c for sources that are missing.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

static struct gw_pool *open_with(uint32_t workers, uint32_t detect)
{
	struct gw_pool_options options = failover_options(workers, GW_STANDBY_HOT, 1);
	struct gw_pool *pool;
	char log[300];

	options.detect = detect;
	(void)snprintf(log, sizeof(log), "%s/kmsg", soft_dir());
	assert_int_equal(setenv("GPUWARD_KERNEL_LOG", log, 1), 0);
	pool = failover_open(&options);
	(void)failover_wait_standbys(pool, 1, 0);
	if (detect == GW_DETECT_NVML)
		failover_wait_probe(pool);
	return pool;
}

static struct failover_job bad_job(const char *kernel, bool wait, enum failover_then then)
{
	struct failover_job job = {.bad_attempts = 1, .wait = wait, .then = then, .seed = 21};

	(void)snprintf(job.kernel, sizeof(job.kernel), "%s", kernel);
	return job;
}

/* Runs a bad job, whose second attempt is good, and gives the record of the recovery NUMBER that it needed. */
static struct gw_recovery recover(struct gw_pool *pool, const struct failover_job *job,
				  uint64_t deadline_ns, uint64_t number)
{
	struct gw_task *task = failover_start(pool, "work", job, -1, deadline_ns);
	struct gw_recovery recovery;

	(void)failover_end(task, job->seed);
	recovery = failover_wait_complete(pool, number);
	(void)failover_wait_standbys(pool, 1, 0);
	return recovery;
}

/* SOURCE was first, and the only one beside the end of the process; all is in order. */
static void check(struct gw_pool *pool, const struct gw_recovery *recovery, enum gw_source source)
{
	const struct gw_exit *exit = &recovery->exit;

	assert_int_equal(exit->source, source);
	for (int i = 0; i < GW_SOURCES; i++) {
		if (i == (int)source)
			assert_true(recovery->spoke_ns[i] != GW_UNKNOWN);
		else if (i != GW_SOURCE_DEATH)
			assert_int_equal(recovery->spoke_ns[i], GW_UNKNOWN);
	}
	assert_true(exit->started_ns < exit->noticed_ns);
	assert_int_equal(exit->noticed_ns, recovery->spoke_ns[source]);
	assert_true(exit->noticed_ns <= recovery->fenced_ns);
	assert_true(recovery->fenced_ns <= recovery->ready_ns);
	assert_true(recovery->spoke_ns[GW_SOURCE_DEATH] >= exit->noticed_ns);
	assert_true(recovery->spoke_ns[GW_SOURCE_DEATH] <= exit->gone_ns);
	assert_int_equal(failover_stat(pool).noticed_by[source], recovery->number + 1);
}

static void the_kernel_log_finds_each_fault(void **state)
{
	static const struct {
		const char *kernel;
		int xid;
	} faults[] = {{"fault_null", 31},   {"fault_oob", 31},	{"fault_misaligned", 13},
		      {"fault_assert", 43}, {"fault_trap", 43}, {"fault_shared", 13}};
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(1, GW_DETECT_KERNEL_LOG);
	for (uint64_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct failover_job job = bad_job(faults[i].kernel, false, THEN_HANG);
		struct gw_recovery recovery = recover(pool, &job, 0, i);

		check(pool, &recovery, GW_SOURCE_KERNEL_LOG);
		assert_int_equal(recovery.exit.end, GW_END_CUDA);
		assert_int_equal(recovery.exit.xid, faults[i].xid);
	}
	assert_int_equal(failover_stat(pool).source_error[GW_SOURCE_KERNEL_LOG], 0);
	assert_int_equal(failover_stat(pool).source_error[GW_SOURCE_NVML], GW_ENOTUSED);
	assert_int_equal(failover_stat(pool).source_error[GW_SOURCE_ERROR_LOG], GW_ENOTUSED);
	failover_close(pool);
}

/* Writes a record, as the kernel does. */
static void plant(const char *format, int32_t pid)
{
	char path[300], text[200], record[400];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/kmsg", soft_dir());
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_true(fd >= 0);
	(void)snprintf(text, sizeof(text), "%s", format);
	if (strstr(format, "@PID"))
		(void)snprintf(text, sizeof(text), "%.*s%d%s",
			       (int)(strstr(format, "@PID") - format), format, pid,
			       strstr(format, "@PID") + 4);
	(void)snprintf(record, sizeof(record),
		       "3,7000,%" PRIu64 ",-;NVRM: Xid (PCI:0000:00:06): %s\n", now_ns() / 1000,
		       text);
	assert_int_equal(write(fd, record, strlen(record)), strlen(record));
	(void)close(fd);
}

static void lines_of_others_do_nothing(void **state)
{
	struct failover_job job = bad_job("fault_trap", false, THEN_HANG);
	struct gw_pool *pool, *other;
	struct gw_recovery recovery;
	int32_t pid;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(1, GW_DETECT_KERNEL_LOG);
	other = open_with(1, GW_DETECT_KERNEL_LOG);
	pid = failover_pid(pool, 0);
	/* A fault in the other pool, one of a process of nobody, one without a pid, and one that ends nobody. */
	(void)recover(other, &job, 0, 0);
	plant("43, pid=@PID, name=x, channel 0x00000008", getpid());
	plant("43, pid='<unknown>', name=<unknown>, channel 0x00000008", 0);
	plant("63, pid=@PID, name=x, row remapped", pid);
	/* Lines are read in their order: when the last one has done its work, the others have done theirs. */
	recovery = recover(pool, &job, 0, 0);
	check(pool, &recovery, GW_SOURCE_KERNEL_LOG);
	assert_int_equal(recovery.exit.pid, pid);
	assert_int_equal(failover_stat(pool).recoveries, 1);
	assert_int_equal(failover_stat(other).recoveries, 1);
	gw_pool_close(other);
	failover_close(pool);
}

/* The first lines of an Xid 13 have no pid. */
static void an_xid_13_is_joined_with_its_pid(void **state)
{
	struct gw_recovery recovery;
	struct gw_pool *pool;
	int32_t pid;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(1, GW_DETECT_KERNEL_LOG);
	pid = failover_pid(pool, 0);
	plant("13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): Misaligned Address", 0);
	plant("13, Graphics Exception: ESR 0x50cf30=0x10000f 0x50cf34=0x24", 0);
	plant("13, pid=@PID, name=a, Graphics Exception: channel 0x0000000a", pid);
	recovery = failover_wait_complete(pool, 0);
	check(pool, &recovery, GW_SOURCE_KERNEL_LOG);
	assert_int_equal(recovery.exit.pid, pid);
	assert_int_equal(recovery.exit.xid, 13);
	assert_int_equal(recovery.exit.cuda, 716);
	(void)failover_work(pool, -1);
	failover_close(pool);
}

static void a_standby_that_the_kernel_log_names_is_replaced(void **state)
{
	uint64_t start_ns = now_ns();
	struct gw_pool *pool;
	int32_t standby;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(1, GW_DETECT_KERNEL_LOG);
	standby = failover_standby_pid(pool);
	plant("43, pid=@PID, name=x, channel 0x00000008", standby);
	while (failover_standby_pid(pool) == standby)
		failover_wait_a_bit(start_ns, "another standby");
	(void)failover_wait_standbys(pool, 1, 0);
	assert_int_equal(failover_stat(pool).recoveries, 0);
	(void)failover_work(pool, -1);
	failover_close(pool);
}

static void nvml_finds_the_only_one_that_can_have_been_it(void **state)
{
	struct failover_job job = bad_job("fault_trap", false, THEN_HANG);
	struct gw_recovery recovery;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(1, GW_DETECT_NVML);
	recovery = recover(pool, &job, 0, 0);
	check(pool, &recovery, GW_SOURCE_NVML);
	assert_int_equal(recovery.exit.end, GW_END_CUDA);
	assert_int_equal(recovery.exit.xid, 43);
	/* So soon after the first process it can have been that one's, and nobody is blamed. */
	recovery = recover(pool, &job, 150 * MS, 1);
	assert_int_equal(recovery.exit.source, GW_SOURCE_DEADLINE);
	assert_int_equal(failover_stat(pool).noticed_by[GW_SOURCE_NVML], 1);
	failover_close(pool);
}

/* Only the deadline tells then. */
static void check_not_attributed(struct gw_pool *pool)
{
	struct failover_job job = bad_job("fault_trap", false, THEN_HANG);
	struct gw_recovery recovery = recover(pool, &job, 150 * MS, 0);

	assert_int_equal(recovery.exit.source, GW_SOURCE_DEADLINE);
	assert_int_equal(recovery.spoke_ns[GW_SOURCE_NVML], GW_UNKNOWN);
	assert_int_equal(failover_stat(pool).noticed_by[GW_SOURCE_NVML], 0);
	assert_int_equal(failover_stat(pool).recoveries, 1);
}

static void nvml_blames_nobody_of_two_workers(void **state)
{
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(2, GW_DETECT_NVML);
	check_not_attributed(pool);
	failover_close(pool);
}

static void nvml_blames_nobody_beside_a_foreign_process(void **state)
{
	struct gw_pool *pool, *other;

	(void)state;
	soft_dir_new(NULL);
	other = open_with(1, GW_DETECT_RESULT_ONLY);
	pool = open_with(1, GW_DETECT_NVML);
	check_not_attributed(pool);
	gw_pool_close(other);
	failover_close(pool);
}

static void the_error_log_finds_what_a_function_ignores(void **state)
{
	static const struct {
		const char *kernel;
		int result;
	} faults[] = {{"fault_null", 700},
		      {"fault_misaligned", 716},
		      {"fault_assert", 710},
		      {"fault_trap", 719},
		      {"fault_shared", 715}};
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(2, GW_DETECT_ERROR_LOG);
	for (uint64_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct failover_job job = bad_job(faults[i].kernel, true, THEN_HANG);
		struct gw_recovery recovery = recover(pool, &job, 0, i);

		check(pool, &recovery, GW_SOURCE_ERROR_LOG);
		assert_int_equal(recovery.exit.end, GW_END_CUDA);
		assert_int_equal(recovery.exit.cuda, faults[i].result);
		assert_int_equal(recovery.exit.xid, -1);
	}
	failover_close(pool);
}

static void a_returned_code_tells(void **state)
{
	struct failover_job job = bad_job("fault_trap", true, THEN_RETURN);
	struct gw_recovery recovery;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(2, GW_DETECT_RESULT_ONLY);
	recovery = recover(pool, &job, 0, 0);
	check(pool, &recovery, GW_SOURCE_RESULT);
	assert_int_equal(recovery.exit.cuda, 719);
	/* One that the function does not wait for is found when the worker does. */
	job.wait = 0;
	recovery = recover(pool, &job, 0, 1);
	check(pool, &recovery, GW_SOURCE_RESULT);
	failover_close(pool);
}

static void a_death_tells(void **state)
{
	struct failover_job exits = bad_job("", false, THEN_EXIT);
	struct failover_job aborts = bad_job("", false, THEN_ABORT);
	struct failover_job busy = bad_job("spin", false, THEN_EXIT);
	struct gw_recovery recovery;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(1, GW_DETECT_RESULT_ONLY);
	recovery = recover(pool, &exits, 0, 0);
	check(pool, &recovery, GW_SOURCE_DEATH);
	assert_int_equal(recovery.exit.end, GW_END_EXIT);
	assert_int_equal(recovery.exit.value, 7);
	recovery = recover(pool, &aborts, 0, 1);
	check(pool, &recovery, GW_SOURCE_DEATH);
	assert_int_equal(recovery.exit.end, GW_END_SIGNAL);
	assert_int_equal(recovery.exit.value, SIGABRT);
	/* With work on the device that never ends. */
	recovery = recover(pool, &busy, 0, 2);
	check(pool, &recovery, GW_SOURCE_DEATH);
	assert_int_equal(recovery.exit.value, 7);
	world_kill(failover_pid(pool, 0));
	recovery = failover_wait_complete(pool, 3);
	check(pool, &recovery, GW_SOURCE_DEATH);
	assert_int_equal(recovery.exit.value, SIGKILL);
	failover_close(pool);
}

static void a_deadline_tells(void **state)
{
	struct failover_job jobs[] = {bad_job("spin", true, THEN_RETURN),
				      bad_job("", false, THEN_HANG), bad_job("", false, THEN_STOP)};
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	pool = open_with(1, GW_DETECT_RESULT_ONLY);
	for (uint64_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++) {
		struct gw_recovery recovery = recover(pool, &jobs[i], 150 * MS, i);

		check(pool, &recovery, GW_SOURCE_DEADLINE);
		assert_int_equal(recovery.exit.end, GW_END_DEADLINE);
	}
	failover_close(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(the_kernel_log_finds_each_fault),
		world_test(lines_of_others_do_nothing),
		world_test(an_xid_13_is_joined_with_its_pid),
		world_test(a_standby_that_the_kernel_log_names_is_replaced),
		world_test(nvml_finds_the_only_one_that_can_have_been_it),
		world_test(nvml_blames_nobody_of_two_workers),
		world_test(nvml_blames_nobody_beside_a_foreign_process),
		world_test(the_error_log_finds_what_a_function_ignores),
		world_test(a_returned_code_tells),
		world_test(a_death_tells),
		world_test(a_deadline_tells),
	};

	if (gw_is_worker())
		return failover_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
