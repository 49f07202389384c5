/* SPDX-License-Identifier: MIT */
/*
 * Description: contexts of a device are made one after another, workers before standbys; a hot standby that does
 * not fit into the device's memory stays primed, visibly, and goes hot when there is room; a worker that finds no
 * room beside one that is leaving waits for its end. Standbys are slim until they are needed, if that is wanted.
 *
 * Runs in: host and worker in one program, on the emulated GPU. A context takes 527 MiB of it, and a process 3 more.
 * Read next: failover_host.h, failover_worker.h.
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

#include "../freezer.h"
#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"
#include "failover_host.h"

/* Room for one context and some primed processes; and for two. */
#define ONE_CONTEXT  "reserved_mib=0\nmemory_mib=700\n"
#define TWO_CONTEXTS "reserved_mib=0\nmemory_mib=1200\n"

static struct gw_pool_stat wait_without_room(struct gw_pool *pool, uint32_t count)
{
	uint64_t start_ns = now_ns();
	struct gw_pool_stat stat;

	while (stat = failover_stat(pool), stat.standbys_no_room < count)
		failover_wait_a_bit(start_ns, "a standby without room");
	assert_int_equal(stat.standbys_no_room, count);
	assert_int_equal(stat.standbys_primed, count);
	return stat;
}

static void hold_memory(struct gw_pool *pool, uint64_t bytes)
{
	struct failover_job job = {.hold_bytes = bytes};

	(void)failover_end(failover_start(pool, "hold", &job, -1, 0), 0);
}

/* ---- turns ---- */

static void contexts_of_a_device_are_made_one_after_another(void **state)
{
	const struct gw_pool_options options = failover_options(3, GW_STANDBY_HOT, 2);
	struct gw_pool *pool;
	char *text;

	(void)state;
	/* With the delays of the hardware, so that they would overlap. */
	soft_dir_new("delays=measured\n");
	pool = failover_open(&options);
	(void)failover_wait_standbys(pool, 2, 0);
	text = soft_text(CONTEXTS_FILE);
	assert_string_equal(text, "worker\nworker\nworker\nstandby\nstandby\n");
	free(text);
	failover_close(pool);
}

/* ---- room ---- */

static void a_standby_without_room_is_primed_and_is_taken(void **state)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gw_recovery recovery;
	struct gw_pool *pool;
	int32_t standby;

	(void)state;
	soft_dir_new(ONE_CONTEXT);
	pool = failover_open(&options);
	for (uint64_t i = 0; i < 3; i++) {
		(void)wait_without_room(pool, 1);
		standby = failover_standby_pid(pool);
		world_kill(failover_pid(pool, 0));
		recovery = failover_wait_complete(pool, i);
		assert_int_equal(recovery.standby, GW_STANDBY_PRIMED);
		assert_int_equal(recovery.new_pid, standby);
		assert_int_equal(failover_work(pool, -1).pid, standby);
	}
	(void)wait_without_room(pool, 1);
	failover_close(pool);
}

static void a_standby_goes_hot_when_a_worker_has_ended(void **state)
{
	struct gw_pool_options options = failover_options(2, GW_STANDBY_HOT, 1);
	struct gw_pool_stat stat;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(TWO_CONTEXTS);
	options.max_quick_deaths = 1;
	pool = failover_open(&options);
	(void)wait_without_room(pool, 1);
	/* Its slot is given up, and its memory is free. */
	world_kill(failover_pid(pool, 1));
	stat = failover_wait_standbys(pool, 1, 0);
	assert_int_equal(stat.standbys_no_room, 0);
	assert_int_equal(failover_stat(pool).workers_failed, 1);
	(void)failover_work(pool, -1);
	failover_close(pool);
}

/* The room is another program's: nobody tells when it is free, so the standby tries again. */
static void a_standby_goes_hot_when_another_program_has_ended(void **state)
{
	const struct gw_pool_options alone = failover_options(1, GW_STANDBY_COLD, 0);
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gw_pool *other, *pool;

	(void)state;
	soft_dir_new(TWO_CONTEXTS);
	other = failover_open(&alone);
	pool = failover_open(&options);
	(void)wait_without_room(pool, 1);
	gw_pool_close(other);
	assert_int_equal(failover_wait_standbys(pool, 1, 0).standbys_no_room, 0);
	failover_close(pool);
}

/* What a task allocates is gone with its process. */
static void a_standby_goes_hot_when_its_predecessors_memory_is_free(void **state)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct gw_pool *pool;
	struct gate gate;

	(void)state;
	soft_dir_new(TWO_CONTEXTS);
	gate_new(&gate, "memory");
	failover_hold("standby", "exec", &gate);
	pool = failover_open(&options);
	(void)gate_expect(&gate);
	failover_situation(NULL);
	hold_memory(pool, 300 * MIB);
	gate_open(&gate);
	(void)wait_without_room(pool, 1);
	world_kill(failover_pid(pool, 0));
	assert_int_equal(failover_wait_complete(pool, 0).standby, GW_STANDBY_PRIMED);
	(void)failover_wait_standbys(pool, 1, 0);
	(void)failover_work(pool, -1);
	gate_done(&gate);
	failover_close(pool);
}

static void a_worker_waits_for_the_memory_of_one_that_leaves(void **state)
{
	struct gw_pool_options options = failover_options(1, GW_STANDBY_COLD, 0);
	struct gate_visit successor;
	struct freezer freezer;
	struct gw_pool *pool;
	struct gate gate;
	int32_t old;

	(void)state;
	if (!freezer_is_there()) {
		print_message("skipped: no freezer of control groups v1 to write to\n");
		skip();
	}
	soft_dir_new(ONE_CONTEXT);
	gate_new(&gate, "room");
	options.heartbeat_ns = 100 * MS;
	options.max_start_failures = 1;
	pool = failover_open(&options);
	old = failover_pid(pool, 0);
	failover_hold("any", "no_room", &gate);
	/* It is declared dead, gets SIGKILL, and cannot end. */
	freezer_freeze(&freezer, 0, old);
	successor = gate_expect(&gate);
	failover_situation(NULL);
	assert_int_equal(failover_wait_successor(pool, 0).new_pid, successor.pid);
	gate_open(&gate);
	failover_wait_switches(pool, 2);
	assert_int_equal(failover_stat(pool).workers_failed, 0);
	assert_int_equal(failover_stat(pool).workers_starting, 1);
	freezer_thaw(&freezer);
	assert_int_equal(failover_work(pool, -1).pid, successor.pid);
	assert_int_equal(failover_wait_complete(pool, 0).exit.pid, old);
	freezer_done(&freezer);
	gate_done(&gate);
	failover_close(pool);
}

/* Nobody leaves: it is said at once, and tried again as other starts are. */
static void a_worker_without_room_fails_with_a_clear_text(void **state)
{
	struct gw_pool_options options = failover_options(2, GW_STANDBY_COLD, 0);
	uint64_t start_ns = now_ns();
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;
	struct gw_pool_stat stat;

	(void)state;
	soft_dir_new(ONE_CONTEXT);
	options.max_start_failures = 2;
	assert_int_equal(gw_pool_open(&pool, &options, &error), 0);
	while (stat = failover_stat(pool), stat.workers_failed == 0)
		failover_wait_a_bit(start_ns, "the end of the second worker");
	assert_int_equal(stat.workers_ready, 1);
	assert_int_equal(stat.last_exit.end, GW_END_START);
	assert_non_null(strstr(stat.last_exit.text, "no memory left for a context"));
	(void)failover_work(pool, -1);
	failover_close(pool);
}

static void a_pool_closes_beside_standbys_without_room(void **state)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 2);
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(ONE_CONTEXT);
	pool = failover_open(&options);
	(void)wait_without_room(pool, 2);
	failover_close(pool);
}

/* ---- slim standbys, connections ---- */

static uint64_t stack_of_standby(void)
{
	char *text = soft_text(STACK_FILE);
	uint64_t bytes = strtoull(text, NULL, 10);

	free(text);
	return bytes;
}

static void a_slim_standby_grows_when_it_is_taken(void **state)
{
	struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct failover_answer worker, standby;
	struct gw_pool *pool;

	(void)state;
	for (int slim = 0; slim < 2; slim++) {
		soft_dir_new(NULL);
		options.flags = slim ? GW_POOL_SLIM_STANDBYS : 0;
		pool = failover_open(&options);
		(void)failover_wait_standbys(pool, 1, 0);
		worker = failover_work(pool, -1);
		assert_true(worker.stack_bytes > 256);
		assert_int_equal(stack_of_standby(), slim ? 256 : worker.stack_bytes);
		world_kill(failover_pid(pool, 0));
		standby = failover_work(pool, -1);
		assert_int_equal(standby.was_standby, 1);
		assert_int_equal(standby.stack_bytes, worker.stack_bytes);
		failover_close(pool);
	}
}

static void connections_reach_workers_and_standbys(void **state)
{
	struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct failover_answer answer;
	struct gw_pool *pool;

	(void)state;
	soft_dir_new(NULL);
	assert_int_equal(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "7", 1), 0);
	pool = failover_open(&options);
	assert_string_equal(failover_work(pool, -1).connections, "7");
	failover_close(pool);
	soft_dir_new(NULL);
	options.connections = 1;
	pool = failover_open(&options);
	assert_string_equal(failover_work(pool, -1).connections, "1");
	(void)failover_wait_standbys(pool, 1, 0);
	world_kill(failover_pid(pool, 0));
	answer = failover_work(pool, -1);
	assert_int_equal(answer.was_standby, 1);
	assert_string_equal(answer.connections, "1");
	assert_int_equal(unsetenv("CUDA_DEVICE_MAX_CONNECTIONS"), 0);
	failover_close(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(contexts_of_a_device_are_made_one_after_another),
		world_test(a_standby_without_room_is_primed_and_is_taken),
		world_test(a_standby_goes_hot_when_a_worker_has_ended),
		world_test(a_standby_goes_hot_when_another_program_has_ended),
		world_test(a_standby_goes_hot_when_its_predecessors_memory_is_free),
		world_test(a_worker_waits_for_the_memory_of_one_that_leaves),
		world_test(a_worker_without_room_fails_with_a_clear_text),
		world_test(a_pool_closes_beside_standbys_without_room),
		world_test(a_slim_standby_grows_when_it_is_taken),
		world_test(connections_reach_workers_and_standbys),
	};

	if (gw_is_worker())
		return failover_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
