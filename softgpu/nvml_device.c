/* SPDX-License-Identifier: MIT */
/*
 * What NVML says about a device: names, memory, and the processes that it thinks use it.
 *
 * Runs in: a process that asks NVML.
 * Invariant: amounts come from the shared table alone. A process is listed while its descriptors live,
 * also when it is dead itself: the trap that gpuward explains to people.
 * Read next: table.h, nvml_events.c.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "common/fd.h"
#include "export.h"
#include "nvml.h"
#include "visible.h"
#include "xid.h"

SOFT_EXPORT int nvmlDeviceGetCount_v2(unsigned int *count)
{
	int result = nvml_enter();

	if (!result && !count)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result)
		*count = (unsigned int)nvml.machine.settings.devices;
	return nvml_leave(result);
}

static int give(uint32_t index, struct nvml_device **device)
{
	if (index >= nvml.machine.settings.devices)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (nvml.machine.settings.lost == index)
		return NVML_ERROR_GPU_IS_LOST;
	*device = &nvml.devices[index];
	return NVML_SUCCESS;
}

SOFT_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct nvml_device **device)
{
	int result = nvml_enter();

	if (!result)
		result = device ? give(index, device) : NVML_ERROR_INVALID_ARGUMENT;
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device)
{
	int result = nvml_enter();
	uint32_t index = 0;
	char text[41];

	if (!result && (!uuid || !device))
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result) {
		for (; index < nvml.machine.settings.devices; index++) {
			visible_uuid_text(index, text);
			if (strcasecmp(text, uuid) == 0)
				break;
		}
		result = index < nvml.machine.settings.devices ? give(index, device)
							       : NVML_ERROR_NOT_FOUND;
	}
	return nvml_leave(result);
}

static void fill_pci(uint32_t index, struct nvml_pci *pci)
{
	struct xid_bus place = xid_bus(index);

	*pci = (struct nvml_pci){
		.bus = place.bus,
		.device = place.device,
		.pci_device_id = 0x233510de,
		.pci_subsystem_id = 0x18be10de,
	};
	(void)snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:%02X.0", place.bus & 0xff,
		       place.device & 0xff);
	(void)snprintf(pci->bus_id_legacy, sizeof(pci->bus_id_legacy), "0000:%02X:%02X.0",
		       place.bus & 0xff, place.device & 0xff);
}

static bool is_bus_id(const char *text)
{
	unsigned int part;

	return sscanf(text, "%x:%x:%x", &part, &part, &part) == 3;
}

SOFT_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct nvml_device **device)
{
	int result = nvml_enter();
	uint32_t index = 0;
	struct nvml_pci pci;

	if (!result && (!bus_id || !device || !is_bus_id(bus_id)))
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result) {
		for (; index < nvml.machine.settings.devices; index++) {
			fill_pci(index, &pci);
			if (strcasecmp(pci.bus_id, bus_id) == 0 ||
			    strcasecmp(pci.bus_id_legacy, bus_id) == 0)
				break;
		}
		result = index < nvml.machine.settings.devices ? give(index, device)
							       : NVML_ERROR_NOT_FOUND;
	}
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned int size)
{
	int result = nvml_enter_device(device);
	char text[41];

	if (!result) {
		visible_uuid_text(device->index, text);
		result = nvml_text(uuid, size, text);
	}
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned int size)
{
	int result = nvml_enter_device(device);

	if (!result)
		result = nvml_text(name, size, VISIBLE_NAME);
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct nvml_pci *pci)
{
	int result = nvml_enter_device(device);

	if (!result && !pci)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result)
		fill_pci(device->index, pci);
	return nvml_leave(result);
}

/* For the calls whose answer is one number. */
static int answer(struct nvml_device *device, unsigned int *out, unsigned int value)
{
	int result = nvml_enter_device(device);

	if (!result && !out)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result)
		*out = value;
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlDeviceGetIndex(struct nvml_device *device, unsigned int *index)
{
	return answer(device, index, (unsigned int)(device - nvml.devices));
}

SOFT_EXPORT int nvmlDeviceGetMinorNumber(struct nvml_device *device, unsigned int *minor)
{
	return answer(device, minor, (unsigned int)(device - nvml.devices));
}

SOFT_EXPORT int nvmlDeviceGetPersistenceMode(struct nvml_device *device, int *enabled)
{
	return answer(device, (unsigned int *)enabled, 1);
}

SOFT_EXPORT int nvmlDeviceGetComputeMode(struct nvml_device *device, int *mode)
{
	return answer(device, (unsigned int *)mode, NVML_COMPUTE_DEFAULT);
}

SOFT_EXPORT int nvmlDeviceGetTemperature(struct nvml_device *device, int sensor,
					 unsigned int *celsius)
{
	return answer(device, sensor == NVML_TEMPERATURE_GPU ? celsius : NULL, 34);
}

SOFT_EXPORT int nvmlDeviceGetPowerUsage(struct nvml_device *device, unsigned int *milliwatts)
{
	return answer(device, milliwatts, 76000);
}

SOFT_EXPORT int nvmlDeviceGetMigMode(struct nvml_device *device, unsigned int *current,
				     unsigned int *pending)
{
	int result = answer(device, current, 0);

	return result ? result : answer(device, pending, 0);
}

SOFT_EXPORT int nvmlDeviceGetEccMode(struct nvml_device *device, int *current, int *pending)
{
	int result = answer(device, (unsigned int *)current, 1);

	return result ? result : answer(device, (unsigned int *)pending, 1);
}

SOFT_EXPORT int nvmlDeviceGetUtilizationRates(struct nvml_device *device,
					      struct nvml_utilization *rates)
{
	int result = nvml_enter_device(device);

	if (!result && !rates)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result)
		*rates = (struct nvml_utilization){0};
	return nvml_leave(result);
}

/* Reads the amounts of DEVICE. */
static int read_memory(const struct nvml_device *device, struct nvml_memory_v2 *memory)
{
	const struct settings *settings = &nvml.machine.settings;
	uint64_t taken;

	if (table_open(&nvml.table, &nvml.machine) < 0)
		return NVML_ERROR_UNKNOWN;
	memory->used = table_used_bytes(&nvml.table, device->index, TABLE_NONE);
	table_close(&nvml.table);
	memory->total = settings->memory_bytes[device->index];
	memory->reserved = settings->reserved_bytes;
	taken = memory->used + memory->reserved;
	memory->free = taken < memory->total ? memory->total - taken : 0;
	return NVML_SUCCESS;
}

SOFT_EXPORT int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory)
{
	int result = nvml_enter_device(device);
	struct nvml_memory_v2 now;

	if (!result)
		result = memory ? read_memory(device, &now) : NVML_ERROR_INVALID_ARGUMENT;
	if (!result)
		*memory = (struct nvml_memory){
			.total = now.total,
			.free = now.free,
			.used = now.used + now.reserved,
		};
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *device,
					   struct nvml_memory_v2 *memory)
{
	int result = nvml_enter_device(device);

	if (!result && !memory)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result && memory->version != NVML_VERSION(struct nvml_memory_v2, 2))
		result = NVML_ERROR_FUNCTION_NOT_FOUND;
	if (!result)
		result = read_memory(device, memory);
	return nvml_leave(result);
}

/* How many pid namespaces this process is nested in, as far as its /proc shows. */
static int own_depth(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	int depth = 0;

	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "NSpid:", 6) != 0)
			continue;
		for (const char *at = line + 6; *at; at++)
			depth += isdigit((unsigned char)*at) && !isdigit((unsigned char)at[-1]);
	}
	if (file)
		(void)fclose(file);
	return depth;
}

/* The pid of CLIENT in the caller's pid namespace, or 0 where NVML would not list it. */
static uint32_t pid_here(const struct table_client *client)
{
	struct stat own = {0};

	(void)stat("/proc/self/ns/pid", &own);
	if (own.st_ino == client->pid_namespace)
		return (uint32_t)client->inner_pid;
	return client->pid != client->inner_pid && own_depth() == 1 ? (uint32_t)client->pid : 0;
}

/*
 * Memory that a context did not need is used, but nobody is listed for it: cuInit alone, cuMemCreate. And
 * of a dead process, dev/nvidia-uvm alone keeps the memory, but not the name.
 */
static bool is_listed(uint32_t device, uint32_t client)
{
	const struct table_client *entry = &nvml.table.clients[client];

	return entry->used && entry->contexts & 1ULL << device &&
	       (table_range_is_locked(nvml.fds[0], client, 1) ||
		table_range_is_locked(nvml.fds[device + 1], client, 1));
}

/* Inside a transaction. */
static int list(uint32_t device, unsigned int *count, struct nvml_process *processes)
{
	const struct table *table = &nvml.table;
	unsigned int room = *count;
	unsigned int found = 0;

	for (uint32_t i = 0; i < table->header.clients; i++) {
		const struct table_client *client = &table->clients[i];
		uint64_t bytes = is_listed(device, i) ? table_used_bytes(table, device, i) : 0;
		uint32_t pid = bytes ? pid_here(client) : 0;

		if (!pid)
			continue;
		if (found < room && processes)
			processes[found] = (struct nvml_process){
				.pid = pid,
				.used_bytes = bytes,
				.gpu_instance = UINT32_MAX,
				.compute_instance = UINT32_MAX,
			};
		found++;
	}
	*count = found;
	return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

SOFT_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(struct nvml_device *device,
							unsigned int *count,
							struct nvml_process *processes)
{
	int result = nvml_enter_device(device);

	if (!result && (!count || (*count && !processes)))
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result && table_open(&nvml.table, &nvml.machine) < 0)
		result = NVML_ERROR_UNKNOWN;
	if (!result) {
		result = list(device->index, count, processes);
		table_close(&nvml.table);
	}
	return nvml_leave(result);
}

SOFT_EXPORT int nvmlDeviceGetFieldValues(struct nvml_device *device, int count,
					 struct nvml_field_value *values)
{
	int result = nvml_enter_device(device);

	if (!result && (count <= 0 || !values))
		result = NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < count && !result; i++) {
		values[i].timestamp_us = (int64_t)(now_ns() / 1000);
		values[i].latency_us = 0;
		values[i].result = NVML_ERROR_INVALID_ARGUMENT;
		if (values[i].field != NVML_FIELD_RECOVERY_ACTION)
			continue;
		values[i].result = NVML_SUCCESS;
		values[i].value_type = NVML_VALUE_UINT;
		values[i].value.ull = nvml.machine.settings.recovery_action;
	}
	return nvml_leave(result);
}
