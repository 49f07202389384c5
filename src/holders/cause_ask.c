/* SPDX-License-Identifier: MIT */
/*
 * What the causes ask of references, amounts and facts.
 *
 * Read next: cause_run.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holders/cause_run.h"

/*
 * What is used on a GPU when nothing runs, where nobody has learnt it: next to nothing where reserved memory is told
 * apart, else the reserved memory, which was 615 MiB on an H200.
 */
#define LEARNT_MARGIN	 (20ULL << 20)
#define WITHOUT_RESERVED (64ULL << 20)
#define WITH_RESERVED	 (640ULL << 20)
#define NORMAL_PERMILLE	 20U

static const struct scan_reference *first_of(const struct cause_run *run,
					     const struct scan_process *process)
{
	return &run->scan->references[process->first_reference];
}

bool holds_kind(const struct cause_run *run, const struct scan_process *process,
		enum scan_device_kind kind)
{
	for (uint32_t i = 0; i < process->reference_count; i++) {
		if (first_of(run, process)[i].device.kind == kind)
			return true;
	}
	return false;
}

const struct scan_reference *reference_as(const struct cause_run *run,
					  const struct scan_process *process, enum scan_held held)
{
	for (uint32_t i = 0; i < process->reference_count; i++) {
		if (first_of(run, process)[i].held == held)
			return &first_of(run, process)[i];
	}
	return NULL;
}

bool holds_as(const struct cause_run *run, const struct scan_process *process, enum scan_held held)
{
	return reference_as(run, process, held) != NULL;
}

bool holds_memory(const struct cause_run *run, const struct scan_process *process)
{
	return holds_kind(run, process, SCAN_CONTROL) || holds_kind(run, process, SCAN_GPU) ||
	       holds_kind(run, process, SCAN_UVM);
}

static uint32_t gpu_of_minor(const struct cause_run *run, int32_t minor)
{
	const struct amounts *amounts = run->input->amounts;

	for (uint32_t i = 0; amounts && i < amounts->gpu_count; i++) {
		if (amounts->gpus[i].minor == minor)
			return i;
	}
	return CAUSE_NOBODY;
}

uint32_t gpu_of(const struct cause_run *run, const struct scan_process *process)
{
	int32_t minor = -1;

	for (uint32_t i = 0; i < process->reference_count; i++) {
		int32_t seen = first_of(run, process)[i].device.gpu_minor;

		if (seen >= 0 && minor >= 0 && seen != minor)
			return CAUSE_NOBODY;
		if (seen >= 0)
			minor = seen;
	}
	return minor < 0 ? CAUSE_NOBODY : gpu_of_minor(run, minor);
}

const struct amounts_process *listed_on(const struct amounts_gpu *gpu, int32_t pid)
{
	uint32_t low = 0, high = gpu->process_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (gpu->processes[middle].pid == pid)
			return &gpu->processes[middle];
		if (gpu->processes[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

/* The lists, where their pids are those of the scan: not below the /proc of another pid namespace. */
static const struct amounts *lists_of(const struct cause_run *run)
{
	return run->scan->unseen.foreign_proc ? NULL : run->input->amounts;
}

bool is_listed(const struct cause_run *run, int32_t pid)
{
	const struct amounts *amounts = lists_of(run);

	for (uint32_t i = 0; amounts && i < amounts->gpu_count; i++) {
		if (listed_on(&amounts->gpus[i], pid))
			return true;
	}
	return false;
}

bool lists_are_whole(const struct cause_run *run)
{
	const struct amounts *amounts = lists_of(run);

	if (!amounts || amounts->answer != AMOUNTS_ANSWERED)
		return false;
	for (uint32_t i = 0; i < amounts->gpu_count; i++) {
		if (amounts->gpus[i].listed != AMOUNTS_ANSWERED ||
		    amounts->gpus[i].processes_left_out)
			return false;
	}
	return amounts->gpu_count > 0;
}

uint64_t listed_bytes(const struct cause_run *run, int32_t pid)
{
	const struct amounts *amounts = lists_of(run);
	uint64_t sum = 0;
	bool any = false;

	for (uint32_t i = 0; amounts && i < amounts->gpu_count; i++) {
		const struct amounts_process *listed = listed_on(&amounts->gpus[i], pid);

		if (listed && listed->used_bytes == GW_UNKNOWN)
			return GW_UNKNOWN;
		if (listed)
			sum += listed->used_bytes;
		any |= listed != NULL;
	}
	return any ? sum : GW_UNKNOWN;
}

/* Up to which amount unattributed memory is normal. */
static uint64_t normal_bytes(const struct amounts_gpu *gpu)
{
	uint64_t share =
		gpu->total_bytes == GW_UNKNOWN ? 0 : gpu->total_bytes / 1000 * NORMAL_PERMILLE;

	if (gpu->baseline_bytes != GW_UNKNOWN)
		return gpu->baseline_bytes + LEARNT_MARGIN;
	if (gpu->reserved_bytes != GW_UNKNOWN)
		return WITHOUT_RESERVED;
	return share > WITH_RESERVED ? share : WITH_RESERVED;
}

uint64_t unexplained_bytes(const struct amounts_gpu *gpu)
{
	uint64_t baseline = gpu->baseline_bytes == GW_UNKNOWN ? 0 : gpu->baseline_bytes;

	if (gpu->unattributed_bytes == GW_UNKNOWN)
		return GW_UNKNOWN;
	return gpu->unattributed_bytes > normal_bytes(gpu) ? gpu->unattributed_bytes - baseline : 0;
}

uint64_t unexplained_everywhere(const struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;
	uint64_t sum = 0;
	bool any = false;

	for (uint32_t i = 0; amounts && i < amounts->gpu_count; i++) {
		uint64_t bytes = unexplained_bytes(&amounts->gpus[i]);

		if (bytes == GW_UNKNOWN)
			continue;
		any = true;
		sum += bytes;
	}
	return any ? sum : GW_UNKNOWN;
}

const struct fact_label *fact_label_of(const struct cause_run *run, int32_t pid)
{
	for (uint32_t i = 0; i < run->facts->label_count; i++) {
		if (run->facts->labels[i].pid == pid)
			return &run->facts->labels[i];
	}
	return NULL;
}

const struct fact_watch *fact_watch_of(const struct cause_run *run,
				       const struct scan_process *process)
{
	for (uint32_t i = 0; i < run->facts->watch_count; i++) {
		const struct fact_watch *watch = &run->facts->watches[i];

		if (watch->pid == process->pid && watch->start_ticks == process->start_ticks)
			return watch;
	}
	return NULL;
}

enum amounts_truth fact_job_runs(const struct cause_run *run, uint64_t id)
{
	for (uint32_t i = 0; id != GW_UNKNOWN && i < run->facts->job_count; i++) {
		if (run->facts->jobs[i].id == id)
			return run->facts->jobs[i].running;
	}
	return AMOUNTS_UNKNOWN;
}

enum amounts_truth relative_lives(const struct cause_run *run, int32_t pid)
{
	const struct scan_process *holder = scan_find(run->scan, pid);
	const struct scan_relative *relative = scan_find_relative(run->scan, pid);

	if (pid <= 0 || run->scan->unseen.hidepid != 0)
		return holder ? AMOUNTS_YES : AMOUNTS_UNKNOWN;
	if (holder)
		return AMOUNTS_YES;
	if (scan_was_denied(run->scan, pid))
		return AMOUNTS_YES;
	return relative && relative->state != 'Z' && relative->state != 'X' ? AMOUNTS_YES
									    : AMOUNTS_NO;
}

bool sight_is_whole(const struct cause_run *run)
{
	const struct scan_unseen *unseen = &run->scan->unseen;

	return !unseen->denied && !unseen->late && !unseen->failed && !unseen->maps_denied &&
	       !unseen->sockets_denied && !unseen->in_flight_hidden && !unseen->rings_busy &&
	       !unseen->rings_unreachable && !unseen->exiting_unknown &&
	       !unseen->references_dropped && unseen->hidepid == 0 && !unseen->foreign_proc;
}

enum amounts_truth label_holds_nothing(const struct cause_run *run, int32_t pid)
{
	const struct fact_label *label = fact_label_of(run, pid);
	const struct scan_process *process = scan_find(run->scan, pid);

	if (process)
		return label && label->client_start_ticks != GW_UNKNOWN &&
				       process->start_ticks > label->client_start_ticks
			       ? AMOUNTS_YES
			       : AMOUNTS_NO;
	if (label && label->exists == AMOUNTS_NO)
		return AMOUNTS_YES;
	if (label && label->state == 'Z' && label->threads <= 1)
		return AMOUNTS_YES;
	if (scan_was_denied(run->scan, pid) || run->scan->unseen.late || run->scan->unseen.failed ||
	    run->scan->unseen.exiting_unknown || run->scan->unseen.hidepid != 0 ||
	    run->scan->unseen.references_dropped)
		return AMOUNTS_UNKNOWN;
	return AMOUNTS_YES;
}

uint64_t job_of(const struct scan_process *process)
{
	char *end = NULL;
	unsigned long long id;

	if (process->place.slurm_job_id != GW_UNKNOWN)
		return process->place.slurm_job_id;
	if (!process->slurm_job_id || process->slurm_job_id[0] < '0' ||
	    process->slurm_job_id[0] > '9')
		return GW_UNKNOWN;
	id = strtoull(process->slurm_job_id, &end, 10);
	return *end ? GW_UNKNOWN : id;
}
