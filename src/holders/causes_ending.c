/* SPDX-License-Identifier: MIT */
/*
 * Holders that end, or should and do not: zombie with living threads (C05), zombie (C07), torn down (C08), stuck
 * (C09), stopped (C10), traced (C11), frozen (C12).
 *
 * One look cannot tell slow from stuck: an ending process is stuck when it was watched for longer than its memory
 * needs, and nothing moved.
 *
 * Read next: cause_run.h.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "holders/cause_run.h"

/* Teardown: 2 s, and 0.15 s for each GiB of pinned host memory, as measured on an H200. */
#define TEARDOWN_NS	    2000000000ULL
#define TEARDOWN_NS_PER_GIB 150000000ULL

static uint64_t teardown_ns(const struct scan_process *process)
{
	uint64_t pinned = process->pinned_bytes == GW_UNKNOWN ? 0 : process->pinned_bytes;

	/* After its memory is gone nothing says how much there was: what is still resident is the bound. */
	if (!pinned && process->rss_bytes != GW_UNKNOWN)
		pinned = process->rss_bytes;
	return TEARDOWN_NS + (uint64_t)((double)pinned / 1073741824.0 * TEARDOWN_NS_PER_GIB);
}

static bool is_killed(const struct scan_process *process)
{
	const uint64_t bit = 1ULL << (SIGKILL - 1);

	return (process->signals.pending != GW_UNKNOWN && (process->signals.pending & bit)) ||
	       (process->signals.pending_thread != GW_UNKNOWN &&
		(process->signals.pending_thread & bit));
}

/* Was it watched for longer than it may take, and nothing moved? */
static bool is_stuck(const struct cause_run *run, const struct scan_process *process)
{
	const struct fact_watch *watch = fact_watch_of(run, process);

	return watch && watch->moved == AMOUNTS_NO && watch->watched_ns > teardown_ns(process);
}

static bool is_stuck_or_ending(const struct scan_process *process)
{
	return is_ending(process) || (is_killed(process) && !(process->flags & SCAN_FROZEN_V1));
}

void cause_zombie_leader(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		struct verdict *verdict;

		if (!(process->flags & SCAN_ZOMBIE_LEADER))
			continue;
		verdict =
			tell_process(run, CAUSE_ZOMBIE_LEADER, CAUSE_CERTAIN, CAUSE_AUTO, process);
		verdict->tid = process->wchan_tid;
		verdict->bytes = listed_bytes(run, process->pid);
		tell_of(run, verdict, "state", process->pid, "stat", "%c", process->state);
		tell_of(run, verdict, "threads", process->pid, "status", "%d", process->threads);
		tell_references(run, verdict, process);
		tell_wchan(run, verdict, process);
		tell_remedy(run, verdict, "kill -KILL %d (it ends the living threads)",
			    process->pid);
		tell_escalation(run, verdict, "if a thread stays in state D: see C09");
	}
}

/* NVML lists a pid that is a pure zombie: its release is over, so somebody else keeps the memory. */
void cause_zombie(struct cause_run *run)
{
	for (uint32_t i = 0; i < run->facts->label_count; i++) {
		const struct fact_label *label = &run->facts->labels[i];
		struct verdict *verdict;

		if (label->state != 'Z' || label->threads > 1 || label->threads < 0 ||
		    scan_find(run->scan, label->pid))
			continue;
		verdict = tell_all(run, CAUSE_ZOMBIE, CAUSE_CERTAIN, CAUSE_LEAVE);
		verdict->pid = label->pid;
		verdict->bytes = 0;
		tell_of(run, verdict, "state", label->pid, "stat", "Z, %d thread%s", label->threads,
			label->threads == 1 ? "" : "s");
		tell_of(run, verdict, "parent", label->pid, "stat", "%d", label->ppid);
		tell_remedy(run, verdict,
			    "none for memory: it holds nothing; whoever does has a verdict of its "
			    "own");
		if (label->ppid > 1)
			tell_escalation(run, verdict,
					"to be rid of the entry: kill -CHLD %d; then end %d, if it "
					"is no supervisor of others",
					label->ppid, label->ppid);
	}
}

static void tell_ending(struct cause_run *run, struct verdict *verdict,
			const struct scan_process *process)
{
	const struct fact_watch *watch = fact_watch_of(run, process);

	tell_of(run, verdict, "state", process->pid, "stat", "%c%s", process->state,
		is_ending(process) ? ", ending" : "");
	if (is_killed(process))
		tell_of(run, verdict, "SIGKILL", process->pid, "status", "pending");
	tell_references(run, verdict, process);
	tell_wchan(run, verdict, process);
	if (process->stack)
		tell_of(run, verdict, "stack", process->pid, "stack", "%.300s", process->stack);
	tell_bytes(run, verdict, "resident", "/proc/PID/status", process->rss_bytes);
	if (watch)
		tell_of(run, verdict, "watched", process->pid, "stat", "%.1f s, %s",
			(double)watch->watched_ns / 1e9,
			watch->moved == AMOUNTS_YES ? "it moves" : "nothing moved");
}

void cause_exiting(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct fact_watch *watch = fact_watch_of(run, process);
		struct verdict *verdict;

		if (!is_stuck_or_ending(process) || is_stuck(run, process))
			continue;
		verdict = tell_process(run, CAUSE_EXITING, CAUSE_CERTAIN, CAUSE_WAIT, process);
		verdict->bytes = listed_bytes(run, process->pid);
		tell_ending(run, verdict, process);
		if (!watch || watch->moved != AMOUNTS_YES)
			tell_or(verdict, CAUSE_UNKILLABLE,
				"whether it is gone, or its memory shrank, when it is looked at "
				"again after the time that it may take");
		tell_remedy(run, verdict, "wait: it may take %.1f s",
			    (double)teardown_ns(process) / 1e9);
		tell_escalation(run, verdict, "if nothing moves for that long: see C09");
	}
}

void cause_unkillable(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		struct verdict *verdict;

		if (!is_stuck_or_ending(process) || !is_stuck(run, process))
			continue;
		verdict = tell_process(run, CAUSE_UNKILLABLE, CAUSE_CERTAIN, CAUSE_ADVISE, process);
		verdict->bytes = listed_bytes(run, process->pid);
		tell_ending(run, verdict, process);
		for (uint32_t i = 0; i < run->facts->xid_count; i++) {
			if (run->facts->xids[i].gpu == verdict->gpu)
				tell(run, verdict, "Xid", "/dev/kmsg", "%u",
				     run->facts->xids[i].number);
		}
		tell_remedy(run, verdict,
			    "none: another SIGKILL changes nothing; drain the machine");
		tell_escalation(run, verdict,
				"what the driver's recovery action says: reset of the GPU (ends "
				"everybody's work on it), then reboot");
	}
}

void cause_stopped(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		struct verdict *verdict;
		bool orphan =
			orphaned(run, process) >= ORPHAN_LIKELY || lineage_of(run, process)->gone;

		if (process->state != 'T')
			continue;
		verdict = tell_process(run, CAUSE_STOPPED, CAUSE_CERTAIN,
				       orphan ? CAUSE_AUTO : CAUSE_ASK, process);
		verdict->bytes = listed_bytes(run, process->pid);
		tell_of(run, verdict, "state", process->pid, "stat", "T");
		tell_of(run, verdict, "terminal", process->pid, "stat", "%s",
			process->tty ? "has one" : "none");
		tell_references(run, verdict, process);
		tell_remedy(run, verdict,
			    "to go on: kill -CONT %d; to end it: kill -TERM %d, then kill -CONT %d",
			    process->pid, process->pid, process->pid);
		tell_escalation(run, verdict, "kill -KILL %d (what it has not saved is lost)",
				process->pid);
	}
}

void cause_traced(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		const struct scan_relative *tracer =
			scan_find_relative(run->scan, process->tracer_pid);
		struct verdict *verdict;

		if (process->tracer_pid <= 0 && process->state != 't')
			continue;
		verdict = tell_process(run, CAUSE_TRACED, CAUSE_CERTAIN, CAUSE_ASK, process);
		verdict->bytes = listed_bytes(run, process->pid);
		tell_of(run, verdict, "state", process->pid, "stat", "%c", process->state);
		tell_of(run, verdict, "tracer", process->pid, "status", "%d %.16s",
			process->tracer_pid, tracer ? tracer->comm : "");
		tell_references(run, verdict, process);
		tell_remedy(run, verdict, "end the debugger: kill -TERM %d", process->tracer_pid);
		tell_escalation(run, verdict, "kill -KILL %d (what it has not saved is lost)",
				process->pid);
	}
}

void cause_frozen(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		bool first = process->flags & SCAN_FROZEN_V1;
		const char *path = first ? process->place.freezer : process->place.unified;
		struct verdict *verdict;

		if (!(process->flags & (SCAN_FROZEN | SCAN_FROZEN_V1)))
			continue;
		verdict = tell_process(run, CAUSE_FROZEN, CAUSE_CERTAIN, CAUSE_ASK, process);
		verdict->bytes = listed_bytes(run, process->pid);
		tell(run, verdict, "frozen", first ? "freezer.state (v1)" : "cgroup.events (v2)",
		     "%s", path ? path : "control group not known");
		if (is_killed(process))
			tell_of(run, verdict, "SIGKILL", process->pid, "status", "pending");
		tell_references(run, verdict, process);
		if (first)
			tell_remedy(run, verdict,
				    "kill -KILL %d, then thaw its group: SIGKILL waits until then",
				    process->pid);
		else
			tell_remedy(run, verdict,
				    "thaw its group; to end it: kill -KILL %d works on frozen ones",
				    process->pid);
		tell_escalation(run, verdict,
				"thawing lets all others of the group run on as well");
	}
}
