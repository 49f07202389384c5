/* SPDX-License-Identifier: MIT */
/*
 * The door to NVML: a struct of function pointers, filled from a table of symbols.
 *
 * Runs in: probe only. NVML can hang with the driver, and it keeps device files open; so nothing else
 * links this. Never calls NVML behind the caller's back, except for the version in an error.
 *
 * Invariant: after nvml_open() every function that is not optional is there.
 * Read next: nvml_abi.h for the functions, ../probe/probe.c for their use.
 */
#ifndef GPUWARD_GPU_NVML_H
#define GPUWARD_GPU_NVML_H

#include <gpuward.h>

#include "gpu/nvml_abi.h"

/* name, required, the driver that brought it */
#define NVML_SYMBOLS(S)                                                                            \
	S(nvmlInit_v2, true, "450")                                                                \
	S(nvmlInitWithFlags, false, "450")                                                         \
	S(nvmlShutdown, true, "450")                                                               \
	S(nvmlErrorString, true, "450")                                                            \
	S(nvmlSystemGetDriverVersion, true, "450")                                                 \
	S(nvmlSystemGetNVMLVersion, true, "450")                                                   \
	S(nvmlSystemGetCudaDriverVersion_v2, false, "450")                                         \
	S(nvmlDeviceGetCount_v2, true, "450")                                                      \
	S(nvmlDeviceGetHandleByIndex_v2, true, "450")                                              \
	S(nvmlDeviceGetHandleByUUID, false, "450")                                                 \
	S(nvmlDeviceGetHandleByPciBusId_v2, false, "450")                                          \
	S(nvmlDeviceGetIndex, false, "450")                                                        \
	S(nvmlDeviceGetUUID, true, "450")                                                          \
	S(nvmlDeviceGetName, true, "450")                                                          \
	S(nvmlDeviceGetPciInfo_v3, true, "450")                                                    \
	S(nvmlDeviceGetMinorNumber, false, "450")                                                  \
	S(nvmlDeviceGetPersistenceMode, false, "450")                                              \
	S(nvmlDeviceGetComputeMode, false, "450")                                                  \
	S(nvmlDeviceGetMigMode, false, "450")                                                      \
	S(nvmlDeviceGetEccMode, false, "450")                                                      \
	S(nvmlDeviceGetMemoryInfo, true, "450")                                                    \
	S(nvmlDeviceGetMemoryInfo_v2, false, "510")                                                \
	S(nvmlDeviceGetComputeRunningProcesses_v3, true, "510")                                    \
	S(nvmlDeviceGetUtilizationRates, false, "450")                                             \
	S(nvmlDeviceGetTemperature, false, "450")                                                  \
	S(nvmlDeviceGetPowerUsage, false, "450")                                                   \
	S(nvmlDeviceGetFieldValues, false, "450")                                                  \
	S(nvmlEventSetCreate, false, "450")                                                        \
	S(nvmlEventSetFree, false, "450")                                                          \
	S(nvmlEventSetWait_v2, false, "450")                                                       \
	S(nvmlDeviceRegisterEvents, false, "450")                                                  \
	S(nvmlDeviceGetSupportedEventTypes, false, "450")

/* What is not required is optional: check the pointer before the call. */
struct nvml_door {
	void *library;
#define NVML_SLOT(name, required, since) __typeof__(&name) name;
	NVML_SYMBOLS(NVML_SLOT)
#undef NVML_SLOT
};

/*
 * Loads NVML without initialising it. Returns 0, or GW_EDRIVER: the library is missing, broken, or too
 * old. *RET_DOOR is untouched on failure; end it with nvml_close().
 */
int nvml_open(struct nvml_door *ret_door, struct gw_error *ret_error);
void nvml_close(struct nvml_door *door);

/* nvmlInit_v2. It can hang with the driver. Returns 0 or the code of nvml_error(). */
int nvml_init(const struct nvml_door *door, struct gw_error *ret_error);

/*
 * Fills an error for RESULT of the call named CALL: domain NVML, and what can be done. Returns its
 * code: -ENODEV no such device or it is gone, -EACCES, -EOPNOTSUPP, GW_EDRIVER for all else.
 */
int nvml_error(struct gw_error *ret_error, const char *call, int result);

/* The name, such as "NVML_ERROR_GPU_IS_LOST", or NULL for a number that is not known. Static. */
const char *nvml_name(int result);

#endif
