/* SPDX-License-Identifier: MIT */
/* A child that was forked by a process with CUDA. Runs in: see suite.h. */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.h"

static void calls_of_child(struct cuda_function *nop, uint64_t address)
{
	struct cuda_allocation allocation = suite_exportable();
	struct cuda_context *context = NULL;
	const char *text;
	uint64_t other = 0;
	uint32_t word;
	int value = -1;
	size_t bytes;

	fact("child_device_count", CU(cuDeviceGetCount, &value));
	fact("child_attribute", CU(cuDeviceGetAttribute, &value, CUDA_ATTRIBUTE_WARP_SIZE, 0));
	fact("child_driver_version", CU(cuDriverGetVersion, &value));
	fact("child_error_name", CU(cuGetErrorName, 3, &text));
	fact("child_current", CU(cuCtxGetCurrent, &context));
	fact("child_memalloc", CU(cuMemAlloc_v2, &other, MIB));
	fact("child_memfree", CU(cuMemFree_v2, address));
	fact("child_copy", CU(cuMemcpyDtoH_v2, &word, address, 4));
	fact("child_info", CU(cuMemGetInfo_v2, &bytes, &bytes));
	fact("child_launch", CU(cuLaunchKernel, nop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	fact("child_sync", CU(cuCtxSynchronize));
	fact("child_mem_create", CU(cuMemCreate, &other, 2 * MIB, &allocation, 0));
	fact("child_retain", CU(cuDevicePrimaryCtxRetain, &context, 0));
	fact("child_reset", CU(cuDevicePrimaryCtxReset_v2, 0));
	fact("child_init", CU(cuInit, 0));
	fact("child_device_count_after_init", CU(cuDeviceGetCount, &value));
}

static void wait_for(pid_t pid, const char *name)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status))
		fact_text(name, "exit %d", WEXITSTATUS(status));
	else
		fact_text(name, "signal %d", WTERMSIG(status));
}

static void child_uses_cuda(const void *argument)
{
	struct session session;
	struct cuda_function *nop;
	uint64_t address = 0;
	pid_t pid;

	(void)argument;
	session_begin(&session);
	nop = session_function(&session, "nop");
	(void)CU(cuMemAlloc_v2, &address, MIB);
	pid = fork();
	if (pid == 0) {
		calls_of_child(nop, address);
		_exit(0);
	}
	wait_for(pid, "child_ended");
	fact("parent_memset", CU(cuMemsetD8_v2, address, 1, MIB));
	fact("parent_launch", session_launch(&session, "nop", NULL, NULL));
	fact("parent_sync", CU(cuCtxSynchronize));
}

/* Only cuInit was called before the fork. */
static void child_of_primed(const void *argument)
{
	struct cuda_context *context = NULL;
	int value = -1;
	pid_t pid;

	(void)argument;
	(void)CU(cuInit, 0);
	pid = fork();
	if (pid == 0) {
		fact("child_init", CU(cuInit, 0));
		fact("child_device_count", CU(cuDeviceGetCount, &value));
		fact("child_retain", CU(cuDevicePrimaryCtxRetain, &context, 0));
		_exit(0);
	}
	wait_for(pid, "child_ended");
	fact("parent_retain", CU(cuDevicePrimaryCtxRetain, &context, 0));
}

/* The library was loaded, and nothing was called, or only what needs no cuInit. */
static void child_of_loaded(const void *argument)
{
	struct session session;
	int value = -1;
	pid_t pid;

	(void)argument;
	(void)CU(cuDriverGetVersion, &value);
	pid = fork();
	if (pid == 0) {
		session_begin(&session);
		fact("child_launch", session_launch(&session, "nop", NULL, NULL));
		fact("child_sync", CU(cuCtxSynchronize));
		_exit(0);
	}
	wait_for(pid, "child_ended");
	fact("parent_init", CU(cuInit, 0));
}

/* exit() in a child that inherited CUDA: its handlers run. */
static void child_exits(const void *argument)
{
	struct session session;
	pid_t pid;

	(void)argument;
	session_begin(&session);
	pid = fork();
	if (pid == 0)
		exit(0);
	wait_for(pid, "child_ended");
	fact("parent_sync", CU(cuCtxSynchronize));
}

const struct suite_case cases_fork[] = {
	{"fork", child_uses_cuda, NULL},
	{"fork_primed", child_of_primed, NULL},
	{"fork_loaded", child_of_loaded, NULL},
	{"fork_exit", child_exits, NULL},
	{NULL, NULL, NULL},
};
