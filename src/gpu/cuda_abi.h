/* SPDX-License-Identifier: MIT */
/*
 * The part of the CUDA driver's binary interface that gpuward uses, in declarations of its own, so
 * that no CUDA toolkit is needed to build.
 *
 * Runs in: nothing; declarations only. Never include this together with NVIDIA's cuda.h.
 *
 * Every function stands here as a plain prototype under the name that the library exports (with its
 * _v2), and no program of gpuward links to it: gpu/cuda takes `__typeof__(&cuInit)` for its table of
 * symbols, and softgpu defines the functions. A CUresult is an int, a handle is a pointer to a struct
 * that nobody defines, a device address is a uint64_t.
 *
 * Invariant: sizes, offsets, numbers and prototypes agree with the headers of CUDA 12.0 to 13.0 on
 * 64-bit Linux. "since" marks what older drivers lack; without it, CUDA 11.0 has it.
 * Read next: nvml_abi.h, faults.h for what the results mean.
 */
#ifndef GPUWARD_GPU_CUDA_ABI_H
#define GPUWARD_GPU_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

struct cuda_context;
struct cuda_module;
struct cuda_function;
struct cuda_stream;
struct cuda_event;
struct cuda_log_callback;

/* The results that gpuward's own code names; src/gpu/faults has all of them, with their meaning. */
enum cuda_result {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_STUB_LIBRARY = 34,
	CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_IMAGE = 200,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_MAP_FAILED = 205,
	CUDA_ERROR_ALREADY_MAPPED = 208,
	CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
	CUDA_ERROR_NOT_MAPPED = 211,
	CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	CUDA_ERROR_UNSUPPORTED_LIMIT = 215,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
	CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
	CUDA_ERROR_CONTAINED = 226,
	CUDA_ERROR_OPERATING_SYSTEM = 304,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
	CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_ASSERT = 710,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
	CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
	CUDA_ERROR_MISALIGNED_ADDRESS = 716,
	CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
	CUDA_ERROR_INVALID_PC = 718,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
	CUDA_ERROR_NOT_PERMITTED = 800,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_NOT_READY = 802,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
	CUDA_ERROR_MPS_RPC_FAILURE = 806,
	CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
	CUDA_ERROR_TIMEOUT = 909,
	CUDA_ERROR_EXTERNAL_DEVICE = 911,
	CUDA_ERROR_KEY_ROTATION = 916,
	CUDA_ERROR_UNKNOWN = 999,
};

enum cuda_device_attribute {
	CUDA_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
	CUDA_ATTRIBUTE_WARP_SIZE = 10,
	CUDA_ATTRIBUTE_CLOCK_RATE_KHZ = 13,
	CUDA_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	CUDA_ATTRIBUTE_COMPUTE_MODE = 20,
	CUDA_ATTRIBUTE_ECC_ENABLED = 32,
	CUDA_ATTRIBUTE_PCI_BUS_ID = 33,
	CUDA_ATTRIBUTE_PCI_DEVICE_ID = 34,
	CUDA_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
	CUDA_ATTRIBUTE_PCI_DOMAIN_ID = 50,
	CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
	CUDA_ATTRIBUTE_HOST_REGISTER = 99,
	CUDA_ATTRIBUTE_HOST_PAGE_TABLES = 100, /* the GPU goes by the process's page tables */
	CUDA_ATTRIBUTE_VIRTUAL_MEMORY = 102,
	CUDA_ATTRIBUTE_POSIX_FD_HANDLE = 103,
	CUDA_ATTRIBUTE_READ_ONLY_HOST_REGISTER = 113, /* since 11.1 */
	CUDA_ATTRIBUTE_MPS_ENABLED = 133,
};

enum cuda_limit {
	CUDA_LIMIT_STACK_SIZE = 0,
	CUDA_LIMIT_PRINTF_FIFO_SIZE = 1,
	CUDA_LIMIT_MALLOC_HEAP_SIZE = 2,
};

enum cuda_context_flag {
	CUDA_CONTEXT_SPIN = 1,
	CUDA_CONTEXT_YIELD = 2,
	CUDA_CONTEXT_BLOCKING_SYNC = 4,
};

enum cuda_stream_flag {
	CUDA_STREAM_NON_BLOCKING = 1,
};

enum cuda_event_flag {
	CUDA_EVENT_BLOCKING_SYNC = 1,
	CUDA_EVENT_DISABLE_TIMING = 2,
	CUDA_EVENT_INTERPROCESS = 4,
};

enum cuda_host_register_flag {
	CUDA_HOST_REGISTER_PORTABLE = 1,
	CUDA_HOST_REGISTER_DEVICEMAP = 2,
	CUDA_HOST_REGISTER_READ_ONLY = 8, /* since 11.1 */
};

enum cuda_ipc_flag {
	CUDA_IPC_LAZY_PEER_ACCESS = 1,
};

enum cuda_memory_type {
	CUDA_MEMORY_PINNED = 1,
};

enum cuda_handle_type {
	CUDA_HANDLE_NONE = 0,
	CUDA_HANDLE_POSIX_FD = 1,
};

enum cuda_location_type {
	CUDA_LOCATION_DEVICE = 1,
};

enum cuda_access {
	CUDA_ACCESS_NONE = 0,
	CUDA_ACCESS_READ = 1,
	CUDA_ACCESS_READWRITE = 3,
};

enum cuda_granularity {
	CUDA_GRANULARITY_MINIMUM = 0,
	CUDA_GRANULARITY_RECOMMENDED = 1,
};

enum cuda_log_level {
	CUDA_LOG_ERROR = 0,
	CUDA_LOG_WARNING = 1,
};

enum cuda_proc_address {
	CUDA_PROC_ADDRESS_FOUND = 0,
	CUDA_PROC_ADDRESS_NOT_FOUND = 1,
	CUDA_PROC_ADDRESS_TOO_OLD = 2,
};

struct cuda_uuid {
	uint8_t bytes[16];
};

struct cuda_location {
	uint32_t type; /* enum cuda_location_type */
	int32_t id;    /* the device */
};

struct cuda_allocation {
	uint32_t type;	       /* enum cuda_memory_type */
	uint32_t handle_types; /* enum cuda_handle_type */
	struct cuda_location location;
	void *win32_meta;
	uint8_t compression;
	uint8_t rdma_capable;
	uint16_t usage;
	uint8_t reserved[4];
};

struct cuda_access_range {
	struct cuda_location location;
	uint32_t flags; /* enum cuda_access */
};

struct cuda_ipc_memory {
	uint8_t bytes[64];
};

_Static_assert(sizeof(struct cuda_allocation) == 32, "layout of CUmemAllocationProp");
_Static_assert(offsetof(struct cuda_allocation, win32_meta) == 16, "layout");
_Static_assert(sizeof(struct cuda_access_range) == 12, "layout of CUmemAccessDesc");
_Static_assert(sizeof(struct cuda_ipc_memory) == 64, "layout of CUipcMemHandle");

/* Driver and devices. */
int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);
int cuGetErrorName(int result, const char **name);
int cuGetErrorString(int result, const char **text);
int cuGetProcAddress_v2(const char *symbol, void **function, int cuda_version, uint64_t flags,
			int *status); /* since 12.0 */
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetUuid_v2(struct cuda_uuid *uuid, int device); /* since 11.4 */
int cuDeviceGetPCIBusId(char *text, int size, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);

/* Contexts. cuCtxCreate_v4 is the only form that later headers name; v2 is still exported. */
int cuDevicePrimaryCtxRetain(struct cuda_context **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxReset_v2(int device);
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned int flags);
int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active);
int cuCtxCreate_v2(struct cuda_context **context, unsigned int flags, int device);
int cuCtxCreate_v4(struct cuda_context **context, void *parameters, unsigned int flags,
		   int device); /* since 12.5 */
int cuCtxDestroy_v2(struct cuda_context *context);
int cuCtxSetCurrent(struct cuda_context *context);
int cuCtxGetCurrent(struct cuda_context **context);
int cuCtxGetDevice(int *device);
int cuCtxSynchronize(void);
int cuCtxSetLimit(int limit, size_t value);
int cuCtxGetLimit(size_t *value, int limit);

/* Modules and kernels. */
int cuModuleLoadData(struct cuda_module **module, const void *image);
int cuModuleUnload(struct cuda_module *module);
int cuModuleGetFunction(struct cuda_function **function, struct cuda_module *module,
			const char *name);
int cuLaunchKernel(struct cuda_function *function, unsigned int grid_x, unsigned int grid_y,
		   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
		   unsigned int block_z, unsigned int shared_bytes, struct cuda_stream *stream,
		   void **parameters, void **extra);

/* Memory. */
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemFree_v2(uint64_t address);
int cuMemAllocHost_v2(void **memory, size_t bytes);
int cuMemFreeHost(void *memory);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, struct cuda_stream *stream);
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, struct cuda_stream *stream);
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, struct cuda_stream *stream);
int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t count);
int cuMemsetD32_v2(uint64_t to, unsigned int value, size_t count);
int cuMemsetD32Async(uint64_t to, unsigned int value, size_t count, struct cuda_stream *stream);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags);
int cuMemHostUnregister(void *memory);
int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned int flags);

/* Streams and events. */
int cuStreamCreate(struct cuda_stream **stream, unsigned int flags);
int cuStreamDestroy_v2(struct cuda_stream *stream);
int cuStreamSynchronize(struct cuda_stream *stream);
int cuStreamQuery(struct cuda_stream *stream);
int cuEventCreate(struct cuda_event **event, unsigned int flags);
int cuEventDestroy_v2(struct cuda_event *event);
int cuEventRecord(struct cuda_event *event, struct cuda_stream *stream);
int cuEventQuery(struct cuda_event *event);
int cuEventSynchronize(struct cuda_event *event);
int cuEventElapsedTime(float *milliseconds, struct cuda_event *start, struct cuda_event *end);

/* Device memory with a handle, which can leave the process as a descriptor. */
int cuMemGetAllocationGranularity(size_t *bytes, const struct cuda_allocation *allocation,
				  int option);
int cuMemCreate(uint64_t *handle, size_t bytes, const struct cuda_allocation *allocation,
		unsigned long long flags);
int cuMemRelease(uint64_t handle);
int cuMemExportToShareableHandle(void *shareable, uint64_t handle, int type,
				 unsigned long long flags);
int cuMemImportFromShareableHandle(uint64_t *handle, void *shareable, int type);
int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted,
			unsigned long long flags);
int cuMemAddressFree(uint64_t address, size_t bytes);
int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
	     unsigned long long flags);
int cuMemUnmap(uint64_t address, size_t bytes);
int cuMemSetAccess(uint64_t address, size_t bytes, const struct cuda_access_range *access,
		   size_t count);

/* CUDA's own sharing between processes. The handle is passed by value. */
int cuIpcGetMemHandle(struct cuda_ipc_memory *handle, uint64_t address);
int cuIpcOpenMemHandle_v2(uint64_t *address, struct cuda_ipc_memory handle, unsigned int flags);
int cuIpcCloseMemHandle(uint64_t address);

/* Every call that fails, as text; since 12.9. */
int cuLogsRegisterCallback(void (*callback)(void *data, int level, char *message, size_t length),
			   void *data, struct cuda_log_callback **handle);
int cuLogsUnregisterCallback(struct cuda_log_callback *handle);

#endif
