/* SPDX-License-Identifier: MIT */
/*
 * What people do without gpuward: a program that waits for CUDA's own error, exits, is waited for and started
 * again. Runs in: command line, which forks.
 */
#ifndef GPUWARD_CLI_DRILL_BY_HAND_H
#define GPUWARD_CLI_DRILL_BY_HAND_H

#include "cli/drill.h"

/* Fills the row LEVEL_BY_HAND of all kinds, and what a reset does. No pool may be open: this process is forked.
 * Returns 0 or a code. */
int drill_by_hand(struct drill *drill, struct gw_error *ret_error);

#endif
