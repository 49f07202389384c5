/* SPDX-License-Identifier: MIT */
/*
 * Description: a side spins while that pays, gives it up after a burst in vain, and tries again much later.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/spin.h"

static void it_spins_while_that_pays(void **state)
{
	struct spin spin = {.limit_ns = 100};

	(void)state;
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(spin_budget(&spin), 100);
		spin_learn(&spin, true);
	}
}

static void in_vain_it_is_given_up_for_long(void **state)
{
	struct spin spin = {.limit_ns = 100};
	uint32_t spun = 0;

	(void)state;
	for (uint32_t i = 0; i < 10 * SPIN_EVERY; i++) {
		spun += spin_budget(&spin) > 0;
		spin_learn(&spin, false);
	}
	assert_int_equal(spun, 10 * SPIN_BURST);
	/* One that paid begins anew. */
	spin_learn(&spin, true);
	assert_int_equal(spin_budget(&spin), 100);
}

static void without_a_limit_it_never_spins(void **state)
{
	struct spin spin = {.limit_ns = 0};

	(void)state;
	assert_int_equal(spin_budget(&spin), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_spins_while_that_pays),
		cmocka_unit_test(in_vain_it_is_given_up_for_long),
		cmocka_unit_test(without_a_limit_it_never_spins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
