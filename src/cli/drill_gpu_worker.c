/* SPDX-License-Identifier: MIT */
#include "cli/drill_gpu_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/visible.h"
#include "gpu/kernels_ptx.h"

#define WORDS	262144U /* of the buffer */
#define THREADS 256U
#define BLOCKS	1024U /* enough for all of a large GPU; loops stride over the grid */

void drill_gpu_choose(int32_t device)
{
	const char *list = getenv(VISIBLE_ENV);
	const char *found = "";
	uint32_t count;
	size_t bytes = 0;
	char entry[128];

	if (list) {
		/* Past the end of the list no device is left, and CUDA says so. */
		(void)visible_entry(list, (uint32_t)device, &found, &bytes, &count);
		(void)snprintf(entry, sizeof(entry), "%.*s", (int)bytes, found);
	} else {
		(void)snprintf(entry, sizeof(entry), "%d", device);
		(void)setenv(VISIBLE_ORDER_ENV, "PCI_BUS_ID", 1);
	}
	(void)setenv(VISIBLE_ENV, entry, 1);
}

int drill_gpu_open(struct drill_gpu *gpu, struct gw_error *ret_error)
{
	int result = cuda_open(&gpu->door, ret_error);
	int cuda;

	if (result < 0)
		return result;
	cuda = gpu->door.cuModuleLoadData(&gpu->module, gpu_kernels_ptx);
	if (cuda != 0)
		return cuda_error(ret_error, "cuModuleLoadData", cuda);
	cuda = gpu->door.cuMemAlloc_v2(&gpu->buffer, WORDS * sizeof(uint32_t) + 64);
	return cuda != 0 ? cuda_error(ret_error, "cuMemAlloc", cuda) : 0;
}

int drill_gpu_start(struct drill_gpu *gpu, struct gw_error *ret_error)
{
	struct cuda_context *context;
	int result = cuda_open(&gpu->door, ret_error);

	if (result == 0)
		result = cuda_start_device(&gpu->door, 0, &context, ret_error);
	return result < 0 ? result : drill_gpu_open(gpu, ret_error);
}

static int launch_grid(struct drill_gpu *gpu, const char *kernel, unsigned int blocks,
		       void **parameters)
{
	struct cuda_function *function;
	int result = gpu->door.cuModuleGetFunction(&function, gpu->module, kernel);

	if (result != 0)
		return result;
	return gpu->door.cuLaunchKernel(function, blocks, 1, 1, THREADS, 1, 1, 0, NULL, parameters,
					NULL);
}

int drill_gpu_good(struct drill_gpu *gpu)
{
	uint64_t words = WORDS, bad = 0;
	uint32_t seed = 12345;
	void *fill[] = {&gpu->buffer, &words, &seed};
	uint64_t bad_at = gpu->buffer + WORDS * sizeof(uint32_t);
	void *check[] = {&gpu->buffer, &words, &seed, &bad_at};
	int result = gpu->door.cuMemsetD32_v2(bad_at, 0, 2);

	if (result == 0)
		result = launch_grid(gpu, "fill", 1, fill);
	if (result == 0)
		result = launch_grid(gpu, "check", 1, check);
	if (result == 0)
		result = gpu->door.cuMemcpyDtoH_v2(&bad, bad_at, sizeof(bad));
	return result == 0 && bad != 0 ? -EIO : result;
}

int drill_gpu_fill(struct drill_gpu *gpu, uint64_t address, uint64_t bytes)
{
	uint64_t words = bytes / sizeof(uint32_t);
	uint32_t seed = DRILL_SEED;
	void *parameters[] = {&address, &words, &seed};
	int result = launch_grid(gpu, "fill", BLOCKS, parameters);

	return result ? result : (int)gpu->door.cuCtxSynchronize();
}

int drill_gpu_check(struct drill_gpu *gpu, uint64_t address, uint64_t bytes, uint64_t *ret_bad)
{
	uint64_t words = bytes / sizeof(uint32_t);
	uint64_t bad_at = gpu->buffer + WORDS * sizeof(uint32_t);
	uint32_t seed = DRILL_SEED;
	void *parameters[] = {&address, &words, &seed, &bad_at};
	int result = gpu->door.cuMemsetD32_v2(bad_at, 0, 2);

	if (result == 0)
		result = launch_grid(gpu, "check", BLOCKS, parameters);
	return result ? result : (int)gpu->door.cuMemcpyDtoH_v2(ret_bad, bad_at, sizeof(*ret_bad));
}

int drill_gpu_round_trip(struct drill_gpu *gpu)
{
	int result = launch_grid(gpu, "nop", 1, NULL);

	return result ? result : (int)gpu->door.cuCtxSynchronize();
}

/* The driver tells of a failed assert on standard error, amid the words of the drill. */
static void hush(void)
{
	int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (nothing >= 0)
		(void)dup2(nothing, STDERR_FILENO);
	fd_close(nothing);
}

int drill_gpu_fault(struct drill_gpu *gpu, int kind, struct drill_stamps *stamps)
{
	const char *kernel = drill_kinds[kind].kernel;
	uint64_t address = gpu->buffer;
	uint32_t one = 1;
	void *takes_address[] = {&address};
	void *takes_one[] = {&one};
	void *takes_both[] = {&one, &address};
	void **parameters = NULL;
	struct cuda_function *function;
	int result = gpu->door.cuModuleGetFunction(&function, gpu->module, kernel);

	if (result != 0)
		return result;
	if (strcmp(kernel, "fault_oob") == 0 || strcmp(kernel, "fault_misaligned") == 0)
		parameters = takes_address;
	else if (strcmp(kernel, "fault_assert") == 0 || strcmp(kernel, "fault_shared") == 0)
		parameters = takes_one;
	else if (strcmp(kernel, "fault_stack") == 0)
		parameters = takes_both;
	if (strcmp(kernel, "fault_assert") == 0)
		hush();
	stamps->launched_ns = now_ns();
	result = gpu->door.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
	if (result == 0)
		result = gpu->door.cuCtxSynchronize();
	stamps->told_ns = now_ns();
	return result;
}
