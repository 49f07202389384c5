/* SPDX-License-Identifier: MIT */
/*
 * Description: a message that the kernel has no memory for is sent a moment later: to a process whose turn it is
 * to come up, to a standby that becomes a worker, to a worker that is to end, and to the host. No task waits for
 * a worker that was never told that it is one.
 *
 * Runs in: host and worker in one program, on the emulated GPU; lose_message.c is preloaded into the ward.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../world.h"
#include "common/wire.h"
#include "failover_host.h"

static void lose_one(enum wire_type type)
{
	struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	char file[] = "/tmp/gpuward-lose-XXXXXX", order[64];
	struct gw_pool *pool;
	int fd = mkstemp(file);

	assert_true(fd >= 0);
	(void)close(fd);
	(void)snprintf(order, sizeof(order), "%d %s", (int)type, file);
	soft_dir_new(NULL);
	assert_int_equal(setenv("GPUWARD_TEST_LOSE", order, 1), 0);
	assert_int_equal(setenv("LD_PRELOAD", TEST_PRELOAD, 1), 0);
	options.start_deadline_ns = options.stop_deadline_ns = 60000 * MS;
	options.heartbeat_ns = 5000 * MS;
	pool = failover_open(&options);
	assert_int_equal(unsetenv("LD_PRELOAD"), 0);
	(void)failover_wait_standbys(pool, 1, 0);
	world_kill(failover_pid(pool, 0));
	assert_int_equal(failover_wait_complete(pool, 0).standby, GW_STANDBY_HOT);
	(void)failover_work(pool, -1);
	assert_int_equal(failover_stat(pool).recoveries, 1);
	failover_close(pool);
	if (access(file, F_OK) == 0 || errno != ENOENT)
		fail_msg("no message of type %d was lost", (int)type);
}

static void a_lost_turn_is_given_again(void **state)
{
	(void)state;
	lose_one(WIRE_WARM);
}

static void a_lost_promotion_is_told_again(void **state)
{
	(void)state;
	lose_one(WIRE_PROMOTE);
}

static void a_lost_stop_is_told_again(void **state)
{
	(void)state;
	lose_one(WIRE_STOP);
}

static void the_host_hears_of_workers_again(void **state)
{
	(void)state;
	lose_one(WIRE_UP);
	lose_one(WIRE_GONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(a_lost_turn_is_given_again),
		world_test(a_lost_promotion_is_told_again),
		world_test(a_lost_stop_is_told_again),
		world_test(the_host_hears_of_workers_again),
	};

	if (gw_is_worker())
		return failover_worker_run();
	if (TEST_SANITIZED) {
		print_message("skipped: a sanitizer's library must be the first to be loaded\n");
		return 77;
	}
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
