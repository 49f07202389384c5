/* SPDX-License-Identifier: MIT */
/*
 * Where the trees of control groups are mounted: read once per scan.
 *
 * Runs in: scan_run(). Read next: groups.c, cgroup.h.
 */
#ifndef GPUWARD_HOLDERS_GROUPS_H
#define GPUWARD_HOLDERS_GROUPS_H

#include <stddef.h>

/* Paths of mounts; "" where there is none. */
struct groups {
	char unified[256];
	char freezer[256]; /* of v1 */
};

/* Reads the mounts out of TEXT, which has the form of /proc/self/mountinfo. */
void groups_parse_mounts(const char *text, struct groups *groups);

/* The same from the folder PROC. What cannot be read is left empty. */
void groups_read_mounts(int proc, struct groups *groups);

/* The value of the option hidepid of the proc that is mounted at PATH: 0 none, -1 not known. */
int groups_parse_hidepid(const char *text, const char *path);

#endif
