/* SPDX-License-Identifier: MIT */
/*
 * Processes that are spoken of beside a holder: its ancestors, and the leaders of its session and group.
 *
 * Runs in: scan_run(), after the merge. Reads stat and the owner only, neither of which waits for a process.
 */
#ifndef GPUWARD_HOLDERS_RELATIVES_H
#define GPUWARD_HOLDERS_RELATIVES_H

#include "holders/scan.h"

/* Fills scan->relatives from the folder PROC. Returns 0 or -ENOMEM. */
int relatives_read(int proc, struct scan *scan);

#endif
