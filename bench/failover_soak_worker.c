/* SPDX-License-Identifier: MIT */
/*
 * A function whose effect on mutable state happens exactly once, though the function runs again after a fault.
 *
 *	map		gives the last commit, and the number of the task that made it
 *	is it mine?	then an earlier attempt came that far: only the result was lost
 *	change, commit	together they count or do not
 *
 * This is sound because one worker has the piece, and a task that was interrupted runs again before any other of
 * that worker. Runs in: worker. Read next: failover_soak.c.
 */
#include "failover_soak.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "failover_gpu.h"

#define NAME "counters"

static int failed(int code, const struct gw_error *error)
{
	return error->domain == GW_DOMAIN_CUDA ? (int)error->native : code;
}

static int map_counters(struct gw_state_info *info)
{
	struct gw_error error = {0};
	uint64_t address;
	int result;

	*info = (struct gw_state_info){.size = sizeof(*info)};
	result = gw_state_map(NAME, GW_STATE_WRITE, info, &error);
	if (result == -ENOENT) {
		result = gw_state_create(NAME, STATE_WORDS * 4, GW_STATE_MUTABLE, &address, &error);
		if (result == 0)
			result = gw_state_map(NAME, GW_STATE_WRITE, info, &error);
	}
	return result < 0 ? failed(result, &error) : 0;
}

static int update(uint64_t address, uint64_t number)
{
	uint64_t counter = address + number % COUNTERS * 4;
	uint64_t last = address + COUNTERS * UINT64_C(4);
	uint64_t one = 1;
	uint32_t seed = (uint32_t)number;
	void *add[] = {&counter, &one};
	void *fill[] = {&last, &one, &seed};
	int result = gpu_launch(KERNEL_ADD1, 0, add);

	return result ? result : gpu_launch(KERNEL_FILL, 0, fill);
}

static int commit(void)
{
	struct gw_error error = {0};
	int result = gw_state_commit(NAME, &error);

	return result < 0 ? failed(result, &error) : 0;
}

static bool is_time(const struct count_job *job, const struct gw_call *call, enum when when)
{
	return call->attempt == 0 && job->kind < KINDS && job->when == when;
}

static int look(uint64_t address, uint32_t *words)
{
	return gpu_door.cuMemcpyDtoH_v2(words, address, STATE_WORDS * 4);
}

/* Between two looks at the state. Returns a result that is not 0 for a fault, too. */
static int change(const struct count_job *job, const struct gw_call *call, uint64_t address,
		  bool already)
{
	int result = 0;

	if (is_time(job, call, WHEN_BEFORE))
		return gpu_fault(job->kind, &page->launched_ns);
	if (!already)
		result = update(address, job->number);
	if (result == 0 && is_time(job, call, WHEN_UNCOMMITTED))
		return gpu_fault(job->kind, &page->launched_ns);
	if (result == 0 && !already)
		result = commit();
	if (result == 0 && is_time(job, call, WHEN_COMMITTED))
		return gpu_fault(job->kind, &page->launched_ns);
	return result;
}

int run_count(struct gw_call *call)
{
	const struct count_job *job = call->input;
	struct count_answer *answer = call->output;
	struct gw_state_info info;
	int result;

	if (call->input_bytes != sizeof(*job) || call->output_capacity_bytes != sizeof(*answer))
		return CUDA_ERROR_INVALID_VALUE;
	*answer = (struct count_answer){.number = job->number, .attempt = call->attempt};
	result = map_counters(&info);
	if (result == 0)
		result = look(info.address, answer->found);
	answer->found_epoch = info.epoch;
	answer->already = info.task == call->task;
	if (result == 0)
		result = change(job, call, info.address, answer->already);
	answer->left_epoch = info.epoch + !answer->already;
	if (result == 0)
		result = look(info.address, answer->left);
	answer->launched_ns = atomic_load(&page->launched_ns);
	answer->good_ns = bench_now_ns();
	call->output_bytes = sizeof(*answer);
	if (result == 0 && is_time(job, call, WHEN_LATE))
		return gpu_fault_later(job->kind, &page->launched_ns);
	return result;
}
