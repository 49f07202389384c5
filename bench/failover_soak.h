/* SPDX-License-Identifier: MIT */
/*
 * The soak of the fail-over benchmark: a function with mutable state, and what it tells.
 *
 * Runs in: worker and host. Read next: failover_soak_worker.c, failover_soak.c.
 */
#ifndef BENCH_FAILOVER_SOAK_H
#define BENCH_FAILOVER_SOAK_H

#include <stdint.h>

#include <gpuward.h>

/* Task N adds 1 to counter N % COUNTERS, and leaves N in the word behind the counters. */
#define COUNTERS    64U
#define STATE_WORDS (COUNTERS + 1)

/* Where in its first attempt a task faults. */
enum when {
	WHEN_BEFORE,	  /* nothing has changed yet */
	WHEN_UNCOMMITTED, /* the working copy has changed, or is changing */
	WHEN_COMMITTED,	  /* the commit counts, the result is not there yet */
	WHEN_LATE,	  /* as before, by a kernel that the function leaves behind */
	WHENS,
};

struct count_job {
	uint64_t number;
	uint32_t kind;
	uint32_t when; /* enum when */
};

struct count_answer {
	uint64_t number;
	uint64_t found_epoch;
	uint64_t left_epoch;
	uint32_t already; /* an attempt before this one had committed */
	uint32_t attempt;
	uint64_t launched_ns; /* of the last fault */
	uint64_t good_ns;     /* in a later attempt: the update was done */
	uint32_t found[STATE_WORDS];
	uint32_t left[STATE_WORDS];
};

int run_count(struct gw_call *call);

#endif
