/* SPDX-License-Identifier: MIT */
/*
 * What sort of program a holder is: MPS, a daemon of the system or a monitor, a display, or somebody's work.
 *
 * Names can be chosen by anybody, so these are reasons to leave a process alone, and never to end one.
 * Read next: cause_run.h.
 */
#include <stdio.h>
#include <string.h>

#include "holders/cause_run.h"

static const char *const mps_names[] = {"nvidia-cuda-mps-control", "nvidia-cuda-mps-server", NULL};

static const char *const daemon_names[] = {
	"nvidia-persistenced",
	"nv-fabricmanager",
	"nv-hostengine",
	"dcgm-exporter",
	"nvidia-imex",
	"nvsm_core",
	"nvsm-core",
	"nvidia_gpu_exporter",
	"nvidia-powerd",
	"nvidia-topologyd",
	"nvidia-device-plugin",
	"nvidia-mig-manager",
	"gpu-feature-discovery",
	"nvlsm",
	/* Monitors: they ask NVML, and have its devices open. */
	"gpuward-probe",
	"nvidia-smi",
	"nvtop",
	"dcgmi",
	NULL,
};

static const char *const display_names[] = {
	"Xorg",	   "X",		  "Xwayland",	 "gnome-shell", "kwin_wayland", "kwin_x11",
	"mutter",  "sway",	  "weston",	 "Hyprland",	"gdm",		"sddm",
	"lightdm", "plasmashell", "cosmic-comp", "gamescope",	NULL,
};

void program_name(const struct scan_process *process, char *text, size_t bytes)
{
	const char *name = process->comm;
	const char *slash = process->exe ? strrchr(process->exe, '/') : NULL;
	size_t length;

	if (slash && slash[1])
		name = slash + 1;
	length = strnlen(name, slash && slash[1] ? bytes - 1 : sizeof(process->comm));
	/* The kernel says so of a program whose file is gone. */
	if (length > 10 && !memcmp(name + length - 10, " (deleted)", 10))
		length -= 10;
	if (length >= bytes)
		length = bytes - 1;
	memcpy(text, name, length);
	text[length] = '\0';
}

/* Is it one of NAMES? A name of the process itself is cut to 15 characters. */
static bool is_named(const struct scan_process *process, const char *const *names)
{
	char program[256];

	program_name(process, program, sizeof(program));
	for (; *names; names++) {
		if (!strcmp(program, *names))
			return true;
		if (!process->exe && !strncmp(process->comm, *names, sizeof(process->comm) - 1))
			return true;
	}
	return false;
}

bool is_mps(const struct scan_process *process)
{
	return is_named(process, mps_names);
}

bool is_daemon(const struct scan_process *process)
{
	return is_named(process, daemon_names);
}

bool is_display(const struct cause_run *run, const struct scan_process *process)
{
	if (is_named(process, display_names) || holds_kind(run, process, SCAN_MODESET))
		return true;
	return holds_kind(run, process, SCAN_DRM) && !holds_kind(run, process, SCAN_UVM);
}

bool is_work(const struct cause_run *run, const struct scan_process *process)
{
	return !(process->flags & SCAN_PF_KTHREAD) && process->pid != 1 && !is_mps(process) &&
	       !is_daemon(process) && !is_display(run, process);
}

bool is_ending(const struct scan_process *process)
{
	return (process->flags & SCAN_PF_EXITING) && !(process->flags & SCAN_ZOMBIE_LEADER);
}
