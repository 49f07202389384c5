/* SPDX-License-Identifier: MIT */
/*
 * Those who serve others, and are left alone: MPS (C20), daemons (C21), displays (C22), kernel modules (C23), holders of
 * MIG instances (C32).
 *
 * Read next: cause_kind.c for how they are known.
 */
#include <stdio.h>
#include <string.h>

#include "holders/cause_run.h"

static const struct amounts_process *listed_as(const struct cause_run *run, int32_t pid,
					       enum amounts_list list)
{
	const struct amounts *amounts = run->input->amounts;

	for (uint32_t i = 0; amounts && i < amounts->gpu_count; i++) {
		const struct amounts_process *listed = listed_on(&amounts->gpus[i], pid);

		if (listed && listed->list == list)
			return listed;
	}
	return NULL;
}

static const struct scan_process *mps_server(const struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		if (is_mps(process))
			return process;
	}
	return NULL;
}

static void tell_program(struct cause_run *run, struct verdict *verdict,
			 const struct scan_process *process)
{
	char program[128];

	program_name(process, program, sizeof(program));
	tell_of(run, verdict, "program", process->pid, process->exe ? "exe" : "comm", "%s",
		program);
	if (process->place.unit[0])
		tell_of(run, verdict, "unit", process->pid, "cgroup", "%s", process->place.unit);
	tell_references(run, verdict, process);
}

static void tell_mps(struct cause_run *run, const struct scan_process *process,
		     enum cause_certainty certainty)
{
	struct verdict *verdict = tell_process(run, CAUSE_MPS, certainty, CAUSE_ASK, process);
	const char *folder =
		process->mps_pipe_directory ? process->mps_pipe_directory : "/tmp/nvidia-mps";

	verdict->bytes = listed_bytes(run, process->pid);
	if (certainty != CAUSE_CERTAIN)
		verdict->decide = "whether NVML lists it as a client of MPS";
	tell_program(run, verdict, process);
	tell_of(run, verdict, "pipe directory", process->pid, "environ", "%s%s", folder,
		process->mps_pipe_directory ? "" : " (not set: the usual one)");
	if (is_mps(process)) {
		tell_remedy(run, verdict,
			    "when it has no clients: echo quit | "
			    "nvidia-cuda-mps-control");
		tell_escalation(run, verdict,
				"echo quit -f | nvidia-cuda-mps-control (ends all its clients)");
	} else {
		tell_remedy(run, verdict,
			    "echo terminate_client SERVER_PID %d | nvidia-cuda-mps-control; then "
			    "kill -TERM %d",
			    process->pid, process->pid);
		tell_escalation(run, verdict,
				"kill -KILL %d before terminate_client (can fault the other "
				"clients of the server)",
				process->pid);
	}
}

void cause_mps(struct cause_run *run)
{
	const struct scan_process *server = mps_server(run);

	FOR_EACH_HOLDER(run, process)
	{
		if (is_mps(process) || listed_as(run, process->pid, AMOUNTS_MPS))
			tell_mps(run, process, CAUSE_CERTAIN);
		else if (server && process->mps_pipe_directory && holds_memory(run, process) &&
			 is_work(run, process))
			tell_mps(run, process, CAUSE_LIKELY);
	}
}

void cause_daemon(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		bool in_unit = strstr(process->place.unit, ".service") != NULL;
		struct verdict *verdict;

		if (!is_daemon(process))
			continue;
		verdict = tell_process(run, CAUSE_DAEMON, in_unit ? CAUSE_CERTAIN : CAUSE_LIKELY,
				       CAUSE_LEAVE, process);
		verdict->bytes =
			is_listed(run, process->pid) ? listed_bytes(run, process->pid) : GW_UNKNOWN;
		tell_program(run, verdict, process);
		if (!in_unit)
			verdict->decide = "whether it is the system's: a name can be chosen";
		tell_remedy(run, verdict, "none: there is no memory to gain");
		if (in_unit)
			tell_escalation(run, verdict,
					"before a reset of the GPU: systemctl stop %s",
					process->place.unit);
	}
}

void cause_display(struct cause_run *run)
{
	FOR_EACH_HOLDER(run, process)
	{
		bool graphics = listed_as(run, process->pid, AMOUNTS_GRAPHICS) != NULL;
		struct verdict *verdict;

		if (!graphics && !is_display(run, process))
			continue;
		verdict = tell_process(run, CAUSE_DISPLAY, CAUSE_CERTAIN, CAUSE_LEAVE, process);
		verdict->bytes = listed_bytes(run, process->pid);
		tell_program(run, verdict, process);
		if (graphics)
			tell(run, verdict, "type", "NVML's list of processes", "graphics");
		if (holds_kind(run, process, SCAN_DRM))
			tell_of(run, verdict, "display device", process->pid, "fd", "open");
		tell_remedy(run, verdict, "none: somebody looks at it");
		tell_escalation(run, verdict,
				"before a reset of the GPU: end the graphical session (what is "
				"not saved in it is lost)");
	}
}

static bool is_ours(const char *name)
{
	static const char *const names[] = {"nvidia_drm", "nvidia_modeset", "nvidia_uvm",
					    "nvidia_peermem", "gdrdrv"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return false;
}

void cause_module(struct cause_run *run)
{
	if (run->scan->process_count > 0)
		return;
	for (uint32_t i = 0; i < run->facts->module_count; i++) {
		const struct fact_module *module = &run->facts->modules[i];
		struct verdict *verdict;

		if (!is_ours(module->name) || module->use_count <= 0)
			continue;
		verdict = tell_all(run, CAUSE_MODULE,
				   sight_is_whole(run) ? CAUSE_CERTAIN : CAUSE_LIKELY, CAUSE_LEAVE);
		if (!sight_is_whole(run))
			verdict->decide =
				"whether the processes that could not be looked at use it";
		tell(run, verdict, module->name, "/proc/modules", "used %d times",
		     module->use_count);
		tell(run, verdict, "holders", "/proc", "none");
		tell_remedy(run, verdict, "none: normal while the driver is loaded");
		tell_escalation(run, verdict,
				"before a reset of the GPU: rmmod %s (ends what "
				"uses it)",
				module->name);
	}
}

void cause_mig(struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;
	bool mig = false;

	for (uint32_t i = 0; amounts && i < amounts->gpu_count; i++)
		mig |= amounts->gpus[i].mig == AMOUNTS_YES;
	FOR_EACH_HOLDER(run, process)
	{
		struct verdict *verdict;

		/* Every CUDA process holds some of these; without MIG they are no handle of an instance. */
		if (!holds_kind(run, process, SCAN_CAPS) || (!mig && holds_memory(run, process)))
			continue;
		verdict = tell_process(run, CAUSE_MIG, mig ? CAUSE_CERTAIN : CAUSE_LIKELY,
				       is_daemon(process) ? CAUSE_ADVISE : CAUSE_ASK, process);
		verdict->bytes = listed_bytes(run, process->pid);
		if (!mig)
			verdict->decide = "whether MIG is on: nvidia-smi -q -d MIG";
		tell_program(run, verdict, process);
		tell_of(run, verdict, "capability", process->pid, "fd", "nvidia-cap open");
		tell_remedy(run, verdict, "restart it before the instance is destroyed: %d",
			    process->pid);
	}
}
