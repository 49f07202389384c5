/* SPDX-License-Identifier: MIT */
/*
 * Description: an emulated machine that is missing, deleted, replaced, damaged or badly set up gives one
 * clear line and the right results, never a crash or a hang.
 */
#include <fcntl.h>
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

#include "../softgpu.h"
#include "../softgpu_calls.h"
#include "gpu/nvml_abi.h"

static int set_up(void **state)
{
	(void)state;
	soft_dir_new(NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	soft_dir_remove();
	return 0;
}

/* What a child that runs FUNCTION says on standard error. It must end with 0. */
static const char *words_of(int (*function)(void *argument))
{
	static char text[4096];
	int before = dup(STDERR_FILENO);
	int pair[2];
	size_t at = 0;
	ssize_t got;
	pid_t pid;
	int code;

	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	assert_true(dup2(pair[1], STDERR_FILENO) >= 0);
	pid = child_start(function, NULL);
	assert_true(dup2(before, STDERR_FILENO) >= 0);
	assert_int_equal(close(before) | close(pair[1]), 0);
	while ((got = read(pair[0], text + at, sizeof(text) - 1 - at)) > 0)
		at += (size_t)got;
	text[at] = '\0';
	code = child_end(pid);
	if (code != 0)
		print_message("%s", text);
	assert_int_equal(close(pair[0]), 0);
	assert_int_equal(code, 0);
	return text;
}

static void assert_one_line(const char *text, const char *part)
{
	if (!strstr(text, part))
		print_message("said: %s\n", text);
	assert_non_null(strstr(text, part));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static int no_device(void *argument)
{
	(void)argument;
	NEED(cuInit(0), CUDA_ERROR_NO_DEVICE);
	NEED(nvmlInit_v2(), NVML_ERROR_DRIVER_NOT_LOADED);
	return 0;
}

static int no_gpus(void *argument)
{
	unsigned int count;

	(void)argument;
	NEED(cuInit(0), CUDA_ERROR_NO_DEVICE);
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetCount_v2(&count));
	NEED(count, 0);
	return 0;
}

static int cuda_not_ready(void *argument)
{
	(void)argument;
	NEED(cuInit(0), CUDA_ERROR_SYSTEM_NOT_READY);
	NEED(cuInit(0), CUDA_ERROR_SYSTEM_NOT_READY);
	return 0;
}

static int nvml_not_ready(void *argument)
{
	(void)argument;
	NEED(nvmlInit_v2(), NVML_ERROR_UNKNOWN);
	return 0;
}

static int mismatch(void *argument)
{
	(void)argument;
	NEED(cuInit(0), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
	return 0;
}

static int works(void *argument)
{
	uint64_t memory;

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&memory, 4096));
	child_fill(memory, 1024, 1);
	return 0;
}

static void without_directory_there_is_no_gpu(void **state)
{
	(void)state;
	assert_int_equal(unsetenv("GPUWARD_SOFT_DIR"), 0);
	assert_string_equal(words_of(no_device), "");
}

static void missing_directory(void **state)
{
	(void)state;
	assert_int_equal(setenv("GPUWARD_SOFT_DIR", "/nowhere/at/all", 1), 0);
	assert_non_null(strstr(words_of(cuda_not_ready), "/nowhere/at/all: No such file"));
	assert_one_line(words_of(nvml_not_ready), "/nowhere/at/all: No such file");
	assert_int_equal(setenv("GPUWARD_SOFT_DIR", "/dev/null", 1), 0);
	assert_one_line(words_of(nvml_not_ready), "/dev/null is not a directory");
}

static void bad_settings_name_their_line(void **state)
{
	static const char *const bad[][2] = {
		{"# ok\ndevices=x\n",
		 "settings line 2 (devices=x) has a value that is not allowed"},
		{"devices=65", "has a value that is not allowed"},
		{"devices", "is not key=value"},
		{"\nspeed=9\n", "line 2 (speed=9) has a key that is not known"},
		{"memory_mib=0", "has a value that is not allowed"},
		{"memory_mib=", "has a value that is not allowed"},
		{"devices=1=1", "has a value that is not allowed"},
		{"driver_version=new", "has a value that is not allowed"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		soft_setting(bad[i][0]);
		assert_one_line(words_of(nvml_not_ready), bad[i][1]);
	}
	soft_setting("mismatch = 1 # spaces and comments\n");
	assert_string_equal(words_of(mismatch), "");
	soft_setting("devices=0\n");
	assert_int_equal(child_run(no_gpus, NULL), 0);
}

static int settings_break(void *argument)
{
	uint64_t memory;

	(void)argument;
	child_context(0);
	soft_setting("devices=maybe\n");
	NEED(cuMemAlloc_v2(&memory, 4096), CUDA_ERROR_SYSTEM_NOT_READY);
	NEED(cuCtxSynchronize(), CUDA_ERROR_SYSTEM_NOT_READY);
	soft_setting("devices=1\n");
	OK(cuMemAlloc_v2(&memory, 4096));
	return 0;
}

static void settings_can_break_and_be_mended(void **state)
{
	(void)state;
	assert_one_line(words_of(settings_break), "(devices=maybe)");
}

static int directory_goes(void *argument)
{
	uint64_t memory;

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&memory, 4096));
	OK(nvmlInit_v2());
	soft_dir_remove();
	NEED(cuMemAlloc_v2(&memory, 4096), CUDA_ERROR_SYSTEM_NOT_READY);
	NEED(cuMemcpyDtoH_v2(&memory, memory, 8), CUDA_ERROR_SYSTEM_NOT_READY);
	NEED(cuCtxSynchronize(), CUDA_ERROR_SYSTEM_NOT_READY);
	return 0;
}

static void directory_is_deleted_in_use(void **state)
{
	(void)state;
	assert_one_line(words_of(directory_goes), "is gone: No such file or directory");
	/* The child removed it: make another for the tear-down. */
	soft_dir_remove();
	soft_dir_new(NULL);
}

static char *state_path(void)
{
	static char path[400];

	(void)snprintf(path, sizeof(path), "%s/state", soft_dir());
	return path;
}

static int table_is_replaced(void *argument)
{
	uint64_t memory;

	(void)argument;
	child_context(0);
	NEED(unlink(state_path()), 0);
	NEED(close(open(state_path(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)), 0);
	NEED(cuMemAlloc_v2(&memory, 4096), CUDA_ERROR_SYSTEM_NOT_READY);
	return 0;
}

static void table_is_replaced_in_use(void **state)
{
	(void)state;
	assert_one_line(words_of(table_is_replaced), "it was replaced while in use");
}

/* Writes BYTES bytes of 0xff at AT of the table. */
static void scribble(off_t at, size_t bytes)
{
	unsigned char ones[256];
	int fd = open(state_path(), O_WRONLY | O_CLOEXEC);

	memset(ones, 0xff, sizeof(ones));
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, ones, bytes, at), bytes);
	assert_int_equal(close(fd), 0);
}

static void damaged_table_is_refused(void **state)
{
	(void)state;
	assert_int_equal(child_run(works, NULL), 0);
	assert_int_equal(truncate(state_path(), 100), 0);
	assert_one_line(words_of(nvml_not_ready), "state is damaged (it is too short)");
	assert_int_equal(unlink(state_path()), 0);
	assert_int_equal(child_run(works, NULL), 0);
	scribble(0, 8);
	assert_one_line(words_of(nvml_not_ready), "its magic number is wrong");
	assert_int_equal(unlink(state_path()), 0);
	assert_int_equal(child_run(works, NULL), 0);
	scribble(8, 8);
	assert_one_line(words_of(nvml_not_ready), "of another version");
	assert_int_equal(unlink(state_path()), 0);
	assert_int_equal(child_run(works, NULL), 0);
	scribble(12, 12);
	assert_one_line(words_of(nvml_not_ready), "its counts are too high");
}

/* The entries of a process that runs are overwritten. */
static int entries_break(void *argument)
{
	uint64_t memory;

	(void)argument;
	child_context(0);
	scribble(4096, 60);
	NEED(cuMemAlloc_v2(&memory, 4096), CUDA_ERROR_SYSTEM_NOT_READY);
	return 0;
}

static void damaged_entries_are_refused(void **state)
{
	(void)state;
	assert_one_line(words_of(entries_break), "a client is not possible");
}

static int memory_is_cut(void *argument)
{
	char path[400];
	uint64_t memory;
	uint64_t word;

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&memory, 1 << 20));
	child_fill(memory, 1024, 1);
	(void)snprintf(path, sizeof(path), "%s/dev/nvidiactl", soft_dir());
	NEED(truncate(path, 4096), 0);
	NEED(cuMemcpyDtoH_v2(&word, memory, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
	return 0;
}

static void device_memory_is_cut_short(void **state)
{
	(void)state;
	assert_one_line(words_of(memory_is_cut), "dev/nvidiactl was cut short while in use");
}

static int cuda_hangs(void *argument)
{
	(void)argument;
	return cuInit(0);
}

static void cuda_can_hang(void **state)
{
	pid_t pid;

	(void)state;
	soft_setting("cuda_hang=1\n");
	pid = child_start(cuda_hangs, NULL);
	assert_int_equal(usleep(30000), 0);
	soft_setting("mismatch=1\n");
	assert_int_equal(child_end(pid), CUDA_ERROR_SYSTEM_DRIVER_MISMATCH & 0xff);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(without_directory_there_is_no_gpu), TEST(missing_directory),
		TEST(bad_settings_name_their_line),	 TEST(settings_can_break_and_be_mended),
		TEST(directory_is_deleted_in_use),	 TEST(table_is_replaced_in_use),
		TEST(damaged_table_is_refused),		 TEST(damaged_entries_are_refused),
		TEST(device_memory_is_cut_short),	 TEST(cuda_can_hang),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
