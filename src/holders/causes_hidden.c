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

static bool is_same_device(const struct scan_device *a, const struct scan_device *b)
{
	return a->kind == b->kind && a->minor == b->minor;
}

/* A mapping of a device that the process holds in no other way, or NULL. */
static const struct scan_reference *only_mapping(const struct cause_run *run,
						 const struct scan_process *process)
{
	const struct scan_reference *all = &run->scan->references[process->first_reference];

	for (uint32_t i = 0; i < process->reference_count; i++) {
		bool other = all[i].held != SCAN_MAPPING;

		for (uint32_t j = 0; j < process->reference_count && !other; j++)
			other = all[j].held != SCAN_MAPPING &&
				is_same_device(&all[i].device, &all[j].device);
		if (!other)
			return &all[i];
	}
	return NULL;
}

void cause_mapping(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct scan_reference *reference = only_mapping(run, process);
		struct verdict *verdict;

		/* What a client of its own maps is its business. */
		if (!reference || lineage_of(run, process)->how == LINEAGE_SELF)
			continue;
		verdict = tell_process(run, CAUSE_MAPPING, CAUSE_LIKELY, CAUSE_ASK, process);
		tell_held(run, verdict, process, reference);
		tell_of(run, verdict, "mappings", process->pid, "maps", "%u", reference->count);
		tell_bytes(run, verdict, "address space", "/proc/PID/maps", reference->bytes);
		verdict->decide = "whether memory comes back when it ends: inherited mappings "
				  "alone held none on an H200";
		tell_remedy(run, verdict, "kill -TERM %d; if it stays: kill -KILL %d", process->pid,
			    process->pid);
	}
}
