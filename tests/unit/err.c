/* SPDX-License-Identifier: MIT */
/*
 * Description: an error carries its code, domain, native number and one line of text, is cut and never
 * overruns, and a NULL error is allowed.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"

static void os_error_has_the_meaning_of_its_number(void **state)
{
	struct gw_error error = {0};

	(void)state;
	assert_int_equal(err_os(&error, ENOENT, "cannot open %s", "/nowhere"), -ENOENT);
	assert_int_equal(error.code, -ENOENT);
	assert_int_equal(error.domain, GW_DOMAIN_OS);
	assert_int_equal(error.native, ENOENT);
	assert_string_equal(error.msg, "cannot open /nowhere: No such file or directory");
	assert_int_equal(err_os(&error, EMFILE, "no pipe"), -EMFILE);
	assert_string_equal(error.msg, "no pipe: Too many open files (ulimit -n)");
}

static void long_text_is_cut(void **state)
{
	struct gw_error error = {0};
	char text[600];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(err_os(&error, EACCES, "%s", text), -EACCES);
	assert_int_equal(strlen(error.msg), sizeof(error.msg) - 1);
}

static void null_error_is_allowed(void **state)
{
	(void)state;
	assert_int_equal(err_own(NULL, GW_EFORKED, "forked"), GW_EFORKED);
	assert_int_equal(err_os(NULL, EPERM, "no"), -EPERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(os_error_has_the_meaning_of_its_number),
		cmocka_unit_test(long_text_is_cut),
		cmocka_unit_test(null_error_is_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
