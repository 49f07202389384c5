/* SPDX-License-Identifier: MIT */
/*
 * The worker of the chaos test: two functions, both of which can fail in any way at any of their steps.
 *
 *	mix	computes on the device, and answers chaos_next() of its key
 *	ledger	one step of a row of steps whose result lies in mutable state on the device, which outlives
 *		workers: each step is committed with its number, so that one that runs again is skipped
 *
 * A ledger is right if its value is what the model, which the host keeps, has after the same steps; and all
 * of its memory beside tells the number of the step. Runs in: worker. Read next: chaos.c.
 */
#ifndef TESTS_OS_CHAOS_WORKER_H
#define TESTS_OS_CHAOS_WORKER_H

#include <stdint.h>

enum chaos_fault {
	CHAOS_NULL, /* the kernels first */
	CHAOS_OOB,
	CHAOS_MISALIGNED,
	CHAOS_ASSERT,
	CHAOS_TRAP,
	CHAOS_SHARED,
	CHAOS_KERNELS,
	CHAOS_EXIT = CHAOS_KERNELS,
	CHAOS_ABORT,
	CHAOS_KILL,
	CHAOS_STOP,
	CHAOS_HANG,	   /* in code of the CPU */
	CHAOS_HANG_KERNEL, /* in a kernel that never ends */
	CHAOS_FAULTS,
};

/* Where a fault can be. "mix" has the first two. */
enum chaos_step {
	CHAOS_BEFORE,
	CHAOS_AFTER_WRITE,
	CHAOS_AFTER_COMMIT,
	CHAOS_AFTER_UNMAP,
	CHAOS_STEPS,
};

/* The input of a task. */
struct chaos_job {
	uint64_t key;
	uint64_t number; /* "ledger": of the step, from 1 */
	uint32_t ledger;
	uint32_t bad_attempts;
	uint32_t fault; /* enum chaos_fault: in the first attempt; a later one has the next */
	uint32_t step;	/* enum chaos_step: the same */
};

/* The output of a task. */
struct chaos_answer {
	uint64_t value;
	uint64_t wrong_words;
};

static inline uint64_t chaos_next(uint64_t value, uint64_t key)
{
	return (value + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ key;
}

/* main() of such a worker. */
int chaos_worker_run(void);

#endif
