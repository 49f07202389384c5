/* SPDX-License-Identifier: MIT */
/*
 * What a fault number means: the tables of CUDA results and of Xids, as data.
 *
 * Runs in: every process. Pure lookups in constant tables: no driver, no allocation, no I/O. The lookups
 * by CUDA result are public (gw_cuda_class, gw_cuda_name, gw_cuda_text in gpuward.h); those here are
 * for the ward, the command line and the metrics. A number that is in no table is reported as unknown
 * and never guessed.
 *
 * Invariant: both tables are sorted by number and hold each number once (tests/unit/faults.c).
 * Read next: xid.h, which turns lines of the kernel log into Xid numbers.
 */
#ifndef GPUWARD_GPU_FAULTS_H
#define GPUWARD_GPU_FAULTS_H

#include "gpu/xid_table.h"

#include <gpuward.h>
#include <stdbool.h>
#include <stddef.h>

/* Exit codes of `gpuward run` that a scheduler can act on: try again elsewhere, drain this node. */
#define FAULT_EXIT_OWN	  0  /* no code of gpuward's: the program's own code stands */
#define FAULT_EXIT_RETRY  75 /* temporary failure: the GPU needs a reset */
#define FAULT_EXIT_REPAIR 76 /* the node needs a reboot or repair */

struct cuda_fault {
	int number;
	enum gw_fault_class kind;
	const char *name;
	const char *text;
};

/* The whole table, for tests and listings. */
const struct cuda_fault *cuda_fault_table(size_t *ret_count);

/* The row of NUMBER, or NULL for one that is not known. */
const struct cuda_fault *cuda_fault_find(int number);

/*
 * Whether a process that got RESULT from CUDA is to be replaced: it is poisoned, its device is suspect, or its
 * MPS server is gone in a way that only a new client mends.
 */
bool cuda_ends_process(int result);

/* One of FAULT_EXIT_...: what `gpuward run` ends with once all attempts are used up. */
int cuda_exit_code(enum gw_fault_class kind);

/* What people can do about a class of CUDA results; never NULL. Static. */
const char *cuda_remedy(enum gw_fault_class kind);

#endif
