/* SPDX-License-Identifier: MIT */
/*
 * Description: the emulated GPU computes: kernels of the common PTX, copies, streams, events, read-only
 * mappings, honest out-of-memory, and the results that bad handles give.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../softgpu_calls.h"

#define MIB (1ULL << 20)

static int set_up(void **state)
{
	(void)state;
	soft_dir_new("devices=2\nmemory_mib=4096\n");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	soft_dir_free();
	return 0;
}

static uint64_t sum_of(uint64_t memory, uint64_t count)
{
	uint64_t sum = 0;
	uint64_t sum_at = 0;
	void *checksum[] = {&memory, &count, &sum_at};

	OK(cuMemAlloc_v2(&sum_at, sizeof(sum)));
	OK(cuMemsetD8_v2(sum_at, 0, sizeof(sum)));
	OK(child_launch(child_kernel("checksum"), checksum));
	OK(cuMemcpyDtoH_v2(&sum, sum_at, sizeof(sum)));
	OK(cuMemFree_v2(sum_at));
	return sum;
}

static int fill_and_check(void *argument)
{
	uint64_t count = 3 * MIB / 4 + 5;
	uint64_t memory;
	uint32_t word;
	void *add[] = {&memory, &count};

	(void)argument;
	child_context(1);
	OK(cuMemAlloc_v2(&memory, count * 4));
	child_fill(memory, count, 77);
	NEED((long)child_check(memory, count, 77), 0);
	OK(cuMemcpyDtoH_v2(&word, memory + 4, 4));
	NEED(word, 2654435761U ^ 77U);
	NEED((long)sum_of(memory, 3), (long)(77 + (2654435761U ^ 77U) + (1013904226U ^ 77U)));
	OK(child_launch(child_kernel("add1"), add));
	NEED((long)child_check(memory, count, 77), (long)count);
	OK(cuMemFree_v2(memory));
	NEED(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
	OK(cuDevicePrimaryCtxRelease_v2(1));
	return 0;
}

static void kernels_compute(void **state)
{
	(void)state;
	assert_int_equal(child_run(fill_and_check, NULL), 0);
}

static int add_vectors(void *argument)
{
	float host[3][1000];
	uint64_t memory[3];
	uint64_t count = 1000;
	float factor = 2;
	void *add[] = {&memory[0], &memory[1], &memory[2], &count};
	void *saxpy[] = {&factor, &memory[0], &memory[2], &count};

	(void)argument;
	child_context(0);
	for (int i = 0; i < 1000; i++) {
		host[0][i] = (float)i;
		host[1][i] = (float)(2 * i);
	}
	for (int k = 0; k < 3; k++)
		OK(cuMemAlloc_v2(&memory[k], sizeof(host[k])));
	OK(cuMemcpyHtoD_v2(memory[0], host[0], sizeof(host[0])));
	OK(cuMemcpyHtoDAsync_v2(memory[1], host[1], sizeof(host[1]), NULL));
	OK(child_launch(child_kernel("vector_add"), add));
	OK(child_launch(child_kernel("saxpy"), saxpy));
	OK(cuMemcpyDtoH_v2(host[2], memory[2], sizeof(host[2])));
	NEED((long)host[2][999], 5L * 999);
	return 0;
}

static void floats_compute(void **state)
{
	(void)state;
	assert_int_equal(child_run(add_vectors, NULL), 0);
}

/* A spinning kernel in one stream leaves another stream running; a word in memory ends it. */
static int spin_beside_work(void *argument)
{
	struct cuda_stream *first;
	struct cuda_stream *second;
	struct cuda_event *event;
	struct cuda_function *work;
	uint64_t stop;
	uint64_t memory;
	uint64_t count = 100;
	uint32_t one = 1;
	void *spin[] = {&stop};
	void *add[] = {&memory, &count};

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&stop, 4));
	OK(cuMemAlloc_v2(&memory, 400));
	OK(cuMemsetD32_v2(stop, 0, 1));
	OK(cuMemsetD32_v2(memory, 41, 100));
	OK(cuCtxSynchronize());
	OK(cuStreamCreate(&first, CUDA_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&second, CUDA_STREAM_NON_BLOCKING));
	work = child_kernel("add1");
	OK(cuEventCreate(&event, CUDA_EVENT_DISABLE_TIMING));
	OK(cuLaunchKernel(child_kernel("spin"), 1, 1, 1, 1, 1, 1, 0, first, spin, NULL));
	OK(cuEventRecord(event, first));
	OK(cuLaunchKernel(work, 1, 1, 1, 1, 1, 1, 0, second, add, NULL));
	OK(cuStreamSynchronize(second));
	NEED(cuStreamQuery(first), CUDA_ERROR_NOT_READY);
	NEED(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	OK(cuMemcpyHtoDAsync_v2(stop, &one, 4, second));
	OK(cuEventSynchronize(event));
	OK(cuStreamQuery(first));
	OK(cuStreamDestroy_v2(first));
	OK(cuStreamDestroy_v2(second));
	OK(cuEventDestroy_v2(event));
	return 0;
}

static void streams_are_asynchronous(void **state)
{
	(void)state;
	assert_int_equal(child_run(spin_beside_work, NULL), 0);
}

static int time_events(void *argument)
{
	struct cuda_event *start;
	struct cuda_event *end;
	uint64_t ns = 5000000;
	void *busy[] = {&ns};
	float ms = 0;

	(void)argument;
	child_context(0);
	OK(cuEventCreate(&start, 0));
	OK(cuEventCreate(&end, 0));
	OK(cuEventRecord(start, NULL));
	OK(child_launch(child_kernel("busy"), busy));
	OK(cuEventRecord(end, NULL));
	OK(cuEventSynchronize(end));
	OK(cuEventElapsedTime(&ms, start, end));
	NEED(ms >= 5, 1);
	return 0;
}

static void events_measure_time(void **state)
{
	(void)state;
	assert_int_equal(child_run(time_events, NULL), 0);
}

/* Maps one allocation at a wished address; a write to a read-only mapping is a fault. */
static int write_read_only(void *argument)
{
	struct cuda_allocation allocation = {.type = CUDA_MEMORY_PINNED,
					     .handle_types = CUDA_HANDLE_POSIX_FD,
					     .location = {.type = CUDA_LOCATION_DEVICE}};
	struct cuda_access_range access = {.location = {.type = CUDA_LOCATION_DEVICE},
					   .flags = CUDA_ACCESS_READWRITE};
	uint64_t handle;
	uint64_t address;
	uint64_t count = 100;
	uint32_t word = 0;
	void *add[] = {&address, &count};

	(void)argument;
	child_context(0);
	OK(cuMemCreate(&handle, 4 * MIB, &allocation, 0));
	/* Beside a context a wish counts from 512 MiB on. */
	OK(cuMemAddressReserve(&address, 4 * MIB, 0, 0x700000000000, 0));
	NEED(address != 0x700000000000, 1);
	OK(cuMemAddressReserve(&address, 512 * MIB, 0, 0x700000000000, 0));
	NEED(address == 0x700000000000, 1);
	OK(cuMemMap(address, 4 * MIB, 0, handle, 0));
	OK(cuMemRelease(handle));
	NEED(cuMemcpyDtoH_v2(&word, address, 4), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemSetAccess(address, 4 * MIB, &access, 1));
	child_fill(address, MIB, 5);
	access.flags = CUDA_ACCESS_READ;
	OK(cuMemSetAccess(address, 4 * MIB, &access, 1));
	NEED((long)child_check(address, MIB, 5), 0);
	/* A copy is refused before it can fault; a kernel is not. */
	NEED(cuMemcpyHtoD_v2(address, &word, 4), CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemsetD32_v2(address, 1, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemcpyDtoH_v2(&word, address, 4));
	OK(child_launch(child_kernel("add1"), add));
	NEED(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	NEED(cuMemUnmap(address, 4 * MIB), CUDA_ERROR_ILLEGAL_ADDRESS);
	return 0;
}

static void read_only_mapping_is_enforced(void **state)
{
	char *log;

	(void)state;
	assert_int_equal(child_run(write_read_only, NULL), 0);
	log = soft_text("kmsg");
	assert_non_null(strstr(log, "): 31, pid="));
	assert_non_null(strstr(log, "FAULT_RO_VIOLATION ACCESS_TYPE_VIRT_WRITE"));
	free(log);
}

static int unmap_again(void *argument)
{
	struct cuda_allocation allocation = {.type = CUDA_MEMORY_PINNED,
					     .location = {.type = CUDA_LOCATION_DEVICE}};
	uint64_t handle;
	uint64_t address;
	int fd;

	(void)argument;
	child_context(0);
	OK(cuMemCreate(&handle, 2 * MIB, &allocation, 0));
	NEED(cuMemExportToShareableHandle(&fd, handle, CUDA_HANDLE_POSIX_FD, 0),
	     CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
	OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
	NEED(cuMemAddressFree(address, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemUnmap(address, 2 * MIB));
	OK(cuMemRelease(handle));
	NEED(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAddressFree(address, 2 * MIB));
	NEED((long)(soft_used_bytes(0) / MIB), 3 + 527);
	return 0;
}

static void released_handles_give_memory_back(void **state)
{
	(void)state;
	assert_int_equal(child_run(unmap_again, NULL), 0);
}

static int take_all(void *argument)
{
	uint64_t memory;
	uint64_t rest;
	size_t free_bytes;
	size_t total_bytes;

	(void)argument;
	child_context(0);
	OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	NEED((long)(total_bytes / MIB), 4096 - 615);
	NEED((long)(free_bytes / MIB), 4096 - 615 - 527 - 3);
	NEED(cuMemAlloc_v2(&memory, 4096 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAlloc_v2(&memory, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc_v2(&memory, 2048 * MIB));
	NEED(cuMemAlloc_v2(&rest, 1024 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(memory));
	OK(cuMemAlloc_v2(&rest, 1024 * MIB));
	return 0;
}

static void memory_is_limited(void **state)
{
	(void)state;
	assert_int_equal(child_run(take_all, NULL), 0);
}

static int lower_limits(void *argument)
{
	(void)argument;
	child_context(0);
	OK(cuCtxSetLimit(CUDA_LIMIT_MALLOC_HEAP_SIZE, MIB));
	OK(cuCtxSetLimit(CUDA_LIMIT_PRINTF_FIFO_SIZE, 65536));
	NEED((long)(soft_used_bytes(0) / MIB), 3 + 527);
	OK(cuCtxSetLimit(CUDA_LIMIT_STACK_SIZE, 256));
	NEED((long)(soft_used_bytes(0) / MIB), 3 + 329);
	OK(cuCtxSetLimit(CUDA_LIMIT_STACK_SIZE, 1024));
	NEED((long)(soft_used_bytes(0) / MIB), 3 + 527);
	/* Measured: 2046 MiB more than with 256 B. */
	OK(cuCtxSetLimit(CUDA_LIMIT_STACK_SIZE, 8192));
	NEED((long)(soft_used_bytes(0) / MIB), 3 + 329 + 2046);
	NEED(cuCtxSetLimit(CUDA_LIMIT_STACK_SIZE, 65536), CUDA_ERROR_OUT_OF_MEMORY);
	NEED((long)(soft_used_bytes(0) / MIB), 3 + 329 + 2046);
	return 0;
}

static void a_small_stack_makes_a_context_cheap(void **state)
{
	(void)state;
	assert_int_equal(child_run(lower_limits, NULL), 0);
}

static int misuse(void *argument)
{
	struct cuda_module *module;
	struct cuda_function *function;
	uint64_t address;
	uint32_t word = 0;
	int number;

	(void)argument;
	NEED(cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&number));
	NEED(number, 2);
	NEED(cuDeviceGet(&number, 2), CUDA_ERROR_INVALID_DEVICE);
	NEED(cuMemAlloc_v2(&address, 4), CUDA_ERROR_INVALID_CONTEXT);
	child_context(0);
	NEED(cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemcpyDtoH_v2(&word, 0x1234, 4), CUDA_ERROR_INVALID_VALUE);
	NEED(cuModuleLoadData(&module, "not PTX"), CUDA_ERROR_INVALID_IMAGE);
	OK(cuModuleLoadData(&module, ".version 6.0\n.target sm_50 // .entry no()\n"
				     ".visible .entry other(.param .u64 p) { ret; }"));
	NEED(cuModuleGetFunction(&function, module, "no"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleGetFunction(&function, module, "other"));
	NEED(child_launch(function, NULL), CUDA_ERROR_NOT_FOUND);
	function = child_kernel("nop");
	NEED(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL),
	     CUDA_ERROR_INVALID_VALUE);
	OK(child_launch(function, NULL));
	OK(cuCtxSynchronize());
	return 0;
}

static void bad_calls_have_the_right_results(void **state)
{
	(void)state;
	assert_int_equal(child_run(misuse, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(kernels_compute, set_up, tear_down),
		cmocka_unit_test_setup_teardown(floats_compute, set_up, tear_down),
		cmocka_unit_test_setup_teardown(streams_are_asynchronous, set_up, tear_down),
		cmocka_unit_test_setup_teardown(events_measure_time, set_up, tear_down),
		cmocka_unit_test_setup_teardown(read_only_mapping_is_enforced, set_up, tear_down),
		cmocka_unit_test_setup_teardown(released_handles_give_memory_back, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(memory_is_limited, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_small_stack_makes_a_context_cheap, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(bad_calls_have_the_right_results, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
