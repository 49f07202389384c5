/* SPDX-License-Identifier: MIT */
/*
 * Every kind of fault, and all that is left of the process after it: what each call returns, what the
 * kernel log and NVML say, and that other processes go on. Runs in: see suite.h.
 */
#include <pthread.h>
#include <stdio.h>

#include "suite.h"

/* What the bad kernel takes. */
enum bad_arguments {
	TAKES_NOTHING,
	TAKES_ADDRESS,
	TAKES_ONE,
	TAKES_ONE_AND_ADDRESS
};

struct bad_kernel {
	const char *entry;
	enum bad_arguments arguments;
};

static int launch_bad(const struct session *session, const struct bad_kernel *bad, uint64_t address,
		      struct cuda_stream *stream)
{
	uint32_t one = 1;
	void *none[] = {NULL};
	void *with_address[] = {&address};
	void *with_one[] = {&one};
	void *with_both[] = {&one, &address};
	void **all[] = {none, with_address, with_one, with_both};

	return session_launch(session, bad->entry, stream, all[bad->arguments]);
}

/* What is queued behind it is not known to be bad for a while, on a busy machine too. */
static void launch_delay(const struct session *session, struct cuda_stream *stream)
{
	uint64_t ns = 200000000;
	void *busy[] = {&ns};

	(void)session_launch(session, "busy", stream, busy);
}

static void what_works_of_memory(uint64_t address)
{
	struct cuda_allocation allocation = suite_exportable();
	uint64_t other = 0;
	uint32_t word;
	size_t free_bytes;
	size_t total_bytes;
	void *memory = NULL;

	fact("alloc", CU(cuMemAlloc_v2, &other, MIB));
	fact("copy_out", CU(cuMemcpyDtoH_v2, &word, address, 4));
	fact("copy_in", CU(cuMemcpyHtoD_v2, address, &word, 4));
	fact("memset", CU(cuMemsetD8_v2, address, 1, 4));
	fact("info", CU(cuMemGetInfo_v2, &free_bytes, &total_bytes));
	fact("free", CU(cuMemFree_v2, address));
	fact("alloc_host", CU(cuMemAllocHost_v2, &memory, MIB));
	fact("mem_create", CU(cuMemCreate, &other, 2 * MIB, &allocation, 0));
	fact("reserve", CU(cuMemAddressReserve, &other, 2 * MIB, 0, 0, 0));
}

static void what_works_of_the_rest(const struct session *session, struct cuda_function *nop,
				   struct cuda_stream *stream, struct cuda_event *event)
{
	struct cuda_context *current = NULL;
	struct cuda_stream *new_stream;
	struct cuda_event *new_event;
	struct cuda_module *module;
	struct cuda_function *function;
	int value = -1;
	size_t bytes;

	fact("launch_again", CU(cuLaunchKernel, nop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	fact("stream_query", CU(cuStreamQuery, stream));
	fact("stream_sync", CU(cuStreamSynchronize, stream));
	fact("event_query", CU(cuEventQuery, event));
	fact("event_record", CU(cuEventRecord, event, NULL));
	fact("stream_create", CU(cuStreamCreate, &new_stream, 0));
	fact("event_create", CU(cuEventCreate, &new_event, 0));
	fact("stream_destroy", CU(cuStreamDestroy_v2, stream));
	fact("event_destroy", CU(cuEventDestroy_v2, event));
	fact("module_load", CU(cuModuleLoadData, &module, suite_ptx()));
	fact("get_function", CU(cuModuleGetFunction, &function, session->module, "add1"));
	fact("module_unload", CU(cuModuleUnload, session->module));
	fact("current", CU(cuCtxGetCurrent, &current));
	fact_yes("current_is_kept", current == session->context);
	fact("get_device", CU(cuCtxGetDevice, &value));
	fact("get_limit", CU(cuCtxGetLimit, &bytes, CUDA_LIMIT_STACK_SIZE));
	fact("init", CU(cuInit, 0));
	fact("device_count", CU(cuDeviceGetCount, &value));
	fact("driver_version", CU(cuDriverGetVersion, &value));
}

static void try_to_recover(void)
{
	struct cuda_context *context = NULL;
	unsigned int flags = 0;
	int active = -1;
	uint64_t address;
	int result;

	fact("reset", CU(cuDevicePrimaryCtxReset_v2, 0));
	fact("state", CU(cuDevicePrimaryCtxGetState, 0, &flags, &active));
	fact("active", active);
	result = CU(cuDevicePrimaryCtxRetain, &context, 0);
	fact("retain_after_reset", result);
	if (result == 0) {
		fact("set_current", CU(cuCtxSetCurrent, context));
		fact("alloc_after_reset", CU(cuMemAlloc_v2, &address, MIB));
	}
	result = CU(cuCtxCreate_v2, &context, 0, 0);
	fact("new_context", result);
	if (result == 0)
		fact("alloc_in_new_context", CU(cuMemAlloc_v2, &address, MIB));
	fact("sync_at_last", CU(cuCtxSynchronize));
}

static void be_bad(int socket, const void *argument)
{
	const struct bad_kernel *bad = argument;
	struct session session;
	struct cuda_stream *stream = NULL;
	struct cuda_event *event = NULL;
	struct cuda_function *nop;
	uint64_t address = 0;

	session_begin(&session);
	nop = session_function(&session, "nop");
	(void)CU(cuMemAlloc_v2, &address, MIB);
	(void)CU(cuStreamCreate, &stream, CUDA_STREAM_NON_BLOCKING);
	(void)CU(cuEventCreate, &event, 0);
	(void)CU(cuEventRecord, event, NULL);
	(void)CU(cuCtxSynchronize);
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
	fact("launch", launch_bad(&session, bad, address, NULL));
	fact("sync", CU(cuCtxSynchronize));
	fact("second_sync", CU(cuCtxSynchronize));
	what_works_of_memory(address);
	what_works_of_the_rest(&session, nop, stream, event);
	try_to_recover();
}

static void good_beside(int socket, const void *argument)
{
	struct session session;

	(void)argument;
	session_begin(&session);
	suite_send(socket, 1, -1);
	(void)suite_receive(socket, NULL);
	fact("other_process_launch", session_launch(&session, "nop", NULL, NULL));
	fact("other_process_sync", CU(cuCtxSynchronize));
}

static void listen_to_nvml(int socket, const void *argument)
{
	struct nvml_device *device = NULL;
	struct nvml_event_set *set = NULL;
	struct nvml_event event = {0};
	int result = NVML(nvmlInit_v2);

	(void)argument;
	if (result == 0)
		result = NVML(nvmlDeviceGetHandleByIndex_v2, 0, &device);
	if (result == 0)
		result = NVML(nvmlEventSetCreate, &set);
	if (result == 0)
		result = NVML(nvmlDeviceRegisterEvents, device, NVML_EVENT_XID, set);
	fact("nvml_register", result);
	suite_send(socket, 1, -1);
	if (result != 0)
		return;
	fact("nvml_event", NVML(nvmlEventSetWait_v2, set, &event, 3000));
	fact("nvml_event_type", (long long)event.type);
	fact("nvml_event_xid", (long long)event.data);
	fact_yes("nvml_event_device_is_it", event.device == device);
}

static void fault(const void *argument)
{
	struct suite_log log;
	struct role bad;
	struct role beside;
	struct role listener;

	suite_log_open(&log);
	role_start(&beside, good_beside, NULL);
	(void)suite_receive(beside.socket, NULL);
	role_start(&listener, listen_to_nvml, NULL);
	(void)suite_receive(listener.socket, NULL);
	role_start(&bad, be_bad, argument);
	(void)suite_receive(bad.socket, NULL);
	suite_send(bad.socket, 1, -1);
	role_end(&bad, "process");
	role_end(&listener, NULL);
	suite_send(beside.socket, 1, -1);
	role_end(&beside, "other_process_ended");
	suite_log_facts(&log, bad.pid);
}

/* ---- who learns of it ---- */

static const struct bad_kernel null_kernel = {"fault_null", TAKES_NOTHING};

enum finder {
	BY_STREAM_SYNC,
	BY_EVENT_SYNC,
	BY_COPY,
	BY_FREE,
	BY_RESET,
	BY_RELEASE,
	BY_DESTROY_STREAM,
	BY_UNLOAD
};

struct found_by {
	const char *name;
	enum finder finder;
};

static int find(enum finder finder, const struct session *session, struct cuda_stream *stream,
		struct cuda_event *event, uint64_t address)
{
	uint32_t word;

	switch (finder) {
	case BY_STREAM_SYNC:
		return CU(cuStreamSynchronize, stream);
	case BY_EVENT_SYNC:
		return CU(cuEventSynchronize, event);
	case BY_COPY:
		return CU(cuMemcpyDtoH_v2, &word, address, 4);
	case BY_FREE:
		return CU(cuMemFree_v2, address);
	case BY_RESET:
		return CU(cuDevicePrimaryCtxReset_v2, 0);
	case BY_RELEASE:
		return CU(cuDevicePrimaryCtxRelease_v2, 0);
	case BY_DESTROY_STREAM:
		return CU(cuStreamDestroy_v2, stream);
	case BY_UNLOAD:
		return CU(cuModuleUnload, session->module);
	}
	return -1;
}

static void find_a_fault(int socket, const void *argument)
{
	const struct found_by *found = argument;
	struct session session;
	struct cuda_stream *stream = NULL;
	struct cuda_event *event = NULL;
	uint64_t address = 0;
	char name[64];

	(void)socket;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, MIB);
	(void)CU(cuStreamCreate, &stream, 0);
	(void)CU(cuEventCreate, &event, 0);
	launch_delay(&session, stream);
	(void)launch_bad(&session, &null_kernel, address, stream);
	(void)CU(cuEventRecord, event, stream);
	fact(found->name, find(found->finder, &session, stream, event, address));
	(void)snprintf(name, sizeof(name), "%s_then_sync", found->name);
	fact(name, CU(cuCtxSynchronize));
}

static void each_finder(const void *argument)
{
	static const struct found_by table[] = {
		{"stream_sync", BY_STREAM_SYNC},
		{"event_sync", BY_EVENT_SYNC},
		{"copy_out", BY_COPY},
		{"free", BY_FREE},
		{"reset", BY_RESET},
		{"release", BY_RELEASE},
		{"stream_destroy", BY_DESTROY_STREAM},
		{"unload", BY_UNLOAD},
	};

	(void)argument;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct role role;

		role_start(&role, find_a_fault, &table[i]);
		role_end(&role, NULL);
	}
}

static void *sync_in_thread(void *argument)
{
	fact("other_thread_set", CU(cuCtxSetCurrent, argument));
	fact("other_thread_sync", CU(cuCtxSynchronize));
	return NULL;
}

/* A context that was made before the fault, and another thread. */
static void second_context(const void *argument)
{
	struct session session;
	struct cuda_context *other = NULL;
	pthread_t thread;
	uint64_t address;

	(void)argument;
	session_begin(&session);
	fact("create", CU(cuCtxCreate_v2, &other, 0, 0));
	(void)CU(cuCtxSetCurrent, session.context);
	(void)launch_bad(&session, &null_kernel, 0, NULL);
	fact("sync", CU(cuCtxSynchronize));
	fact("set_other", CU(cuCtxSetCurrent, other));
	fact("sync_other", CU(cuCtxSynchronize));
	fact("alloc_other", CU(cuMemAlloc_v2, &address, MIB));
	if (pthread_create(&thread, NULL, sync_in_thread, session.context) == 0)
		(void)pthread_join(thread, NULL);
	fact("destroy_other", CU(cuCtxDestroy_v2, other));
}

/* Work of the same process in other streams, before and behind the fault. */
static void streams_beside(const void *argument)
{
	struct session session;
	struct cuda_stream *first = NULL;
	struct cuda_stream *second = NULL;
	uint64_t n = 1;
	uint64_t address = 0;
	void *add[] = {&address, &n};

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, MIB);
	(void)CU(cuMemsetD8_v2, address, 0, MIB);
	(void)CU(cuStreamCreate, &first, CUDA_STREAM_NON_BLOCKING);
	(void)CU(cuStreamCreate, &second, CUDA_STREAM_NON_BLOCKING);
	launch_delay(&session, first);
	fact("bad_launch", launch_bad(&session, &null_kernel, 0, first));
	fact("good_launch", session_launch(&session, "add1", second, add));
	fact("bad_sync", CU(cuStreamSynchronize, first));
	fact("good_sync", CU(cuStreamSynchronize, second));
}

static void touch_unmapped(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint64_t n = 4;
	void *add[] = {&address, &n};
	uint32_t word = 0;

	(void)argument;
	session_begin(&session);
	fact("reserve", CU(cuMemAddressReserve, &address, 2 * MIB, 0, 0, 0));
	fact("copy_in", CU(cuMemcpyHtoD_v2, address, &word, 4));
	fact("memset", CU(cuMemsetD8_v2, address, 1, 4));
	fact("sync_before", CU(cuCtxSynchronize));
	fact("launch", session_launch(&session, "add1", NULL, add));
	fact("sync", CU(cuCtxSynchronize));
}

static void use_freed(const void *argument)
{
	struct session session;
	uint64_t address = 0;
	uint64_t n = 4;
	void *add[] = {&address, &n};

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, 64 * MIB);
	fact("free", CU(cuMemFree_v2, address));
	fact("launch", session_launch(&session, "add1", NULL, add));
	fact("sync", CU(cuCtxSynchronize));
}

/* The bad kernels do no harm with an argument of 0. */
static void harmless(const void *argument)
{
	static const struct bad_kernel table[] = {{"fault_assert", TAKES_ONE},
						  {"fault_shared", TAKES_ONE},
						  {"fault_stack", TAKES_ONE_AND_ADDRESS}};
	struct session session;
	uint64_t address = 0;
	uint32_t zero = 0;
	void *parameters[] = {&zero, &address};

	(void)argument;
	session_begin(&session);
	(void)CU(cuMemAlloc_v2, &address, MIB);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		(void)session_launch(&session, table[i].entry, NULL, parameters);
		fact(table[i].entry, CU(cuCtxSynchronize));
	}
}

static const struct bad_kernel bad_oob = {"fault_oob", TAKES_ADDRESS};
static const struct bad_kernel bad_misaligned = {"fault_misaligned", TAKES_ADDRESS};
static const struct bad_kernel bad_assert = {"fault_assert", TAKES_ONE};
static const struct bad_kernel bad_trap = {"fault_trap", TAKES_NOTHING};
static const struct bad_kernel bad_shared = {"fault_shared", TAKES_ONE};
static const struct bad_kernel bad_stack = {"fault_stack", TAKES_ONE_AND_ADDRESS};

const struct suite_case cases_fault[] = {
	{"null", fault, &null_kernel},
	{"oob", fault, &bad_oob},
	{"misaligned", fault, &bad_misaligned},
	{"assert", fault, &bad_assert},
	{"trap", fault, &bad_trap},
	{"shared", fault, &bad_shared},
	{"stack", fault, &bad_stack},
	{"found_by", each_finder, NULL},
	{"fault_contexts", second_context, NULL},
	{"fault_streams", streams_beside, NULL},
	{"unmapped", touch_unmapped, NULL},
	{"freed", use_freed, NULL},
	{"harmless", harmless, NULL},
	{NULL, NULL, NULL},
};
