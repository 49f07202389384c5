/* SPDX-License-Identifier: MIT */
/*
 * What a process can ask about the driver and its devices.
 *
 * Runs in: a process that uses CUDA. These calls work after a fault too.
 * Invariant: every name says "emulated", so that nobody takes a result for one of real hardware.
 * Read next: visible.h, settings.h.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "export.h"
#include "process.h"
#include "visible.h"
#include "xid.h"

static int enter_for(int device, const void *output)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);

	if (result)
		return result;
	if (!output)
		return CUDA_ERROR_INVALID_VALUE;
	return device < 0 || device >= process.devices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

SOFT_EXPORT int cuDriverGetVersion(int *version)
{
	int result = process_enter(NEED_NOTHING);
	struct machine machine;

	if (!version) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (process.pid) {
		*version = (int)process.machine.settings.cuda_version;
	} else {
		(void)machine_open(&machine);
		*version = (int)machine.settings.cuda_version;
	}
	return process_leave("cuDriverGetVersion", result);
}

SOFT_EXPORT int cuDeviceGetCount(int *count)
{
	int result = enter_for(0, count);

	if (!result)
		*count = process.devices;
	return process_leave("cuDeviceGetCount", result);
}

SOFT_EXPORT int cuDeviceGet(int *device, int ordinal)
{
	int result = enter_for(ordinal, device);

	if (!result)
		*device = ordinal;
	return process_leave("cuDeviceGet", result);
}

SOFT_EXPORT int cuDeviceGetName(char *name, int size, int device)
{
	int result = enter_for(device, name);

	if (!result && size <= 0)
		process_crash("cuDeviceGetName with room for no character");
	if (!result)
		(void)snprintf(name, (size_t)size, "%s", VISIBLE_NAME);
	return process_leave("cuDeviceGetName", result);
}

SOFT_EXPORT int cuDeviceGetUuid_v2(struct cuda_uuid *uuid, int device)
{
	int result = enter_for(device, uuid);

	if (!result)
		visible_uuid_bytes(process_device(device), uuid->bytes);
	return process_leave("cuDeviceGetUuid_v2", result);
}

SOFT_EXPORT int cuDeviceGetPCIBusId(char *text, int size, int device)
{
	int result = enter_for(device, text);
	struct xid_bus place;

	if (!result && size < 13)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		place = xid_bus(process_device(device));
		(void)snprintf(text, (size_t)size, "0000:%02X:%02X.0", place.bus, place.device);
	}
	return process_leave("cuDeviceGetPCIBusId", result);
}

SOFT_EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	int result = enter_for(device, bytes);

	if (!result)
		*bytes = settings_usable_bytes(&process.machine.settings, process_device(device));
	return process_leave("cuDeviceTotalMem_v2", result);
}

static const struct {
	int attribute;
	int value;
} attributes[] = {
	{CUDA_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
	{CUDA_ATTRIBUTE_WARP_SIZE, 32},
	{CUDA_ATTRIBUTE_CLOCK_RATE_KHZ, 1980000},
	{CUDA_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
	{CUDA_ATTRIBUTE_COMPUTE_MODE, 0},
	{CUDA_ATTRIBUTE_ECC_ENABLED, 1},
	{CUDA_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
	{CUDA_ATTRIBUTE_PCI_DOMAIN_ID, 0},
	{CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
	{CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
	{CUDA_ATTRIBUTE_HOST_PAGE_TABLES, 0},
	{CUDA_ATTRIBUTE_VIRTUAL_MEMORY, 1},
	{CUDA_ATTRIBUTE_POSIX_FD_HANDLE, 1},
	{CUDA_ATTRIBUTE_MPS_ENABLED, 0},
};

static int attribute_value(int attribute, uint32_t device, int *ret_value)
{
	struct xid_bus place = xid_bus(device);

	if (attribute == CUDA_ATTRIBUTE_PCI_BUS_ID || attribute == CUDA_ATTRIBUTE_PCI_DEVICE_ID) {
		*ret_value =
			(int)(attribute == CUDA_ATTRIBUTE_PCI_BUS_ID ? place.bus : place.device);
		return CUDA_SUCCESS;
	}
	if (attribute == CUDA_ATTRIBUTE_HOST_REGISTER) {
		*ret_value = (int)process.machine.settings.host_register;
		return CUDA_SUCCESS;
	}
	if (attribute == CUDA_ATTRIBUTE_READ_ONLY_HOST_REGISTER) {
		*ret_value = process.machine.settings.host_register &&
			     process.machine.settings.read_only_register;
		return CUDA_SUCCESS;
	}
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		if (attributes[i].attribute == attribute) {
			*ret_value = attributes[i].value;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

SOFT_EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	int result = enter_for(device, value);

	if (!result)
		result = attribute_value(attribute, process_device(device), value);
	return process_leave("cuDeviceGetAttribute", result);
}

/* The newest version of SYMBOL that this library has: cuMemAlloc means cuMemAlloc_v2. */
static void *find_symbol(const char *symbol, int cuda_version)
{
	static const char *const suffixes[] = {"_v4", "_v2", ""};
	void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *found = NULL;

	for (int i = cuda_version >= 12050 ? 0 : 1; i < 3 && self && !found; i++) {
		char name[128];

		(void)snprintf(name, sizeof(name), "%s%s", symbol, suffixes[i]);
		found = dlsym(self, name);
	}
	if (self)
		(void)dlclose(self);
	return found;
}

SOFT_EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version,
				    uint64_t flags, int *status)
{
	int result = process_enter(NEED_NOTHING);
	void *found = NULL;

	if (!symbol)
		process_crash("cuGetProcAddress without a name");
	if (!function || flags > 2 || strncmp(symbol, "cu", 2) != 0)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		found = find_symbol(symbol, cuda_version);
		*function = found;
		if (status)
			*status = found ? CUDA_PROC_ADDRESS_FOUND : CUDA_PROC_ADDRESS_NOT_FOUND;
		/* With a place for the status, that is where a missing symbol is told. */
		result = found || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
	}
	return process_leave("cuGetProcAddress_v2", result);
}
