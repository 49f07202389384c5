/* SPDX-License-Identifier: MIT */
/*
 * Description: a worker's environment is the host's, with its slot and its one device; a device number
 * counts in the share that a scheduler gave, and never leaves it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ward/env.h"

static bool has(const char **environment, const char *entry)
{
	int found = 0;

	for (; *environment; environment++)
		found += strcmp(*environment, entry) == 0;
	return found == 1;
}

static size_t count(const char **environment)
{
	size_t entries = 0;

	while (environment[entries])
		entries++;
	return entries;
}

static void check_device(const char *visible, int32_t device, const char *expected)
{
	const char *const base[] = {"HOME=/", visible, NULL};
	const struct env_worker worker = {.device = device};
	struct gw_error error = {0};
	const char **environment;
	int result = env_new(base, &worker, &environment, &error);

	if (!expected) {
		assert_int_equal(result, -ENODEV);
		assert_non_null(strstr(error.msg, visible));
		return;
	}
	assert_int_equal(result, 0);
	assert_true(has(environment, expected));
	assert_true(has(environment, "CUDA_DEVICE_ORDER=PCI_BUS_ID"));
	assert_int_equal(count(environment), 4);
	free(environment);
}

static void a_device_counts_in_the_share(void **state)
{
	(void)state;
	check_device("CUDA_VISIBLE_DEVICES=3,1", 0, "CUDA_VISIBLE_DEVICES=3");
	check_device("CUDA_VISIBLE_DEVICES=3,1", 1, "CUDA_VISIBLE_DEVICES=1");
	check_device("CUDA_VISIBLE_DEVICES=GPU-8,MIG-9/1", 1, "CUDA_VISIBLE_DEVICES=MIG-9/1");
}

static void a_device_outside_the_share_is_an_error(void **state)
{
	(void)state;
	check_device("CUDA_VISIBLE_DEVICES=3,1", 2, NULL);
	check_device("CUDA_VISIBLE_DEVICES=", 0, NULL);
	check_device("CUDA_VISIBLE_DEVICES=-1", 0, NULL);
	/* What follows an invalid entry does not count for the driver either. */
	check_device("CUDA_VISIBLE_DEVICES=3,-1,4", 1, NULL);
}

static void without_a_share_it_is_the_number(void **state)
{
	const char *const base[] = {"CUDA_DEVICE_ORDER=FASTEST_FIRST", "GPUWARD_WORKER=old", NULL};
	const struct env_worker worker = {.slot = 4,
					  .incarnation = 5,
					  .device = 7,
					  .spin_ns = 100,
					  .standby = true,
					  .detect = 6,
					  .flags = 1};
	const char **environment;

	(void)state;
	assert_int_equal(env_new(base, &worker, &environment, NULL), 0);
	assert_int_equal(count(environment), 3);
	assert_true(has(environment, "GPUWARD_WORKER=3:4:5:7:100:0:1:6:1"));
	assert_true(has(environment, "CUDA_VISIBLE_DEVICES=7"));
	assert_true(has(environment, "CUDA_DEVICE_ORDER=PCI_BUS_ID"));
	free(environment);
}

static void the_order_that_numbers_a_share_is_kept(void **state)
{
	const char *const base[] = {"CUDA_DEVICE_ORDER=FASTEST_FIRST", "CUDA_VISIBLE_DEVICES=1",
				    NULL};
	const struct env_worker worker = {.device = 0};
	const char **environment;

	(void)state;
	assert_int_equal(env_new(base, &worker, &environment, NULL), 0);
	assert_true(has(environment, "CUDA_DEVICE_ORDER=FASTEST_FIRST"));
	assert_true(has(environment, "CUDA_VISIBLE_DEVICES=1"));
	free(environment);
}

static void without_devices_nothing_of_them_changes(void **state)
{
	const char *const base[] = {"CUDA_VISIBLE_DEVICES=2,3", NULL};
	const struct env_worker worker = {.device = -1};
	const char **environment;

	(void)state;
	assert_int_equal(env_new(base, &worker, &environment, NULL), 0);
	assert_int_equal(count(environment), 2);
	assert_true(has(environment, "CUDA_VISIBLE_DEVICES=2,3"));
	assert_true(has(environment, "GPUWARD_WORKER=3:0:0:-1:0:0:0:0:0"));
	free(environment);
}

static void connections_are_the_pools_or_the_hosts(void **state)
{
	const char *const base[] = {"CUDA_DEVICE_MAX_CONNECTIONS=8", NULL};
	struct env_worker worker = {.device = 0};
	const char **environment;

	(void)state;
	assert_int_equal(env_new(base, &worker, &environment, NULL), 0);
	assert_true(has(environment, "CUDA_DEVICE_MAX_CONNECTIONS=8"));
	assert_int_equal(count(environment), 4);
	free(environment);
	worker.connections = 1;
	assert_int_equal(env_new(base, &worker, &environment, NULL), 0);
	assert_true(has(environment, "CUDA_DEVICE_MAX_CONNECTIONS=1"));
	assert_int_equal(count(environment), 4);
	free(environment);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_counts_in_the_share),
		cmocka_unit_test(a_device_outside_the_share_is_an_error),
		cmocka_unit_test(without_a_share_it_is_the_number),
		cmocka_unit_test(the_order_that_numbers_a_share_is_kept),
		cmocka_unit_test(without_devices_nothing_of_them_changes),
		cmocka_unit_test(connections_are_the_pools_or_the_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
