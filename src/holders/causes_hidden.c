/* SPDX-License-Identifier: MIT */
/*
 * References that usual tools do not show: a thread's own table (C06), in flight (C13), io_uring (C14), mapping (C15).
 *
 * Read next: scan.h, enum scan_held.
 */
#include <stdio.h>

#include "holders/cause_run.h"

static void tell_held(struct cause_run *run, struct verdict *verdict,
		      const struct scan_process *process, const struct scan_reference *reference)
{
	char device[48];

	scan_device_name(&reference->device, device, sizeof(device));
	verdict->bytes = listed_bytes(run, process->pid);
	tell_of(run, verdict, "device", process->pid, "fdinfo", "%s", device);
	tell_references(run, verdict, process);
}

void cause_thread_table(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct scan_reference *reference =
			reference_as(run, process, SCAN_FD_OF_THREAD);
		struct verdict *verdict;

		if (!reference || (process->flags & SCAN_ZOMBIE_LEADER) ||
		    holds_as(run, process, SCAN_FD))
			continue;
		verdict = tell_process(run, CAUSE_THREAD_TABLE, CAUSE_CERTAIN, CAUSE_ASK, process);
		verdict->tid = reference->tid;
		tell_held(run, verdict, process, reference);
		tell_of(run, verdict, "thread", process->pid, "task", "%d has descriptor %d",
			reference->tid, reference->fd);
		tell_remedy(run, verdict, "kill -TERM %d; if it stays: kill -KILL %d", process->pid,
			    process->pid);
		tell_escalation(run, verdict,
				"a thread alone cannot be ended: its whole process goes");
	}
}

void cause_in_flight(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct scan_reference *reference = reference_as(run, process, SCAN_IN_FLIGHT);
		char file[32];
		struct verdict *verdict;

		if (!reference)
			continue;
		verdict = tell_process(run, CAUSE_IN_FLIGHT, CAUSE_CERTAIN, CAUSE_ASK, process);
		tell_held(run, verdict, process, reference);
		(void)snprintf(file, sizeof(file), "fdinfo/%d", reference->fd);
		tell_of(run, verdict, "waiting in a socket", process->pid, file,
			"%u descriptor%s sent and not received", reference->count,
			reference->count == 1 ? "" : "s");
		tell_remedy(run, verdict, "end the receiver, or let it receive: kill -TERM %d",
			    process->pid);
		tell_escalation(run, verdict,
				"if others have the same socket, the message goes with the last");
	}
}

void cause_io_uring(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct scan_reference *reference = reference_as(run, process, SCAN_IO_URING);
		char file[32];
		struct verdict *verdict;

		if (!reference)
			continue;
		verdict = tell_process(run, CAUSE_IO_URING, CAUSE_CERTAIN, CAUSE_ASK, process);
		tell_held(run, verdict, process, reference);
		(void)snprintf(file, sizeof(file), "fdinfo/%d", reference->fd);
		tell_of(run, verdict, "registered files", process->pid, file, "%u",
			reference->count);
		tell_remedy(run, verdict, "kill -TERM %d; if it stays: kill -KILL %d", process->pid,
			    process->pid);
	}
}

/* Only mappings, of all that can keep memory. */
static bool holds_only_mappings(const struct cause_run *run, const struct scan_process *process)
{
	for (uint32_t i = 0; i < process->reference_count; i++) {
		if (run->scan->references[process->first_reference + i].held != SCAN_MAPPING)
			return false;
	}
	return process->reference_count > 0;
}

void cause_mapping(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct scan_reference *reference = reference_as(run, process, SCAN_MAPPING);
		struct verdict *verdict;

		if (!reference || !holds_only_mappings(run, process))
			continue;
		verdict = tell_process(run, CAUSE_MAPPING, CAUSE_CERTAIN, CAUSE_ASK, process);
		tell_held(run, verdict, process, reference);
		tell_of(run, verdict, "mappings", process->pid, "maps", "%u", reference->count);
		tell_bytes(run, verdict, "address space", "/proc/PID/maps", reference->bytes);
		if (!is_listed(run, process->pid)) {
			verdict->certainty = CAUSE_LIKELY;
			verdict->decide = "whether memory comes back when it ends: inherited "
					  "mappings alone held none on an H200";
		}
		tell_remedy(run, verdict, "kill -TERM %d; if it stays: kill -KILL %d", process->pid,
			    process->pid);
	}
}
