/* SPDX-License-Identifier: MIT */
/*
 * Description: a fault on the emulated GPU poisons its whole process and nobody else's, has the right
 * result, the right lines in the kernel log and an NVML event; and a forked child has no CUDA.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../softgpu_calls.h"
#include "common/fd.h"
#include "gpu/nvml_abi.h"
#include "gpu/xid.h"

#define MIB (1ULL << 20)

struct fault_case {
	const char *kernel;
	int result;
	uint32_t xid;
	bool takes_memory;
	const char *text; /* somewhere in the log */
};

static const struct fault_case cases[] = {
	{"fault_null", 700, 31, false, "FAULT_PDE ACCESS_TYPE_VIRT_WRITE"},
	{"fault_oob", 700, 31, true, "MMU Fault: ENGINE GRAPHICS"},
	{"fault_misaligned", 716, 13, true, "Misaligned Address"},
	{"fault_assert", 710, 43, false, "): 43, pid="},
	{"fault_trap", 719, 43, false, "): 43, pid="},
	{"fault_shared", 715, 13, false, "Illegal Instruction Parameter"},
	{"fault_stack", 700, 43, true, "Out Of Range Address"},
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

static int set_up(void **state)
{
	(void)state;
	soft_dir_new(NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	soft_dir_free();
	return 0;
}

/* Every call of the process gives the fault; a reset succeeds and helps nothing. */
static void need_poisoned(int fault, uint64_t memory)
{
	struct cuda_context *context;
	struct cuda_module *module;
	uint32_t word;
	size_t bytes;

	NEED(cuCtxSynchronize(), fault);
	NEED(cuMemAlloc_v2(&memory, 4), fault);
	NEED(cuMemcpyDtoH_v2(&word, memory, 4), fault);
	NEED(cuMemGetInfo_v2(&bytes, &bytes), fault);
	NEED(cuStreamQuery(NULL), fault);
	NEED(cuModuleLoadData(&module, ".version 6.0\n.target sm_50\n"), fault);
	OK(cuDevicePrimaryCtxReset_v2(0));
	NEED(cuDevicePrimaryCtxRetain(&context, 0), fault);
	NEED(cuCtxCreate_v2(&context, 0, 0), fault);
	NEED(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static int fault(void *argument)
{
	const struct fault_case *one = argument;
	struct cuda_function *function;
	uint64_t memory;
	uint32_t number = 1;
	void *with_memory[] = {&memory};
	void *with_number[] = {&number, &memory};

	child_context(0);
	OK(cuMemAlloc_v2(&memory, 4096));
	function = child_kernel(one->kernel);
	OK(child_launch(function, one->takes_memory && strcmp(one->kernel, "fault_stack") != 0
					  ? with_memory
					  : with_number));
	NEED(cuCtxSynchronize(), one->result);
	need_poisoned(one->result, memory);
	return 0;
}

static bool log_has_pid(const char *log, uint32_t xid, pid_t pid)
{
	size_t length;

	for (; *log; log += length + 1) {
		struct kmsg_record record;
		struct xid_line line;
		size_t offset = 0;

		length = strcspn(log, "\n");
		if (kmsg_parse(log, length, &record) < 0 || record.facility != 0)
			return false;
		while (xid_parse_record(&record, &offset, &line)) {
			if (line.pci.device != 6)
				return false;
			if (line.have & XID_HAVE_PID && line.pid == pid)
				return line.number == xid;
		}
	}
	return false;
}

static void faults_poison_and_are_logged(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++) {
		char *log;
		pid_t pid;

		soft_dir_free();
		soft_dir_new(NULL);
		pid = child_start(fault, (void *)(uintptr_t)&cases[i]);
		assert_int_equal(child_end(pid), 0);
		log = soft_text("kmsg");
		assert_non_null(strstr(log, cases[i].text));
		assert_true(log_has_pid(log, cases[i].xid, pid));
		free(log);
	}
}

static int no_fault(void *argument)
{
	static const char *const harmless[] = {"fault_assert", "fault_shared", "fault_stack"};
	uint64_t memory;
	uint32_t number = 0;
	void *parameters[] = {&number, &memory};

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&memory, 4096));
	for (int i = 0; i < 3; i++)
		OK(child_launch(child_kernel(harmless[i]), parameters));
	OK(cuCtxSynchronize());
	return 0;
}

static void bad_kernels_are_harmless_with_zero(void **state)
{
	char *log;

	(void)state;
	assert_int_equal(child_run(no_fault, NULL), 0);
	log = soft_text("kmsg");
	assert_string_equal(log, "");
	free(log);
}

static int second_context(void *argument)
{
	struct cuda_context *first;
	struct cuda_context *second;

	(void)argument;
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&first, 0, 0));
	OK(cuCtxCreate_v4(&second, NULL, 0, 0));
	OK(cuCtxSetCurrent(first));
	OK(child_launch(child_kernel("fault_trap"), NULL));
	NEED(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	OK(cuCtxSetCurrent(second));
	NEED(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	OK(cuCtxDestroy_v2(second));
	NEED(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	return 0;
}

static void second_context_is_dead_too(void **state)
{
	(void)state;
	assert_int_equal(child_run(second_context, NULL), 0);
}

/* An endless kernel of another stream ends with the fault, so nothing hangs. */
static int fault_beside_spin(void *argument)
{
	struct cuda_function *trap;
	struct cuda_stream *stream;
	uint64_t stop;
	void *spin[] = {&stop};

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&stop, 4));
	OK(cuMemsetD32_v2(stop, 0, 1));
	OK(cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING));
	trap = child_kernel("fault_trap");
	OK(cuLaunchKernel(child_kernel("spin"), 1, 1, 1, 1, 1, 1, 0, stream, spin, NULL));
	OK(child_launch(trap, NULL));
	NEED(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	NEED(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
	return 0;
}

static void fault_stops_the_other_streams(void **state)
{
	(void)state;
	assert_int_equal(child_run(fault_beside_spin, NULL), 0);
}

static void gather(void *data, int level, char *message, size_t length)
{
	char *text = data;
	size_t at = strlen(text);

	(void)level;
	if (at + length + 2 < 1000)
		(void)snprintf(text + at, 1000 - at, "%.*s\n", (int)length, message);
}

static int hear_failures(void *argument)
{
	static char text[1000];
	struct cuda_log_callback *handle;
	uint32_t number = 1;
	void *parameters[] = {&number};
	uint64_t memory;

	(void)argument;
	child_context(0);
	OK(cuLogsRegisterCallback(gather, text, &handle));
	NEED(cuMemAlloc_v2(&memory, 0), 1);
	OK(child_launch(child_kernel("fault_assert"), parameters));
	NEED(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
	NEED(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
	NEED(strcmp(text, "Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemAlloc_v2\n"
			  "Returning 710 (CUDA_ERROR_ASSERT) from cuCtxSynchronize\n"
			  "Sticky error detected\n"),
	     0);
	OK(cuLogsUnregisterCallback(handle));
	NEED(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
	NEED((long)strlen(text), 58 + 56 + 22);
	return 0;
}

static void callbacks_hear_of_failures(void **state)
{
	(void)state;
	assert_int_equal(child_run(hear_failures, NULL), 0);
}

static void nvml_announces_faults(void **state)
{
	struct nvml_event_set *set;
	struct nvml_device *device;
	struct nvml_event event;

	(void)state;
	assert_int_equal(nvmlInit_v2(), 0);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
	assert_int_equal(child_run(fault, (void *)(uintptr_t)&cases[0]), 0);
	assert_int_equal(nvmlEventSetCreate(&set), 0);
	assert_int_equal(nvmlDeviceRegisterEvents(device, NVML_EVENT_XID, set), 0);
	assert_int_equal(nvmlEventSetWait_v2(set, &event, 20), NVML_ERROR_TIMEOUT);
	assert_int_equal(child_run(fault, (void *)(uintptr_t)&cases[2]), 0);
	assert_int_equal(child_run(fault, (void *)(uintptr_t)&cases[4]), 0);
	assert_int_equal(nvmlEventSetWait_v2(set, &event, 1000), 0);
	assert_ptr_equal(event.device, device);
	assert_int_equal(event.type, NVML_EVENT_XID);
	assert_int_equal(event.data, 13);
	assert_int_equal(nvmlEventSetWait_v2(set, &event, 1000), 0);
	assert_int_equal(event.data, 43);
	assert_int_equal(nvmlEventSetFree(set), 0);
	assert_int_equal(nvmlShutdown(), 0);
}

static void silent_faults_are_possible(void **state)
{
	char *log;

	(void)state;
	soft_setting("xid_lines=0\nxid_events=0\n");
	assert_int_equal(child_run(fault, (void *)(uintptr_t)&cases[4]), 0);
	log = soft_text("kmsg");
	assert_string_equal(log, "");
	free(log);
}

/* The number of the first line that names PID, from 1 on, and the name in it. */
static int line_that_names(const char *log, pid_t pid, char ret_name[16])
{
	size_t length;

	for (int i = 1; *log; log += length + 1, i++) {
		struct kmsg_record record;
		struct xid_line line;
		size_t offset = 0;

		length = strcspn(log, "\n");
		assert_int_equal(kmsg_parse(log, length, &record), 0);
		if (xid_parse_record(&record, &offset, &line) && line.have & XID_HAVE_PID &&
		    line.pid == pid) {
			memcpy(ret_name, line.name, 16);
			return i;
		}
	}
	return 0;
}

static void the_pid_comes_early_on_request(void **state)
{
	char names[2][16] = {"", ""};
	char *log;
	pid_t pid;

	(void)state;
	for (int early = 0; early < 2; early++) {
		soft_dir_free();
		soft_dir_new(early ? "xid_early_pid=1\n" : NULL);
		pid = child_start(fault, (void *)(uintptr_t)&cases[2]);
		assert_int_equal(child_end(pid), 0);
		log = soft_text("kmsg");
		assert_int_equal(line_that_names(log, pid, names[early]), early ? 2 : 3);
		free(log);
	}
	assert_string_equal(names[1], "cuda-EvtHandlr");
	assert_string_not_equal(names[0], names[1]);
}

static int fork_after_init(void *argument)
{
	pid_t pid;

	(void)argument;
	child_context(0);
	pid = fork();
	if (pid == 0) {
		uint64_t memory;

		NEED(cuMemAlloc_v2(&memory, 4), CUDA_ERROR_NOT_INITIALIZED);
		NEED(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
		NEED(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
		_exit(0);
	}
	NEED(child_end(pid), 0);
	OK(cuCtxSynchronize());
	return 0;
}

static void forked_child_has_no_cuda(void **state)
{
	(void)state;
	assert_int_equal(child_run(fork_after_init, NULL), 0);
}

/* A kernel's word can be host memory, which ends an endless kernel from outside. */
static int host_memory(void *argument)
{
	uint32_t *word = argument;
	uint64_t address;
	void *spin[] = {&address};

	child_context(0);
	OK(cuMemHostRegister_v2(word, 4096, CUDA_HOST_REGISTER_DEVICEMAP));
	NEED(cuMemHostRegister_v2(word, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuMemHostGetDevicePointer_v2(&address, word, 0));
	OK(child_launch(child_kernel("spin"), spin));
	NEED(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	OK(cuCtxSynchronize());
	OK(cuMemHostUnregister(word));
	NEED(cuMemHostUnregister(word), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	return 0;
}

static void host_memory_is_reached(void **state)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(page, MAP_FAILED);
	assert_int_equal(child_run(host_memory, page), 0);
	assert_int_equal(munmap(page, 4096), 0);
}

/* A function that is asked for while a kernel runs is loaded behind it, in whichever stream it runs. */
static int ask_late(void *argument)
{
	uint32_t *word = argument;
	struct cuda_function *nop;
	struct cuda_stream *stream;
	struct cuda_stream *other;
	uint64_t address;
	void *spin[] = {&address};

	child_context(0);
	OK(cuMemHostRegister_v2(word, 4096, CUDA_HOST_REGISTER_DEVICEMAP));
	OK(cuMemHostGetDevicePointer_v2(&address, word, 0));
	OK(cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CUDA_STREAM_NON_BLOCKING));
	OK(cuLaunchKernel(child_kernel("spin"), 1, 1, 1, 1, 1, 1, 0, stream, spin, NULL));
	nop = child_kernel("nop");
	OK(cuLaunchKernel(nop, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL));
	for (int i = 0; i < 20; i++) {
		struct timespec wait = {.tv_nsec = 1000000};

		(void)nanosleep(&wait, NULL);
		NEED(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	}
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize(other));
	OK(cuStreamQuery(stream));
	return 0;
}

static void late_functions_wait(void **state)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(page, MAP_FAILED);
	assert_int_equal(child_run(ask_late, page), 0);
	assert_int_equal(munmap(page, 4096), 0);
}

/* cuMemUnmap does not wait for the kernel that writes there; the memory goes when that has ended. */
static int unmap_under_a_kernel(void *argument)
{
	struct cuda_allocation allocation = {.type = CUDA_MEMORY_PINNED,
					     .location = {.type = CUDA_LOCATION_DEVICE}};
	struct cuda_access_range access = {.location = {.type = CUDA_LOCATION_DEVICE},
					   .flags = CUDA_ACCESS_READWRITE};
	uint64_t words = 2 * MIB / 4;
	uint64_t handle;
	uint64_t address;
	void *hammer[] = {&address, &words};

	(void)argument;
	child_context(0);
	OK(cuMemCreate(&handle, 2 * MIB, &allocation, 0));
	OK(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
	OK(cuMemMap(address, 2 * MIB, 0, handle, 0));
	OK(cuMemRelease(handle));
	OK(cuMemSetAccess(address, 2 * MIB, &access, 1));
	OK(child_launch(child_kernel("hammer"), hammer));
	OK(cuMemUnmap(address, 2 * MIB));
	NEED(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	NEED((long)(soft_used_bytes(0) / MIB), 3 + 527);
	return 0;
}

static void unmapped_memory_faults(void **state)
{
	(void)state;
	assert_int_equal(child_run(unmap_under_a_kernel, NULL), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(faults_poison_and_are_logged),
		TEST(bad_kernels_are_harmless_with_zero),
		TEST(second_context_is_dead_too),
		TEST(fault_stops_the_other_streams),
		TEST(callbacks_hear_of_failures),
		TEST(nvml_announces_faults),
		TEST(silent_faults_are_possible),
		TEST(forked_child_has_no_cuda),
		TEST(the_pid_comes_early_on_request),
		TEST(host_memory_is_reached),
		TEST(late_functions_wait),
		TEST(unmapped_memory_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
