/* SPDX-License-Identifier: MIT */
/*
 * Description: the emulated NVML names devices, counts memory in both ways, and hangs, fails, loses a GPU
 * or mismatches when it is told to, also while it is in use.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../softgpu_calls.h"
#include "gpu/nvml_abi.h"

#define MIB (1ULL << 20)

static int set_up(void **state)
{
	(void)state;
	soft_dir_new("devices=3\nmemory_mib=8192,2048\n");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	soft_dir_free();
	return 0;
}

static void devices_have_names(void **state)
{
	struct nvml_device *device;
	struct nvml_device *same;
	struct nvml_pci pci;
	char text[NVML_UUID_SIZE];
	unsigned int number;

	(void)state;
	assert_int_equal(nvmlDeviceGetCount_v2(&number), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlInit_v2(), 0);
	assert_int_equal(nvmlDeviceGetCount_v2(&number), 0);
	assert_int_equal(number, 3);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(3, &device), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(2, &device), 0);
	assert_int_equal(nvmlDeviceGetUUID(device, text, sizeof(text)), 0);
	assert_int_equal(strlen(text), 40);
	assert_int_equal(nvmlDeviceGetHandleByUUID(text, &same), 0);
	assert_ptr_equal(same, device);
	assert_int_equal(nvmlDeviceGetUUID(device, text, 10), NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(nvmlDeviceGetPciInfo_v3(device, &pci), 0);
	assert_string_equal(pci.bus_id, "00000000:00:08.0");
	assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2(pci.bus_id, &same), 0);
	assert_ptr_equal(same, device);
	assert_int_equal(nvmlDeviceGetMinorNumber(device, &number), 0);
	assert_int_equal(number, 2);
	assert_int_equal(nvmlDeviceGetMinorNumber(NULL, &number), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlSystemGetDriverVersion(text, sizeof(text)), 0);
	assert_string_equal(text, "580.159.04");
	assert_int_equal(nvmlShutdown(), 0);
	assert_int_equal(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
}

static void reserved_memory_counts_in_version_one(void **state)
{
	struct nvml_memory_v2 second = {.version = NVML_VERSION(struct nvml_memory_v2, 2)};
	struct nvml_memory first;
	struct nvml_device *device;

	(void)state;
	assert_int_equal(nvmlInit_v2(), 0);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(1, &device), 0);
	assert_int_equal(nvmlDeviceGetMemoryInfo(device, &first), 0);
	assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device, &second), 0);
	assert_int_equal(first.total, 2048 * MIB);
	assert_int_equal(first.used, 615 * MIB);
	assert_int_equal(second.used, 0);
	assert_int_equal(second.reserved, 615 * MIB);
	assert_int_equal(first.free, second.free);
	second.version = 1;
	assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device, &second),
			 NVML_ERROR_FUNCTION_NOT_FOUND);
	assert_int_equal(nvmlShutdown(), 0);
}

static int ask(void *argument)
{
	unsigned int count;

	NEED(nvmlInit_v2(), 0);
	pipe_send(argument);
	while (nvmlDeviceGetCount_v2(&count) == 0)
		;
	return 0;
}

/* The switch is flipped while a process asks without pause; it hangs, and can be killed. */
static void hang_can_be_killed(void **state)
{
	struct signal_pipe ready;
	int status;
	pid_t pid;

	(void)state;
	pipe_open(&ready);
	pid = child_start(ask, &ready);
	assert_int_equal(pipe_wait(&ready), 1);
	soft_setting("devices=3\nnvml_hang=1\n");
	assert_int_equal(usleep(50000), 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	pipe_close(&ready);
}

/* The driver answers again: the call that hung goes on, here with an error. */
static void hang_can_end(void **state)
{
	struct signal_pipe ready;
	pid_t pid;

	(void)state;
	pipe_open(&ready);
	pid = child_start(ask, &ready);
	assert_int_equal(pipe_wait(&ready), 1);
	soft_setting("devices=3\nnvml_hang=1\n");
	soft_setting("devices=3\nnvml_error=999\n");
	assert_int_equal(child_end(pid), 0);
	pipe_close(&ready);
}

static void errors_and_recovery_action(void **state)
{
	struct nvml_field_value fields[2] = {{.field = NVML_FIELD_RECOVERY_ACTION}, {.field = 1}};
	struct nvml_device *device;
	unsigned int count;

	(void)state;
	assert_int_equal(nvmlInit_v2(), 0);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
	soft_setting("devices=3\nrecovery_action=2\n");
	assert_int_equal(nvmlDeviceGetFieldValues(device, 2, fields), 0);
	assert_int_equal(fields[0].result, 0);
	assert_int_equal(fields[0].value.u, NVML_RECOVERY_NODE_REBOOT);
	assert_int_equal(fields[1].result, NVML_ERROR_INVALID_ARGUMENT);
	soft_setting("nvml_error=16\n");
	assert_int_equal(nvmlDeviceGetCount_v2(&count), NVML_ERROR_RESET_REQUIRED);
	soft_setting("devices=3\n");
	assert_int_equal(nvmlDeviceGetCount_v2(&count), 0);
	assert_int_equal(nvmlShutdown(), 0);
	soft_setting("mismatch=1\n");
	assert_int_equal(nvmlInit_v2(), NVML_ERROR_LIB_RM_VERSION_MISMATCH);
}

static int use_lost_gpu(void *argument)
{
	uint64_t memory;

	(void)argument;
	child_context(1);
	soft_setting("devices=3\nlost=1\n");
	NEED(cuMemAlloc_v2(&memory, 4), CUDA_ERROR_UNKNOWN);
	NEED(cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
	child_context(0);
	OK(cuMemAlloc_v2(&memory, 4));
	return 0;
}

static void lost_gpu_is_lost_for_all(void **state)
{
	struct nvml_device *device;
	struct nvml_memory memory;
	const char *report;
	char *log;

	(void)state;
	assert_int_equal(nvmlInit_v2(), 0);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(1, &device), 0);
	assert_int_equal(child_run(use_lost_gpu, NULL), 0);
	assert_int_equal(nvmlDeviceGetMemoryInfo(device, &memory), NVML_ERROR_GPU_IS_LOST);
	log = soft_text("kmsg");
	report = strstr(log, "Xid (PCI:0000:00:07): 79, pid='<unknown>'");
	assert_non_null(report);
	/* Once. */
	assert_null(strstr(report + 1, "Xid"));
	free(log);
	assert_int_equal(nvmlShutdown(), 0);
}

static int child_of_nvml(void *argument)
{
	struct nvml_device *own;
	unsigned int number;

	NEED(nvmlDeviceGetCount_v2(&number), NVML_ERROR_UNINITIALIZED);
	NEED(nvmlInit_v2(), 0);
	NEED(nvmlDeviceGetCount_v2(&number), 0);
	NEED(nvmlDeviceGetIndex(argument, &number), NVML_ERROR_INVALID_ARGUMENT);
	NEED(nvmlDeviceGetHandleByIndex_v2(0, &own), 0);
	NEED(nvmlDeviceGetIndex(own, &number), 0);
	return 0;
}

static void forked_child_begins_again(void **state)
{
	struct nvml_device *device;
	unsigned int count;

	(void)state;
	assert_int_equal(nvmlInit_v2(), 0);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
	assert_int_equal(child_run(child_of_nvml, device), 0);
	assert_int_equal(nvmlDeviceGetCount_v2(&count), 0);
	assert_int_equal(nvmlShutdown(), 0);
}

/* The list of visible devices, and what a process then sees. */
static int see_devices(void *argument)
{
	const char *const *wanted = argument;
	char bus[20];
	int count = 0;
	int result;

	NEED(setenv("CUDA_VISIBLE_DEVICES", wanted[0], 1), 0);
	result = cuInit(0);
	if (!wanted[1])
		return result == CUDA_ERROR_NO_DEVICE ? 0 : result;
	OK(result);
	OK(cuDeviceGetCount(&count));
	for (int i = 0; i < count; i++) {
		NEED(wanted[i + 1] != NULL, 1);
		OK(cuDeviceGetPCIBusId(bus, sizeof(bus), i));
		NEED(strcmp(bus, wanted[i + 1]), 0);
	}
	return wanted[count + 1] ? 1 : 0;
}

static void visible_devices_are_honoured(void **state)
{
	static const char *lists[][5] = {
		{"2,0", "0000:00:08.0", "0000:00:06.0"},
		{"1,9,2", "0000:00:07.0"},
		{"-1"},
		{""},
		{"1x", "0000:00:07.0"},
		{"x1"},
		{"GPU-50f76175-6e76-4070-8000-000000000001,0", "0000:00:07.0", "0000:00:06.0"},
		{"GPU-50f762", "0000:00:08.0"},
		{"GPU-50f7"},
		{"GPU-00000000", NULL},
	};
	static const char *twice[] = {"0,0", NULL};

	(void)state;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		assert_int_equal(child_run(see_devices, lists[i]), 0);
	assert_int_equal(child_run(see_devices, twice), CUDA_ERROR_INVALID_DEVICE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(devices_have_names),	  TEST(reserved_memory_counts_in_version_one),
		TEST(hang_can_be_killed),	  TEST(hang_can_end),
		TEST(errors_and_recovery_action), TEST(lost_gpu_is_lost_for_all),
		TEST(forked_child_begins_again),  TEST(visible_devices_are_honoured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
