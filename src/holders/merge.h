/* SPDX-License-Identifier: MIT */
/*
 * Makes one snapshot of what the crew has found: sorted, with the two halves of each process joined, and with all
 * texts in the snapshot's own memory.
 *
 * Runs in: scan_run(). Read next: scan.h for the order, crew.h for where findings come from.
 */
#ifndef GPUWARD_HOLDERS_MERGE_H
#define GPUWARD_HOLDERS_MERGE_H

#include "holders/crew.h"
#include "holders/scan.h"

/* Fills processes, references, denied_pids and unseen of *SCAN. Frees what RESULT has, also on failure.
 * Returns 0 or -ENOMEM. */
int merge_findings(struct crew_result *result, struct scan *scan);

#endif
