/* SPDX-License-Identifier: MIT */
/*
 * Holders whose reason to exist is gone: the creator of the memory (C02), what started them (C03), their container
 * (C04); and NVML's pid that became somebody else's (C30).
 *
 * A parent with pid 1 proves nothing, and neither does another parent: a subreaper adopts orphans as well. A session
 * that is over is no proof either: nohup is meant to outlive it.
 *
 * Read next: cause_lineage.c.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "holders/cause_run.h"

static bool ignores_hangup(const struct scan_process *process)
{
	return process->signals.ignored != GW_UNKNOWN &&
	       (process->signals.ignored & (1ULL << (SIGHUP - 1)));
}

enum cause_orphaned orphaned(const struct cause_run *run, const struct scan_process *process)
{
	if (fact_job_runs(run, job_of(process)) == AMOUNTS_NO)
		return ORPHAN_CERTAIN;
	/* What leads its own session was meant to stand alone, as a daemon does. */
	if (process->sid == process->pid)
		return ORPHAN_NOT;
	if (relative_lives(run, process->sid) == AMOUNTS_NO)
		return ignores_hangup(process) ? ORPHAN_PERHAPS : ORPHAN_LIKELY;
	/* The last of a shell's pipeline looks the same as the worker of a server that was killed. */
	if (process->pgid != process->pid && relative_lives(run, process->pgid) == AMOUNTS_NO)
		return ORPHAN_PERHAPS;
	return ORPHAN_NOT;
}

static const char *how_text(enum lineage_how how)
{
	switch (how) {
	case LINEAGE_FILE:
		return "an open file in common with another one of them";
	case LINEAGE_GROUP:
		return "its process group";
	case LINEAGE_SESSION:
		return "its session";
	case LINEAGE_REST:
		return "no other creator lacks a holder";
	case LINEAGE_UNKNOWN:
	case LINEAGE_SELF:
	case LINEAGE_PARENT:
		break;
	}
	return "its parent";
}

static void tell_creator(struct cause_run *run, struct verdict *verdict, int32_t creator)
{
	const struct fact_label *label = fact_label_of(run, creator);

	tell(run, verdict, "creator", "NVML's list of processes", "%d", creator);
	if (!label)
		tell_of(run, verdict, "creator's references", creator, "fd", "none");
	else if (label->exists == AMOUNTS_NO)
		tell_of(run, verdict, "creator", creator, "stat", "no such process");
	else
		tell_of(run, verdict, "creator", creator, "stat", "%.16s, state %c, holds nothing",
			label->comm, label->state);
}

static bool is_heir(const struct cause_run *run, const struct scan_process *process,
		    int32_t creator)
{
	const struct lineage *lineage = lineage_of(run, process);

	return lineage->gone && lineage->creator == creator && !is_ending(process);
}

/* Is PROCESS the first of those that keep the memory of its creator? */
static bool is_first_heir(const struct cause_run *run, const struct scan_process *process)
{
	int32_t creator = lineage_of(run, process)->creator;

	if (!is_heir(run, process, creator))
		return false;
	for (const struct scan_process *other = run->scan->processes; other < process; other++) {
		if (is_heir(run, other, creator))
			return false;
	}
	return true;
}

void cause_inherited(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct lineage *lineage = lineage_of(run, process);
		struct verdict *verdict;

		if (!is_first_heir(run, process))
			continue;
		verdict = tell_process(run, CAUSE_INHERITED, CAUSE_CERTAIN, CAUSE_AUTO, process);
		for (const struct scan_process *other = process + 1;
		     other < run->scan->processes + run->scan->process_count; other++) {
			if (is_heir(run, other, lineage->creator))
				tell_member(run, verdict, other);
		}
		verdict->creator = lineage->creator;
		verdict->bytes = listed_bytes(run, lineage->creator);
		if (lineage->how == LINEAGE_REST) {
			verdict->certainty = CAUSE_LIKELY;
			verdict->decide = "whether the memory goes when they are ended";
		}
		tell_creator(run, verdict, lineage->creator);
		tell_bytes(run, verdict, "device memory", "NVML's list of processes",
			   verdict->bytes);
		tell(run, verdict, "holders", "/proc/PID/fd", "%u, first %d", verdict->member_count,
		     process->pid);
		tell_of(run, verdict, "belongs to the creator by", process->pid, "stat", "%s",
			how_text(lineage->how));
		tell_of(run, verdict, "parent", process->pid, "stat", "%d", process->ppid);
		tell_references(run, verdict, process);
		tell_wchan(run, verdict, process);
		tell_end_members(run, verdict);
		tell_escalation(run, verdict,
				"kill the control group of the job (ends all that is in it)");
	}
}

static void tell_why_orphan(struct cause_run *run, struct verdict *verdict,
			    const struct scan_process *process)
{
	uint64_t job = job_of(process);

	if (fact_job_runs(run, job) == AMOUNTS_NO)
		tell_of(run, verdict, "batch job", process->pid,
			process->place.slurm_job_id != GW_UNKNOWN ? "cgroup" : "environ",
			"%llu, which has ended", (unsigned long long)job);
	if (process->sid != process->pid && relative_lives(run, process->sid) == AMOUNTS_NO)
		tell_of(run, verdict, "session leader", process->pid, "stat", "%d: no such process",
			process->sid);
	if (process->pgid != process->pid && relative_lives(run, process->pgid) == AMOUNTS_NO)
		tell_of(run, verdict, "group leader", process->pid, "stat", "%d: no such process",
			process->pgid);
	if (ignores_hangup(process))
		tell_of(run, verdict, "ignores SIGHUP", process->pid, "status",
			"yes, as under nohup");
	tell_of(run, verdict, "parent", process->pid, "stat", "%d", process->ppid);
}

void cause_orphan(struct cause_run *run)
{
	static const enum cause_certainty certainty[] = {
		[ORPHAN_PERHAPS] = CAUSE_ONE_OF,
		[ORPHAN_LIKELY] = CAUSE_LIKELY,
		[ORPHAN_CERTAIN] = CAUSE_CERTAIN,
	};

	FOR_EACH_HOLDER(run, process)
	{
		enum cause_orphaned how = orphaned(run, process);
		struct verdict *verdict;

		if (how == ORPHAN_NOT || lineage_of(run, process)->gone || is_ending(process) ||
		    !holds_memory(run, process) || !is_work(run, process))
			continue;
		verdict = tell_process(run, CAUSE_ORPHAN, certainty[how],
				       how == ORPHAN_PERHAPS ? CAUSE_ASK : CAUSE_AUTO, process);
		verdict->bytes = listed_bytes(run, process->pid);
		tell_why_orphan(run, verdict, process);
		tell_references(run, verdict, process);
		if (how == ORPHAN_PERHAPS)
			tell_or(verdict, CAUSE_LIVE_OWNER,
				"whether its owner meant it to outlive what started it");
		else if (how == ORPHAN_LIKELY)
			verdict->decide = "whether its owner still waits for it";
		tell_end_members(run, verdict);
	}
}

static enum amounts_truth container_runs(const struct cause_run *run, const char *id)
{
	for (uint32_t i = 0; i < run->facts->container_count; i++) {
		if (!strcmp(run->facts->containers[i].id, id))
			return run->facts->containers[i].running;
	}
	return AMOUNTS_UNKNOWN;
}

void cause_container(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct cgroup_place *place = &process->place;
		enum amounts_truth runs = container_runs(run, place->container_id);
		struct verdict *verdict;

		if (place->runtime == CGROUP_NO_CONTAINER || runs == AMOUNTS_YES ||
		    !(place->deleted || runs == AMOUNTS_NO))
			continue;
		verdict = tell_process(run, CAUSE_CONTAINER, CAUSE_CERTAIN, CAUSE_ASK, process);
		verdict->bytes = listed_bytes(run, process->pid);
		tell_of(run, verdict, "container", process->pid, "cgroup", "%s %s",
			cgroup_runtime_name(place->runtime), place->container_id);
		tell_of(run, verdict, "control group", process->pid, "cgroup", "%s",
			place->deleted ? "removed" : "there, but its container has ended");
		tell_references(run, verdict, process);
		tell_end_members(run, verdict);
		tell_escalation(run, verdict,
				"remove the container by force with %s (ends all that is in it)",
				cgroup_runtime_name(place->runtime));
	}
}

/* A label that a living process has, which holds nothing: the number was given again, or it closed all files. */
static void tell_recycled(struct cause_run *run, uint32_t gpu, const struct amounts_process *listed,
			  const struct fact_label *label)
{
	bool later = label->client_start_ticks != GW_UNKNOWN && label->start_ticks != GW_UNKNOWN &&
		     label->start_ticks > label->client_start_ticks;
	struct verdict *verdict = tell_gpu(run, CAUSE_RECYCLED,
					   later ? CAUSE_CERTAIN : CAUSE_LIKELY, CAUSE_LEAVE, gpu);

	verdict->pid = listed->pid;
	verdict->bytes = listed->used_bytes;
	tell_bytes(run, verdict, "device memory", "NVML's list of processes", listed->used_bytes);
	tell_of(run, verdict, "process of that number", listed->pid, "stat", "%.16s, state %c",
		label->comm, label->state);
	tell_of(run, verdict, "its references", listed->pid, "fd", "none");
	tell_of(run, verdict, "started", listed->pid, "stat", "tick %llu after the boot",
		(unsigned long long)label->start_ticks);
	if (later)
		tell(run, verdict, "client created", "NVML's accounting", "tick %llu",
		     (unsigned long long)label->client_start_ticks);
	else
		tell_or(verdict, CAUSE_INHERITED,
			"whether it started after the memory was allocated: NVML's accounting "
			"tells, where it is on");
	tell_remedy(run, verdict, "never end %d: end the real holder, which C02 names",
		    listed->pid);
}

void cause_recycled(struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;

	for (uint32_t gpu = 0; amounts && gpu < amounts->gpu_count; gpu++) {
		for (uint32_t i = 0; i < amounts->gpus[gpu].process_count; i++) {
			const struct amounts_process *listed = &amounts->gpus[gpu].processes[i];
			const struct fact_label *label = fact_label_of(run, listed->pid);

			if (label && label->exists == AMOUNTS_YES &&
			    !(label->state == 'Z' && label->threads <= 1) &&
			    label_holds_nothing(run, listed->pid) == AMOUNTS_YES)
				tell_recycled(run, gpu, listed, label);
		}
	}
}
