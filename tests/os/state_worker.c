/* SPDX-License-Identifier: MIT */
#include "state_worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../gate.h"
#include "common/fd.h"
#include "common/packet.h"
#include "common/state_wire.h"
#include "common/wire.h"
#include "gpu/cuda.h"
#include "gpu/kernels_ptx.h"
#include "worker/state_memory.h"

static struct cuda_door door;
static struct cuda_module *module;
static bool has_mps;

/* ---- steps ---- */

static const struct state_job *job;
static uint32_t steps;
static bool counts;   /* steps count from here on */
static uint32_t last; /* the last request */
static uint64_t task; /* the number of the one that runs */

static bool is_here(void)
{
	return job && counts && job->stop != STOP_NEVER && steps == job->stop_at;
}

static volatile int32_t in_handler[2];

static void handle(int number)
{
	(void)number;
	in_handler[0] = gw_state_commit(NULL, NULL);
	in_handler[1] = gw_state_list(NULL, 0, NULL);
}

/* The handler runs before raise() returns. */
static void interrupt(void)
{
	struct sigaction action = {.sa_handler = handle};

	(void)sigaction(SIGUSR1, &action, NULL);
	(void)raise(SIGUSR1);
}

/* Returns whether what is called here is to fail. */
static bool step(void)
{
	bool here = is_here();

	if (here && job->stop == STOP_HOLD)
		gate_wait(job->gate);
	else if (here && job->stop == STOP_SIGNAL)
		interrupt();
	else if (here && job->stop != STOP_FAIL)
		(void)kill(getpid(), SIGKILL);
	steps += counts;
	return here && job->stop == STOP_FAIL;
}

int __real_packet_send(int socket, const void *data, size_t bytes, const int *fds, size_t n_fds);
int __wrap_packet_send(int socket, const void *data, size_t bytes, const int *fds, size_t n_fds);
int __real_packet_receive(int socket, void *data, size_t bytes, int *fds, size_t max_fds,
			  struct packet *ret_packet);
int __wrap_packet_receive(int socket, void *data, size_t bytes, int *fds, size_t max_fds,
			  struct packet *ret_packet);
bool __real_state_memory_has_mps(const struct state_memory *memory);
bool __wrap_state_memory_has_mps(const struct state_memory *memory);
void *__real_reallocarray(void *old, size_t count, size_t bytes);
void *__wrap_reallocarray(void *old, size_t count, size_t bytes);
int __real_cuda_open(struct cuda_door *ret_door, struct gw_error *ret_error);
int __wrap_cuda_open(struct cuda_door *ret_door, struct gw_error *ret_error);

int __wrap_packet_send(int socket, const void *data, size_t bytes, const int *fds, size_t n_fds)
{
	if (socket == WIRE_WORKER_STATE) {
		last = ((const struct state_header *)data)->type;
		if (step())
			return -ENOBUFS;
	}
	return __real_packet_send(socket, data, bytes, fds, n_fds);
}

int __wrap_packet_receive(int socket, void *data, size_t bytes, int *fds, size_t max_fds,
			  struct packet *ret_packet)
{
	int result = __real_packet_receive(socket, data, bytes, fds, max_fds, ret_packet);

	/* After the answer came, and before it is acted on. */
	if (socket == WIRE_WORKER_STATE) {
		counts = counts || (job && last == job->after);
		(void)step();
	}
	return result;
}

void *__wrap_reallocarray(void *old, size_t count, size_t bytes)
{
	bool fails = job && job->stop == STOP_FAIL && step();

	return fails ? NULL : __real_reallocarray(old, count, bytes);
}

bool __wrap_state_memory_has_mps(const struct state_memory *memory)
{
	return has_mps || __real_state_memory_has_mps(memory);
}

/* The driver as the worker sees it: each call is a step. `door` is the driver itself. */
#define STEP(name, parameters, arguments)                                                          \
	static int step_##name parameters                                                          \
	{                                                                                          \
		return step() ? CUDA_ERROR_OUT_OF_MEMORY : door.name arguments;                    \
	}

STEP(cuMemCreate,
     (uint64_t * handle, size_t bytes, const struct cuda_allocation *allocation,
      unsigned long long flags),
     (handle, bytes, allocation, flags))
STEP(cuMemExportToShareableHandle,
     (void *shareable, uint64_t handle, int type, unsigned long long flags),
     (shareable, handle, type, flags))
STEP(cuMemImportFromShareableHandle, (uint64_t * handle, void *shareable, int type),
     (handle, shareable, type))
STEP(cuMemMap,
     (uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags),
     (address, bytes, offset, handle, flags))
STEP(cuMemUnmap, (uint64_t address, size_t bytes), (address, bytes))
STEP(cuMemSetAccess,
     (uint64_t address, size_t bytes, const struct cuda_access_range *access, size_t count),
     (address, bytes, access, count))
STEP(cuMemsetD8_v2, (uint64_t to, unsigned char value, size_t count), (to, value, count))
STEP(cuCtxSynchronize, (void), ())

/* One that fails would only keep memory until the process ends. */
static int step_cuMemRelease(uint64_t handle)
{
	(void)step();
	return door.cuMemRelease(handle);
}

static int step_cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes)
{
	if (is_here() && job->stop == STOP_HALF) {
		(void)door.cuMemcpyDtoD_v2(to, from, bytes / 2);
		(void)door.cuCtxSynchronize();
	}
	return step() ? CUDA_ERROR_OUT_OF_MEMORY : door.cuMemcpyDtoD_v2(to, from, bytes);
}

int __wrap_cuda_open(struct cuda_door *ret_door, struct gw_error *ret_error)
{
	int result = __real_cuda_open(ret_door, ret_error);

	if (result < 0)
		return result;
	door = *ret_door;
	ret_door->cuMemCreate = step_cuMemCreate;
	ret_door->cuMemRelease = step_cuMemRelease;
	ret_door->cuMemExportToShareableHandle = step_cuMemExportToShareableHandle;
	ret_door->cuMemImportFromShareableHandle = step_cuMemImportFromShareableHandle;
	ret_door->cuMemMap = step_cuMemMap;
	ret_door->cuMemUnmap = step_cuMemUnmap;
	ret_door->cuMemSetAccess = step_cuMemSetAccess;
	ret_door->cuMemsetD8_v2 = step_cuMemsetD8_v2;
	ret_door->cuMemcpyDtoD_v2 = step_cuMemcpyDtoD_v2;
	ret_door->cuCtxSynchronize = step_cuCtxSynchronize;
	return 0;
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

static int fill(const struct gw_state_info *info, uint32_t seed)
{
	uint64_t address = info->address;
	uint64_t words = info->bytes / 4;
	void *arguments[] = {&address, &words, &seed};

	return launch("fill", arguments);
}

static int count_wrong(const struct gw_state_info *info, uint32_t seed, uint64_t *ret_wrong)
{
	uint64_t address = info->address;
	uint64_t words = info->bytes / 4;
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

static int count_not_zero(const struct gw_state_info *info, uint64_t *ret_wrong)
{
	static uint8_t bytes[1 << 16];
	uint64_t wrong = 0;
	int result = 0;

	for (uint64_t at = 0; at < info->held_bytes && at < info->bytes && result == 0;
	     at += sizeof(bytes)) {
		uint64_t some = info->bytes - at < sizeof(bytes) ? info->bytes - at : sizeof(bytes);

		result = door.cuMemcpyDtoH_v2(bytes, info->address + at, some);
		for (uint64_t i = 0; i < some; i++)
			wrong += bytes[i] != 0;
	}
	*ret_wrong = wrong;
	return result;
}

static int fault(void)
{
	uint64_t address;
	void *arguments[] = {&address};
	int result = door.cuMemAlloc_v2(&address, 4096);

	return result ? result : launch("fault_misaligned", arguments);
}

/* ---- ops ---- */

static void *list_in_thread(void *argument)
{
	struct state_done *done = argument;

	done->result = gw_state_list(NULL, 0, &done->error);
	return NULL;
}

static void run_in_thread(struct state_done *done)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, list_in_thread, done) == 0)
		(void)pthread_join(thread, NULL);
}

/* A child with all descriptors of the worker, which does not outlive the test. */
static void fork_child(const char *gate)
{
	if (fork() == 0) {
		gate_wait(gate);
		_exit(0);
	}
}

static void make_many(const struct state_op *op, struct state_done *done)
{
	char name[GW_NAME_MAX];
	uint64_t address;

	for (uint32_t i = 0; i < op->seed && done->result == 0; i++) {
		(void)snprintf(name, sizeof(name), "%.40s.%u", op->name, i);
		done->result =
			gw_state_create(name, op->bytes, GW_STATE_SEALED, &address, &done->error);
		if (done->result == 0)
			done->result = gw_state_seal(name, &done->error);
	}
}

static void map_many(const struct state_op *op, struct state_done *done)
{
	char name[GW_NAME_MAX];

	for (uint32_t i = 0; i < op->seed && done->result == 0; i++) {
		(void)snprintf(name, sizeof(name), "%.40s.%u", op->name, i);
		done->result = gw_state_map(name, GW_STATE_READ, &done->info, &done->error);
	}
}

/* As docs/fail-over.md has it for effects that happen exactly once. Returns what the driver gave. */
static int count_once(const struct state_op *op, struct state_done *done)
{
	int cuda;

	done->result = gw_state_map(op->name, GW_STATE_WRITE, &done->info, &done->error);
	if (done->result < 0)
		return 0;
	cuda = door.cuMemcpyDtoH_v2(&done->value, done->info.address, sizeof(done->value));
	if (cuda != 0 || done->info.task == task)
		return cuda;
	done->value++;
	cuda = door.cuMemcpyHtoD_v2(done->info.address, &done->value, sizeof(done->value));
	if (cuda == 0)
		done->result = gw_state_commit(op->name, &done->error);
	return cuda;
}

/* What the piece is now: its address and epoch. */
static int look(const struct state_op *op, struct state_done *done)
{
	done->info.size = sizeof(done->info);
	return gw_state_map(op->name, GW_STATE_READ, &done->info, &done->error);
}

static int run_kernel(const struct state_op *op, struct state_done *done)
{
	done->result = look(op, done);
	if (done->result < 0)
		return 0;
	switch (op->kind) {
	case OP_FILL:
	case OP_WRITE:
		return fill(&done->info, op->seed);
	case OP_FILL_NEXT:
		return fill(&done->info, (uint32_t)done->info.epoch + 1);
	case OP_CHECK:
		return count_wrong(&done->info, op->seed, &done->value);
	default:
		if (done->info.epoch == 0)
			return count_not_zero(&done->info, &done->value);
		return count_wrong(&done->info, (uint32_t)done->info.epoch, &done->value);
	}
}

static const char *name_or_all(const struct state_op *op)
{
	return op->name[0] ? op->name : NULL;
}

/* Returns what the test's own calls of the driver gave. */
static int run_op(const struct state_op *op, struct state_done *done)
{
	struct gw_error *error = &done->error;

	done->info.size = sizeof(done->info);
	switch (op->kind) {
	case OP_CREATE:
		done->result = gw_state_create(op->name, op->bytes, op->what, &done->value, error);
		break;
	case OP_MAP:
		done->result = gw_state_map(op->name, op->what, &done->info, error);
		break;
	case OP_SEAL:
		done->result = gw_state_seal(op->name, error);
		break;
	case OP_COMMIT:
		done->result = gw_state_commit(name_or_all(op), error);
		break;
	case OP_ROLL_BACK:
		done->result = gw_state_roll_back(name_or_all(op), error);
		break;
	case OP_UNMAP:
		done->result = gw_state_unmap(op->name, error);
		break;
	case OP_DROP:
		done->result = gw_state_drop(op->name, error);
		break;
	case OP_LIST:
		done->result = gw_state_list(&done->info, 1, error);
		break;
	case OP_FAULT:
		return fault();
	case OP_THREAD:
		run_in_thread(done);
		break;
	case OP_FORK:
		fork_child(job->gate);
		break;
	case OP_GATE:
		gate_wait(job->gate);
		break;
	case OP_TAKE:
		return door.cuMemAddressReserve(&done->value, op->bytes, 0, STATE_BASE + op->seed,
						0);
	case OP_MPS:
		has_mps = true;
		break;
	case OP_MANY:
		make_many(op, done);
		break;
	case OP_MAP_MANY:
		map_many(op, done);
		break;
	case OP_COUNT:
		return count_once(op, done);
	default:
		return run_kernel(op, done);
	}
	return 0;
}

static int run(struct gw_call *call)
{
	struct state_report *report = call->output;
	int cuda = 0;

	if (call->input_bytes < sizeof(*job) || call->output_capacity_bytes < sizeof(*report))
		return 1;
	memset(report, 0, sizeof(*report));
	job = call->input;
	task = call->task;
	steps = 0;
	counts = job->after == 0;
	report->pid = getpid();
	for (uint32_t i = 0; i < STATE_OPS && job->ops[i].kind != OP_NONE && cuda == 0; i++) {
		struct state_done *done = &report->ops[i];

		done->ns = now_ns();
		cuda = run_op(&job->ops[i], done);
		done->ns = now_ns() - done->ns;
		report->done = i + 1;
		if (cuda == 0 && done->error.domain == GW_DOMAIN_CUDA && done->result < 0)
			cuda = (int)done->error.native;
		if (job->ops[i].expect == STATE_ANY)
			cuda = 0;
		else if (done->result != job->ops[i].expect &&
			 !(done->result > 0 && job->ops[i].expect == 0))
			break;
	}
	report->steps = steps;
	report->cuda = cuda;
	for (int i = 0; i < 2; i++) {
		report->in_handler[i] = in_handler[i];
		in_handler[i] = 0;
	}
	job = NULL;
	call->output_bytes = sizeof(*report);
	/* Those that poison end this process; the others are in the report. */
	return gw_cuda_class(cuda) == GW_FAULT_POISONED ? cuda : 0;
}

/* As a service does with its weights: maps them, or is the first and makes them. */
static int prepare_piece(const char *name)
{
	struct gw_state_info info = {.size = sizeof(info)};
	int result = door.cuModuleLoadData(&module, gpu_kernels_ptx);

	if (result == 0)
		result = gw_state_map(name, GW_STATE_READ, &info, NULL);
	if (result != -ENOENT)
		return result;
	result = gw_state_create(name, 2 << 20, GW_STATE_SEALED, &info.address, NULL);
	/* Another one was first: then it is there in a moment. */
	if (result == -EEXIST)
		return gw_state_map(name, GW_STATE_READ, &info, NULL);
	info.bytes = 2 << 20;
	if (result == 0)
		result = fill(&info, 3);
	return result ? result : gw_state_seal(name, NULL);
}

static int prepare(int device)
{
	const char *name = getenv(STATE_PREPARE_ENV);

	if (device < 0)
		return 0;
	if (name)
		return prepare_piece(name);
	return door.cuModuleLoadData(&module, gpu_kernels_ptx);
}

static int list_without_device(struct gw_call *call)
{
	struct gw_error error = {0};
	int result = gw_state_list(NULL, 0, &error);

	(void)snprintf(call->message, sizeof(call->message), "%.120s", error.msg);
	return result;
}

int state_worker_run(void)
{
	static const struct gw_function functions[] = {
		{.name = "state", .run = run, .prepare = prepare},
		{.name = "list", .run = list_without_device},
		{.name = NULL},
	};

	return gw_worker_run(functions);
}
