/* SPDX-License-Identifier: MIT */
#include "chaos_worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gpuward.h>

#include "gpu/cuda.h"
#include "gpu/kernels_ptx.h"

/* Of a ledger: the head, and then words that the kernel `fill` writes. */
#define LEDGER_WORDS UINT64_C(20000)
#define LEDGER_BYTES (sizeof(struct head) + LEDGER_WORDS * 4)

struct head {
	uint64_t number; /* of the last step */
	uint64_t value;
};

static struct cuda_door door;
static struct cuda_module *module;

static int prepare(int device)
{
	struct gw_error error;

	(void)device;
	if (cuda_open(&door, &error) < 0)
		return 999;
	return door.cuModuleLoadData(&module, gpu_kernels_ptx);
}

static int launch(const char *name, void **arguments)
{
	struct cuda_function *function;
	int result = door.cuModuleGetFunction(&function, module, name);

	if (result != 0)
		return result;
	return door.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

static int fill(uint64_t address, uint64_t words, uint32_t seed)
{
	void *arguments[] = {&address, &words, &seed};

	return launch("fill", arguments);
}

static int count_wrong(uint64_t address, uint64_t words, uint32_t seed, uint64_t *ret_wrong)
{
	uint64_t counter;
	void *arguments[] = {&address, &words, &seed, &counter};
	int result = door.cuMemAlloc_v2(&counter, 8);

	if (result == 0)
		result = door.cuMemsetD8_v2(counter, 0, 8);
	if (result == 0)
		result = launch("check", arguments);
	if (result == 0)
		result = door.cuMemcpyDtoH_v2(ret_wrong, counter, 8);
	if (result == 0)
		result = door.cuMemFree_v2(counter);
	return result;
}

/* ---- faults ---- */

static int run_bad_kernel(enum chaos_fault fault)
{
	static const char *const names[CHAOS_KERNELS] = {"fault_null",	     "fault_oob",
							 "fault_misaligned", "fault_assert",
							 "fault_trap",	     "fault_shared"};
	const char *name = fault == CHAOS_HANG_KERNEL ? "spin" : names[fault];
	uint64_t memory = 0;
	uint32_t one = 1;
	void *number[] = {&one};
	void *address[] = {&memory};
	int result = door.cuMemAlloc_v2(&memory, 4096);

	if (result == 0)
		result = door.cuMemsetD8_v2(memory, 0, 4096);
	if (result == 0)
		result = launch(name,
				fault == CHAOS_ASSERT || fault == CHAOS_SHARED ? number : address);
	return result == 0 ? door.cuCtxSynchronize() : result;
}

static int do_fault(enum chaos_fault fault)
{
	static const int signals[CHAOS_FAULTS] = {
		[CHAOS_ABORT] = SIGABRT, [CHAOS_KILL] = SIGKILL, [CHAOS_STOP] = SIGSTOP};

	if (fault == CHAOS_EXIT)
		_exit(7);
	if (signals[fault] != 0)
		return kill(getpid(), signals[fault]);
	if (fault == CHAOS_HANG) {
		for (;;)
			(void)pause();
	}
	return run_bad_kernel(fault);
}

/* Returns 0 where nothing happens here, or what the function has to return. */
static int pass(const struct gw_call *call, enum chaos_step step)
{
	const struct chaos_job *job = call->input;
	enum chaos_fault fault = (job->fault + call->attempt) % CHAOS_FAULTS;

	if (call->attempt >= job->bad_attempts || (job->step + call->attempt) % CHAOS_STEPS != step)
		return 0;
	return do_fault(fault);
}

/* ---- functions ---- */

static int run_mix(struct gw_call *call)
{
	const struct chaos_job *job = call->input;
	struct chaos_answer *answer = call->output;
	uint64_t words = 1 + job->key % 500;
	uint64_t memory;
	int result = pass(call, CHAOS_BEFORE);

	if (result == 0)
		result = door.cuMemAlloc_v2(&memory, words * 4);
	if (result == 0)
		result = fill(memory, words, (uint32_t)job->key);
	for (int step = CHAOS_AFTER_WRITE; step < CHAOS_STEPS && result == 0; step++)
		result = pass(call, (enum chaos_step)step);
	if (result == 0)
		result = count_wrong(memory, words, (uint32_t)job->key, &answer->wrong_words);
	if (result == 0)
		result = door.cuMemFree_v2(memory);
	answer->value = chaos_next(0, job->key);
	call->output_bytes = sizeof(*answer);
	return result;
}

/* What a function returns where gw_state_*() fails. A process that was replaced has nobody to return to. */
static int state_failed(struct gw_call *call, const char *what, const struct gw_error *error)
{
	if (error->domain == GW_DOMAIN_CUDA)
		return (int)error->native;
	(void)snprintf(call->message, sizeof(call->message), "%s: %d %.100s", what, error->code,
		       error->msg);
	return 1;
}

static int map_ledger(struct gw_call *call, const char *name, uint64_t *ret_address)
{
	struct gw_state_info info = {.size = sizeof(info)};
	struct gw_error error = {0};
	int result = gw_state_map(name, GW_STATE_WRITE, &info, &error);

	*ret_address = info.address;
	if (result == -ENOENT)
		result = gw_state_create(name, LEDGER_BYTES, GW_STATE_MUTABLE, ret_address, &error);
	return result < 0 ? state_failed(call, "map", &error) : 0;
}

static int wrong_step(struct gw_call *call, const struct head *head, uint64_t wrong)
{
	(void)snprintf(call->message, sizeof(call->message),
		       "the ledger is at step %llu, with %llu wrong words",
		       (unsigned long long)head->number, (unsigned long long)wrong);
	return 1;
}

/* Reads the head, and looks whether all else is of the same step. */
static int read_ledger(struct gw_call *call, uint64_t address, struct head *ret_head)
{
	const struct chaos_job *job = call->input;
	uint64_t wrong = 0;
	int result = door.cuMemcpyDtoH_v2(ret_head, address, sizeof(*ret_head));

	if (result == 0 && ret_head->number > 0)
		result = count_wrong(address + sizeof(*ret_head), LEDGER_WORDS,
				     (uint32_t)ret_head->number, &wrong);
	if (result != 0)
		return result;
	if (wrong > 0 || ret_head->number > job->number || ret_head->number + 1 < job->number)
		return wrong_step(call, ret_head, wrong);
	return 0;
}

static int write_ledger(struct gw_call *call, uint64_t address, struct head *head)
{
	const struct chaos_job *job = call->input;
	struct gw_error error = {0};
	int result;

	head->number = job->number;
	head->value = chaos_next(head->value, job->key);
	result = fill(address + sizeof(*head), LEDGER_WORDS, (uint32_t)head->number);
	if (result == 0)
		result = door.cuMemcpyHtoD_v2(address, head, sizeof(*head));
	if (result == 0)
		result = pass(call, CHAOS_AFTER_WRITE);
	if (result != 0)
		return result;
	/* All that this worker has mapped, which is this piece. */
	return gw_state_commit(NULL, &error) < 0 ? state_failed(call, "commit", &error) : 0;
}

static int run_ledger(struct gw_call *call)
{
	const struct chaos_job *job = call->input;
	struct chaos_answer *answer = call->output;
	struct gw_error error = {0};
	struct head head = {0};
	char name[GW_NAME_MAX];
	uint64_t address = 0;
	int result = pass(call, CHAOS_BEFORE);

	(void)snprintf(name, sizeof(name), "ledger-%u", job->ledger);
	if (result == 0)
		result = map_ledger(call, name, &address);
	if (result == 0)
		result = read_ledger(call, address, &head);
	if (result == 0 && head.number < job->number)
		result = write_ledger(call, address, &head);
	if (result == 0)
		result = pass(call, CHAOS_AFTER_COMMIT);
	if (result == 0 && gw_state_unmap(name, &error) < 0)
		result = state_failed(call, "unmap", &error);
	if (result == 0)
		result = pass(call, CHAOS_AFTER_UNMAP);
	*answer = (struct chaos_answer){.value = head.value};
	call->output_bytes = sizeof(*answer);
	return result;
}

int chaos_worker_run(void)
{
	static const struct gw_function functions[] = {
		{.name = "mix", .run = run_mix, .prepare = prepare},
		{.name = "ledger", .run = run_ledger},
		{.name = NULL},
	};

	return gw_worker_run(functions);
}
