/* SPDX-License-Identifier: MIT */
/*
 * The part of NVML's binary interface that gpuward uses, in declarations of its own.
 *
 * Runs in: nothing; declarations only. Only the probe process loads the library (gpu/nvml), and
 * softgpu implements it. Never include this together with NVIDIA's nvml.h.
 *
 * As in cuda_abi.h, every function is a plain prototype under its exported name, for
 * `__typeof__(&nvmlInit_v2)` in a table of symbols. An nvmlReturn_t is an int. A structure that has a
 * `version` field must be given NVML_VERSION() of itself before the call.
 *
 * Trap: units differ from call to call (bytes, milliwatts, whole per cent); the comments say which.
 */
#ifndef GPUWARD_GPU_NVML_ABI_H
#define GPUWARD_GPU_NVML_ABI_H

#include <stddef.h>
#include <stdint.h>

struct nvml_device;
struct nvml_event_set;

enum nvml_result {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_RESET_REQUIRED = 16,
	NVML_ERROR_OPERATING_SYSTEM = 17,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_IN_USE = 19,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_NO_DATA = 21,
	NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
};

enum nvml_event_type {
	NVML_EVENT_XID = 0x8, /* the event's data is the Xid; there is no pid */
	NVML_EVENT_GPU_UNAVAILABLE = 0x4000,
	NVML_EVENT_RECOVERY_ACTION = 0x8000, /* since 570 */
};

enum nvml_field {
	NVML_FIELD_RECOVERY_ACTION = 230, /* since 570; enum nvml_recovery_action */
};

enum nvml_recovery_action {
	NVML_RECOVERY_NONE = 0,
	NVML_RECOVERY_GPU_RESET = 1,
	NVML_RECOVERY_NODE_REBOOT = 2,
	NVML_RECOVERY_DRAIN_P2P = 3,
	NVML_RECOVERY_DRAIN_AND_RESET = 4,
};

enum nvml_value_type {
	NVML_VALUE_DOUBLE = 0,
	NVML_VALUE_UINT = 1,
	NVML_VALUE_ULONG = 2,
	NVML_VALUE_ULONGLONG = 3,
	NVML_VALUE_LONGLONG = 4,
	NVML_VALUE_INT = 5,
};

enum nvml_temperature_sensor {
	NVML_TEMPERATURE_GPU = 0,
};

enum nvml_compute_mode {
	NVML_COMPUTE_DEFAULT = 0,
	NVML_COMPUTE_EXCLUSIVE_THREAD = 1,
	NVML_COMPUTE_PROHIBITED = 2,
	NVML_COMPUTE_EXCLUSIVE_PROCESS = 3,
};

#define NVML_UUID_SIZE	  96
#define NVML_NAME_SIZE	  96
#define NVML_VERSION_SIZE 80

/* The version word of a structure: its size, and the number of its layout in the top byte. */
#define NVML_VERSION(type, layout) ((unsigned int)(sizeof(type) | ((unsigned int)(layout) << 24)))

/* An amount that NVML does not know for this process. */
#define NVML_UNKNOWN_BYTES UINT64_MAX

/* Version 1 counts reserved memory as used. Bytes. */
struct nvml_memory {
	uint64_t total;
	uint64_t free;
	uint64_t used;
};

/* NVML_VERSION(struct nvml_memory_v2, 2). Bytes. */
struct nvml_memory_v2 {
	uint32_t version;
	uint64_t total;
	uint64_t reserved;
	uint64_t free;
	uint64_t used; /* without `reserved` */
};

struct nvml_process {
	uint32_t pid; /* in the caller's pid namespace; it can be a process that is gone */
	uint64_t used_bytes;
	uint32_t gpu_instance;
	uint32_t compute_instance;
};

struct nvml_pci {
	char bus_id_legacy[16];
	uint32_t domain;
	uint32_t bus;
	uint32_t device;
	uint32_t pci_device_id;
	uint32_t pci_subsystem_id;
	char bus_id[32];
};

/* Per cent of the last sample period. */
struct nvml_utilization {
	uint32_t gpu;
	uint32_t memory;
};

struct nvml_event {
	struct nvml_device *device;
	uint64_t type; /* enum nvml_event_type */
	uint64_t data;
	uint32_t gpu_instance;
	uint32_t compute_instance;
};

union nvml_value {
	double d;
	int32_t i;
	uint32_t u;
	unsigned long ul;
	uint64_t ull;
	int64_t ll;
	uint16_t us;
};

struct nvml_field_value {
	uint32_t field; /* enum nvml_field */
	uint32_t scope;
	int64_t timestamp_us;
	int64_t latency_us;
	uint32_t value_type; /* enum nvml_value_type */
	int32_t result;	     /* enum nvml_result, for this field alone */
	union nvml_value value;
};

_Static_assert(sizeof(struct nvml_memory) == 24, "layout of nvmlMemory_t");
_Static_assert(sizeof(struct nvml_memory_v2) == 40, "layout of nvmlMemory_v2_t");
_Static_assert(sizeof(struct nvml_process) == 24, "layout of nvmlProcessInfo_t");
_Static_assert(offsetof(struct nvml_process, used_bytes) == 8, "layout of nvmlProcessInfo_t");
_Static_assert(sizeof(struct nvml_pci) == 68, "layout of nvmlPciInfo_t");
_Static_assert(sizeof(struct nvml_event) == 32, "layout of nvmlEventData_t");
_Static_assert(sizeof(struct nvml_field_value) == 40, "layout of nvmlFieldValue_t");

/* Library and driver. */
int nvmlInit_v2(void);
int nvmlInitWithFlags(unsigned int flags);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlSystemGetDriverVersion(char *version, unsigned int size);
int nvmlSystemGetNVMLVersion(char *version, unsigned int size);
int nvmlSystemGetCudaDriverVersion_v2(int *version);

/* Devices. */
int nvmlDeviceGetCount_v2(unsigned int *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct nvml_device **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct nvml_device **device);
int nvmlDeviceGetIndex(struct nvml_device *device, unsigned int *index);
int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned int size);
int nvmlDeviceGetName(struct nvml_device *device, char *name, unsigned int size);
int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, struct nvml_pci *pci);
int nvmlDeviceGetMinorNumber(struct nvml_device *device, unsigned int *minor);
int nvmlDeviceGetPersistenceMode(struct nvml_device *device, int *enabled);
int nvmlDeviceGetComputeMode(struct nvml_device *device, int *mode);
int nvmlDeviceGetMigMode(struct nvml_device *device, unsigned int *current, unsigned int *pending);
int nvmlDeviceGetEccMode(struct nvml_device *device, int *current, int *pending);

/* Amounts. */
int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *memory);
int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *device, struct nvml_memory_v2 *memory);
int nvmlDeviceGetComputeRunningProcesses_v3(struct nvml_device *device, unsigned int *count,
					    struct nvml_process *processes);
int nvmlDeviceGetUtilizationRates(struct nvml_device *device, struct nvml_utilization *rates);
int nvmlDeviceGetTemperature(struct nvml_device *device, int sensor, unsigned int *celsius);
int nvmlDeviceGetPowerUsage(struct nvml_device *device, unsigned int *milliwatts);
int nvmlDeviceGetFieldValues(struct nvml_device *device, int count,
			     struct nvml_field_value *values);

/* Events. The timeout is in milliseconds. */
int nvmlEventSetCreate(struct nvml_event_set **set);
int nvmlEventSetFree(struct nvml_event_set *set);
int nvmlEventSetWait_v2(struct nvml_event_set *set, struct nvml_event *event,
			unsigned int timeout_ms);
int nvmlDeviceRegisterEvents(struct nvml_device *device, uint64_t types,
			     struct nvml_event_set *set);
int nvmlDeviceGetSupportedEventTypes(struct nvml_device *device, uint64_t *types);

#endif
