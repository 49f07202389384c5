/* SPDX-License-Identifier: MIT */
/*
 * Memory that nobody holds (C38): told only with the whole list of what was looked at and not found.
 *
 * It is the last explanation. Anything that could not be looked at, a process that ends, or a single look, and it is
 * told as one of two.
 *
 * Read next: cause_run.h.
 */
#include <stdio.h>

#include "holders/cause_run.h"

/* For how long the memory must have stood, with nobody ending. */
#define WATCHED_NS 30000000000ULL

static uint32_t count_held(const struct cause_run *run, enum scan_held held)
{
	uint32_t count = 0;

	FOR_EACH_HOLDER(run, process)
	{
		count += holds_memory(run, process) && is_work(run, process) &&
			 !is_listed(run, process->pid) && holds_as(run, process, held);
	}
	return count;
}

static bool anybody_ending(const struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		if (is_ending(process) || holds_as(run, process, SCAN_EXITING))
			return true;
	}
	return false;
}

/* Anybody who could keep memory that is not listed for it. */
static bool anybody_holds(const struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		if (is_listed(run, process->pid) || is_daemon(process))
			continue;
		if (holds_memory(run, process) || holds_kind(run, process, SCAN_DMABUF) ||
		    holds_kind(run, process, SCAN_GDRDRV) ||
		    holds_kind(run, process, SCAN_DEVICE_UNKNOWN))
			return true;
	}
	return false;
}

/* Dead creators whose memory is listed, but which nobody is known to have inherited from. */
static uint64_t ownerless_bytes(const struct cause_run *run, const struct amounts_gpu *gpu)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < gpu->process_count; i++) {
		if (label_holds_nothing(run, gpu->processes[i].pid) == AMOUNTS_YES &&
		    gpu->processes[i].used_bytes != GW_UNKNOWN)
			sum += gpu->processes[i].used_bytes;
	}
	return sum;
}

static void tell_ruled_out(struct cause_run *run, struct verdict *verdict)
{
	tell(run, verdict, "descriptors", "/proc/PID/fd", "%llu of %u processes: no other holder",
	     (unsigned long long)run->scan->descriptors_looked_at, run->scan->processes_looked_at);
	tell(run, verdict, "threads' own descriptors", "/proc/PID/task/TID/fd", "%s",
	     count_held(run, SCAN_FD_OF_THREAD) ? "some" : "none");
	tell(run, verdict, "in flight", "/proc/PID/fdinfo and MSG_PEEK", "%s",
	     count_held(run, SCAN_IN_FLIGHT) ? "some" : "none");
	tell(run, verdict, "io_uring", "/proc/PID/fdinfo", "%s",
	     count_held(run, SCAN_IO_URING) ? "some" : "none");
	tell(run, verdict, "mappings", "/proc/PID/maps", "%s",
	     count_held(run, SCAN_MAPPING) ? "some" : "none");
	tell(run, verdict, "ending in the driver", "/proc/PID/stack", "%s",
	     anybody_ending(run) ? "some" : "none");
}

static void tell_not_looked_at(struct cause_run *run, struct verdict *verdict)
{
	char text[512];

	scan_unseen_text(run->scan, text, sizeof(text));
	tell(run, verdict, "not looked at", "/proc", "%s", text[0] ? text : "nothing");
	if (!run->scan->pid_namespace_initial)
		tell(run, verdict, "other pid namespaces", "/proc/self/ns/pid", "not looked into");
}

static void tell_leak(struct cause_run *run, uint32_t gpu, uint64_t bytes)
{
	const struct amounts_gpu *amounts = &run->input->amounts->gpus[gpu];
	bool watched = amounts->watched_ns != GW_UNKNOWN && amounts->watched_ns >= WATCHED_NS;
	struct verdict *verdict = tell_gpu(run, CAUSE_DRIVER_LEAK, CAUSE_LIKELY, CAUSE_ADVISE, gpu);

	verdict->bytes = bytes;
	tell_bytes(run, verdict, "without a holder", "NVML's memory", bytes);
	tell_ruled_out(run, verdict);
	tell_not_looked_at(run, verdict);
	if (!sight_is_whole(run))
		tell_or(verdict, CAUSE_DENIED, "the same look as root");
	else if (!run->scan->pid_namespace_initial)
		tell_or(verdict, CAUSE_OTHER_NAMESPACE, "the same look on the host");
	else if (!watched || anybody_ending(run))
		tell_or(verdict, CAUSE_EXITING, "whether it is still there after 30 s");
	else
		verdict->decide = "whether it grows with every job, and goes when all clients "
				  "of the GPU have ended";
	tell_remedy(run, verdict, "none that keeps others' work");
	tell_escalation(run, verdict,
			"end all clients of the GPU, with persistence off: nvidia-smi -pm 0; then "
			"reset it, reload the driver, reboot (each ends more work of others)");
}

void cause_driver_leak(struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;

	if (run->facts->memory_is_numa == AMOUNTS_YES || anybody_holds(run))
		return;
	for (uint32_t gpu = 0; amounts && gpu < amounts->gpu_count; gpu++) {
		uint64_t unexplained = unexplained_bytes(&amounts->gpus[gpu]);

		if (unexplained == GW_UNKNOWN)
			continue;
		unexplained += ownerless_bytes(run, &amounts->gpus[gpu]);
		if (unexplained > 0)
			tell_leak(run, gpu, unexplained);
	}
}
