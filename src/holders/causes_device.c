/* SPDX-License-Identifier: MIT */
/*
 * What a GPU or its driver does by itself: baseline (C24), memory as a NUMA node (C26), busy without anybody (C35), lost
 * (C36), suspend (C39), BAR1 (C40).
 *
 * Read next: causes_leak.c for what remains when none of all forty applies.
 */
#include <stdio.h>

#include "holders/cause_run.h"

#define FOR_EACH_GPU(run, gpu)                                                                     \
	for (uint32_t gpu = 0; (run)->input->amounts && (gpu) < (run)->input->amounts->gpu_count;  \
	     (gpu)++)

static const struct amounts_gpu *amounts_of(const struct cause_run *run, uint32_t gpu)
{
	return &run->input->amounts->gpus[gpu];
}

void cause_baseline(struct cause_run *run)
{
	FOR_EACH_GPU(run, gpu)
	{
		const struct amounts_gpu *amounts = amounts_of(run, gpu);
		bool learnt = amounts->baseline_bytes != GW_UNKNOWN;
		struct verdict *verdict;

		if (amounts->unattributed_bytes == GW_UNKNOWN || unexplained_bytes(amounts) != 0 ||
		    (amounts->unattributed_bytes == 0 && amounts->reserved_bytes == GW_UNKNOWN))
			continue;
		verdict = tell_gpu(run, CAUSE_BASELINE, learnt ? CAUSE_CERTAIN : CAUSE_LIKELY,
				   CAUSE_LEAVE, gpu);
		verdict->bytes = amounts->unattributed_bytes;
		if (!learnt)
			verdict->decide = "whether it is the same when nothing runs";
		tell_bytes(run, verdict, "unattributed", "NVML's memory",
			   amounts->unattributed_bytes);
		tell_bytes(run, verdict, "reserved", "NVML's memory", amounts->reserved_bytes);
		tell_bytes(run, verdict, "when nothing runs", "learnt before",
			   amounts->baseline_bytes);
		if (amounts->persistence != AMOUNTS_UNKNOWN)
			tell(run, verdict, "persistence", "NVML's persistence mode", "%s",
			     amounts->persistence == AMOUNTS_YES ? "on" : "off");
		tell_remedy(run, verdict, "none: this is normal");
	}
}

void cause_numa(struct cause_run *run)
{
	if (run->facts->memory_is_numa != AMOUNTS_YES)
		return;
	FOR_EACH_GPU(run, gpu)
	{
		uint64_t unexplained = unexplained_bytes(amounts_of(run, gpu));
		struct verdict *verdict;

		if (unexplained == 0 || unexplained == GW_UNKNOWN)
			continue;
		verdict = tell_gpu(run, CAUSE_NUMA, CAUSE_LIKELY, CAUSE_ADVISE, gpu);
		verdict->bytes = unexplained;
		verdict->decide = "whether it goes when caches are dropped";
		tell(run, verdict, "memory of the GPU", "/proc/driver/nvidia/gpus/*/numa_status",
		     "online: the operating system owns it");
		tell_bytes(run, verdict, "unattributed above normal", "NVML's memory", unexplained);
		tell_remedy(run, verdict, "none needed; to see: echo 1 > /proc/sys/vm/drop_caches");
	}
}

/* Could anybody who was seen, or could not be seen, use the GPU? */
static bool nobody_uses_it(const struct cause_run *run, const struct amounts_gpu *amounts)
{
	FOR_EACH_HOLDER(run, process)
	{
		if (holds_memory(run, process) && !is_daemon(process))
			return false;
	}
	return amounts->process_count == 0 && sight_is_whole(run) &&
	       run->scan->pid_namespace_initial;
}

static bool has_xid(const struct cause_run *run, uint32_t gpu)
{
	for (uint32_t i = 0; i < run->facts->xid_count; i++) {
		if (run->facts->xids[i].gpu == gpu)
			return true;
	}
	return false;
}

void cause_ghost_utilization(struct cause_run *run)
{
	FOR_EACH_GPU(run, gpu)
	{
		const struct amounts_gpu *amounts = amounts_of(run, gpu);
		struct verdict *verdict;

		if (amounts->utilization_lowest_percent < 99 || amounts->watched_ns == GW_UNKNOWN ||
		    unexplained_bytes(amounts) != 0 || !nobody_uses_it(run, amounts) ||
		    has_xid(run, gpu))
			continue;
		verdict = tell_gpu(run, CAUSE_GHOST_UTILIZATION, CAUSE_LIKELY, CAUSE_ADVISE, gpu);
		verdict->bytes = 0;
		verdict->decide = "whether it goes when a program uses the GPU for a moment";
		tell(run, verdict, "busy", "NVML's utilization", "%d %% or more for %.0f s",
		     amounts->utilization_lowest_percent, (double)amounts->watched_ns / 1e9);
		tell(run, verdict, "holders", "/proc", "none");
		tell(run, verdict, "Xids", "/dev/kmsg", "none known");
		tell_remedy(run, verdict,
			    "run any small CUDA program once; or switch persistence off and on: "
			    "nvidia-smi -pm 0; nvidia-smi -pm 1");
		tell_escalation(run, verdict, "reset the GPU while nobody uses it");
	}
}

static const char *recovery_text(uint32_t action)
{
	static const char *const texts[] = {
		"none",
		"reset the GPU",
		"reboot",
		"drain peer-to-peer traffic, then reset",
		"drain the GPU, then reset",
	};

	return action < sizeof(texts) / sizeof(texts[0]) ? texts[action] : "not known";
}

static bool is_fatal_xid(uint32_t number)
{
	return number == 79 || number == 119 || number == 120;
}

static void tell_lost(struct cause_run *run, uint32_t gpu, bool by_nvml)
{
	const struct amounts_gpu *amounts = amounts_of(run, gpu);
	struct verdict *verdict = tell_gpu(
		run, CAUSE_GPU_LOST, by_nvml ? CAUSE_CERTAIN : CAUSE_LIKELY, CAUSE_ADVISE, gpu);

	if (by_nvml)
		tell(run, verdict, "NVML", "its answer", "%s",
		     amounts->error.msg[0] ? amounts->error.msg : "the GPU is lost");
	else
		verdict->decide = "whether NVML still answers for it";
	for (uint32_t i = 0; i < run->facts->xid_count; i++) {
		if (run->facts->xids[i].gpu == gpu)
			tell(run, verdict, "Xid", "/dev/kmsg", "%u", run->facts->xids[i].number);
	}
	tell(run, verdict, "recovery action", "NVML's field 230", "%s",
	     recovery_text(amounts->recovery_action));
	tell_remedy(run, verdict, "stop asking NVML about it; %s",
		    amounts->recovery_action > 0 && amounts->recovery_action < 5
			    ? recovery_text(amounts->recovery_action)
			    : "drain the machine, then reset the GPU");
	tell_escalation(run, verdict,
			"reboot, or power the machine off and on (ends all work on "
			"it)");
}

void cause_gpu_lost(struct cause_run *run)
{
	FOR_EACH_GPU(run, gpu)
	{
		const struct amounts_gpu *amounts = amounts_of(run, gpu);
		bool by_nvml = amounts->memory == AMOUNTS_LOST || amounts->listed == AMOUNTS_LOST;
		bool by_xid = false;

		for (uint32_t i = 0; i < run->facts->xid_count; i++)
			by_xid |= run->facts->xids[i].gpu == gpu &&
				  is_fatal_xid(run->facts->xids[i].number);
		if (by_nvml || by_xid)
			tell_lost(run, gpu, by_nvml);
	}
}

void cause_suspend(struct cause_run *run)
{
	struct verdict *verdict;

	if (run->facts->suspending != AMOUNTS_YES && run->facts->uvm_queue_busy != AMOUNTS_YES)
		return;
	verdict = tell_all(run, CAUSE_SUSPEND, CAUSE_LIKELY, CAUSE_WAIT);
	verdict->bytes = unexplained_everywhere(run);
	verdict->decide = "whether it goes when the machine has resumed";
	if (run->facts->suspending == AMOUNTS_YES)
		tell(run, verdict, "suspend", "/proc/driver/nvidia/suspend", "in progress");
	if (run->facts->uvm_queue_busy == AMOUNTS_YES)
		tell(run, verdict, "UVM deferred release queue", "/proc/PID/stack", "busy");
	tell_remedy(run, verdict, "resume the machine, or stop the work that uses the GPU");
	tell_escalation(run, verdict, "reload nvidia_uvm (ends all work on all GPUs)");
}

void cause_bar1(struct cause_run *run)
{
	FOR_EACH_GPU(run, gpu)
	{
		const struct amounts_gpu *amounts = amounts_of(run, gpu);
		struct verdict *verdict;

		if (amounts->bar1_used_bytes == GW_UNKNOWN ||
		    amounts->bar1_total_bytes == GW_UNKNOWN || unexplained_bytes(amounts) != 0 ||
		    amounts->bar1_used_bytes < amounts->bar1_total_bytes / 2)
			continue;
		verdict = tell_gpu(run, CAUSE_BAR1, CAUSE_LIKELY, CAUSE_ASK, gpu);
		verdict->bytes = 0;
		verdict->decide = "whether it goes when its holders end";
		tell_bytes(run, verdict, "BAR1 used", "NVML's BAR1 memory",
			   amounts->bar1_used_bytes);
		tell_bytes(run, verdict, "of", "NVML's BAR1 memory", amounts->bar1_total_bytes);
		tell_bytes(run, verdict, "unattributed", "NVML's memory",
			   amounts->unattributed_bytes);
		tell_remedy(run, verdict,
			    "end orphans, C02, C03 and C19: they keep mappings of it");
	}
}
