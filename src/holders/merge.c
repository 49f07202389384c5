/* SPDX-License-Identifier: MIT */
#include "holders/merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of one pid the first half comes first. */
static int by_process(const void *a, const void *b)
{
	const struct finding *left = *(struct finding *const *)a;
	const struct finding *right = *(struct finding *const *)b;

	if (left->process.pid != right->process.pid)
		return left->process.pid < right->process.pid ? -1 : 1;
	return (int)left->second - (int)right->second;
}

static int by_pid(const void *a, const void *b)
{
	int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;

	return (left > right) - (left < right);
}

static int by_place(const void *a, const void *b)
{
	const struct scan_reference *left = a, *right = b;

	if (left->held != right->held)
		return left->held < right->held ? -1 : 1;
	if (left->tid != right->tid)
		return left->tid < right->tid ? -1 : 1;
	if (left->fd != right->fd)
		return left->fd < right->fd ? -1 : 1;
	if (left->device.kind != right->device.kind)
		return left->device.kind < right->device.kind ? -1 : 1;
	return (left->device.minor > right->device.minor) -
	       (left->device.minor < right->device.minor);
}

/* What the second half knows of the process goes to what the first half knows. */
static void join_process(struct scan_process *process, const struct scan_process *second)
{
	process->cmdline = second->cmdline;
	process->cmdline_bytes = second->cmdline_bytes;
	process->cmdline_cut = second->cmdline_cut;
	process->slurm_job_id = second->slurm_job_id;
	process->slurm_step_id = second->slurm_step_id;
	process->pbs_job_id = second->pbs_job_id;
	process->cuda_visible_devices = second->cuda_visible_devices;
	process->mps_pipe_directory = second->mps_pipe_directory;
	process->flags |= second->flags & (SCAN_MAPS_DENIED | SCAN_ENVIRONMENT_DENIED);
}

/* The texts of FINDING are the snapshot's from now on. */
static void take_texts(struct finding *finding, struct scan *scan)
{
	while (finding->chunks) {
		struct arena_chunk *chunk = finding->chunks;

		finding->chunks = chunk->next;
		chunk->next = scan->chunks;
		scan->chunks = chunk;
	}
}

static void take_references(const struct finding *finding, struct scan *scan)
{
	struct scan_process *process = &scan->processes[scan->process_count - 1];

	for (uint32_t i = 0; i < finding->count; i++) {
		struct scan_reference *reference = &scan->references[scan->reference_count++];

		*reference = finding->references[i];
		reference->process = scan->process_count - 1;
	}
	process->reference_count += finding->count;
}

/* A second half that stands alone has no process: its first half found nothing, so it brings one of its own. */
static void take(struct finding **sorted, size_t count, struct scan *scan)
{
	for (size_t i = 0; i < count; i++) {
		struct finding *finding = sorted[i];
		bool joins = i > 0 && sorted[i - 1]->process.pid == finding->process.pid;

		take_texts(finding, scan);
		if (joins) {
			join_process(&scan->processes[scan->process_count - 1], &finding->process);
		} else {
			finding->process.first_reference = scan->reference_count;
			scan->processes[scan->process_count++] = finding->process;
		}
		take_references(finding, scan);
	}
}

static void sort_references(struct scan *scan)
{
	for (uint32_t i = 0; i < scan->process_count; i++) {
		const struct scan_process *process = &scan->processes[i];

		qsort(scan->references + process->first_reference, process->reference_count,
		      sizeof(*scan->references), by_place);
	}
}

static void mark_late(const struct crew_result *result, struct scan *scan)
{
	for (uint32_t i = 0; i < result->unseen.late; i++) {
		for (uint32_t j = 0; j < scan->process_count; j++) {
			if (scan->processes[j].pid == result->late[i])
				scan->processes[j].flags |= SCAN_DETAILS_LATE;
		}
	}
}

static int merge_sorted(struct finding **sorted, size_t count, size_t references, struct scan *scan)
{
	scan->processes = calloc(count + 1, sizeof(*scan->processes));
	scan->references = calloc(references + 1, sizeof(*scan->references));
	if (!scan->processes || !scan->references)
		return -ENOMEM;
	qsort(sorted, count, sizeof(struct finding *), by_process);
	take(sorted, count, scan);
	sort_references(scan);
	return 0;
}

int merge_findings(struct crew_result *result, struct scan *scan)
{
	struct finding **sorted;
	size_t count = 0, references = 0, at = 0;
	int code = -ENOMEM;

	for (struct finding *one = result->findings; one; one = one->next) {
		count++;
		references += one->count;
	}
	sorted = calloc(count + 1, sizeof(struct finding *));
	for (struct finding *one = result->findings; sorted && one; one = one->next)
		sorted[at++] = one;
	if (sorted)
		code = merge_sorted(sorted, count, references, scan);
	if (code == 0)
		mark_late(result, scan);
	while (result->findings) {
		struct finding *one = result->findings;

		result->findings = one->next;
		finding_free(one);
	}
	free(sorted);
	free(result->late);
	qsort(result->denied, result->unseen.denied, sizeof(int32_t), by_pid);
	scan->denied_pids = result->denied;
	scan->unseen = result->unseen;
	scan->processes_looked_at = result->looked_at;
	scan->descriptors_looked_at = result->descriptors;
	return code;
}
