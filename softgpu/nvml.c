/* SPDX-License-Identifier: MIT */
#include "nvml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/fd.h"
#include "export.h"

struct nvml nvml = {.lock = PTHREAD_MUTEX_INITIALIZER, .devices = nvml.handles[0]};

/* See process.c: a child must not inherit a transaction that is open. */
static void before_fork(void)
{
	(void)pthread_mutex_lock(&nvml.lock);
}

static void after_fork(void)
{
	(void)pthread_mutex_unlock(&nvml.lock);
}

__attribute__((constructor)) static void guard_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork);
}

/* Until somebody changes the switch, and without the lock. */
static void hang(void)
{
	struct timespec wait = {.tv_nsec = 10000000};

	while (nvml.machine.state == MACHINE_OK && nvml.machine.settings.nvml_hang) {
		(void)pthread_mutex_unlock(&nvml.lock);
		(void)nanosleep(&wait, NULL);
		(void)pthread_mutex_lock(&nvml.lock);
		(void)machine_refresh(&nvml.machine);
	}
}

int nvml_enter(void)
{
	(void)pthread_mutex_lock(&nvml.lock);
	if (nvml.uses == 0 || nvml.pid != getpid())
		return NVML_ERROR_UNINITIALIZED;
	if (machine_refresh(&nvml.machine) != MACHINE_OK)
		return NVML_ERROR_UNKNOWN;
	hang();
	return (int)nvml.machine.settings.nvml_error;
}

int nvml_enter_device(const struct nvml_device *device)
{
	int result = nvml_enter();

	if (result)
		return result;
	if (device < nvml.devices || device >= nvml.devices + nvml.machine.settings.devices)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (nvml.machine.settings.lost == device->index)
		return NVML_ERROR_GPU_IS_LOST;
	return NVML_SUCCESS;
}

int nvml_leave(int result)
{
	(void)pthread_mutex_unlock(&nvml.lock);
	return result;
}

int nvml_text(char *out, unsigned int size, const char *text)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(out, text, strlen(text) + 1);
	return NVML_SUCCESS;
}

static void close_devices(void)
{
	for (int i = 0; i <= SOFT_DEVICES_MAX; i++) {
		if (nvml.uses)
			fd_close(nvml.fds[i]);
		nvml.fds[i] = -1;
	}
}

static void open_devices(void)
{
	close_devices();
	for (int i = 0; i <= (int)nvml.machine.settings.devices; i++) {
		int fd = machine_device_file(&nvml.machine, i - 1, O_RDWR);

		nvml.fds[i] = fd < 0 ? -1 : fd;
	}
	for (uint32_t i = 0; i < SOFT_DEVICES_MAX; i++)
		nvml.devices[i].index = i;
}

static int first_init(void)
{
	int state = machine_open(&nvml.machine);

	if (state == MACHINE_ABSENT)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	if (state != MACHINE_OK)
		return NVML_ERROR_UNKNOWN;
	hang();
	if (nvml.machine.settings.mismatch)
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	if (nvml.machine.settings.nvml_error)
		return (int)nvml.machine.settings.nvml_error;
	if (table_open(&nvml.table, &nvml.machine) < 0)
		return NVML_ERROR_UNKNOWN;
	table_close(&nvml.table);
	open_devices();
	nvml.pid = getpid();
	return NVML_SUCCESS;
}

SOFT_EXPORT int nvmlInitWithFlags(unsigned int flags)
{
	int result = NVML_SUCCESS;

	(void)flags;
	(void)pthread_mutex_lock(&nvml.lock);
	/* What a parent opened is of no use here: begin again. */
	if (nvml.uses && nvml.pid != getpid()) {
		close_devices();
		nvml.uses = 0;
		nvml.devices = nvml.handles[nvml.devices == nvml.handles[0]];
	}
	if (nvml.uses == 0)
		result = first_init();
	if (!result)
		nvml.uses++;
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

SOFT_EXPORT int nvmlShutdown(void)
{
	(void)pthread_mutex_lock(&nvml.lock);
	if (nvml.uses == 0)
		return nvml_leave(NVML_ERROR_UNINITIALIZED);
	if (nvml.uses == 1)
		close_devices();
	nvml.uses--;
	return nvml_leave(NVML_SUCCESS);
}

SOFT_EXPORT const char *nvmlErrorString(int result)
{
	static const struct {
		int result;
		const char *text;
	} texts[] = {
		{NVML_SUCCESS, "Success"},
		{NVML_ERROR_UNINITIALIZED, "Uninitialized"},
		{NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
		{NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
		{NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
		{NVML_ERROR_NOT_FOUND, "Not Found"},
		{NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
		{NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
		{NVML_ERROR_TIMEOUT, "Timeout"},
		{NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
		{NVML_ERROR_RESET_REQUIRED, "GPU requires reset"},
		{NVML_ERROR_LIB_RM_VERSION_MISMATCH, "Driver/library version mismatch"},
		{NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources"},
		{NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "Argument version mismatch"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (texts[i].result == result)
			return texts[i].text;
	}
	return "Unknown Error";
}

SOFT_EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
	int result = nvml_enter();

	if (!result)
		result = nvml_text(version, size, nvml.machine.settings.driver_version);
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned int size)
{
	char text[64];
	int result = nvml_enter();

	if (!result) {
		(void)snprintf(text, sizeof(text), "%llu.%s",
			       (unsigned long long)nvml.machine.settings.cuda_version / 1000,
			       nvml.machine.settings.driver_version);
		result = nvml_text(version, size, text);
	}
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	int result = nvml_enter();

	if (!result && !version)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result)
		*version = (int)nvml.machine.settings.cuda_version;
	return nvml_leave(result);
}
