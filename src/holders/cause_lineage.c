/* SPDX-License-Identifier: MIT */
/*
 * Whose memory a holder keeps: NVML lists whoever created it, and a holder may have inherited the open files.
 *
 * In order of strength: the holder is listed itself; it has an open file in common with one whose creator is known;
 * its group or session carries the creator's number; its parent is the creator; there is but one creator without a
 * holder. The last is a guess, and told as one.
 *
 * Read next: causes_orphan.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "holders/cause_run.h"

const struct lineage *lineage_of(const struct cause_run *run, const struct scan_process *process)
{
	return &run->lineages[process - run->scan->processes];
}

static bool is_candidate(const struct cause_run *run, const struct scan_process *process)
{
	return holds_memory(run, process) && is_work(run, process);
}

static void set(struct lineage *lineage, enum lineage_how how, int32_t creator, bool gone)
{
	*lineage = (struct lineage){how, creator, gone};
}

/* By numbers alone. */
static void link_by_number(struct cause_run *run, const struct scan_process *process,
			   struct lineage *lineage)
{
	if (is_listed(run, process->pid) && label_holds_nothing(run, process->pid) == AMOUNTS_NO)
		set(lineage, LINEAGE_SELF, process->pid, false);
	else if (process->pgid > 0 && is_listed(run, process->pgid) &&
		 label_holds_nothing(run, process->pgid) == AMOUNTS_YES)
		set(lineage, LINEAGE_GROUP, process->pgid, true);
	else if (process->sid > 0 && is_listed(run, process->sid) &&
		 label_holds_nothing(run, process->sid) == AMOUNTS_YES)
		set(lineage, LINEAGE_SESSION, process->sid, true);
	else if (process->ppid > 0 && is_listed(run, process->ppid) &&
		 scan_find(run->scan, process->ppid))
		set(lineage, LINEAGE_PARENT, process->ppid, false);
}

/* A process that is listed itself says more about its group than one that is linked by a number. */
static bool says_more(const struct lineage *a, const struct lineage *b)
{
	return a->how != LINEAGE_UNKNOWN && (b->how == LINEAGE_UNKNOWN || a->how < b->how);
}

/* OWNERS: for each group of processes with an open file in common, the strongest lineage in it. */
static void link_by_file(struct cause_run *run, struct lineage *owners)
{
	const uint32_t *groups = run->facts->groups;

	for (uint32_t i = 0; i < run->scan->process_count; i++) {
		if (says_more(&run->lineages[i], &owners[groups[i]]))
			owners[groups[i]] = run->lineages[i];
	}
	for (uint32_t i = 0; i < run->scan->process_count; i++) {
		const struct lineage *owner = &owners[groups[i]];

		/* A number of its own says as much as the same number of another one of its group. */
		if (run->lineages[i].how != LINEAGE_SELF && owner->how != LINEAGE_UNKNOWN &&
		    run->lineages[i].creator != owner->creator &&
		    is_candidate(run, &run->scan->processes[i]))
			set(&run->lineages[i], LINEAGE_FILE, owner->creator, owner->gone);
	}
}

static bool has_holder(const struct cause_run *run, int32_t creator)
{
	for (uint32_t i = 0; i < run->scan->process_count; i++) {
		if (run->lineages[i].creator == creator)
			return true;
	}
	return false;
}

/* The one pid on NVML's lists whose memory nobody is known to hold; 0 for none, -1 for several. */
static int32_t lonely_creator(const struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;
	int32_t lonely = 0;

	for (uint32_t g = 0; amounts && g < amounts->gpu_count; g++) {
		for (uint32_t i = 0; i < amounts->gpus[g].process_count; i++) {
			int32_t pid = amounts->gpus[g].processes[i].pid;

			if (pid == lonely || label_holds_nothing(run, pid) != AMOUNTS_YES ||
			    has_holder(run, pid))
				continue;
			if (lonely)
				return -1;
			lonely = pid;
		}
	}
	return lonely;
}

static void link_the_rest(struct cause_run *run, int32_t creator)
{
	FOR_EACH_HOLDER(run, process)
	{
		struct lineage *lineage = &run->lineages[process - run->scan->processes];

		/* Whoever asks NVML has the devices too, but not UVM; and a descriptor of exported memory is one of
		 * nvidiactl. */
		if (lineage->how == LINEAGE_UNKNOWN && is_candidate(run, process) &&
		    !is_ending(process) && holds_kind(run, process, SCAN_UVM))
			set(lineage, LINEAGE_REST, creator, true);
	}
}

int lineage_find(struct cause_run *run)
{
	struct lineage *owners;
	int32_t lonely;

	run->lineages = calloc(run->scan->process_count + 1, sizeof(*run->lineages));
	if (!run->lineages)
		return -ENOMEM;
	FOR_EACH_HOLDER(run, process)
	{
		if (is_candidate(run, process))
			link_by_number(run, process,
				       &run->lineages[process - run->scan->processes]);
	}
	if (run->facts->groups) {
		owners = calloc((size_t)run->scan->process_count + 1, sizeof(*owners));
		if (!owners)
			return -ENOMEM;
		link_by_file(run, owners);
		free(owners);
	}
	lonely = lonely_creator(run);
	if (lonely > 0)
		link_the_rest(run, lonely);
	return 0;
}
