/* SPDX-License-Identifier: MIT */
/*
 * From NVML's labels to processes. A label is looked for in the scan first; where it is no holder, /proc and the
 * kernel are asked whether it lives.
 *
 * Who holds what a dead creator left behind? No file of /proc says who opened a descriptor first. Two things show it:
 *
 *	lineage		a member of the group is in the process group or the session that the dead pid led; the kernel
 *			gives that number to nobody else as long as it has members
 *	the only one	nothing was left unseen, one dead pid has bytes on the GPU, and one group holds nvidia-uvm (which
 *			CUDA opens and NVML does not) without being charged for anything itself
 *
 * Read next: accounting.h, share.c.
 */
#include "holders/accounting.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/err.h"
#include "holders/folder.h"
#include "holders/look.h"

/* From this driver on, NVML's pids are those of whoever asks; before it, those of the initial pid namespace. */
#define DRIVER_OF_OWN_PIDS_MAJOR 535
#define DRIVER_OF_OWN_PIDS_MINOR 113

/* ---- what is behind a label ---- */

/* Which of a process's pids is that of this process's namespace, as the scan's /proc counts; 0 for the first. */
static uint32_t own_depth(const struct scan *scan)
{
	char text[4096];
	const char *at;
	uint32_t depth = 0;

	if (!scan->unseen.foreign_proc ||
	    folder_read_file(AT_FDCWD, "/proc/self/status", text, sizeof(text)) <= 0)
		return 0;
	at = strstr(text, "\nNSpid:");
	for (at = at ? at + strlen("\nNSpid:") : ""; *at == '\t'; depth++) {
		at++;
		at += strcspn(at, "\t\n");
	}
	return depth > 0 ? depth - 1 : 0;
}

static uint32_t find_holder(const struct scan *scan, int32_t pid, uint32_t depth)
{
	for (uint32_t i = 0; i < scan->process_count; i++) {
		const struct scan_process *process = &scan->processes[i];

		if (depth == 0
			    ? process->pid == pid
			    : process->pid_namespace == scan->pid_namespace &&
				      process->nspid_count > depth && process->nspid[depth] == pid)
			return i;
	}
	return ACCOUNT_NONE;
}

static bool pids_are_foreign(const struct scan *scan, const struct amounts *amounts)
{
	int major = 0;
	int minor = 0;

	if (scan->pid_namespace_initial || sscanf(amounts->driver, "%d.%d", &major, &minor) != 2)
		return false;
	return major < DRIVER_OF_OWN_PIDS_MAJOR ||
	       (major == DRIVER_OF_OWN_PIDS_MAJOR && minor < DRIVER_OF_OWN_PIDS_MINOR);
}

/* Reads what LINE's pid is now. Returns false where /proc does not show it. */
static bool describe(struct account_line *line)
{
	char path[64], text[1024];
	struct scan_process process;
	struct stat folder;
	ssize_t got;

	(void)snprintf(path, sizeof(path), "/proc/%d", line->pid);
	if (stat(path, &folder) < 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", line->pid);
	got = folder_read_file(AT_FDCWD, path, text, sizeof(text));
	process_init(&process);
	if (got <= 0 || !process_parse_stat(text, (size_t)got, &process))
		return false;
	line->uid = (int32_t)folder.st_uid;
	line->state = process.state;
	line->start_ticks = process.start_ticks;
	memcpy(line->comm, process.comm, sizeof(line->comm));
	return true;
}

/* Some processes were passed over, and the scan does not say which. */
static bool passed_over_some(const struct scan *scan)
{
	return scan->unseen.late > 0 || scan->unseen.failed > 0 || scan->unseen.references_dropped;
}

/* What a pid is that is no holder. */
static void find_owner(const struct scan *scan, struct account_line *line)
{
	if (line->pid <= 0) {
		line->owner = ACCOUNT_ELSEWHERE;
	} else if (!describe(line)) {
		line->owner =
			kill(line->pid, 0) < 0 && errno == ESRCH ? ACCOUNT_DEAD : ACCOUNT_HIDDEN;
	} else if (line->start_ticks > scan->now_ticks) {
		line->owner = ACCOUNT_LATER;
	} else if (scan_was_denied(scan, line->pid) || passed_over_some(scan)) {
		line->owner = ACCOUNT_UNSEEN;
	} else {
		line->owner = ACCOUNT_STRANGER;
		line->number_taken = true;
	}
}

static void fill_line(const struct scan *scan, const struct amounts *amounts, uint32_t gpu,
		      uint32_t number, uint32_t depth, struct account_line *line)
{
	const struct amounts_process *process = &amounts->gpus[gpu].processes[number];

	*line = (struct account_line){.gpu = gpu,
				      .pid = process->pid,
				      .used_bytes = process->used_bytes,
				      .process = ACCOUNT_NONE,
				      .group = ACCOUNT_NONE,
				      .uid = -1,
				      .state = '?',
				      .start_ticks = GW_UNKNOWN};
	if (pids_are_foreign(scan, amounts)) {
		line->owner = ACCOUNT_ELSEWHERE;
		return;
	}
	line->process = find_holder(scan, process->pid, depth);
	if (line->process != ACCOUNT_NONE)
		line->owner = ACCOUNT_HOLDER;
	else if (scan->unseen.foreign_proc)
		line->owner = ACCOUNT_ELSEWHERE;
	else
		find_owner(scan, line);
}

static int make_lines(const struct scan *scan, const struct amounts *amounts,
		      struct accounting *accounting)
{
	uint32_t depth = own_depth(scan);
	size_t count = 0;

	for (uint32_t i = 0; i < amounts->gpu_count; i++)
		count += amounts->gpus[i].process_count;
	accounting->lines = calloc(count + 1, sizeof(struct account_line));
	if (!accounting->lines)
		return -ENOMEM;
	for (uint32_t gpu = 0; gpu < amounts->gpu_count; gpu++) {
		for (uint32_t i = 0; i < amounts->gpus[gpu].process_count; i++)
			fill_line(scan, amounts, gpu, i, depth,
				  &accounting->lines[accounting->line_count++]);
	}
	return 0;
}

/* ---- what the dead have left ---- */

/* What is to be known of a group for one GPU. */
struct candidate {
	bool listed;	/* a member is charged for memory itself, on any GPU */
	bool has_uvm;	/* or may have it: it is ending in the driver */
	bool has_other; /* nvidiactl, or the GPU's own file */
	bool has_gpu;	/* the GPU's own file */
	bool elsewhere; /* another GPU's own file */
	bool lineage;
};

static void look_at_reference(const struct scan_reference *reference, int32_t gpu_minor,
			      struct candidate *candidate)
{
	const struct scan_device *device = &reference->device;

	/* A mapping alone holds no device memory. */
	if (reference->held == SCAN_MAPPING)
		return;
	if (device->kind == SCAN_UVM || reference->held == SCAN_EXITING)
		candidate->has_uvm = true;
	if (device->kind == SCAN_CONTROL)
		candidate->has_other = true;
	if (device->kind != SCAN_GPU)
		return;
	if (gpu_minor < 0 || device->minor == gpu_minor)
		candidate->has_gpu = candidate->has_other = true;
	else
		candidate->elsewhere = true;
}

static void look_at_members(const struct scan *scan, const struct accounting *accounting,
			    int32_t dead, int32_t gpu_minor, struct candidate *candidates)
{
	for (uint32_t i = 0; i < scan->process_count; i++) {
		const struct scan_process *process = &scan->processes[i];
		struct candidate *candidate = &candidates[accounting->share.group[i]];

		candidate->lineage |= process->pgid == dead || process->sid == dead;
		for (uint32_t r = 0; r < process->reference_count; r++)
			look_at_reference(&scan->references[process->first_reference + r],
					  gpu_minor, candidate);
	}
	for (uint32_t i = 0; i < accounting->line_count; i++) {
		if (accounting->lines[i].owner == ACCOUNT_HOLDER)
			candidates[accounting->share.group[accounting->lines[i].process]].listed =
				true;
	}
}

static bool can_hold(const struct candidate *candidate)
{
	return !candidate->listed && (candidate->has_uvm || candidate->has_other) &&
	       (candidate->has_gpu || !candidate->elsewhere);
}

/* The only candidate with lineage, or with nvidia-uvm; ACCOUNT_NONE where there is none, or more than one. */
static uint32_t only_one(const struct candidate *candidates, uint32_t count, bool by_lineage)
{
	uint32_t found = ACCOUNT_NONE;

	for (uint32_t i = 0; i < count; i++) {
		bool fits = by_lineage ? candidates[i].lineage : candidates[i].has_uvm;

		if (!fits || !can_hold(&candidates[i]))
			continue;
		if (found != ACCOUNT_NONE)
			return ACCOUNT_NONE;
		found = i;
	}
	return found;
}

static bool saw_everything(const struct scan *scan, const struct accounting *accounting)
{
	const struct scan_unseen *unseen = &scan->unseen;

	return unseen->denied == 0 && unseen->hidepid < 2 && unseen->hidepid >= 0 &&
	       scan->pid_namespace_initial && unseen->sockets_denied == 0 &&
	       unseen->in_flight_hidden == 0 && unseen->rings_busy == 0 &&
	       unseen->rings_unreachable == 0 && unseen->exiting_unknown == 0 &&
	       !passed_over_some(scan) && !accounting->share.incomplete;
}

static bool is_dead(const struct account_line *line)
{
	return line->owner == ACCOUNT_DEAD || line->owner == ACCOUNT_STRANGER ||
	       line->owner == ACCOUNT_SHARED;
}

static uint32_t count_dead(const struct accounting *accounting, uint32_t gpu)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < accounting->line_count; i++)
		count += accounting->lines[i].gpu == gpu && is_dead(&accounting->lines[i]);
	return count;
}

static void settle_line(const struct scan *scan, const struct amounts *amounts,
			struct accounting *accounting, struct account_line *line,
			struct candidate *candidates)
{
	uint32_t count = accounting->share.group_count;

	memset(candidates, 0, count * sizeof(*candidates));
	look_at_members(scan, accounting, line->pid, amounts->gpus[line->gpu].minor, candidates);
	/* Whoever has the number now may lead a group of that number, too. */
	line->group = line->number_taken ? ACCOUNT_NONE : only_one(candidates, count, true);
	line->proof = ACCOUNT_LINEAGE;
	if (line->group == ACCOUNT_NONE && saw_everything(scan, accounting) &&
	    count_dead(accounting, line->gpu) == 1) {
		line->group = only_one(candidates, count, false);
		line->proof = ACCOUNT_ONLY_ONE;
	}
	if (line->group == ACCOUNT_NONE)
		line->proof = ACCOUNT_NO_PROOF;
	else
		line->owner = ACCOUNT_SHARED;
}

void accounting_settle(const struct scan *scan, const struct amounts *amounts,
		       struct accounting *accounting)
{
	struct candidate *candidates =
		calloc((size_t)accounting->share.group_count + 1, sizeof(*candidates));

	/* Without memory the dead keep lines of their own: nothing is said that is not so. */
	for (uint32_t i = 0; candidates && i < accounting->line_count; i++) {
		if (is_dead(&accounting->lines[i]))
			settle_line(scan, amounts, accounting, &accounting->lines[i], candidates);
	}
	free(candidates);
}

/* ---- all together ---- */

int accounting_join(const struct scan *scan, const struct amounts *amounts, uint64_t deadline_ns,
		    struct accounting *ret_accounting, struct gw_error *ret_error)
{
	struct accounting accounting = {0};
	int code = share_find(scan, deadline_ns, &accounting.share, ret_error);

	if (code < 0)
		return code;
	if (make_lines(scan, amounts, &accounting) < 0) {
		accounting_free(&accounting);
		return err_os(ret_error, ENOMEM, "no memory for the processes that NVML names");
	}
	accounting_settle(scan, amounts, &accounting);
	*ret_accounting = accounting;
	return 0;
}

void accounting_free(struct accounting *accounting)
{
	share_free(&accounting->share);
	free(accounting->lines);
	*accounting = (struct accounting){0};
}

uint64_t accounting_process_bytes(const struct accounting *accounting, uint32_t gpu,
				  uint32_t process)
{
	uint64_t sum = GW_UNKNOWN;

	for (uint32_t i = 0; i < accounting->line_count; i++) {
		const struct account_line *line = &accounting->lines[i];

		if (line->owner != ACCOUNT_HOLDER || line->process != process ||
		    (gpu != ACCOUNT_NONE && line->gpu != gpu) || line->used_bytes == GW_UNKNOWN)
			continue;
		sum = sum == GW_UNKNOWN ? line->used_bytes : sum + line->used_bytes;
	}
	return sum;
}

uint32_t accounting_find_gpu(const struct amounts *amounts, int32_t minor)
{
	for (uint32_t i = 0; minor >= 0 && i < amounts->gpu_count; i++) {
		if (amounts->gpus[i].minor == minor)
			return i;
	}
	return ACCOUNT_NONE;
}
