/* SPDX-License-Identifier: MIT */
/*
 * Description: a worker that did some work is replaced at once; one that dies young waits twice as long
 * each time up to the limit; one that never becomes ready is given up after the configured tries, or at
 * once where no try can help.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ward/tally.h"

static const struct tally_limits limits = {
	.restart_min_ns = 10, .restart_max_ns = 50, .max_start_failures = 3, .max_quick_deaths = 7};

static uint64_t pause_after(struct tally *tally, struct tally_run run)
{
	struct tally_verdict verdict = tally_count(tally, &limits, &run);

	assert_false(verdict.give_up);
	return verdict.pause_ns;
}

static void quick_deaths_wait_longer_each_time(void **state)
{
	const struct tally_run young = {.ready = true, .ready_ns = 1};
	struct tally tally = {0};

	(void)state;
	assert_int_equal(pause_after(&tally, young), 0);
	assert_int_equal(pause_after(&tally, young), 10);
	assert_int_equal(pause_after(&tally, young), 20);
	assert_int_equal(pause_after(&tally, young), 40);
	assert_int_equal(pause_after(&tally, young), 50);
	assert_int_equal(pause_after(&tally, young), 50);
}

static void a_good_run_makes_up_for_them(void **state)
{
	const struct tally_run young = {.ready = true, .ready_ns = 1};
	const struct tally_run worked = {.ready = true, .ready_ns = 1, .worked = true};
	const struct tally_run old = {.ready = true, .ready_ns = TALLY_GOOD_RUN_NS};
	struct tally tally = {0};

	(void)state;
	for (int i = 0; i < 5; i++)
		(void)pause_after(&tally, young);
	assert_int_equal(pause_after(&tally, worked), 0);
	assert_int_equal(pause_after(&tally, young), 10);
	assert_int_equal(pause_after(&tally, old), 0);
	assert_int_equal(pause_after(&tally, young), 10);
}

static void quick_deaths_without_end_are_given_up(void **state)
{
	const struct tally_run young = {.ready = true, .ready_ns = 1};
	const struct tally_run worked = {.ready = true, .ready_ns = 1, .worked = true};
	struct tally tally = {0};

	(void)state;
	for (int i = 0; i < 6; i++)
		(void)pause_after(&tally, young);
	(void)pause_after(&tally, worked);
	for (int i = 0; i < 6; i++)
		(void)pause_after(&tally, young);
	assert_true(tally_count(&tally, &limits, &young).give_up);
}

static void starts_that_fail_are_given_up(void **state)
{
	const struct tally_run failed = {0};
	struct tally tally = {0};

	(void)state;
	assert_int_equal(pause_after(&tally, failed), 10);
	assert_int_equal(pause_after(&tally, failed), 20);
	assert_true(tally_count(&tally, &limits, &failed).give_up);
}

static void only_starts_in_a_row_count(void **state)
{
	const struct tally_run failed = {0};
	const struct tally_run worked = {.ready = true, .worked = true};
	struct tally tally = {0};

	(void)state;
	for (int i = 0; i < 10; i++) {
		(void)pause_after(&tally, failed);
		(void)pause_after(&tally, failed);
		(void)pause_after(&tally, worked);
	}
}

static void what_no_try_can_help_is_given_up_at_once(void **state)
{
	const struct tally_run hopeless = {.hopeless = true};
	struct tally tally = {0};

	(void)state;
	assert_true(tally_count(&tally, &limits, &hopeless).give_up);
}

static void an_end_on_request_counts_for_nothing(void **state)
{
	const struct tally_run asked = {.ready = true, .blameless = true};
	const struct tally_run asked_early = {.blameless = true};
	const struct tally_run young = {.ready = true};
	struct tally tally = {0};

	(void)state;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(pause_after(&tally, asked), 0);
		assert_int_equal(pause_after(&tally, asked_early), 0);
	}
	assert_int_equal(pause_after(&tally, young), 0);
	assert_int_equal(pause_after(&tally, young), 10);
}

static void the_largest_pauses_do_not_overflow(void **state)
{
	const struct tally_limits largest = {.restart_min_ns = UINT64_MAX - 1,
					     .restart_max_ns = UINT64_MAX,
					     .max_start_failures = UINT32_MAX};
	const struct tally_run failed = {0};
	struct tally tally = {0};

	(void)state;
	assert_true(tally_count(&tally, &largest, &failed).pause_ns == UINT64_MAX - 1);
	assert_true(tally_count(&tally, &largest, &failed).pause_ns == UINT64_MAX);
	assert_true(tally_count(&tally, &largest, &failed).pause_ns == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quick_deaths_wait_longer_each_time),
		cmocka_unit_test(a_good_run_makes_up_for_them),
		cmocka_unit_test(quick_deaths_without_end_are_given_up),
		cmocka_unit_test(starts_that_fail_are_given_up),
		cmocka_unit_test(only_starts_in_a_row_count),
		cmocka_unit_test(what_no_try_can_help_is_given_up_at_once),
		cmocka_unit_test(an_end_on_request_counts_for_nothing),
		cmocka_unit_test(the_largest_pauses_do_not_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
