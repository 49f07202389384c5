/* SPDX-License-Identifier: MIT */
/*
 * Surviving state in the fail-over benchmark: pieces that are made, sealed, mapped and checked in a worker.
 *
 * Runs in: worker. Read next: failover_state_worker.c, failover_state.c for the host.
 */
#ifndef BENCH_FAILOVER_STATE_H
#define BENCH_FAILOVER_STATE_H

#include <stdint.h>

#include <gpuward.h>

/* The input of "make": so many sealed pieces of so many bytes. */
struct make_job {
	uint64_t bytes;
	uint32_t pieces;
	uint32_t reserved;
};

int run_make(struct gw_call *call);

/* Counts the words of COUNT pieces that are not as they were made; the input is the number of pieces. */
int run_check(struct gw_call *call);

/* Maps the pieces and runs a kernel that reads the last of them. Returns a CUDA result or gpuward's code. */
int state_attach(uint32_t pieces, uint64_t *ret_attach_ns, uint64_t *ret_done_ns);

#endif
