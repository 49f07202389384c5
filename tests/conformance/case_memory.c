/* SPDX-License-Identifier: MIT */
/* Plain device memory, host memory, and calls with wrong addresses or sizes. Runs in: see suite.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "suite.h"

static void allocate(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint64_t other = 0;

	(void)argument;
	session_begin(&session);
	fact("null", CU(cuMemAlloc_v2, NULL, MIB));
	fact("nothing", CU(cuMemAlloc_v2, &address, 0));
	fact("one_byte", CU(cuMemAlloc_v2, &address, 1));
	fact("another_byte", CU(cuMemAlloc_v2, &other, 1));
	fact("aligned_256", (long long)(address % 256));
	fact("apart", (long long)(other > address ? other - address : address - other));
	fact("large", CU(cuMemAlloc_v2, &other, 64 * MIB + 1));
	fact("large_aligned_2_mib", (long long)(other % (2 * MIB)));
	fact("free", CU(cuMemFree_v2, address));
	fact("free_twice", CU(cuMemFree_v2, address));
	fact("free_0", CU(cuMemFree_v2, 0));
	fact("free_bad", CU(cuMemFree_v2, 0x12345600));
	fact("free_inside", CU(cuMemFree_v2, other + 256));
	fact("free_large", CU(cuMemFree_v2, other));
	fact("sync", CU(cuCtxSynchronize));
}

static void copies(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint64_t target = 0;
	static char data[3 * MIB];

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, 2 * MIB);
	(void)CU(cuMemAlloc_v2, &target, 2 * MIB);
	memset(data, 9, sizeof(data));
	fact("in", CU(cuMemcpyHtoD_v2, address, data, 2 * MIB));
	fact("between", CU(cuMemcpyDtoD_v2, target, address, 2 * MIB));
	memset(data, 0, sizeof(data));
	fact("out", CU(cuMemcpyDtoH_v2, data, target, 2 * MIB));
	fact("value", data[2 * MIB - 1]);
	fact("nothing", CU(cuMemcpyHtoD_v2, address, data, 0));
	fact("nothing_nowhere", CU(cuMemcpyHtoD_v2, 0, data, 0));
	fact("in_to_0", CU(cuMemcpyHtoD_v2, 0, data, 16));
	fact("in_to_bad", CU(cuMemcpyHtoD_v2, 0x12345600, data, 16));
	fact("out_of_bad", CU(cuMemcpyDtoH_v2, data, 0x12345600, 16));
	fact("out_of_0", CU(cuMemcpyDtoH_v2, data, 0, 16));
	fact("between_from_bad", CU(cuMemcpyDtoD_v2, target, 0x12345600, 16));
	fact("between_to_bad", CU(cuMemcpyDtoD_v2, 0x12345600, target, 16));
	fact("inside", CU(cuMemcpyHtoD_v2, address + MIB, data, MIB));
	fact("in_null", CU(cuMemcpyHtoD_v2, address, NULL, 16));
	fact("out_null", CU(cuMemcpyDtoH_v2, NULL, address, 16));
	fact("sync", CU(cuCtxSynchronize));
}

/* Behind the end of a large allocation of its own. */
static void copies_beyond(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	static char data[8 * MIB];

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, 4 * MIB);
	fact("in", CU(cuMemcpyHtoD_v2, address, data, 8 * MIB));
	fact("out", CU(cuMemcpyDtoH_v2, data, address, 8 * MIB));
	fact("set", CU(cuMemsetD8_v2, address, 1, 8 * MIB));
	fact("wraps", CU(cuMemsetD8_v2, address, 1, SIZE_MAX - 16));
	fact("sync", CU(cuCtxSynchronize));
}

static void sets(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint32_t word = 0;

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, MIB);
	fact("bytes", CU(cuMemsetD8_v2, address, 0xab, MIB));
	(void)CU(cuMemcpyDtoH_v2, &word, address + 4096, 4);
	fact("bytes_value", word);
	fact("words", CU(cuMemsetD32_v2, address, 0x01020304, MIB / 4));
	(void)CU(cuMemcpyDtoH_v2, &word, address + 4096, 4);
	fact("words_value", word);
	fact("words_odd", CU(cuMemsetD32_v2, address + 2, 1, 4));
	fact("none", CU(cuMemsetD8_v2, address, 1, 0));
	fact("at_0", CU(cuMemsetD8_v2, 0, 1, 4));
	fact("at_bad", CU(cuMemsetD8_v2, 0x12345600, 1, 4));
	fact("async", CU(cuMemsetD32Async, address, 1, 4, NULL));
	fact("sync", CU(cuCtxSynchronize));
}

static void information(const void *argument)
{
	struct session session;
	size_t free_before = 0;
	size_t free_after = 0;
	size_t total = 0;
	size_t device_total = 0;
	uint64_t address = 0;

	(void)argument;
	session_begin(&session);
	fact("result", CU(cuMemGetInfo_v2, &free_before, &total));
	(void)CU(cuDeviceTotalMem_v2, &device_total, 0);
	fact_yes("total_is_that_of_the_device", total == device_total);
	fact_yes("free_below_total", free_before < total);
	(void)CU(cuMemAlloc_v2, &address, 256 * MIB);
	(void)CU(cuMemGetInfo_v2, &free_after, &total);
	fact("taken_mib", (long long)((free_before - free_after) / MIB));
	(void)CU(cuMemFree_v2, address);
	(void)CU(cuMemGetInfo_v2, &free_after, &total);
	fact_yes("given_back", free_after == free_before);
	fact("null_free", CU(cuMemGetInfo_v2, NULL, &total));
	fact("null_total", CU(cuMemGetInfo_v2, &free_after, NULL));
}

static void out_of_memory(const void *argument)
{
	struct session session;
	struct cuda_allocation allocation = suite_exportable();
	uint64_t address = 0;
	uint64_t handle = 0;
	size_t total = 0;

	(void)argument;
	session_begin(&session);
	(void)CU(cuDeviceTotalMem_v2, &total, 0);
	fact("result", CU(cuMemAlloc_v2, &address, total + 1024 * MIB));
	fact("address", (long long)address);
	fact("absurd", CU(cuMemAlloc_v2, &address, SIZE_MAX - 4095));
	fact("handle",
	     CU(cuMemCreate, &handle, (total / (2 * MIB) + 512) * 2 * MIB, &allocation, 0));
	fact("small_after", CU(cuMemAlloc_v2, &address, MIB));
	fact("memset_after", CU(cuMemsetD8_v2, address, 1, MIB));
	fact("kernel_after", session_launch(&session, "nop", NULL, NULL));
	fact("sync_after", CU(cuCtxSynchronize));
}

static void pinned(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint64_t device_address = 0;
	void *memory = NULL;

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, MIB);
	fact("null", CU(cuMemAllocHost_v2, NULL, MIB));
	fact("nothing", CU(cuMemAllocHost_v2, &memory, 0));
	fact("alloc", CU(cuMemAllocHost_v2, &memory, MIB));
	memset(memory, 3, MIB);
	fact("copy", CU(cuMemcpyHtoD_v2, address, memory, MIB));
	fact("device_pointer", CU(cuMemHostGetDevicePointer_v2, &device_address, memory, 0));
	fact_yes("same_pointer", device_address == (uint64_t)(uintptr_t)memory);
	fact("set_by_device", CU(cuMemsetD8_v2, device_address, 5, MIB));
	(void)CU(cuCtxSynchronize);
	fact("seen_by_host", ((volatile unsigned char *)memory)[MIB - 1]);
	fact("free", CU(cuMemFreeHost, memory));
	fact("free_twice", CU(cuMemFreeHost, memory));
	fact("free_null", CU(cuMemFreeHost, NULL));
	fact("free_stack", CU(cuMemFreeHost, &memory));
	fact("free_as_device", CU(cuMemFree_v2, (uint64_t)(uintptr_t)&memory));
}

static void registered(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	char *memory =
		mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)argument;
	session_begin(&session);
	fact("register", CU(cuMemHostRegister_v2, memory, 2 * MIB, CUDA_HOST_REGISTER_DEVICEMAP));
	fact("again", CU(cuMemHostRegister_v2, memory, 2 * MIB, CUDA_HOST_REGISTER_DEVICEMAP));
	fact("overlap", CU(cuMemHostRegister_v2, memory + MIB, 2 * MIB, 0));
	fact("device_pointer", CU(cuMemHostGetDevicePointer_v2, &address, memory, 0));
	fact("set_by_device", CU(cuMemsetD8_v2, address, 6, MIB));
	(void)CU(cuCtxSynchronize);
	fact("seen_by_host", ((volatile unsigned char *)memory)[4711]);
	fact("pointer_of_unregistered",
	     CU(cuMemHostGetDevicePointer_v2, &address, memory + 3 * MIB, 0));
	fact("unregister_inside", CU(cuMemHostUnregister, memory + 4096));
	fact("unregister", CU(cuMemHostUnregister, memory));
	fact("unregister_twice", CU(cuMemHostUnregister, memory));
	fact("odd_address", CU(cuMemHostRegister_v2, memory + 100, 5000, 0));
	fact("null", CU(cuMemHostRegister_v2, NULL, 4096, 0));
	fact("nothing", CU(cuMemHostRegister_v2, memory + 3 * MIB, 0, 0));
	fact("bad_flags", CU(cuMemHostRegister_v2, memory + 3 * MIB, 4096, 0x1000));
	fact("not_mapped", CU(cuMemHostRegister_v2, (void *)0x10000, 4096, 0));
	fact("sync", CU(cuCtxSynchronize));
}

const struct suite_case cases_memory[] = {
	{"alloc", allocate, NULL},
	{"copy", copies, NULL},
	{"beyond", copies_beyond, NULL},
	{"set", sets, NULL},
	{"info", information, NULL},
	{"oom", out_of_memory, NULL},
	{"pinned", pinned, NULL},
	{"registered", registered, NULL},
	{NULL, NULL, NULL},
};
