/* SPDX-License-Identifier: MIT */
#include "cli/drill_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/drill_gpu_worker.h"
#include "common/fd.h"

const struct drill_kind drill_kinds[DRILL_KINDS] = {
	{"null", "fault_null", 700, "write to address 0"},
	{"oob", "fault_oob", 700, "write far out of bounds"},
	{"misaligned", "fault_misaligned", 716, "misaligned store"},
	{"assert", "fault_assert", 710, "failed device assert"},
	{"trap", "fault_trap", 719, "trap instruction"},
	{"shared", "fault_shared", 715, "shared memory out of range"},
	{"stack", "fault_stack", 700, "stack overflow"},
};

/* One per process: its module is loaded before the worker says that it is ready. */
static struct drill_gpu gpu;

static int prepare(int device)
{
	struct gw_error error;

	(void)device;
	return drill_gpu_open(&gpu, &error) < 0 ? (int)error.native : drill_gpu_good(&gpu);
}

static struct drill_stamps *map_stamps(const char *path)
{
	cleanup_fd int fd = open(path, O_RDWR | O_CLOEXEC);
	void *stamps = MAP_FAILED;

	if (fd >= 0)
		stamps = mmap(NULL, sizeof(struct drill_stamps), PROT_READ | PROT_WRITE, MAP_SHARED,
			      fd, 0);
	return stamps == MAP_FAILED ? NULL : stamps;
}

static int run_fault(struct gw_call *call)
{
	const struct drill_order *order = call->input;
	struct drill_stamps *stamps;
	int result;

	if (call->input_bytes != sizeof(*order) || order->kind < 0 || order->kind >= DRILL_KINDS)
		return -EINVAL;
	stamps = map_stamps(order->stamps_path);
	if (!stamps)
		return -errno;
	result = drill_gpu_fault(&gpu, order->kind, stamps);
	(void)munmap(stamps, sizeof(*stamps));
	return result;
}

static int run_good(struct gw_call *call)
{
	(void)call;
	return drill_gpu_good(&gpu);
}

const struct gw_function drill_functions[] = {
	{.name = "fault", .run = run_fault, .flags = GW_FUNCTION_SYNCED},
	{.name = "good", .run = run_good, .prepare = prepare, .flags = GW_FUNCTION_SYNCED},
	{.name = NULL},
};

/* What people try first: a reset in the process that faulted. */
static void try_reset(struct drill_bare *bare, struct drill_gpu *bare_gpu)
{
	struct cuda_context *context = NULL;

	bare->reset_result = (int)bare_gpu->door.cuDevicePrimaryCtxReset_v2(0);
	bare->reset_next = (int)bare_gpu->door.cuDevicePrimaryCtxRetain(&context, 0);
}

int drill_bare_run(const struct gw_isolated *run)
{
	const struct drill_bare_order *order = run->argument;
	struct drill_bare *bare = run->shared;
	struct drill_gpu bare_gpu = {0};
	struct gw_error error;
	int result;

	drill_gpu_choose(order->device);
	if (drill_gpu_start(&bare_gpu, &error) < 0)
		return error.domain == GW_DOMAIN_CUDA ? (int)error.native : error.code;
	result = drill_gpu_good(&bare_gpu);
	if (run->attempt > 0) {
		bare->good_ns = now_ns();
		return result;
	}
	if (result != 0)
		return result;
	bare->fault_result = drill_gpu_fault(&bare_gpu, order->kind, &bare->stamps);
	if (order->reset)
		try_reset(bare, &bare_gpu);
	return bare->fault_result;
}
