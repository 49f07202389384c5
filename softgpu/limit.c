/* SPDX-License-Identifier: MIT */
#include "limit.h"

#include "engine.h"
#include "export.h"
#include "kernels.h"
#include "process.h"

/* Measured: FIFO and heap are at least this. The stack can be smaller, which changes nothing. */
static const size_t small_limits[CONTEXT_LIMITS] = {256, 512 << 10, 4 << 20};
static const size_t default_limits[CONTEXT_LIMITS] = {1024, 8650752, 8 << 20};

/* Local memory of a thread, of which the stack is a part. */
#define STACK_MAX (512U << 10)

void limit_init(struct cuda_context *context)
{
	for (int i = 0; i < CONTEXT_LIMITS; i++)
		context->limits[i] = default_limits[i];
}

/*
 * What a context costs with a stack of so many bytes: each byte counts once for every thread that the GPU
 * can hold, up to 16.4 GiB more for 64 KiB. The settings say it for the smallest stack and the default one.
 */
static uint64_t cost(size_t stack_bytes)
{
	const struct settings *settings = &process.machine.settings;
	size_t smallest = small_limits[CUDA_LIMIT_STACK_SIZE];
	size_t usual = default_limits[CUDA_LIMIT_STACK_SIZE];
	uint64_t small = settings->context_small_bytes;
	uint64_t step = settings->context_bytes > small ? settings->context_bytes - small : 0;

	if (stack_bytes <= smallest)
		return small;
	return small + step * (stack_bytes - smallest) / (usual - smallest);
}

/* The new cost is taken before the old one is given back, so a failure changes nothing. */
static int set_stack(struct cuda_context *context, size_t value)
{
	size_t rounded = (value + 15) / 16 * 16;
	struct cuda_context before = *context;
	int result;

	if (cost(rounded) != cost(context->limits[CUDA_LIMIT_STACK_SIZE])) {
		result = context_charge(context, cost(rounded));
		if (result) {
			*context = before;
			return result;
		}
		context_discharge(&before);
	}
	context->limits[CUDA_LIMIT_STACK_SIZE] = rounded;
	return CUDA_SUCCESS;
}

/* Measured: a new stack waits for all work of the context, the other two do not. */
static int set_limit(struct cuda_context *context, int limit, size_t value)
{
	int result;

	if (limit == CUDA_LIMIT_STACK_SIZE) {
		result = value > STACK_MAX ? CUDA_ERROR_INVALID_VALUE : engine_wait_all(context);
		return result ? result : set_stack(context, value);
	}
	if (limit == CUDA_LIMIT_PRINTF_FIFO_SIZE && context->has_printed)
		return CUDA_ERROR_INVALID_VALUE;
	context->limits[limit] = value > small_limits[limit] ? value : small_limits[limit];
	return CUDA_SUCCESS;
}

int limit_note_launch(struct cuda_context *context, const struct kernel *kernel)
{
	context->has_printed = context->has_printed || kernel->prints;
	if (kernel->frame_bytes <= context->limits[CUDA_LIMIT_STACK_SIZE])
		return CUDA_SUCCESS;
	return set_stack(context, kernel->frame_bytes);
}

SOFT_EXPORT int cuCtxSetLimit(int limit, size_t value)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result && (limit < 0 || limit >= CONTEXT_LIMITS))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = set_limit(context_current(), limit, value);
	return process_leave("cuCtxSetLimit", result);
}

SOFT_EXPORT int cuCtxGetLimit(size_t *value, int limit)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result && (limit < 0 || limit >= CONTEXT_LIMITS))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !value)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*value = context_current()->limits[limit];
	return process_leave("cuCtxGetLimit", result);
}
