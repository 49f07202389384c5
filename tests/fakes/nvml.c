/* SPDX-License-Identifier: MIT */
/*
 * A libnvidia-ml.so.1 for tests of the door and the probe: two devices with fixed numbers, steered by
 * the environment. FAKE_NVML_INIT is the result of nvmlInit_v2, or "hang". FAKE_NVML_MEMORY is that of
 * the memory calls, or "hang"; FAKE_NVML_PROCESSES that of the list of processes. FAKE_NVML_XID is an Xid that device 1 reports once. Built with FAKE_OLD it
 * is a driver 440 that lacks most symbols. It is no emulated GPU: that one is softgpu.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu/nvml.h"

#pragma GCC visibility push(default)

static int answer(const char *variable)
{
	const char *text = getenv(variable);

	while (text && strcmp(text, "hang") == 0)
		(void)pause();
	return text ? atoi(text) : NVML_SUCCESS;
}

int nvmlInit_v2(void)
{
	return answer("FAKE_NVML_INIT");
}

int nvmlShutdown(void)
{
	return NVML_SUCCESS;
}

const char *nvmlErrorString(int result)
{
	return result == NVML_SUCCESS ? "success" : "failure";
}

int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
	(void)snprintf(version, size, "580.159.04");
	return NVML_SUCCESS;
}

int nvmlSystemGetNVMLVersion(char *version, unsigned int size)
{
#ifdef FAKE_OLD
	(void)snprintf(version, size, "11.440.1");
#else
	(void)snprintf(version, size, "13.580.159.04");
#endif
	return NVML_SUCCESS;
}

#ifndef FAKE_OLD

#define DEVICES 2
struct nvml_device {
	unsigned int index;
};
struct nvml_event_set {
	int reported;
};
static struct nvml_device devices[DEVICES] = {{0}, {1}};
static struct nvml_event_set events;

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = 13000;
	return NVML_SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
	*count = DEVICES;
	return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct nvml_device **device)
{
	if (index >= DEVICES)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = &devices[index];
	return NVML_SUCCESS;
}

int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned int size)
{
	(void)snprintf(uuid, size, "GPU-fake-%u", device->index);
	return NVML_SUCCESS;
}

int nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned int size)
{
	(void)device;
	(void)snprintf(name, size, "Fake GPU");
	return NVML_SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct nvml_pci *pci)
{
	memset(pci, 0, sizeof(*pci));
	(void)snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:00:%02X.0", 6 + device->index);
	return NVML_SUCCESS;
}

/* Device 1 does not say its minor number. */
int nvmlDeviceGetMinorNumber(struct nvml_device *device, unsigned int *minor)
{
	if (device->index == 1)
		return NVML_ERROR_NOT_SUPPORTED;
	*minor = device->index;
	return NVML_SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory)
{
	int result = answer("FAKE_NVML_MEMORY");

	if (result == NVML_SUCCESS)
		*memory = (struct nvml_memory){1000 + device->index, 300, 700 + device->index};
	return result;
}

/* Only device 0 knows the second version, with reserved memory. */
int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *device, struct nvml_memory_v2 *memory)
{
	if (memory->version != NVML_VERSION(struct nvml_memory_v2, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (device->index == 1)
		return NVML_ERROR_NOT_SUPPORTED;
	memory->total = 1000;
	memory->reserved = 50;
	memory->free = 300;
	memory->used = 650;
	return answer("FAKE_NVML_MEMORY");
}

/* Device 0 has three processes, the last of unknown size; device 1 may not be asked. */
int nvmlDeviceGetComputeRunningProcesses_v3(struct nvml_device *device, unsigned int *count,
					    struct nvml_process *processes)
{
	unsigned int room = *count;
	int result = answer("FAKE_NVML_PROCESSES");

	if (result != NVML_SUCCESS)
		return result;
	if (device->index == 1)
		return NVML_ERROR_NO_PERMISSION;
	*count = 3;
	if (room < 3)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < 3; i++)
		processes[i] = (struct nvml_process){.pid = 100 + i, .used_bytes = 10 + i};
	processes[2].used_bytes = NVML_UNKNOWN_BYTES;
	return NVML_SUCCESS;
}

int nvmlDeviceGetFieldValues(struct nvml_device *device, int count, struct nvml_field_value *values)
{
	for (int i = 0; i < count; i++) {
		values[i].result = device->index == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
		values[i].value_type = NVML_VALUE_UINT;
		values[i].value.u = NVML_RECOVERY_GPU_RESET;
	}
	return NVML_SUCCESS;
}

int nvmlEventSetCreate(struct nvml_event_set **set)
{
	*set = &events;
	return NVML_SUCCESS;
}

int nvmlEventSetFree(struct nvml_event_set *set)
{
	(void)set;
	return NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(struct nvml_device *device, uint64_t types, struct nvml_event_set *set)
{
	(void)device;
	(void)set;
	return types & NVML_EVENT_XID ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

int nvmlDeviceGetSupportedEventTypes(struct nvml_device *device, uint64_t *types)
{
	(void)device;
	*types = NVML_EVENT_XID;
	return NVML_SUCCESS;
}

int nvmlEventSetWait_v2(struct nvml_event_set *set, struct nvml_event *event,
			unsigned int timeout_ms)
{
	struct timespec time = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
	const char *xid = getenv("FAKE_NVML_XID");

	if (xid && !set->reported) {
		set->reported = 1;
		*event = (struct nvml_event){
			.device = &devices[1], .type = NVML_EVENT_XID, .data = (uint64_t)atoi(xid)};
		return NVML_SUCCESS;
	}
	(void)nanosleep(&time, NULL);
	return NVML_ERROR_TIMEOUT;
}

#endif
#pragma GCC visibility pop
