/* SPDX-License-Identifier: MIT */
/*
 * Description: each way in which a driver library can be unusable has its own clear message: missing,
 * broken, stub, too old, of another version than the kernel module, no device; and a CUDA driver is
 * noticed in a process without being loaded.
 *
 * The libraries are fakes that the environment steers. LD_LIBRARY_PATH counts at the start of a process
 * only, so each case runs this program again, as a child that prints what it got.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/cuda.h"
#include "gpu/dl.h"
#include "gpu/nvml.h"

static char folder[64];
static char output[1024];

/* ---- The child: prints "code domain native message". ---- */

static int child_cuda(void)
{
	struct gw_error error = {0};
	struct cuda_context *context = NULL;
	struct cuda_door door = {0};
	int code = cuda_open(&door, &error);

	if (code == 0)
		code = cuda_start_device(&door, 0, &context, &error);
	if (code == 0 && (!context || !door.cuMemSetAccess || door.version != 13000))
		return 9;
	if (code < 0 && context)
		return 8;
	printf("%d %u %ld %s\n", code, error.domain, (long)error.native, error.msg);
	return 0;
}

static int child_nvml(void)
{
	struct gw_error error = {0};
	struct nvml_door door = {0};
	int code = nvml_open(&door, &error);

	if (code == 0)
		code = nvml_init(&door, &error);
	printf("%d %u %ld %s\n", code, error.domain, (long)error.native, error.msg);
	if (door.library)
		nvml_close(&door);
	return 0;
}

/* Says whether a driver is noticed before, while and after PATH is loaded. */
static int child_loaded(const char *path)
{
	bool before = dl_cuda_is_loaded();
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	bool during = dl_cuda_is_loaded();

	if (!library)
		return 7;
	(void)dlclose(library);
	printf("%d %d %d\n", before, during, dl_cuda_is_loaded());
	return 0;
}

/* ---- The parent ---- */

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/gpuward-doors-XXXXXX");
	return mkdtemp(folder) && setenv("LD_LIBRARY_PATH", folder, 1) == 0 ? 0 : -1;
}

static void in_folder(char *path, size_t bytes, const char *name)
{
	(void)snprintf(path, bytes, "%s/%s", folder, name);
}

static int tear_down(void **state)
{
	static const char *const variables[] = {"FAKE_VERSION", "FAKE_INIT",	"FAKE_DEVICE",
						"FAKE_RETAIN",	"FAKE_CURRENT", "FAKE_NVML_INIT"};
	static const char *const names[] = {"libcuda.so.1", "libcuda.so.580.1", "libnvidia-ml.so.1",
					    "libcudart.so.1"};
	char path[128];

	(void)state;
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		in_folder(path, sizeof(path), names[i]);
		(void)unlink(path);
	}
	return rmdir(folder);
}

/* Puts the fake whose path is in VARIABLE into the folder as NAME. */
static void install(const char *variable, const char *name)
{
	const char *target = getenv(variable);
	char path[128];

	assert_non_null(target);
	in_folder(path, sizeof(path), name);
	assert_int_equal(symlink(target, path), 0);
}

static void run_child(const char *what, const char *argument)
{
	char command[] = "/proc/self/exe";
	size_t used = 0;
	ssize_t got;
	int pipes[2];
	int status;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)dup2(pipes[1], STDOUT_FILENO);
		(void)execl(command, command, what, argument, (char *)NULL);
		_exit(127);
	}
	(void)close(pipes[1]);
	while ((got = read(pipes[0], output + used, sizeof(output) - 1 - used)) > 0)
		used += (size_t)got;
	output[used] = '\0';
	(void)close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void expect(const char *what, int code, int domain, int native, const char *words)
{
	char start[64];

	run_child(what, NULL);
	(void)snprintf(start, sizeof(start), "%d %d %d ", code, domain, native);
	if (strncmp(output, start, strlen(start)) != 0 || !strstr(output, words))
		fail_msg("expected '%s...%s', got '%s'", start, words, output);
}

static void a_good_driver_opens(void **state)
{
	(void)state;
	install("FAKE_CUDA", "libcuda.so.1");
	expect("cuda", 0, 0, 0, "");
}

static void a_missing_library_says_what_to_install(void **state)
{
	(void)state;
	if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
		printf("this machine has a driver\n");
		skip();
	}
	expect("cuda", GW_EDRIVER, GW_DOMAIN_OS, ENOENT,
	       "libcuda.so.1 is not on this machine: install");
	expect("nvml", GW_EDRIVER, GW_DOMAIN_OS, ENOENT,
	       "libnvidia-ml.so.1 is not on this machine: install");
}

static void a_broken_library_is_no_missing_one(void **state)
{
	char path[128];
	FILE *stream;

	(void)state;
	in_folder(path, sizeof(path), "libcuda.so.1");
	stream = fopen(path, "we");
	assert_non_null(stream);
	assert_true(fputs("this is no library, whatever its name says", stream) >= 0);
	assert_int_equal(fclose(stream), 0);
	expect("cuda", GW_EDRIVER, GW_DOMAIN_GPUWARD, 0, "libcuda.so.1 cannot be loaded: ");
}

static void an_old_driver_is_told_what_it_lacks(void **state)
{
	(void)state;
	install("FAKE_CUDA_OLD", "libcuda.so.1");
	expect("cuda", GW_EDRIVER, GW_DOMAIN_GPUWARD, 0,
	       "has no cuGetErrorName, which needs a driver for CUDA 11.0 or later, and this one is "
	       "for CUDA 10.2");
	install("FAKE_NVML_OLD", "libnvidia-ml.so.1");
	expect("nvml", GW_EDRIVER, GW_DOMAIN_GPUWARD, 0,
	       "has no nvmlDeviceGetCount_v2, which needs driver 450 or later, and this NVML is "
	       "11.440.1");
}

static void a_library_that_is_no_driver_is_refused(void **state)
{
	(void)state;
	install("FAKE_NVML_OLD", "libcuda.so.1");
	expect("cuda", GW_EDRIVER, GW_DOMAIN_GPUWARD, 0, "is no CUDA driver");
}

static void a_stub_is_recognised(void **state)
{
	(void)state;
	install("FAKE_CUDA", "libcuda.so.1");
	assert_int_equal(setenv("FAKE_VERSION", "34", 1), 0);
	expect("cuda", GW_EDRIVER, GW_DOMAIN_CUDA, 34, "stub");
}

static void every_step_of_a_start_is_named(void **state)
{
	static const struct {
		const char *variable, *value;
		int code, native;
		const char *words;
	} cases[] = {
		{"FAKE_INIT", "803", GW_EDRIVER, 803, "reboot or reload the module"},
		{"FAKE_INIT", "804", GW_EDRIVER, 804, "update the driver and reboot"},
		{"FAKE_INIT", "100", -ENODEV, 100, "cuInit: CUDA_ERROR_NO_DEVICE (100)"},
		{"FAKE_INIT", "54321", GW_EDRIVER, 54321, "unknown result"},
		{"FAKE_DEVICE", "101", -ENODEV, 101, "cuDeviceGet: CUDA_ERROR_INVALID_DEVICE"},
		{"FAKE_RETAIN", "2", -ENOMEM, 2, "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF"},
		{"FAKE_RETAIN", "46", GW_EDRIVER, 46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
		{"FAKE_CURRENT", "700", GW_EDRIVER, 700, "cuCtxSetCurrent: CUDA_ERROR_ILLEGAL"},
	};

	(void)state;
	install("FAKE_CUDA", "libcuda.so.1");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
		expect("cuda", cases[i].code, GW_DOMAIN_CUDA, cases[i].native, cases[i].words);
		unsetenv(cases[i].variable);
	}
}

static void every_start_of_nvml_is_explained(void **state)
{
	static const struct {
		const char *value;
		int code, native;
		const char *words;
	} cases[] = {
		{"18", GW_EDRIVER, 18,
		 "NVML_ERROR_LIB_RM_VERSION_MISMATCH (18): the driver's libraries "
		 "and its loaded kernel module are of different versions: reboot"},
		{"9", GW_EDRIVER, 9, "the NVIDIA kernel module is not loaded"},
		{"4", -EACCES, 4, "no permission"},
		{"15", -ENODEV, 15, "fallen off the bus"},
		{"777", GW_EDRIVER, 777, "unknown result 777"},
	};

	(void)state;
	install("FAKE_NVML", "libnvidia-ml.so.1");
	expect("nvml", 0, 0, 0, "");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(setenv("FAKE_NVML_INIT", cases[i].value, 1), 0);
		expect("nvml", cases[i].code, GW_DOMAIN_NVML, cases[i].native, cases[i].words);
	}
}

static void a_loaded_driver_is_noticed(void **state)
{
	char path[128];

	(void)state;
	install("FAKE_CUDA", "libcuda.so.1");
	in_folder(path, sizeof(path), "libcuda.so.1");
	run_child("loaded", path);
	assert_string_equal(output, "0 1 0\n");
}

static void a_driver_of_another_file_name_is_noticed(void **state)
{
	char path[128];

	(void)state;
	install("FAKE_CUDA", "libcuda.so.580.1");
	in_folder(path, sizeof(path), "libcuda.so.580.1");
	run_child("loaded", path);
	assert_string_equal(output, "0 1 0\n");
}

static void the_runtime_is_no_driver(void **state)
{
	char path[128];

	(void)state;
	install("FAKE_CUDA", "libcudart.so.1");
	in_folder(path, sizeof(path), "libcudart.so.1");
	run_child("loaded", path);
	assert_string_equal(output, "0 0 0\n");
}

#define WITH_FOLDER(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static int parent(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FOLDER(a_good_driver_opens),
		WITH_FOLDER(a_missing_library_says_what_to_install),
		WITH_FOLDER(a_broken_library_is_no_missing_one),
		WITH_FOLDER(an_old_driver_is_told_what_it_lacks),
		WITH_FOLDER(a_library_that_is_no_driver_is_refused),
		WITH_FOLDER(a_stub_is_recognised),
		WITH_FOLDER(every_step_of_a_start_is_named),
		WITH_FOLDER(every_start_of_nvml_is_explained),
		WITH_FOLDER(a_loaded_driver_is_noticed),
		WITH_FOLDER(a_driver_of_another_file_name_is_noticed),
		WITH_FOLDER(the_runtime_is_no_driver),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "cuda") == 0)
		return child_cuda();
	if (argc == 2 && strcmp(argv[1], "nvml") == 0)
		return child_nvml();
	if (argc == 3 && strcmp(argv[1], "loaded") == 0)
		return child_loaded(argv[2]);
	return parent();
}
