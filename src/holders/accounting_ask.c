/* SPDX-License-Identifier: MIT */
/*
 * The questions to the probe, all before one deadline. Memory is asked for before and after the processes: where it
 * has changed in between, the two would not fit together, so both are asked for again.
 *
 * Read next: accounting.h, probe/client.h.
 */
#include "holders/accounting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"

#define PROGRAM "gpuward-probe"
#define TRIES	3

/* Of nvmlReturn_t, which stands in error.native. */
#define NVML_NOT_SUPPORTED     3
#define NVML_DRIVER_NOT_LOADED 9
#define NVML_LIBRARY_NOT_FOUND 12
#define NVML_GPU_IS_LOST       15
#define NVML_RESET_REQUIRED    16

#define SIGKILL_BIT (UINT64_C(1) << 8)

static enum amounts_answer answer_of(const struct gw_error *error)
{
	if (error->domain == GW_DOMAIN_OS && error->native == ETIMEDOUT)
		return AMOUNTS_HUNG;
	/* libnvidia-ml.so.1 is not on this machine. */
	if (error->domain == GW_DOMAIN_OS && error->native == ENOENT && error->code == GW_EDRIVER)
		return AMOUNTS_ABSENT;
	if (error->domain != GW_DOMAIN_NVML)
		return AMOUNTS_FAILED;
	if (error->native == NVML_DRIVER_NOT_LOADED || error->native == NVML_LIBRARY_NOT_FOUND)
		return AMOUNTS_ABSENT;
	if (error->native == NVML_NOT_SUPPORTED)
		return AMOUNTS_UNSUPPORTED;
	if (error->native == NVML_GPU_IS_LOST || error->native == NVML_RESET_REQUIRED)
		return AMOUNTS_LOST;
	return AMOUNTS_FAILED;
}

/* ---- a probe that hangs ---- */

static bool is_killed_and_lives(const struct scan_process *process)
{
	const struct scan_signals *signals = &process->signals;

	return (signals->pending != GW_UNKNOWN && signals->pending & SIGKILL_BIT) ||
	       (signals->pending_thread != GW_UNKNOWN && signals->pending_thread & SIGKILL_BIT);
}

/* One that an earlier call of the tool has left behind. Others' are not believed: any process can have the name. */
static const struct scan_process *find_hung(const struct scan *scan)
{
	for (uint32_t i = 0; scan && i < scan->process_count; i++) {
		const struct scan_process *process = &scan->processes[i];

		if (strncmp(process->comm, PROGRAM, sizeof(process->comm)) == 0 &&
		    process->state == 'D' && is_killed_and_lives(process) &&
		    (process->uid == 0 || process->uid == (int32_t)getuid()))
			return process;
	}
	return NULL;
}

static int refuse_hung(int32_t pid, struct gw_error *ret_error)
{
	return err_set(ret_error, GW_EDRIVER, GW_DOMAIN_OS, ETIMEDOUT,
		       "driver does not answer: an earlier probe, pid %d, still hangs in it", pid);
}

/* Makes a probe ready that can be asked. Returns 0 or why there is none. */
static int make_ready(struct accounting_probe *probe, const struct scan *scan, uint64_t deadline_ns,
		      struct gw_error *ret_error)
{
	const struct scan_process *hung = find_hung(scan);
	int code;

	if (probe->open && probe->probe.socket < 0 && !probe_reap(&probe->probe))
		return refuse_hung(probe->probe.child.process.pid, ret_error);
	probe->open = false;
	if (hung)
		return refuse_hung(hung->pid, ret_error);
	code = probe_open(probe->program, deadline_ns, &probe->probe, ret_error);
	probe->open = code == 0;
	return code;
}

void accounting_probe_close(struct accounting_probe *probe)
{
	if (probe->open)
		probe_close(&probe->probe);
	probe->open = false;
	probe->probe = PROBE_NONE;
}

/* ---- the questions ---- */

struct asking {
	struct probe *probe;
	uint64_t until_ns;
	uint64_t deadline_ns;
};

/* Each question may take what is left of the time. Where nothing is, the probe has been slow enough. */
static void set_time(struct asking *asking)
{
	uint64_t now = now_ns();

	if (now < asking->until_ns)
		asking->probe->deadline_ns = asking->until_ns - now;
	else if (asking->probe->socket >= 0)
		(void)probe_late(asking->probe, asking->deadline_ns, NULL);
}

/* The probe says it of its own end to everybody who asks: one that was late names the whole deadline. */
static void name_deadline(const struct asking *asking, struct gw_error *error)
{
	unsigned long long millis = asking->deadline_ns / 1000000;

	if (answer_of(error) != AMOUNTS_HUNG)
		return;
	if (millis % 1000 == 0)
		(void)err_set(error, GW_EDRIVER, GW_DOMAIN_OS, ETIMEDOUT,
			      "driver does not answer (%llu s)", millis / 1000);
	else
		(void)err_set(error, GW_EDRIVER, GW_DOMAIN_OS, ETIMEDOUT,
			      "driver does not answer (%llu.%03llu s)", millis / 1000,
			      millis % 1000);
}

static int ask_driver(struct asking *asking, struct probe_driver *ret, struct gw_error *ret_error)
{
	set_time(asking);
	return probe_ask_driver(asking->probe, ret, ret_error);
}

static int ask_device(struct asking *asking, struct amounts_gpu *gpu)
{
	struct probe_device device;
	int code;

	set_time(asking);
	code = probe_ask_device(asking->probe, gpu->index, &device, &gpu->error);
	if (code < 0)
		return code;
	gpu->minor = device.minor;
	gpu->total_bytes = device.total_bytes;
	(void)snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", device.uuid);
	(void)snprintf(gpu->name, sizeof(gpu->name), "%s", device.name);
	(void)snprintf(gpu->pci, sizeof(gpu->pci), "%s", device.pci);
	return 0;
}

static int ask_memory(struct asking *asking, struct amounts_gpu *gpu, struct gw_error *ret_error)
{
	struct probe_memory memory;
	int code;

	set_time(asking);
	code = probe_ask_memory(asking->probe, gpu->index, &memory, ret_error);
	gpu->memory = code == 0 ? AMOUNTS_ANSWERED : answer_of(ret_error);
	if (code < 0)
		return code;
	gpu->total_bytes = memory.total_bytes;
	gpu->free_bytes = memory.free_bytes;
	gpu->used_bytes = memory.used_bytes;
	gpu->reserved_bytes = memory.reserved_bytes;
	return 0;
}

static int keep_processes(struct amounts_gpu *gpu, const struct probe_processes *processes)
{
	struct amounts_process *list =
		calloc((size_t)processes->count + 1, sizeof(struct amounts_process));

	if (!list)
		return -ENOMEM;
	free(gpu->processes);
	gpu->processes = list;
	gpu->process_count = processes->count;
	gpu->processes_left_out = processes->total - processes->count;
	for (uint32_t i = 0; i < processes->count; i++)
		list[i] = (struct amounts_process){.pid = (int32_t)processes->list[i].pid,
						   .list = AMOUNTS_COMPUTE,
						   .used_bytes = processes->list[i].used_bytes};
	return 0;
}

/* Returns -ENOMEM, or 0: what NVML does not tell stands in GPU. */
static int ask_processes(struct asking *asking, struct amounts_gpu *gpu,
			 struct probe_processes *room, struct gw_error *ret_error)
{
	int code;

	set_time(asking);
	code = probe_ask_processes(asking->probe, gpu->index, room, ret_error);
	gpu->listed = code == 0 ? AMOUNTS_ANSWERED : answer_of(ret_error);
	return code < 0 ? 0 : keep_processes(gpu, room);
}

static int ask_amounts(struct asking *asking, struct amounts_gpu *gpu, struct probe_processes *room)
{
	struct gw_error memory_error = {0};
	struct gw_error list_error = {0};
	uint64_t used;
	int code = 0;

	(void)ask_memory(asking, gpu, &memory_error);
	for (int i = 0; i < TRIES && code == 0; i++) {
		used = gpu->used_bytes;
		code = ask_processes(asking, gpu, room, &list_error);
		if (code < 0 || gpu->memory != AMOUNTS_ANSWERED ||
		    ask_memory(asking, gpu, &memory_error) < 0 || used == gpu->used_bytes)
			break;
	}
	if (gpu->error.code == 0)
		gpu->error = memory_error.code < 0 ? memory_error : list_error;
	name_deadline(asking, &gpu->error);
	accounting_sum(gpu);
	return code;
}

/* Returns -ENOMEM, or 0. ROOM is for an answer. */
static int ask_each(struct asking *asking, struct amounts *amounts, uint32_t count,
		    struct probe_processes *room)
{
	int code = 0;

	for (uint32_t i = 0; i < count && code == 0; i++) {
		struct amounts_gpu *gpu = &amounts->gpus[amounts->gpu_count++];

		*gpu = AMOUNTS_GPU_NONE;
		gpu->index = i;
		(void)ask_device(asking, gpu);
		code = ask_amounts(asking, gpu, room);
		if (gpu->memory == AMOUNTS_HUNG || gpu->listed == AMOUNTS_HUNG)
			amounts->answer = AMOUNTS_HUNG;
		if (amounts->error.code == 0 && amounts->answer == AMOUNTS_HUNG)
			amounts->error = gpu->error;
	}
	return code;
}

static int ask_gpus(struct asking *asking, struct amounts *amounts, uint32_t count)
{
	struct probe_processes *room = malloc(sizeof(*room));
	int code = -ENOMEM;

	amounts->gpus = calloc((size_t)count + 1, sizeof(struct amounts_gpu));
	if (room && amounts->gpus)
		code = ask_each(asking, amounts, count, room);
	free(room);
	return code;
}

static int ask_all(struct accounting_probe *probe, uint64_t until_ns, uint64_t deadline_ns,
		   struct amounts *amounts)
{
	struct asking asking = {&probe->probe, until_ns, deadline_ns};
	struct probe_driver driver;

	if (ask_driver(&asking, &driver, &amounts->error) < 0) {
		name_deadline(&asking, &amounts->error);
		amounts->answer = answer_of(&amounts->error);
		return 0;
	}
	amounts->answer = AMOUNTS_ANSWERED;
	(void)snprintf(amounts->driver, sizeof(amounts->driver), "%s", driver.driver);
	return ask_gpus(&asking, amounts, driver.device_count);
}

int accounting_ask(struct accounting_probe *probe, const struct scan *scan, uint64_t deadline_ns,
		   struct amounts *ret_amounts, struct gw_error *ret_error)
{
	struct amounts amounts = {.taken_ns = now_ns()};
	uint64_t until_ns;

	if (deadline_ns == 0)
		deadline_ns = PROBE_DEADLINE_NS;
	until_ns = after_ns(deadline_ns);
	if (make_ready(probe, scan, deadline_ns, &amounts.error) < 0) {
		amounts.answer = answer_of(&amounts.error);
	} else if (ask_all(probe, until_ns, deadline_ns, &amounts) < 0) {
		accounting_amounts_free(&amounts);
		accounting_probe_close(probe);
		return err_os(ret_error, ENOMEM, "no memory for what NVML tells");
	}
	if (probe->open && probe->probe.socket >= 0)
		accounting_probe_close(probe);
	*ret_amounts = amounts;
	return 0;
}

void accounting_amounts_free(struct amounts *amounts)
{
	for (uint32_t i = 0; i < amounts->gpu_count; i++)
		free(amounts->gpus[i].processes);
	free(amounts->gpus);
	*amounts = (struct amounts){0};
}

/* ---- sums ---- */

static int by_pid(const void *left, const void *right)
{
	const struct amounts_process *a = left;
	const struct amounts_process *b = right;

	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

static void drop_doubles(struct amounts_gpu *gpu)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < gpu->process_count; i++) {
		struct amounts_process *last = kept > 0 ? &gpu->processes[kept - 1] : NULL;
		const struct amounts_process *next = &gpu->processes[i];

		if (!last || last->pid != next->pid) {
			gpu->processes[kept++] = *next;
		} else {
			if (last->list != next->list)
				last->list = AMOUNTS_SOME_LIST;
			if (last->used_bytes == GW_UNKNOWN ||
			    (next->used_bytes != GW_UNKNOWN && next->used_bytes > last->used_bytes))
				last->used_bytes = next->used_bytes;
		}
	}
	gpu->process_count = kept;
}

/* NVML's numbers are added up without trust in them: a sum never goes round. */
static uint64_t add(uint64_t sum, uint64_t bytes)
{
	return sum > GW_UNKNOWN - 1 - bytes ? GW_UNKNOWN - 1 : sum + bytes;
}

void accounting_sum(struct amounts_gpu *gpu)
{
	bool complete = gpu->listed == AMOUNTS_ANSWERED && gpu->processes_left_out == 0;
	uint64_t sum = 0;

	if (gpu->process_count > 0)
		qsort(gpu->processes, gpu->process_count, sizeof(gpu->processes[0]), by_pid);
	drop_doubles(gpu);
	for (uint32_t i = 0; i < gpu->process_count; i++) {
		if (gpu->processes[i].used_bytes == GW_UNKNOWN)
			complete = false;
		else
			sum = add(sum, gpu->processes[i].used_bytes);
	}
	gpu->attributed_bytes = gpu->listed == AMOUNTS_ANSWERED ? sum : GW_UNKNOWN;
	gpu->unattributed_bytes = GW_UNKNOWN;
	if (complete && gpu->used_bytes != GW_UNKNOWN)
		gpu->unattributed_bytes = gpu->used_bytes > sum ? gpu->used_bytes - sum : 0;
}
