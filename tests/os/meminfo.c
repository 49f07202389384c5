/* SPDX-License-Identifier: MIT */
/*
 * Description: the memory that can be had is the least of what the machine and the control groups say, is read
 * from staged trees, and is not known where they say nothing. Files that a kernel would never write do no harm.
 */
#include <errno.h>
#include <ftw.h>
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

#include "linux/meminfo.h"

#define MIB UINT64_C(1048576)

static char root[64];

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/gpuward-meminfo-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
	(void)info;
	(void)kind;
	(void)walk;
	return remove(path);
}

static int tear_down(void **state)
{
	(void)state;
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void stage(const char *name, const char *text)
{
	char path[256];
	FILE *stream;

	(void)snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	stream = fopen(path, "we");
	assert_non_null(stream);
	assert_true(fputs(text, stream) >= 0);
	assert_int_equal(fclose(stream), 0);
}

static void stage_group(const char *folder, const char *limit, const char *used, const char *stat)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "sys/fs/cgroup/%s/memory.max", folder);
	stage(path, limit);
	(void)snprintf(path, sizeof(path), "sys/fs/cgroup/%s/memory.current", folder);
	stage(path, used);
	(void)snprintf(path, sizeof(path), "sys/fs/cgroup/%s/memory.stat", folder);
	stage(path, stat);
}

static void stage_machine(void)
{
	stage("proc/meminfo", "MemTotal:       65536 kB\nMemFree:         4096 kB\n"
			      "MemAvailable:   40960 kB\nSwapTotal:          0 kB\n");
}

static uint64_t available_mib(void)
{
	uint64_t bytes = 0;

	assert_int_equal(meminfo_available(root, &bytes), 0);
	assert_int_equal(bytes % MIB, 0);
	return bytes / MIB;
}

static void the_machine_tells(void **state)
{
	(void)state;
	stage_machine();
	assert_int_equal(available_mib(), 40);
	/* Version 1 of the control groups alone. */
	stage("proc/self/cgroup", "5:memory:/a\n1:name=systemd:/a\n");
	assert_int_equal(available_mib(), 40);
}

static void the_groups_above_tell_too(void **state)
{
	(void)state;
	stage_machine();
	stage("proc/self/cgroup", "1:name=systemd:/x\n0::/a/b\n");
	stage_group("a/b", "max\n", "1048576\n", "anon 1048576\n");
	assert_int_equal(available_mib(), 40);
	stage_group("a", "33554432\n", "12582912\n", "anon 4194304\n");
	assert_int_equal(available_mib(), 20);
	stage_group("a/b", "10485760\n", "1048576\n", "anon 1048576\n");
	assert_int_equal(available_mib(), 9);
	/* A container sees its own group as the root. */
	stage("proc/self/cgroup", "0::/\n");
	assert_int_equal(available_mib(), 40);
	stage("sys/fs/cgroup/memory.max", "8388608\n");
	stage("sys/fs/cgroup/memory.current", "1048576\n");
	assert_int_equal(available_mib(), 7);
}

static void the_cache_of_files_is_free(void **state)
{
	(void)state;
	stage_machine();
	stage("proc/self/cgroup", "0::/a\n");
	stage_group("a", "33554432\n", "31457280\n",
		    "anon 4194304\ninactive_file 2097152\nactive_file 1048576\nshmem 4096\n");
	assert_int_equal(available_mib(), 5);
	/* More than is used: it was read a moment later. */
	stage_group("a", "33554432\n", "1048576\n", "inactive_file 9999999999\nactive_file 1\n");
	assert_int_equal(available_mib(), 32);
	stage_group("a", "1048576\n", "9999999999\n", "anon 9999999999\n");
	assert_int_equal(available_mib(), 0);
}

static void what_is_not_told_is_not_known(void **state)
{
	static const char *const bad[] = {"",
					  "MemAvailable:\n",
					  "MemAvailable: x kB\n",
					  "MemAvailable: 99999999999999999999999 kB\n",
					  "MemAvailable: 18446744073709551615 kB\n",
					  " MemAvailable: 5 kB\n"};
	uint64_t bytes = 4711;
	char *large = calloc(1, 70000);

	(void)state;
	assert_non_null(large);
	assert_int_equal(meminfo_available(root, &bytes), -ENOENT);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		stage("proc/meminfo", bad[i]);
		assert_int_equal(meminfo_available(root, &bytes), -ENOENT);
	}
	memset(large, '\n', 65000);
	(void)snprintf(large + 65000, 5000, "MemAvailable: 1024 kB\n");
	stage("proc/meminfo", large);
	assert_int_equal(meminfo_available(root, &bytes), -ENOENT);
	memset(large, 'a', 65000);
	memcpy(large, "0::/", 4);
	stage("proc/self/cgroup", large);
	assert_int_equal(meminfo_available(root, &bytes), -ENOENT);
	large[9000] = '\0';
	stage("proc/self/cgroup", large);
	assert_int_equal(meminfo_available(root, &bytes), -ENOENT);
	assert_int_equal(bytes, 4711);
	free(large);
}

static void this_machine_tells(void **state)
{
	uint64_t bytes = 0;

	(void)state;
	assert_int_equal(meminfo_available("", &bytes), 0);
	assert_true(bytes > MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_machine_tells, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_groups_above_tell_too, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_cache_of_files_is_free, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_not_told_is_not_known, set_up, tear_down),
		cmocka_unit_test(this_machine_tells),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
