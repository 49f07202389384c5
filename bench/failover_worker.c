/* SPDX-License-Identifier: MIT */
/*
 * The functions of the fail-over benchmark's workers.
 *
 *	machine	the name of the GPU
 *	fault	faults in its first attempt as its input says; in the next one it does something good
 *	make	makes sealed state
 *	check	compares every word of it
 *	count	changes mutable state, exactly once
 *	empty	nothing
 *
 * Runs in: worker. A fault takes the output of its attempt away, so the times go into the page.
 */
#include <stdio.h>
#include <string.h>

#include "common/futex.h"
#include "failover_gpu.h"
#include "failover_soak.h"
#include "failover_state.h"

static int run_machine(struct gw_call *call)
{
	char name[128] = "";
	int version = 0;
	int result = gpu_door.cuDeviceGetName(name, sizeof(name), 0);

	if (result == CUDA_SUCCESS)
		result = gpu_door.cuDriverGetVersion(&version);
	(void)snprintf(call->output, call->output_capacity_bytes, "%s, CUDA %d.%d", name,
		       version / 1000, version % 1000 / 10);
	call->output_bytes = call->output_capacity_bytes;
	return result;
}

static void wait_at_the_gate(void)
{
	atomic_store(&page->waiting, 1);
	futex_wake_all(&page->waiting);
	while (!atomic_load(&page->open))
		(void)futex_wait(&page->open, 0, bench_now_ns() + WAIT_NS);
}

static int run_fault(struct gw_call *call)
{
	const struct fault_job *job = call->input;
	uint64_t attach_ns = 0;
	uint64_t done_ns;
	int result;

	if (call->input_bytes != sizeof(*job) || job->kind > KIND_NONE)
		return CUDA_ERROR_INVALID_VALUE;
	if (job->gated && call->attempt == 0)
		wait_at_the_gate();
	if (call->attempt == 0 && job->kind != KIND_NONE)
		return gpu_fault((enum kind)job->kind, &page->launched_ns);
	result = job->pieces > 0 ? state_attach(job->pieces, &attach_ns, &done_ns)
				 : gpu_good(&done_ns);
	if (result != CUDA_SUCCESS)
		return result;
	atomic_store(&page->attach_ns, attach_ns);
	atomic_store(&page->good_ns, done_ns);
	return 0;
}

static int run_empty(struct gw_call *call)
{
	(void)call;
	return 0;
}

const struct gw_function failover_functions[] = {
	{.name = "machine", .run = run_machine, .prepare = gpu_prepare},
	{.name = "fault", .run = run_fault, .flags = GW_FUNCTION_SYNCED},
	{.name = "make", .run = run_make},
	{.name = "check", .run = run_check},
	{.name = "count", .run = run_count},
	{.name = "empty", .run = run_empty},
	{.name = NULL},
};
