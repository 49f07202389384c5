/* SPDX-License-Identifier: MIT */
#include "context.h"

#include <stdlib.h>

#include "engine.h"
#include "export.h"
#include "memory.h"
#include "process.h"

static _Thread_local struct cuda_context *current;

/* Measured: with the three limits at these values or lower, a context costs 329 MiB and not 527. */
static const size_t small_limits[CONTEXT_LIMITS] = {256, 64 << 10, 1 << 20};
static const size_t default_limits[CONTEXT_LIMITS] = {1024, 7 << 20, 8 << 20};

static unsigned int primary_flags[SOFT_DEVICES_MAX];

struct cuda_context *context_current(void)
{
	return current;
}

bool context_exists(const struct cuda_context *context)
{
	const struct cuda_context *one = process.contexts;

	while (one && one != context)
		one = one->next;
	return one != NULL;
}

static struct cuda_context *find_primary(int device)
{
	struct cuda_context *one = process.contexts;

	while (one && !(one->primary && one->device == device && !one->destroyed))
		one = one->next;
	return one;
}

static int charge(struct cuda_context *context, uint64_t bytes)
{
	struct table *table = &process.table;
	struct table_client *entry;
	int result = process_open_table();

	if (result)
		return result;
	result = process_result(table_new_memory(table, process.client.index,
						 context->machine_device, TABLE_OVERHEAD, bytes,
						 &context->memory));
	if (!result) {
		context->memory_id = table->memories[context->memory].id;
		entry = &table->clients[process.client.index];
		entry->contexts |= 1ULL << context->machine_device;
		result = process_result(table_put_client(table, process.client.index));
	}
	table_close(table);
	return result;
}

static void discharge(struct cuda_context *context)
{
	struct table *table = &process.table;

	if (process_open_table())
		return;
	(void)table_drop_hold(table, process.client.index, context->memory, context->memory_id);
	table_close(table);
}

static int make(struct cuda_context **ret_context, int device, bool primary, unsigned int flags)
{
	struct cuda_context *context;
	int result;

	process_delay_in_turn(100);
	context = calloc(1, sizeof(*context));
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->device = device;
	context->machine_device = process_device(device);
	context->primary = primary;
	context->flags = flags;
	for (int i = 0; i < CONTEXT_LIMITS; i++)
		context->limits[i] = default_limits[i];
	result = engine_new(context, &context->engines);
	if (!result) {
		result = charge(context, process.machine.settings.context_bytes);
		if (result)
			engine_free_all(context);
	}
	if (result) {
		free(context);
		return result;
	}
	context->next = process.contexts;
	process.contexts = context;
	*ret_context = context;
	return CUDA_SUCCESS;
}

/*
 * Ends what CONTEXT has. The structure itself stays in the list, marked, since any thread may still have
 * it as its current context; it is a few dozen bytes.
 */
static int destroy(struct cuda_context *context)
{
	int result = engine_wait_all(context);

	if (result)
		return result;
	context->destroyed = true;
	memory_free_of(context);
	engine_free_all(context);
	discharge(context);
	return CUDA_SUCCESS;
}

static int check_device(int device)
{
	return device < 0 || device >= process.devices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

SOFT_EXPORT int cuDevicePrimaryCtxRetain(struct cuda_context **context, int device)
{
	int result = process_enter(NEED_INIT);
	struct cuda_context *primary = NULL;

	if (!result)
		result = context ? check_device(device) : CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		if (process.machine.settings.lost == process_device(device))
			result = CUDA_ERROR_UNKNOWN;
		primary = find_primary(device);
		if (!result && !primary)
			result = make(&primary, device, true, primary_flags[device]);
	}
	if (!result) {
		primary->uses++;
		*context = primary;
	}
	return process_leave("cuDevicePrimaryCtxRetain", result);
}

SOFT_EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	int result = process_enter(NEED_INIT);
	struct cuda_context *primary;

	if (!result)
		result = check_device(device);
	if (!result) {
		primary = find_primary(device);
		if (!primary || primary->uses == 0)
			result = CUDA_ERROR_INVALID_CONTEXT;
		else if (primary->uses == 1)
			result = destroy(primary);
		if (!result)
			primary->uses--;
	}
	return process_leave("cuDevicePrimaryCtxRelease", result);
}

/* After a fault it succeeds and changes nothing: measured, and the reason why gpuward exists. */
SOFT_EXPORT int cuDevicePrimaryCtxReset_v2(int device)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);
	struct cuda_context *primary;

	if (!result)
		result = check_device(device);
	if (!result) {
		process_delay(60);
		primary = find_primary(device);
		if (primary && !process.sticky)
			result = destroy(primary);
	}
	return process_leave("cuDevicePrimaryCtxReset", result);
}

SOFT_EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned int flags)
{
	int result = process_enter(NEED_INIT);

	if (!result)
		result = check_device(device);
	if (!result)
		primary_flags[device] = flags;
	return process_leave("cuDevicePrimaryCtxSetFlags", result);
}

SOFT_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
	int result = process_enter(NEED_INIT);

	if (!result)
		result = flags && active ? check_device(device) : CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		*flags = primary_flags[device];
		*active = find_primary(device) != NULL;
	}
	return process_leave("cuDevicePrimaryCtxGetState", result);
}

static int create(struct cuda_context **ret_context, unsigned int flags, int device)
{
	int result = process_enter(NEED_INIT);
	struct cuda_context *context;

	if (!result)
		result = ret_context ? check_device(device) : CUDA_ERROR_INVALID_VALUE;
	if (!result && process.machine.settings.lost == process_device(device))
		result = CUDA_ERROR_UNKNOWN;
	if (!result)
		result = make(&context, device, false, flags);
	if (!result) {
		current = context;
		*ret_context = context;
	}
	return process_leave("cuCtxCreate", result);
}

SOFT_EXPORT int cuCtxCreate_v2(struct cuda_context **context, unsigned int flags, int device)
{
	return create(context, flags, device);
}

/* The parameters describe SM affinity and the like, of which the emulation has none. */
SOFT_EXPORT int cuCtxCreate_v4(struct cuda_context **context, void *parameters, unsigned int flags,
			       int device)
{
	(void)parameters;
	return create(context, flags, device);
}

SOFT_EXPORT int cuCtxDestroy_v2(struct cuda_context *context)
{
	int result = process_enter(NEED_INIT);

	if (!result && !context_exists(context))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && (context->primary || context->destroyed))
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (!result)
		result = destroy(context);
	if (!result && current == context)
		current = NULL;
	return process_leave("cuCtxDestroy", result);
}

SOFT_EXPORT int cuCtxSetCurrent(struct cuda_context *context)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);

	if (!result && context && !context_exists(context))
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (!result)
		current = context;
	return process_leave("cuCtxSetCurrent", result);
}

SOFT_EXPORT int cuCtxGetCurrent(struct cuda_context **context)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);

	if (!result && !context)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*context = current;
	return process_leave("cuCtxGetCurrent", result);
}

SOFT_EXPORT int cuCtxGetDevice(int *device)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result && !device)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*device = current->device;
	return process_leave("cuCtxGetDevice", result);
}

SOFT_EXPORT int cuCtxSynchronize(void)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = engine_wait_all(current);
	return process_leave("cuCtxSynchronize", result);
}

static bool is_small(const struct cuda_context *context)
{
	for (int i = 0; i < CONTEXT_LIMITS; i++) {
		if (context->limits[i] > small_limits[i])
			return false;
	}
	return true;
}

/* The new cost is taken before the old one is given back, so a failure changes nothing. */
static int set_limit(struct cuda_context *context, int limit, size_t value)
{
	struct cuda_context before = *context;
	bool was_small = is_small(context);
	int result;

	context->limits[limit] = value;
	if (is_small(context) == was_small)
		return CUDA_SUCCESS;
	result = charge(context, was_small ? process.machine.settings.context_bytes
					   : process.machine.settings.context_small_bytes);
	if (result)
		*context = before;
	else
		discharge(&before);
	return result;
}

SOFT_EXPORT int cuCtxSetLimit(int limit, size_t value)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result && (limit < 0 || limit >= CONTEXT_LIMITS))
		result = CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (!result)
		result = set_limit(current, limit, value);
	return process_leave("cuCtxSetLimit", result);
}

SOFT_EXPORT int cuCtxGetLimit(size_t *value, int limit)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result && (limit < 0 || limit >= CONTEXT_LIMITS))
		result = CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (!result && !value)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*value = current->limits[limit];
	return process_leave("cuCtxGetLimit", result);
}
