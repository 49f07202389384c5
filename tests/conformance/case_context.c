/* SPDX-License-Identifier: MIT */
/* Primary and other contexts, what is current, and limits. Runs in: see suite.h. */
#include <pthread.h>

#include "suite.h"

static void without(const void *argument)
{
	struct cuda_context *context = NULL;
	struct cuda_stream *stream;
	struct cuda_event *event;
	struct cuda_module *module;
	uint64_t address;
	size_t bytes;
	void *memory;
	int device;

	(void)argument;
	(void)CU(cuInit, 0);
	fact("current", CU(cuCtxGetCurrent, &context));
	fact_yes("current_is_null", context == NULL);
	fact("device", CU(cuCtxGetDevice, &device));
	fact("sync", CU(cuCtxSynchronize));
	fact("alloc", CU(cuMemAlloc_v2, &address, MIB));
	fact("alloc_host", CU(cuMemAllocHost_v2, &memory, MIB));
	fact("info", CU(cuMemGetInfo_v2, &bytes, &bytes));
	fact("module", CU(cuModuleLoadData, &module, suite_ptx()));
	fact("stream", CU(cuStreamCreate, &stream, 0));
	fact("event", CU(cuEventCreate, &event, 0));
	fact("limit", CU(cuCtxGetLimit, &bytes, CUDA_LIMIT_STACK_SIZE));
	fact("free_0", CU(cuMemFree_v2, 0));
	fact("free_bad", CU(cuMemFree_v2, 0x12345600));
	fact("stream_query_default", CU(cuStreamQuery, NULL));
}

static void state(const char *flags_name, const char *active_name)
{
	unsigned int flags = 99;
	int active = -1;
	int result = CU(cuDevicePrimaryCtxGetState, 0, &flags, &active);

	fact(flags_name, result ? -result : (int)flags);
	fact(active_name, active);
}

static void primary(const void *argument)
{
	struct cuda_context *context = NULL;
	struct cuda_context *again = NULL;
	int device = -1;

	(void)argument;
	(void)CU(cuInit, 0);
	state("flags_before", "active_before");
	fact("release_unretained", CU(cuDevicePrimaryCtxRelease_v2, 0));
	fact("reset_inactive", CU(cuDevicePrimaryCtxReset_v2, 0));
	fact("set_flags", CU(cuDevicePrimaryCtxSetFlags_v2, 0, CUDA_CONTEXT_BLOCKING_SYNC));
	fact("set_flags_bad", CU(cuDevicePrimaryCtxSetFlags_v2, 0, 0x7000));
	fact("set_flags_of_none", CU(cuDevicePrimaryCtxSetFlags_v2, 77, 0));
	state("flags_set", "active_set");
	fact("retain", CU(cuDevicePrimaryCtxRetain, &context, 0));
	fact("retain_null", CU(cuDevicePrimaryCtxRetain, NULL, 0));
	fact("retain_of_none", CU(cuDevicePrimaryCtxRetain, &again, 77));
	state("flags_retained", "active_retained");
	fact("set_flags_active", CU(cuDevicePrimaryCtxSetFlags_v2, 0, CUDA_CONTEXT_YIELD));
	state("flags_set_active", "active_set_active");
	fact("retain_again", CU(cuDevicePrimaryCtxRetain, &again, 0));
	fact_yes("same", context == again);
	fact("destroy", CU(cuCtxDestroy_v2, context));
	fact("device_uncurrent", CU(cuCtxGetDevice, &device));
	fact("set_current", CU(cuCtxSetCurrent, context));
	fact("current", CU(cuCtxGetCurrent, &again));
	fact_yes("current_is_it", context == again);
	fact("device", CU(cuCtxGetDevice, &device));
	fact("release", CU(cuDevicePrimaryCtxRelease_v2, 0));
	fact("sync_held_once", CU(cuCtxSynchronize));
	fact("release_last", CU(cuDevicePrimaryCtxRelease_v2, 0));
	state("flags_released", "active_released");
	fact("sync_released", CU(cuCtxSynchronize));
	fact("release_too_often", CU(cuDevicePrimaryCtxRelease_v2, 0));
}

static void reset(const void *argument)
{
	struct session session;
	struct cuda_context *again = NULL;
	uint64_t address;

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, MIB);
	fact("reset", CU(cuDevicePrimaryCtxReset_v2, 0));
	fact("reset_of_none", CU(cuDevicePrimaryCtxReset_v2, 77));
	state("flags", "active");
	fact("sync", CU(cuCtxSynchronize));
	fact("retain", CU(cuDevicePrimaryCtxRetain, &again, 0));
	fact("set_current", CU(cuCtxSetCurrent, again));
	fact("alloc", CU(cuMemAlloc_v2, &address, MIB));
	fact("sync_after", CU(cuCtxSynchronize));
}

static void second(const void *argument)
{
	struct session session;
	struct cuda_context *other = NULL;
	struct cuda_context *current = NULL;
	uint64_t address = 0;
	uint64_t word = 5;

	(void)argument;
	session_begin(&session);
	fact("create_null", CU(cuCtxCreate_v2, NULL, 0, 0));
	fact("create_bad_flags", CU(cuCtxCreate_v2, &other, 0x70000, 0));
	fact("create_of_none", CU(cuCtxCreate_v2, &other, 0, 77));
	fact("create", CU(cuCtxCreate_v2, &other, 0, 0));
	(void)CU(cuCtxGetCurrent, &current);
	fact_yes("is_current", current == other);
	fact_yes("is_not_the_primary", other != session.context);
	(void)CU(cuMemAlloc_v2, &address, MIB);
	fact("memset_there", CU(cuMemsetD32_v2, address, 7, 4));
	fact("sync_there", CU(cuCtxSynchronize));
	fact("set_primary", CU(cuCtxSetCurrent, session.context));
	fact("read_here", CU(cuMemcpyDtoH_v2, &word, address, 4));
	fact("value_here", (long long)(uint32_t)word);
	fact("free_here", CU(cuMemFree_v2, address));
	fact("set_none", CU(cuCtxSetCurrent, NULL));
	fact("sync_none", CU(cuCtxSynchronize));
	fact("destroy", CU(cuCtxDestroy_v2, other));
	fact("destroy_null", CU(cuCtxDestroy_v2, NULL));
	fact("primary_lives", CU(cuCtxSetCurrent, session.context));
	fact("primary_sync", CU(cuCtxSynchronize));
	fact("create_v4", CU(cuCtxCreate_v4, &other, NULL, 0, 0));
	fact("destroy_current", CU(cuCtxDestroy_v2, other));
	fact("current_result", CU(cuCtxGetCurrent, &current));
	fact_text("current_after", "%s",
		  current == NULL	       ? "none"
		  : current == session.context ? "primary"
		  : current == other	       ? "destroyed"
					       : "another");
	fact("sync_after", CU(cuCtxSynchronize));
}

static void limit(const char *name, int number)
{
	size_t bytes = 0;
	int result = CU(cuCtxGetLimit, &bytes, number);

	fact(name, result ? -result : (long long)bytes);
}

static void limits(const void *argument)
{
	struct session session;
	size_t bytes;

	(void)argument;
	session_begin(&session);
	limit("stack", CUDA_LIMIT_STACK_SIZE);
	limit("printf", CUDA_LIMIT_PRINTF_FIFO_SIZE);
	limit("heap", CUDA_LIMIT_MALLOC_HEAP_SIZE);
	fact("get_unknown", CU(cuCtxGetLimit, &bytes, 4711));
	fact("get_null", CU(cuCtxGetLimit, NULL, CUDA_LIMIT_STACK_SIZE));
	fact("set_unknown", CU(cuCtxSetLimit, 4711, 1));
	fact("set_stack", CU(cuCtxSetLimit, CUDA_LIMIT_STACK_SIZE, 256));
	limit("stack_set", CUDA_LIMIT_STACK_SIZE);
	fact("set_stack_odd", CU(cuCtxSetLimit, CUDA_LIMIT_STACK_SIZE, 1001));
	limit("stack_set_odd", CUDA_LIMIT_STACK_SIZE);
	fact("set_stack_huge", CU(cuCtxSetLimit, CUDA_LIMIT_STACK_SIZE, 1ULL << 40));
	fact("set_heap", CU(cuCtxSetLimit, CUDA_LIMIT_MALLOC_HEAP_SIZE, MIB));
	limit("heap_set", CUDA_LIMIT_MALLOC_HEAP_SIZE);
	fact("set_printf", CU(cuCtxSetLimit, CUDA_LIMIT_PRINTF_FIFO_SIZE, 65536));
	limit("printf_set", CUDA_LIMIT_PRINTF_FIFO_SIZE);
}

static void *look(void *argument)
{
	struct cuda_context *current = NULL;
	struct session *session = argument;

	fact("current", CU(cuCtxGetCurrent, &current));
	fact_yes("current_is_null", current == NULL);
	fact("sync", CU(cuCtxSynchronize));
	fact("set_current", CU(cuCtxSetCurrent, session->context));
	fact("sync_with", CU(cuCtxSynchronize));
	return NULL;
}

static void other_thread(const void *argument)
{
	struct session session;
	pthread_t thread;

	(void)argument;
	session_begin(&session);
	if (pthread_create(&thread, NULL, look, &session) == 0)
		(void)pthread_join(thread, NULL);
	fact("main_sync", CU(cuCtxSynchronize));
}

const struct suite_case cases_context[] = {
	{"no_context", without, NULL},
	{"primary", primary, NULL},
	{"reset", reset, NULL},
	{"context", second, NULL},
	{"limit", limits, NULL},
	{"thread", other_thread, NULL},
	{NULL, NULL, NULL},
};
