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

/* Of the state, for the first good kernel. */
#define FIRST_BYTES (UINT64_C(1) << 20)

const struct drill_kind drill_kinds[DRILL_KINDS] = {
	{"null", "fault_null", 700, "write to address 0", true},
	{"oob", "fault_oob", 700, "write far out of bounds", true},
	{"misaligned", "fault_misaligned", 716, "misaligned store", true},
	{"assert", "fault_assert", 710, "failed device assert", false},
	{"trap", "fault_trap", 719, "trap instruction", false},
	{"shared", "fault_shared", 715, "shared memory out of range", true},
	{"stack", "fault_stack", 700, "stack overflow", false},
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

/* A first good kernel looks at a little of the state; the rest follows. */
static int look_at_state(struct drill_gpu *on, uint64_t address, uint64_t bytes,
			 struct drill_good *good)
{
	uint64_t first = bytes < FIRST_BYTES ? bytes : FIRST_BYTES;
	int result = drill_gpu_check(on, address, first, &good->bad_words);

	good->good_ns = now_ns();
	if (result == 0)
		result = drill_gpu_check(on, address, bytes, &good->bad_words);
	good->checked_ns = now_ns();
	return result;
}

/* What the host sees of a failure of the library's: the CUresult where it is one. */
static int failed(struct gw_call *call, const struct gw_error *error)
{
	(void)snprintf(call->message, sizeof(call->message), "%.*s", (int)sizeof(call->message) - 1,
		       error->msg);
	return error->domain == GW_DOMAIN_CUDA ? (int)error->native : error->code;
}

static int run_good(struct gw_call *call)
{
	struct gw_state_info info = {.size = sizeof(info)};
	const struct drill_state_order *order = call->input;
	struct drill_good *good = call->output;
	struct gw_error error;
	int result;

	if (call->input_bytes != sizeof(*order) || call->output_capacity_bytes < sizeof(*good))
		return -EINVAL;
	*good = (struct drill_good){.good_ns = GW_UNKNOWN, .checked_ns = GW_UNKNOWN};
	call->output_bytes = sizeof(*good);
	if (order->bytes > 0) {
		if (gw_state_map(DRILL_STATE, GW_STATE_READ, &info, &error) < 0)
			return failed(call, &error);
		return look_at_state(&gpu, info.address, info.bytes, good);
	}
	result = drill_gpu_good(&gpu);
	good->good_ns = now_ns();
	return result;
}

static int run_make(struct gw_call *call)
{
	const struct drill_state_order *order = call->input;
	struct gw_error error;
	uint64_t address;
	int result;

	if (call->input_bytes != sizeof(*order))
		return -EINVAL;
	if (gw_state_create(DRILL_STATE, order->bytes, GW_STATE_SEALED, &address, &error) < 0)
		return failed(call, &error);
	result = drill_gpu_fill(&gpu, address, order->bytes);
	if (result != 0)
		return result;
	return gw_state_seal(DRILL_STATE, &error) < 0 ? failed(call, &error) : 0;
}

const struct gw_function drill_functions[] = {
	{.name = "fault", .run = run_fault, .flags = GW_FUNCTION_SYNCED},
	{.name = "good", .run = run_good, .prepare = prepare, .flags = GW_FUNCTION_SYNCED},
	{.name = "make", .run = run_make, .flags = GW_FUNCTION_SYNCED},
	{.name = NULL},
};

/* What people try first: a reset in the process that faulted. */
static void try_reset(struct drill_bare *bare, struct drill_gpu *bare_gpu)
{
	struct cuda_context *context = NULL;

	bare->reset_result = (int)bare_gpu->door.cuDevicePrimaryCtxReset_v2(0);
	bare->reset_next = (int)bare_gpu->door.cuDevicePrimaryCtxRetain(&context, 0);
}

/* The host's copy of the state: made by the first process, while nothing is timed. */
static void make_copy(uint32_t *words, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = (uint32_t)i * 2654435761U ^ DRILL_SEED;
}

/* Without gpuward what was on the device is gone, and is copied there again. */
static int copy_state(struct drill_gpu *bare_gpu, const void *copy, uint64_t bytes,
		      uint64_t *ret_address)
{
	int result = (int)bare_gpu->door.cuMemAlloc_v2(ret_address, bytes);

	return result ? result : (int)bare_gpu->door.cuMemcpyHtoD_v2(*ret_address, copy, bytes);
}

static int bare_good(struct drill_gpu *bare_gpu, const struct drill_bare_order *order,
		     struct drill_bare *bare, bool first)
{
	uint32_t *copy = (uint32_t *)(void *)((char *)bare + DRILL_BARE_STATE);
	struct drill_good *good = &bare->good;
	uint64_t address;
	int result;

	*good = (struct drill_good){.good_ns = GW_UNKNOWN, .checked_ns = GW_UNKNOWN};
	if (order->state_bytes == 0) {
		result = drill_gpu_good(bare_gpu);
		good->good_ns = now_ns();
		return result;
	}
	if (first)
		make_copy(copy, order->state_bytes);
	result = copy_state(bare_gpu, copy, order->state_bytes, &address);
	return result ? result : look_at_state(bare_gpu, address, order->state_bytes, good);
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
	result = bare_good(&bare_gpu, order, bare, run->attempt == 0);
	if (run->attempt > 0 || result != 0)
		return result;
	bare->fault_result = drill_gpu_fault(&bare_gpu, order->kind, &bare->stamps);
	if (order->reset)
		try_reset(bare, &bare_gpu);
	return bare->fault_result;
}
