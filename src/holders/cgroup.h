/* SPDX-License-Identifier: MIT */
/*
 * Where a process belongs, read out of its control groups: container, pod, batch job, systemd unit.
 *
 * Runs in: command line; pure text, allocates nothing. The paths are not trusted: a process may be in a group
 * whose name somebody chose to look like another, so this is evidence for people and a filter, and never by
 * itself a reason to end a process.
 *
 * Invariant: what is not known is an empty text or GW_UNKNOWN. Read next: cgroup.c for the forms.
 */
#ifndef GPUWARD_HOLDERS_CGROUP_H
#define GPUWARD_HOLDERS_CGROUP_H

#include <gpuward.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cgroup_runtime {
	CGROUP_NO_CONTAINER = 0,
	CGROUP_DOCKER,
	CGROUP_CONTAINERD,
	CGROUP_CRIO,
	CGROUP_PODMAN,
	CGROUP_LXC,
	CGROUP_NSPAWN,
	CGROUP_SOME_CONTAINER, /* an id in a pod's group, without its runtime's name */
};

struct cgroup_place {
	const char *unified; /* path in the v2 tree, raw; NULL none. The scan's texts own it */
	const char *freezer; /* path in the v1 freezer's tree; NULL none */
	enum cgroup_runtime runtime;
	char container_id[65]; /* 64 hexadecimal digits, or a name for LXC and nspawn */
	char pod_uid[37];      /* Kubernetes, with dashes */
	uint64_t slurm_job_id; /* GW_UNKNOWN */
	char slurm_step[16];   /* "0", "batch", "extern", "interactive" */
	int32_t slurm_uid;     /* of v1 paths; -1 */
	char unit[64];	       /* systemd unit: "ssh.service", "session-3.scope"; the innermost */
	bool deleted;	       /* the group was removed while the process was in it */
};

#define CGROUP_PLACE_NONE ((struct cgroup_place){.slurm_job_id = GW_UNKNOWN, .slurm_uid = -1})

/*
 * Adds to *PLACE what one PATH of a control group says, LENGTH bytes of it, without the line break; PLACE begins
 * as CGROUP_PLACE_NONE. What an earlier path said stays. Sets neither `unified` nor `freezer`.
 */
void cgroup_parse_path(const char *path, size_t length, struct cgroup_place *place);

/*
 * One line of /proc/PID/cgroup: "ID:CONTROLLERS:PATH". Gives PATH inside LINE.
 * Returns true and the three parts; false for what is no such line.
 */
struct cgroup_line {
	bool unified; /* "0::" */
	const char *controllers;
	size_t controllers_bytes;
	const char *path;
	size_t path_bytes;
};
bool cgroup_parse_line(const char *line, size_t length, struct cgroup_line *ret_line);

/* Is NAME ("freezer") one of the line's controllers? */
bool cgroup_line_has(const struct cgroup_line *line, const char *name);

/* "docker", "containerd", "cri-o", "podman", "lxc", "nspawn", "container"; "" for none. */
const char *cgroup_runtime_name(enum cgroup_runtime runtime);

#endif
