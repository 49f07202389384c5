/* SPDX-License-Identifier: MIT */
/*
 * Which holders share an open file of a GPU: those hold the same memory, and it is free when the last of them is
 * gone. A process and the children that it forked share; two that opened the device each for itself do not.
 *
 * Runs in: command line. Compares descriptors by kcmp, and opens nothing. Descriptors in flight, mappings and
 * io_uring tables cannot be compared, so they join nobody.
 *
 * Invariant: every process of the scan is in exactly one group, alone if need be. Read next: scan_same_file().
 */
#ifndef GPUWARD_HOLDERS_SHARE_H
#define GPUWARD_HOLDERS_SHARE_H

#include "holders/scan.h"

struct share {
	uint32_t *group; /* of scan.processes[i]: from 0, in the order of their first processes */
	uint32_t group_count;
	bool incomplete; /* some could not be compared: not allowed, no kcmp, or no time */
};

/*
 * Finds the groups. Goes on until DEADLINE_NS on CLOCK_MONOTONIC, then takes the rest as not shared.
 * Returns 0 and *RET_SHARE, which is the caller's: share_free(); or -ENOMEM.
 */
int share_find(const struct scan *scan, uint64_t deadline_ns, struct share *ret_share,
	       struct gw_error *ret_error);

/* Ends it, also one that is all zero. */
void share_free(struct share *share);

/* How many processes are in the GROUP. */
uint32_t share_size(const struct scan *scan, const struct share *share, uint32_t group);

#endif
