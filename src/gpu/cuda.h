/* SPDX-License-Identifier: MIT */
/*
 * The door to libcuda: a struct of function pointers, filled from a table of symbols.
 *
 * Runs in: worker and the drill's own workers; nothing else may link it, since a
 * process that loaded CUDA can be poisoned. Never calls CUDA behind the caller's back, except for
 * cuDriverGetVersion, which needs no initialisation.
 *
 * Invariant: after cuda_open() every function without "optional" below is there.
 * Read next: cuda_abi.h for the functions, faults.h for the results.
 */
#ifndef GPUWARD_GPU_CUDA_H
#define GPUWARD_GPU_CUDA_H

#include <gpuward.h>

#include "gpu/cuda_abi.h"

/* name, required, the CUDA version that brought it */
#define CUDA_SYMBOLS(S)                                                                            \
	S(cuInit, true, "11.0")                                                                    \
	S(cuDriverGetVersion, true, "11.0")                                                        \
	S(cuGetErrorName, true, "11.0")                                                            \
	S(cuGetErrorString, true, "11.0")                                                          \
	S(cuGetProcAddress_v2, false, "12.0")                                                      \
	S(cuDeviceGetCount, true, "11.0")                                                          \
	S(cuDeviceGet, true, "11.0")                                                               \
	S(cuDeviceGetName, true, "11.0")                                                           \
	S(cuDeviceGetUuid_v2, false, "11.4")                                                       \
	S(cuDeviceGetPCIBusId, true, "11.0")                                                       \
	S(cuDeviceGetAttribute, true, "11.0")                                                      \
	S(cuDeviceTotalMem_v2, true, "11.0")                                                       \
	S(cuDevicePrimaryCtxRetain, true, "11.0")                                                  \
	S(cuDevicePrimaryCtxRelease_v2, true, "11.0")                                              \
	S(cuDevicePrimaryCtxReset_v2, true, "11.0")                                                \
	S(cuDevicePrimaryCtxSetFlags_v2, true, "11.0")                                             \
	S(cuDevicePrimaryCtxGetState, true, "11.0")                                                \
	S(cuCtxCreate_v2, false, "11.0")                                                           \
	S(cuCtxCreate_v4, false, "12.5")                                                           \
	S(cuCtxDestroy_v2, true, "11.0")                                                           \
	S(cuCtxSetCurrent, true, "11.0")                                                           \
	S(cuCtxGetCurrent, true, "11.0")                                                           \
	S(cuCtxGetDevice, true, "11.0")                                                            \
	S(cuCtxSynchronize, true, "11.0")                                                          \
	S(cuCtxSetLimit, true, "11.0")                                                             \
	S(cuCtxGetLimit, true, "11.0")                                                             \
	S(cuModuleLoadData, true, "11.0")                                                          \
	S(cuModuleUnload, true, "11.0")                                                            \
	S(cuModuleGetFunction, true, "11.0")                                                       \
	S(cuLaunchKernel, true, "11.0")                                                            \
	S(cuMemAlloc_v2, true, "11.0")                                                             \
	S(cuMemFree_v2, true, "11.0")                                                              \
	S(cuMemAllocHost_v2, true, "11.0")                                                         \
	S(cuMemFreeHost, true, "11.0")                                                             \
	S(cuMemcpyHtoD_v2, true, "11.0")                                                           \
	S(cuMemcpyDtoH_v2, true, "11.0")                                                           \
	S(cuMemcpyDtoD_v2, true, "11.0")                                                           \
	S(cuMemcpyHtoDAsync_v2, true, "11.0")                                                      \
	S(cuMemcpyDtoHAsync_v2, true, "11.0")                                                      \
	S(cuMemcpyDtoDAsync_v2, true, "11.0")                                                      \
	S(cuMemsetD8_v2, true, "11.0")                                                             \
	S(cuMemsetD32_v2, true, "11.0")                                                            \
	S(cuMemsetD32Async, true, "11.0")                                                          \
	S(cuMemGetInfo_v2, true, "11.0")                                                           \
	S(cuMemHostRegister_v2, true, "11.0")                                                      \
	S(cuMemHostUnregister, true, "11.0")                                                       \
	S(cuMemHostGetDevicePointer_v2, true, "11.0")                                              \
	S(cuStreamCreate, true, "11.0")                                                            \
	S(cuStreamDestroy_v2, true, "11.0")                                                        \
	S(cuStreamSynchronize, true, "11.0")                                                       \
	S(cuStreamQuery, true, "11.0")                                                             \
	S(cuEventCreate, true, "11.0")                                                             \
	S(cuEventDestroy_v2, true, "11.0")                                                         \
	S(cuEventRecord, true, "11.0")                                                             \
	S(cuEventQuery, true, "11.0")                                                              \
	S(cuEventSynchronize, true, "11.0")                                                        \
	S(cuEventElapsedTime, true, "11.0")                                                        \
	S(cuMemGetAllocationGranularity, true, "11.0")                                             \
	S(cuMemCreate, true, "11.0")                                                               \
	S(cuMemRelease, true, "11.0")                                                              \
	S(cuMemExportToShareableHandle, true, "11.0")                                              \
	S(cuMemImportFromShareableHandle, true, "11.0")                                            \
	S(cuMemAddressReserve, true, "11.0")                                                       \
	S(cuMemAddressFree, true, "11.0")                                                          \
	S(cuMemMap, true, "11.0")                                                                  \
	S(cuMemUnmap, true, "11.0")                                                                \
	S(cuMemSetAccess, true, "11.0")                                                            \
	S(cuIpcGetMemHandle, true, "11.0")                                                         \
	S(cuIpcOpenMemHandle_v2, true, "11.0")                                                     \
	S(cuIpcCloseMemHandle, true, "11.0")                                                       \
	S(cuLogsRegisterCallback, false, "12.9")                                                   \
	S(cuLogsUnregisterCallback, false, "12.9")

/* What is not required is optional: check the pointer before the call. */
struct cuda_door {
	void *library;
	int version; /* CUDA version of the driver, 1000 * major + 10 * minor */
#define CUDA_SLOT(name, required, since) __typeof__(&name) name;
	CUDA_SYMBOLS(CUDA_SLOT)
#undef CUDA_SLOT
};

/*
 * Loads the driver. Makes no context and does not initialise CUDA: a forked child of this process can
 * still do so. May block while files are read.
 * Returns 0, or GW_EDRIVER: the library is missing or broken, it is the toolkit's stub, or the driver
 * is too old. *RET_DOOR is untouched on failure; end it with cuda_close().
 */
int cuda_open(struct cuda_door *ret_door, struct gw_error *ret_error);

/* Unloads the driver. A process in which CUDA was used leaves with _exit instead. */
void cuda_close(struct cuda_door *door);

/*
 * Fills an error for RESULT of the call named CALL: domain CUDA, the result's name and text. Returns
 * its code: -ENODEV no such device, -ENOMEM, GW_EDRIVER for all else.
 */
int cuda_error(struct gw_error *ret_error, const char *call, int result);

/* cuInit. Takes about 100 ms on a real device, longer while other processes start. */
int cuda_init(const struct cuda_door *door, struct gw_error *ret_error);

/*
 * Brings device ORDINAL up in this thread: cuInit, device, primary context, current. Takes 200 ms or
 * more. The reference to the context belongs to the caller (cuDevicePrimaryCtxRelease_v2).
 * Returns 0 and *RET_CONTEXT, or the code of cuda_error() with the call that failed.
 */
int cuda_start_device(const struct cuda_door *door, int ordinal, struct cuda_context **ret_context,
		      struct gw_error *ret_error);

#endif
