/* SPDX-License-Identifier: MIT */
/*
 * What keeps one from seeing: other pid namespaces (C28), other users (C29), hidden processes (C31), amounts that
 * cannot be measured (C33) or are wrong (C34), NVML that hangs (C37).
 *
 * Read next: cause_run.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holders/cause_run.h"

void cause_other_namespace(struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;

	if (run->scan->pid_namespace == GW_UNKNOWN || run->scan->pid_namespace_initial)
		return;
	for (uint32_t gpu = 0; amounts && gpu < amounts->gpu_count; gpu++) {
		uint64_t unexplained = unexplained_bytes(&amounts->gpus[gpu]);
		struct verdict *verdict;

		if (unexplained == 0 || unexplained == GW_UNKNOWN)
			continue;
		verdict = tell_gpu(run, CAUSE_OTHER_NAMESPACE, CAUSE_LIKELY, CAUSE_ADVISE, gpu);
		verdict->bytes = unexplained;
		verdict->decide = "what the same command says on the host";
		tell(run, verdict, "pid namespace", "/proc/self/ns/pid",
		     "%llu, not the machine's first", (unsigned long long)run->scan->pid_namespace);
		tell_bytes(run, verdict, "of processes outside, or of nobody", "NVML's memory",
			   unexplained);
		tell_remedy(run, verdict, "run gpuward on the host, or share its pid namespace");
	}
}

void cause_denied(struct cause_run *run)
{
	const struct scan_unseen *unseen = &run->scan->unseen;
	char text[512];
	struct verdict *verdict;

	if (!unseen->denied && !unseen->maps_denied && !unseen->sockets_denied &&
	    !unseen->maps_unsure)
		return;
	verdict = tell_all(run, CAUSE_DENIED, CAUSE_CERTAIN, CAUSE_ADVISE);
	scan_unseen_text(run->scan, text, sizeof(text));
	tell(run, verdict, "not looked at", "/proc/PID/fd", "%s", text);
	if (unseen->denied)
		tell(run, verdict, "processes not readable", "/proc/PID/fd", "%u", unseen->denied);
	if (unseen->needs_ptrace || unseen->needs_checkpoint)
		tell_remedy(run, verdict, "run it as root, or with %s",
			    unseen->needs_ptrace ? "CAP_SYS_PTRACE" : "CAP_CHECKPOINT_RESTORE");
	else
		tell_remedy(run, verdict,
			    "none: no privilege that is lacking would show more; where this is a "
			    "container, run it on the host");
}

static void tell_hidden_label(struct cause_run *run, const struct fact_label *label)
{
	struct verdict *verdict = tell_all(run, CAUSE_HIDDEN, CAUSE_CERTAIN, CAUSE_ADVISE);

	verdict->pid = label->pid;
	verdict->bytes = listed_bytes(run, label->pid);
	tell_of(run, verdict, "by name", label->pid, "stat", "%.16s, state %c", label->comm,
		label->state);
	tell(run, verdict, "in the folder", "/proc", "not listed");
	if (run->scan->unseen.hidepid == 0)
		tell_remedy(run, verdict,
			    "no mount option hides it: have the machine examined for an intruder");
	else
		tell_remedy(run, verdict, "run it as root: /proc is mounted with hidepid");
}

void cause_hidden(struct cause_run *run)
{
	struct verdict *verdict;

	for (uint32_t i = 0; i < run->facts->label_count; i++) {
		const struct fact_label *label = &run->facts->labels[i];

		if (label->exists == AMOUNTS_YES && label->listed == AMOUNTS_NO)
			tell_hidden_label(run, label);
	}
	if (run->scan->unseen.hidepid <= 0)
		return;
	verdict = tell_all(run, CAUSE_HIDDEN, CAUSE_CERTAIN, CAUSE_ADVISE);
	tell(run, verdict, "hidepid", "/proc/self/mountinfo", "%d", run->scan->unseen.hidepid);
	tell(run, verdict, "not seen", "/proc", "processes of other users");
	tell_remedy(run, verdict, "run it as root");
}

static bool scan_has(const struct cause_run *run, enum scan_device_kind kind)
{
	for (uint32_t i = 0; i < run->scan->reference_count; i++) {
		if (run->scan->references[i].device.kind == kind)
			return true;
	}
	return false;
}

/* Processes of a GPU whose bytes NVML does not tell. */
static uint32_t count_unknown(const struct amounts_gpu *gpu)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < gpu->process_count; i++)
		count += gpu->processes[i].used_bytes == GW_UNKNOWN;
	return count;
}

static void tell_wsl_or_virtual(struct cause_run *run)
{
	bool dxg = scan_has(run, SCAN_DXG);
	struct verdict *verdict;

	if (!dxg && run->facts->wsl != AMOUNTS_YES && run->facts->virtual_gpu != AMOUNTS_YES)
		return;
	verdict = tell_all(run, CAUSE_NOT_MEASURABLE, CAUSE_CERTAIN, CAUSE_ADVISE);
	if (dxg)
		tell(run, verdict, "device", "/proc/PID/fd", "/dev/dxg");
	if (run->facts->wsl == AMOUNTS_YES)
		tell(run, verdict, "system", "/proc/version", "WSL");
	if (run->facts->virtual_gpu == AMOUNTS_YES)
		tell(run, verdict, "GPU", "NVML", "virtual");
	tell_remedy(run, verdict,
		    run->facts->virtual_gpu == AMOUNTS_YES
			    ? "look on the machine that lends the GPU"
			    : "look at the memory in Windows; wsl --shutdown frees it");
}

void cause_not_measurable(struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;

	tell_wsl_or_virtual(run);
	for (uint32_t gpu = 0; amounts && gpu < amounts->gpu_count; gpu++) {
		uint32_t unknown = count_unknown(&amounts->gpus[gpu]);
		struct verdict *verdict;

		if (!unknown)
			continue;
		verdict = tell_gpu(run, CAUSE_NOT_MEASURABLE, CAUSE_CERTAIN, CAUSE_ADVISE, gpu);
		tell(run, verdict, "processes without an amount", "NVML's list of processes",
		     "%u of %u", unknown, amounts->gpus[gpu].process_count);
		tell_remedy(run, verdict,
			    "none: the driver does not tell their bytes here; the holders are "
			    "known all the same");
	}
}

/* 535.43 up to, not including, 535.86: the layout of NVML's list was wrong. */
static bool is_wrong_driver(const char *driver)
{
	char *end = NULL;
	unsigned long major = strtoul(driver, &end, 10);
	unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

	return major == 535 && minor >= 43 && minor < 86;
}

void cause_unsupported(struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;
	struct verdict *verdict;

	if (amounts && is_wrong_driver(amounts->driver)) {
		verdict = tell_all(run, CAUSE_UNSUPPORTED, CAUSE_CERTAIN, CAUSE_ADVISE);
		tell(run, verdict, "driver", "NVML's driver version", "%s", amounts->driver);
		tell_remedy(run, verdict,
			    "upgrade the driver: its list of processes is wrong; "
			    "believe the holders, not NVML's pids");
	}
	for (uint32_t gpu = 0; amounts && gpu < amounts->gpu_count; gpu++) {
		if (amounts->gpus[gpu].listed != AMOUNTS_UNSUPPORTED)
			continue;
		verdict = tell_gpu(run, CAUSE_UNSUPPORTED, CAUSE_CERTAIN, CAUSE_ADVISE, gpu);
		tell(run, verdict, "list of processes", "NVML", "not supported on this GPU");
		tell_remedy(run, verdict,
			    "none: the holders are known from the kernel, without amounts");
	}
}

void cause_nvml_hung(struct cause_run *run)
{
	const struct amounts *amounts = run->input->amounts;
	uint32_t gpu = CAUSE_NOBODY;
	struct verdict *verdict;

	for (uint32_t i = 0; amounts && i < amounts->gpu_count && gpu == CAUSE_NOBODY; i++) {
		if (amounts->gpus[i].memory == AMOUNTS_HUNG ||
		    amounts->gpus[i].listed == AMOUNTS_HUNG)
			gpu = i;
	}
	if (!amounts || (amounts->answer != AMOUNTS_HUNG && gpu == CAUSE_NOBODY))
		return;
	verdict = tell_gpu(run, CAUSE_NVML_HUNG, CAUSE_CERTAIN, CAUSE_ADVISE, gpu);
	tell(run, verdict, "NVML", "a process that asks it", "no answer before the deadline");
	if (run->facts->probe_wchan)
		tell_of(run, verdict, "it sleeps in", run->facts->probe_pid, "wchan", "%s",
			run->facts->probe_wchan);
	tell_remedy(run, verdict,
		    "start no more nvidia-smi: each joins the queue; look for C09 and C36, and at "
		    "the kernel log");
	tell_escalation(run, verdict, "reboot (ends all work on the machine)");
}
