/* SPDX-License-Identifier: MIT */
#include "failover_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <gpuward.h>

#include "../gate.h"
#include "common/channel.h"
#include "common/wire.h"
#include "gpu/cuda.h"
#include "gpu/kernels_ptx.h"
#include "worker/worker.h"

static struct cuda_door door;
static struct cuda_module *module;
static bool is_standby;
static int32_t own_device;

/* ---- the situation ---- */

static const char *const point_names[POINTS] = {"exec", "context", "no_room", "prepare", "serve"};

static int open_in_machine(const char *name, int flags)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/%s", getenv("GPUWARD_SOFT_DIR"), name);
	return open(path, flags | O_CLOEXEC, 0600);
}

/* Fills in what the situation says for this process at this point: "WHO POINT ACTION [GATE]". */
static bool read_situation(enum failover_point point, char action[16], char gate[200])
{
	char text[300] = "", who[16], where[16];
	int fd = open_in_machine(SITUATION_FILE, O_RDONLY);

	if (fd < 0)
		return false;
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	gate[0] = '\0';
	if (sscanf(text, "%15s %15s %15s %199s", who, where, action, gate) < 3)
		return false;
	if (strcmp(who, "any") != 0 && strcmp(who, is_standby ? "standby" : "worker") != 0)
		return false;
	return strcmp(where, point_names[point]) == 0;
}

/* Does what the situation asks for. Returns whether the process is to fault. */
static bool come_to(enum failover_point point)
{
	char action[16], gate[200];

	if (!read_situation(point, action, gate))
		return false;
	if (strcmp(action, "gate") == 0)
		gate_wait(gate);
	else if (strcmp(action, "exit") == 0)
		_exit(9);
	else if (strcmp(action, "kill") == 0)
		(void)kill(getpid(), SIGKILL);
	else if (strcmp(action, "stop") == 0)
		(void)kill(getpid(), SIGSTOP);
	return strcmp(action, "fault") == 0;
}

/* A line for each context: who makes it, or that it was made beside another one of the device. */
static void note_context(bool alone)
{
	int fd = open_in_machine(CONTEXTS_FILE, O_WRONLY | O_CREAT | O_APPEND);

	(void)!write(fd, alone ? (is_standby ? "standby\n" : "worker\n") : "beside\n",
		     alone ? (is_standby ? 8U : 7U) : 7U);
	(void)close(fd);
}

int __real_cuda_start_device(const struct cuda_door *cuda, int ordinal,
			     struct cuda_context **ret_context, struct gw_error *ret_error);
int __wrap_cuda_start_device(const struct cuda_door *cuda, int ordinal,
			     struct cuda_context **ret_context, struct gw_error *ret_error);

int __wrap_cuda_start_device(const struct cuda_door *cuda, int ordinal,
			     struct cuda_context **ret_context, struct gw_error *ret_error)
{
	char name[32];
	int lock, result;

	(void)snprintf(name, sizeof(name), "context-%d", own_device);
	lock = open_in_machine(name, O_RDWR | O_CREAT);
	note_context(flock(lock, LOCK_EX | LOCK_NB) == 0);
	(void)come_to(POINT_CONTEXT);
	result = __real_cuda_start_device(cuda, ordinal, ret_context, ret_error);
	(void)close(lock);
	if (result == -ENOMEM)
		(void)come_to(POINT_NO_ROOM);
	return result;
}

void __real_channel_wait_entry(struct channel *channel, uint32_t number, const atomic_bool *stop,
			       struct spin *spin);
void __wrap_channel_wait_entry(struct channel *channel, uint32_t number, const atomic_bool *stop,
			       struct spin *spin);

void __wrap_channel_wait_entry(struct channel *channel, uint32_t number, const atomic_bool *stop,
			       struct spin *spin)
{
	(void)come_to(POINT_SERVE);
	__real_channel_wait_entry(channel, number, stop, spin);
}

/* What the context's stack limit is while a standby waits. */
static void note_stack(void)
{
	size_t bytes = 0;
	int fd = open_in_machine(STACK_FILE, O_WRONLY | O_CREAT | O_TRUNC);

	if (door.cuCtxGetLimit)
		(void)door.cuCtxGetLimit(&bytes, CUDA_LIMIT_STACK_SIZE);
	(void)dprintf(fd, "%zu\n", bytes);
	(void)close(fd);
}

enum order __real_orders_wait(struct worker *worker, enum order wanted);
enum order __wrap_orders_wait(struct worker *worker, enum order wanted);

enum order __wrap_orders_wait(struct worker *worker, enum order wanted)
{
	if (wanted == ORDER_PROMOTE)
		note_stack();
	return __real_orders_wait(worker, wanted);
}

/* ---- kernels ---- */

static int launch(const char *name, void **arguments)
{
	struct cuda_function *function;
	int result = door.cuModuleGetFunction(&function, module, name);

	if (result != 0)
		return result;
	return door.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

/* The bad kernels take a number that is not 0, an address, or both; what is too much is not looked at. */
static int launch_bad(const char *name)
{
	uint64_t memory = 0;
	uint32_t one = 1;
	void *number_first[] = {&one, &memory};
	void *address[] = {&memory};
	int result = door.cuMemAlloc_v2(&memory, 4096);

	if (result == 0)
		result = door.cuMemsetD8_v2(memory, 0, 4096);
	if (result != 0)
		return result;
	if (strcmp(name, "fault_oob") == 0 || strcmp(name, "fault_misaligned") == 0 ||
	    strcmp(name, "spin") == 0)
		return launch(name, address);
	return launch(name, number_first);
}

/* Fills some words, and counts those that are wrong. */
static int compute(uint32_t seed, uint64_t *ret_wrong)
{
	uint64_t words = 1 + seed % 1000;
	uint64_t memory, counter;
	void *fill[] = {&memory, &words, &seed};
	void *check[] = {&memory, &words, &seed, &counter};
	int result = door.cuMemAlloc_v2(&memory, words * 4 + 16);

	if (result != 0)
		return result;
	counter = memory + ((words * 4 + 7) & ~UINT64_C(7));
	result = door.cuMemsetD8_v2(counter, 0, 8);
	if (result == 0)
		result = launch("fill", fill);
	if (result == 0)
		result = launch("check", check);
	if (result == 0)
		result = door.cuMemcpyDtoH_v2(ret_wrong, counter, 8);
	if (result == 0)
		result = door.cuMemFree_v2(memory);
	return result;
}

/* ---- functions ---- */

static int prepare(int device)
{
	struct gw_error error;
	int result;

	if (device < 0)
		return 0;
	if (cuda_open(&door, &error) < 0)
		return 999;
	result = door.cuModuleLoadData(&module, gpu_kernels_ptx);
	if (result == 0 && come_to(POINT_PREPARE)) {
		result = launch_bad("fault_trap");
		if (result == 0)
			result = door.cuCtxSynchronize();
	}
	return result;
}

static int misbehave(const struct failover_job *job)
{
	int result = job->kernel[0] ? launch_bad(job->kernel) : 0;

	if (result == 0 && job->wait)
		result = door.cuCtxSynchronize();
	switch ((enum failover_then)job->then) {
	case THEN_RETURN:
		return result;
	case THEN_HANG:
		for (;;)
			(void)pause();
	case THEN_EXIT:
		_exit(7);
	case THEN_ABORT:
		(void)signal(SIGABRT, SIG_DFL);
		abort();
	case THEN_STOP:
		(void)kill(getpid(), SIGSTOP);
		return 0;
	}
	return 1;
}

static int run_work(struct gw_call *call)
{
	const struct failover_job *job = call->input;
	const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	struct failover_answer *answer = call->output;
	size_t stack_bytes = 0;
	int result;

	if (job->gate[0])
		gate_wait(job->gate);
	if (call->attempt < job->bad_attempts)
		return misbehave(job);
	if (!answer || call->output_capacity_bytes < sizeof(*answer))
		return 1;
	result = door.cuCtxGetLimit(&stack_bytes, CUDA_LIMIT_STACK_SIZE);
	*answer = (struct failover_answer){.number = failover_number(job->seed),
					   .stack_bytes = stack_bytes,
					   .pid = getpid(),
					   .device = call->device,
					   .was_standby = is_standby};
	(void)snprintf(answer->connections, sizeof(answer->connections), "%s",
		       connections ? connections : "");
	if (result == 0)
		result = compute(job->seed, &answer->wrong_words);
	call->output_bytes = sizeof(*answer);
	return result;
}

static int run_hold(struct gw_call *call)
{
	const struct failover_job *job = call->input;
	uint64_t memory;

	return door.cuMemAlloc_v2(&memory, job->hold_bytes);
}

int failover_worker_run(void)
{
	static const struct gw_function functions[] = {
		{.name = "work", .run = run_work, .prepare = prepare},
		{.name = "hold", .run = run_hold},
		{.name = NULL},
	};
	const char *text = getenv(WIRE_WORKER_ENV);
	int standby = 0;

	if (text && sscanf(text, "%*u:%*u:%*u:%d:%*u:%*u:%d", &own_device, &standby) == 2)
		is_standby = standby != 0;
	(void)come_to(POINT_EXEC);
	return gw_worker_run(functions);
}
