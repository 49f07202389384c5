/* SPDX-License-Identifier: MIT */
/*
 * Description: a helper program is found in the folder that the environment names, else beside the
 * program itself; a missing one and one that cannot be executed give an error with the path.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "common/self.h"

static char folder[PATH_MAX];
static char helper[PATH_MAX + 32];

static int set_up(void **state)
{
	char pattern[] = "/tmp/gpuward-self-XXXXXX";

	(void)state;
	if (!mkdtemp(pattern) || !realpath(pattern, folder))
		return -1;
	(void)snprintf(helper, sizeof(helper), "%s/helper", folder);
	fd_close(open(helper, O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
	return setenv("GPUWARD_LIBEXEC", folder, 1);
}

static int tear_down(void **state)
{
	(void)state;
	unsetenv("GPUWARD_LIBEXEC");
	(void)unlink(helper);
	return rmdir(folder);
}

static void the_environment_comes_first(void **state)
{
	char path[PATH_MAX];

	(void)state;
	assert_int_equal(self_find_helper("helper", path, sizeof(path), NULL), 0);
	assert_string_equal(path, helper);
}

static void the_program_itself_is_beside_itself(void **state)
{
	char path[PATH_MAX];
	char own[PATH_MAX];

	(void)state;
	unsetenv("GPUWARD_LIBEXEC");
	assert_non_null(realpath("/proc/self/exe", own));
	assert_int_equal(self_find_helper(strrchr(own, '/') + 1, path, sizeof(path), NULL), 0);
	assert_string_equal(path, own);
}

static void a_missing_helper_is_named(void **state)
{
	struct gw_error error = {0};
	char path[PATH_MAX] = "untouched";

	(void)state;
	assert_int_equal(self_find_helper("gpuward-none", path, sizeof(path), &error), -ENOENT);
	assert_non_null(strstr(error.msg, "gpuward-none"));
	assert_non_null(strstr(error.msg, folder));
	assert_string_equal(path, "untouched");
	unsetenv("GPUWARD_LIBEXEC");
	assert_int_equal(self_find_helper("gpuward-none", path, sizeof(path), &error), -ENOENT);
}

static void a_file_that_cannot_be_executed_is_refused(void **state)
{
	struct gw_error error = {0};
	char path[PATH_MAX];

	(void)state;
	assert_int_equal(chmod(helper, 0644), 0);
	assert_int_equal(self_find_helper("helper", path, sizeof(path), &error), -EACCES);
	assert_non_null(strstr(error.msg, helper));
	assert_int_equal(self_find_helper(".", path, sizeof(path), &error), -EACCES);
}

static void a_short_buffer_is_refused(void **state)
{
	char path[8];

	(void)state;
	assert_int_equal(self_find_helper("helper", path, sizeof(path), NULL), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_environment_comes_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_program_itself_is_beside_itself, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_missing_helper_is_named, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_that_cannot_be_executed_is_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_short_buffer_is_refused, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
