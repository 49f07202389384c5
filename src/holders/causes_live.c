/* SPDX-License-Identifier: MIT */
/*
 * Live owners (C01) and those among them that keep memory and compute nothing (C27).
 *
 * Read next: cause_run.h.
 */
#include <stdio.h>

#include "holders/cause_run.h"

#define SHOWN_NAME 64

static bool is_live(const struct cause_run *run, const struct scan_process *process)
{
	const struct lineage *lineage = lineage_of(run, process);

	return holds_memory(run, process) && is_work(run, process) && !is_ending(process) &&
	       !(process->flags & SCAN_ZOMBIE_LEADER) && !lineage->gone &&
	       orphaned(run, process) < ORPHAN_LIKELY;
}

static void tell_owner(struct cause_run *run, struct verdict *verdict,
		       const struct scan_process *process)
{
	char program[SHOWN_NAME];

	program_name(process, program, sizeof(program));
	tell_of(run, verdict, "program", process->pid, "exe", "%s", program);
	tell_references(run, verdict, process);
	if (is_listed(run, process->pid))
		tell_bytes(run, verdict, "device memory", "NVML's list of processes",
			   listed_bytes(run, process->pid));
}

void cause_live_owner(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct lineage *lineage = lineage_of(run, process);
		struct verdict *verdict;

		if (!is_live(run, process))
			continue;
		/* Without UVM and on no list: exported memory or a monitor, which C16 tells. */
		if (lineage->how == LINEAGE_UNKNOWN && lists_are_whole(run) &&
		    !holds_kind(run, process, SCAN_UVM))
			continue;
		verdict = tell_process(run, CAUSE_LIVE_OWNER, CAUSE_CERTAIN, CAUSE_LEAVE, process);
		tell_owner(run, verdict, process);
		if (lineage->how == LINEAGE_SELF) {
			verdict->bytes = listed_bytes(run, process->pid);
		} else if (lineage->how != LINEAGE_UNKNOWN) {
			tell(run, verdict, "shares the files of",
			     lineage->how == LINEAGE_FILE ? "kcmp" : "/proc/PID/stat", "%d, alive",
			     lineage->creator);
		} else {
			verdict->certainty = CAUSE_LIKELY;
			tell_or(verdict, CAUSE_NONE,
				"whether NVML lists it, or a process that is dead");
		}
		tell_remedy(run, verdict, "none: it is in use");
		tell_escalation(
			run, verdict,
			"its owner can end it: kill -TERM %d (what it has not saved is lost)",
			process->pid);
	}
}

void cause_idle_cache(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		uint32_t gpu = gpu_of(run, process);
		const struct amounts_gpu *amounts;
		uint64_t bytes = listed_bytes(run, process->pid);
		struct verdict *verdict;

		if (gpu == CAUSE_NOBODY || bytes == GW_UNKNOWN || bytes == 0 ||
		    !is_live(run, process))
			continue;
		amounts = &run->input->amounts->gpus[gpu];
		if (amounts->utilization_highest_percent != 0 || amounts->watched_ns == GW_UNKNOWN)
			continue;
		verdict = tell_process(run, CAUSE_IDLE_CACHE, CAUSE_LIKELY, CAUSE_ASK, process);
		verdict->bytes = bytes;
		verdict->decide = "whether its owner still needs what it has there";
		tell_bytes(run, verdict, "device memory", "NVML's list of processes", bytes);
		tell(run, verdict, "busy", "NVML's utilization", "0 %% for %.0f s",
		     (double)amounts->watched_ns / 1e9);
		tell_remedy(run, verdict,
			    "tell its owner: empty the cache, or restart the notebook's kernel");
		tell_escalation(run, verdict, "kill -TERM %d (what it has not saved is lost)",
				process->pid);
	}
}
