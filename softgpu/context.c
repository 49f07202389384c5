/* SPDX-License-Identifier: MIT */
#include "context.h"

#include <stdlib.h>

#include "engine.h"
#include "export.h"
#include "limit.h"
#include "memory.h"
#include "process.h"

#define STACK_DEPTH 64

/* What a program may ask for: one way to wait, and the bits behind it. */
#define FLAGS_WAIT  7U
#define FLAGS_KNOWN 0xffU

/* A thread's contexts from 1 on; the last one is current. cuCtxCreate pushes, setting none pops. */
static _Thread_local struct {
	struct cuda_context *contexts[STACK_DEPTH + 1];
	int depth;
} stack;

static unsigned int primary_flags[SOFT_DEVICES_MAX];

struct cuda_context *context_current(void)
{
	return stack.contexts[stack.depth];
}

static int push(struct cuda_context *context)
{
	if (stack.depth == STACK_DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack.contexts[++stack.depth] = context;
	return CUDA_SUCCESS;
}

static int set_current(struct cuda_context *context)
{
	if (!context) {
		stack.depth -= stack.depth > 0;
		return CUDA_SUCCESS;
	}
	if (stack.depth == 0)
		return push(context);
	stack.contexts[stack.depth] = context;
	return CUDA_SUCCESS;
}

static bool flags_are_known(unsigned int flags)
{
	unsigned int wait = flags & FLAGS_WAIT;

	return !(flags & ~FLAGS_KNOWN) && !(wait & (wait - 1));
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

int context_charge(struct cuda_context *context, uint64_t bytes)
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

void context_discharge(const struct cuda_context *context)
{
	struct table *table = &process.table;

	if (process_open_table())
		return;
	(void)table_drop_hold(table, process.client.index, context->memory, context->memory_id);
	table_close(table);
}

/* Measured: what cuInit gains while others use the GPU, the context loses, if it has many queues. */
static unsigned int context_ms(void)
{
	if (process.table.clients[process.client.index].connections == 1)
		return 59;
	return process_others_live() ? 125 : 111;
}

static int make(struct cuda_context **ret_context, int device, bool primary, unsigned int flags)
{
	struct cuda_context *context;
	int result;

	process_delay_in_turn(context_ms());
	context = calloc(1, sizeof(*context));
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->device = device;
	context->machine_device = process_device(device);
	context->primary = primary;
	context->flags = flags;
	limit_init(context);
	result = engine_new(context, &context->engines);
	if (!result) {
		result = context_charge(context, process.machine.settings.context_bytes);
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
 * it as its current context; it is a few dozen bytes. A fault does not matter: it works all the same.
 */
static void destroy(struct cuda_context *context)
{
	(void)engine_wait_all(context);
	if (context->destroyed)
		return;
	context->destroyed = true;
	if (context->primary)
		primary_flags[context->device] = 0;
	memory_free_of(context);
	engine_free_all(context);
	context_discharge(context);
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
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);
	struct cuda_context *primary;

	if (!result)
		result = check_device(device);
	if (!result) {
		primary = find_primary(device);
		if (!primary || primary->uses == 0)
			result = CUDA_ERROR_INVALID_CONTEXT;
		else if (--primary->uses == 0)
			destroy(primary);
	}
	return process_leave("cuDevicePrimaryCtxRelease_v2", result);
}

/* After a fault it succeeds, and no new context can be had: measured, and why gpuward exists. */
SOFT_EXPORT int cuDevicePrimaryCtxReset_v2(int device)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);
	struct cuda_context *primary;

	if (!result)
		result = check_device(device);
	if (!result) {
		process_delay(60);
		primary = find_primary(device);
		if (primary)
			destroy(primary);
	}
	return process_leave("cuDevicePrimaryCtxReset_v2", result);
}

SOFT_EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned int flags)
{
	int result = process_enter(NEED_INIT);

	if (!result)
		result = check_device(device);
	if (!result && !flags_are_known(flags))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		primary_flags[device] = flags;
	return process_leave("cuDevicePrimaryCtxSetFlags_v2", result);
}

SOFT_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);

	if (!result)
		result = flags && active ? check_device(device) : CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		*flags = primary_flags[device];
		*active = find_primary(device) != NULL;
	}
	return process_leave("cuDevicePrimaryCtxGetState", result);
}

static int create(const char *function, struct cuda_context **ret_context, unsigned int flags,
		  int device)
{
	int result = process_enter(NEED_INIT);
	struct cuda_context *context;

	if (!result)
		result = ret_context && flags_are_known(flags) ? check_device(device)
							       : CUDA_ERROR_INVALID_VALUE;
	if (!result && process.machine.settings.lost == process_device(device))
		result = CUDA_ERROR_UNKNOWN;
	if (!result)
		result = make(&context, device, false, flags);
	if (!result) {
		result = push(context);
		if (result)
			destroy(context);
		else
			*ret_context = context;
	}
	return process_leave(function, result);
}

SOFT_EXPORT int cuCtxCreate_v2(struct cuda_context **context, unsigned int flags, int device)
{
	return create("cuCtxCreate_v2", context, flags, device);
}

/* The parameters describe SM affinity and the like, of which the emulation has none. */
SOFT_EXPORT int cuCtxCreate_v4(struct cuda_context **context, void *parameters, unsigned int flags,
			       int device)
{
	(void)parameters;
	return create("cuCtxCreate_v4", context, flags, device);
}

SOFT_EXPORT int cuCtxDestroy_v2(struct cuda_context *context)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);

	if (!result && !context_exists(context))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && (context->primary || context->destroyed))
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (!result)
		destroy(context);
	if (!result && context_current() == context)
		result = set_current(NULL);
	return process_leave("cuCtxDestroy_v2", result);
}

SOFT_EXPORT int cuCtxSetCurrent(struct cuda_context *context)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);

	if (!result && context && !context_exists(context))
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (!result)
		result = set_current(context);
	return process_leave("cuCtxSetCurrent", result);
}

SOFT_EXPORT int cuCtxGetCurrent(struct cuda_context **context)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);

	if (!result && !context)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*context = context_current();
	return process_leave("cuCtxGetCurrent", result);
}

SOFT_EXPORT int cuCtxGetDevice(int *device)
{
	int result = process_enter(NEED_CONTEXT | NEED_EVEN_DEAD);

	if (!result && !device)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*device = context_current()->device;
	return process_leave("cuCtxGetDevice", result);
}

SOFT_EXPORT int cuCtxSynchronize(void)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = engine_wait_all(context_current());
	return process_leave("cuCtxSynchronize", result);
}
