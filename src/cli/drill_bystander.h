/* SPDX-License-Identifier: MIT */
/*
 * The bystander: a healthy process on the same GPU that launches empty kernels, one after the other, and so
 * feels what a fault of somebody else costs it.
 *
 * Runs in: command line; the process itself is drill_bystander_worker.c.
 */
#ifndef GPUWARD_CLI_DRILL_BYSTANDER_H
#define GPUWARD_CLI_DRILL_BYSTANDER_H

#include "cli/drill.h"
#include "cli/drill_child.h"

/* Starts BYSTANDER, with one hardware queue where ONE_CONNECTION says so. Where it cannot start, that is
 * noted and the drill goes on without; only a driver that hangs is an error. */
int drill_bystander_start(struct drill *drill, bool one_connection, struct drill_child *bystander,
			  struct gw_error *ret_error);

/* Its longest round trip that overlaps the time from FROM_NS to TO_NS; both GW_UNKNOWN where that is not known. */
struct drill_span drill_bystander_longest(struct drill_child *bystander, uint64_t from_ns,
					  uint64_t to_ns);

#endif
