/* SPDX-License-Identifier: MIT */
/*
 * Memory that lives on through something other than its creator's files: exported (C16), imported by CUDA IPC (C17) or
 * by another machine (C18), registered with other devices (C19), managed (C25).
 *
 * NVML lists none of these for whoever keeps them, but for an importer, to which the bytes move.
 *
 * Read next: cause_run.h.
 */
#include <stdio.h>

#include "holders/cause_run.h"

static uint32_t count_kind(const struct cause_run *run, const struct scan_process *process,
			   enum scan_device_kind kind)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < process->reference_count; i++) {
		const struct scan_reference *reference =
			&run->scan->references[process->first_reference + i];

		if (reference->device.kind == kind)
			count += reference->count;
	}
	return count;
}

/* nvidiactl without UVM, and no client of its own: the descriptor is the memory; or it asks NVML. */
static bool may_hold_exported(const struct cause_run *run, const struct scan_process *process)
{
	return holds_kind(run, process, SCAN_CONTROL) && !holds_kind(run, process, SCAN_UVM) &&
	       is_work(run, process) && !is_ending(process) && !is_listed(run, process->pid) &&
	       lineage_of(run, process)->how == LINEAGE_UNKNOWN;
}

void cause_exported(struct cause_run *run)
{
	uint64_t unexplained = unexplained_everywhere(run);

	FOR_EACH_HOLDER(run, process)
	{
		bool asks = holds_kind(run, process, SCAN_GPU);
		struct verdict *verdict;

		if (!may_hold_exported(run, process))
			continue;
		verdict = tell_process(run, CAUSE_EXPORTED,
				       unexplained == 0 || unexplained == GW_UNKNOWN ? CAUSE_ONE_OF
										     : CAUSE_LIKELY,
				       CAUSE_ASK, process);
		tell_of(run, verdict, "descriptors of nvidiactl", process->pid, "fd", "%u",
			count_kind(run, process, SCAN_CONTROL));
		tell_of(run, verdict, "descriptors of nvidia-uvm", process->pid, "fd", "none");
		if (lists_are_whole(run))
			tell(run, verdict, "listed", "NVML's list of processes", "no");
		tell_bytes(run, verdict, "unattributed above normal", "NVML's memory", unexplained);
		if (asks || verdict->certainty == CAUSE_ONE_OF)
			tell_or(verdict, CAUSE_LIVE_OWNER,
				"whether unattributed memory goes when it closes them: a program "
				"that only asks NVML holds the same devices");
		else
			verdict->decide = "whether unattributed memory goes when it closes them";
		tell_remedy(run, verdict,
			    "let it close them, or end it: kill -TERM %d; if it stays: kill -KILL "
			    "%d",
			    process->pid, process->pid);
		tell_escalation(run, verdict,
				"what was kept in that memory on purpose is lost with it");
	}
}

static const struct amounts_gpu *same_gpu(const struct amounts *amounts,
					  const struct amounts_gpu *gpu)
{
	for (uint32_t i = 0; amounts && i < amounts->gpu_count; i++) {
		if (amounts->gpus[i].index == gpu->index)
			return &amounts->gpus[i];
	}
	return NULL;
}

/* By how much NVML's entry of an importer grew since BEFORE; 0 where it did not. */
static uint64_t growth(const struct amounts_gpu *before, const struct amounts_process *now)
{
	const struct amounts_process *was = listed_on(before, now->pid);

	if (!was || was->used_bytes == GW_UNKNOWN || now->used_bytes == GW_UNKNOWN ||
	    now->used_bytes <= was->used_bytes)
		return 0;
	return now->used_bytes - was->used_bytes;
}

static void tell_importer(struct cause_run *run, uint32_t gpu, const struct amounts_process *now,
			  const struct amounts_process *gone, uint64_t grown)
{
	const struct scan_process *process = scan_find(run->scan, now->pid);
	struct verdict *verdict;

	if (process)
		verdict = tell_process(run, CAUSE_IPC_IMPORTER, CAUSE_LIKELY, CAUSE_ASK, process);
	else
		verdict = tell_gpu(run, CAUSE_IPC_IMPORTER, CAUSE_LIKELY, CAUSE_ASK, gpu);
	verdict->gpu = gpu;
	verdict->pid = now->pid;
	verdict->bytes = grown;
	verdict->decide = "whether it allocated that much itself at the same time";
	tell(run, verdict, "gone", "NVML's list of processes", "%d", gone->pid);
	tell_bytes(run, verdict, "its memory then", "NVML's list of processes", gone->used_bytes);
	tell_bytes(run, verdict, "grew meanwhile by", "NVML's list of processes", grown);
	tell_remedy(run, verdict, "restart the importer, or let it close what it imported: %d",
		    now->pid);
	tell_escalation(run, verdict, "kill -TERM %d (what it has not saved is lost)", now->pid);
}

/* Someone who grew by at least half of what another one had that is gone. */
static void find_importers(struct cause_run *run, uint32_t gpu, const struct amounts_gpu *before)
{
	const struct amounts_gpu *now = &run->input->amounts->gpus[gpu];

	for (uint32_t i = 0; i < now->process_count; i++) {
		uint64_t grown = growth(before, &now->processes[i]);

		for (uint32_t j = 0; grown && j < before->process_count; j++) {
			const struct amounts_process *gone = &before->processes[j];

			if (gone->used_bytes != GW_UNKNOWN && gone->used_bytes > 0 &&
			    !listed_on(now, gone->pid) && grown >= gone->used_bytes / 2 &&
			    grown <= gone->used_bytes) {
				tell_importer(run, gpu, &now->processes[i], gone, grown);
				break;
			}
		}
	}
}

void cause_ipc_importer(struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;

	for (uint32_t gpu = 0; amounts && gpu < amounts->gpu_count; gpu++) {
		const struct amounts_gpu *before =
			same_gpu(run->input->before, &amounts->gpus[gpu]);

		if (before)
			find_importers(run, gpu, before);
	}
}

static const struct scan_process *channel_holder(const struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		if (holds_kind(run, process, SCAN_IMEX_CHANNEL))
			return process;
	}
	return NULL;
}

/* Could a process here keep memory that is listed for nobody? */
static bool anybody_unlisted(const struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		if (holds_memory(run, process) && is_work(run, process) &&
		    !is_listed(run, process->pid))
			return true;
	}
	return false;
}

void cause_remote_importer(struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;
	const struct scan_process *channel = channel_holder(run);

	if (!channel && run->facts->fabric != AMOUNTS_YES)
		return;
	for (uint32_t gpu = 0; amounts && gpu < amounts->gpu_count; gpu++) {
		uint64_t unexplained = unexplained_bytes(&amounts->gpus[gpu]);
		struct verdict *verdict;

		if (unexplained == 0 || unexplained == GW_UNKNOWN || anybody_unlisted(run))
			continue;
		verdict = tell_gpu(run, CAUSE_REMOTE_IMPORTER, CAUSE_ONE_OF, CAUSE_ADVISE, gpu);
		verdict->bytes = unexplained;
		tell_bytes(run, verdict, "unattributed above normal", "NVML's memory", unexplained);
		tell(run, verdict, "holder here", "/proc", "none");
		if (channel)
			tell_of(run, verdict, "IMEX channel", channel->pid, "fd", "open");
		else
			tell(run, verdict, "fabric", "NVML's fabric state", "part of one");
		tell_or(verdict, CAUSE_DRIVER_LEAK,
			"whether it goes when the importers on other machines end");
		tell_remedy(run, verdict, "restart the importers on the other machines");
		tell_escalation(run, verdict,
				"recover the IMEX domain (ends all that use it on every machine)");
	}
}

void cause_registered(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		bool dmabuf = holds_kind(run, process, SCAN_DMABUF);
		bool gdrdrv = holds_kind(run, process, SCAN_GDRDRV);
		struct verdict *verdict;
		uint64_t bytes = 0;

		if ((!dmabuf && !gdrdrv) || is_display(run, process))
			continue;
		for (uint32_t i = 0; i < process->reference_count; i++) {
			const struct scan_reference *reference =
				&run->scan->references[process->first_reference + i];

			if (reference->device.kind == SCAN_DMABUF && reference->bytes != GW_UNKNOWN)
				bytes += reference->bytes;
		}
		verdict = tell_process(run, CAUSE_REGISTERED, CAUSE_CERTAIN,
				       is_listed(run, process->pid) ? CAUSE_LEAVE : CAUSE_ASK,
				       process);
		verdict->bytes = bytes ? bytes : GW_UNKNOWN;
		if (dmabuf) {
			tell_of(run, verdict, "dma-bufs of nvidia", process->pid, "fdinfo", "%u",
				count_kind(run, process, SCAN_DMABUF));
			tell_bytes(run, verdict, "their size", "/proc/PID/fdinfo", verdict->bytes);
		}
		if (gdrdrv)
			tell_of(run, verdict, "gdrdrv", process->pid, "fd", "open");
		tell_remedy(run, verdict, "kill -TERM %d; if it stays: kill -KILL %d", process->pid,
			    process->pid);
		tell_escalation(run, verdict,
				"unload gdrdrv or nvidia_peermem (ends everybody's transfers)");
	}
}

/* Only those who are listed use UVM, and more is used than their lists say. */
void cause_managed(struct cause_run *run)
{
	if (anybody_unlisted(run))
		return;
	FOR_EACH_HOLDER(run, process)
	{
		uint32_t gpu = gpu_of(run, process);
		const struct amounts_gpu *amounts;
		uint64_t unexplained;
		struct verdict *verdict;

		if (gpu == CAUSE_NOBODY || !holds_kind(run, process, SCAN_UVM) ||
		    lineage_of(run, process)->how != LINEAGE_SELF || is_ending(process))
			continue;
		amounts = &run->input->amounts->gpus[gpu];
		unexplained = unexplained_bytes(amounts);
		if (unexplained == 0 || unexplained == GW_UNKNOWN)
			continue;
		verdict = tell_process(run, CAUSE_MANAGED, CAUSE_ONE_OF, CAUSE_LEAVE, process);
		verdict->bytes = amounts->process_count == 1 ? unexplained : GW_UNKNOWN;
		tell_of(run, verdict, "nvidia-uvm", process->pid, "fd", "open");
		tell_bytes(run, verdict, "listed for it", "NVML's list of processes",
			   listed_bytes(run, process->pid));
		tell_bytes(run, verdict, "unattributed above normal", "NVML's memory", unexplained);
		tell_or(verdict, CAUSE_DRIVER_LEAK,
			"whether unattributed memory goes when it ends, or frees its managed "
			"memory");
		tell_remedy(run, verdict, "none: it is in use");
	}
}
