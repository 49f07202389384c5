/* SPDX-License-Identifier: MIT */
#include "pool_gpu_worker.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <gpuward.h>

#include "../gate.h"
#include "gpu/cuda.h"
#include "gpu/kernels_ptx.h"

static struct cuda_door door;
static struct cuda_module *module;
static bool is_command;

static int prepare(int device)
{
	struct gw_error error;

	(void)device;
	if (cuda_open(&door, &error) < 0)
		return 999;
	return (int)door.cuModuleLoadData(&module, gpu_kernels_ptx);
}

static int launch(const char *name, void **arguments)
{
	struct cuda_function *function;
	int result = (int)door.cuModuleGetFunction(&function, module, name);

	if (result != 0)
		return result;
	return (int)door.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

/* The bad kernels take a number that is not 0, an address, or both; what is too much is not looked at. */
static int launch_bad(const char *name, uint64_t memory)
{
	uint32_t one = 1;
	void *number_first[] = {&one, &memory};
	void *address[] = {&memory};

	if (strcmp(name, "fault_oob") == 0 || strcmp(name, "fault_misaligned") == 0 ||
	    strcmp(name, "spin") == 0)
		return launch(name, address);
	return launch(name, number_first);
}

static int run_bad(const struct gpu_job *job)
{
	uint64_t memory;
	int result = (int)door.cuMemAlloc_v2(&memory, 4096);

	if (result == 0)
		result = (int)door.cuMemsetD8_v2(memory, 0, 4096);
	if (result == 0)
		result = launch_bad(job->kernel, memory);
	if (result == 0 && job->wait)
		result = (int)door.cuCtxSynchronize();
	return result;
}

/* Fills WORDS words, and counts those that are wrong. */
static int compute(uint64_t words, uint32_t seed, uint64_t *ret_wrong)
{
	uint64_t memory, counter;
	void *fill[] = {&memory, &words, &seed};
	void *check[] = {&memory, &words, &seed, &counter};
	int result = (int)door.cuMemAlloc_v2(&memory, words * 4 + 16);

	if (result != 0)
		return result;
	counter = memory + ((words * 4 + 7) & ~UINT64_C(7));
	result = (int)door.cuMemsetD8_v2(counter, 0, 8);
	if (result == 0)
		result = launch("fill", fill);
	if (result == 0)
		result = launch("check", check);
	if (result == 0)
		result = (int)door.cuMemcpyDtoH_v2(ret_wrong, counter, 8);
	if (result == 0)
		result = (int)door.cuMemFree_v2(memory);
	return result;
}

static int run_kernel(struct gw_call *call)
{
	const struct gpu_job *job = call->input;
	struct gpu_answer *answer = call->output;
	int result;

	if (job->gate[0])
		gate_wait(job->gate);
	if (call->attempt < job->bad_attempts)
		return run_bad(job);
	if (!answer || call->output_capacity_bytes < sizeof(*answer))
		return 1;
	*answer = (struct gpu_answer){
		.device = call->device, .by_command = is_command, .pid = getpid()};
	result = (int)door.cuDeviceGetPCIBusId(answer->bus_id, sizeof(answer->bus_id), 0);
	if (result == 0)
		result = compute(job->words ? job->words : 1, job->seed, &answer->wrong_words);
	call->output_bytes = sizeof(*answer);
	return result;
}

static int run_hold(struct gw_call *call)
{
	const struct gpu_job *job = call->input;
	uint64_t memory;

	return (int)door.cuMemAlloc_v2(&memory, job->hold_bytes);
}

int gpu_worker_run(bool by_command)
{
	static const struct gw_function functions[] = {
		{.name = "kernel", .run = run_kernel, .prepare = prepare},
		{.name = "hold", .run = run_hold},
		{.name = NULL},
	};

	is_command = by_command;
	return gw_worker_run(functions);
}
