/* SPDX-License-Identifier: MIT */
/*
 * Description: the version is the same in the library, in the header's text, in its numbers and in the
 * build system, and GW_CHECK_VERSION orders versions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <gpuward.h>

static void all_places_agree(void **state)
{
	char numbers[32];

	(void)state;
	(void)snprintf(numbers, sizeof(numbers), "%d.%d.%d", GW_VERSION_MAJOR, GW_VERSION_MINOR,
		       GW_VERSION_PATCH);
	assert_string_equal(gw_version(), numbers);
	assert_string_equal(gw_version(), GW_VERSION_TEXT);
	assert_string_equal(gw_version(), TEST_BUILD_VERSION);
}

static void versions_are_ordered(void **state)
{
	(void)state;
	assert_true(GW_CHECK_VERSION(GW_VERSION_MAJOR, GW_VERSION_MINOR));
	assert_false(GW_CHECK_VERSION(GW_VERSION_MAJOR, GW_VERSION_MINOR + 1));
	assert_false(GW_CHECK_VERSION(GW_VERSION_MAJOR + 1, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_places_agree),
		cmocka_unit_test(versions_are_ordered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
