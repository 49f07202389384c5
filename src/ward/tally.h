/* SPDX-License-Identifier: MIT */
/*
 * When a slot's next process starts after the last one ended, and when to give up.
 *
 * Runs in: ward; pure arithmetic. A worker that did some work and then died is replaced at once: its
 * task was at fault. One that dies young again and again waits twice as long each time, so that a
 * broken program does not eat the machine, and is given up in the end. One that never becomes ready is given
 * up after some tries.
 *
 * Read next: slot.c.
 */
#ifndef GPUWARD_WARD_TALLY_H
#define GPUWARD_WARD_TALLY_H

#include <stdbool.h>
#include <stdint.h>

/* How long a worker that completed nothing must have been ready for its run to count as good. */
#define TALLY_GOOD_RUN_NS 1000000000ULL

struct tally_limits {
	uint64_t restart_min_ns;
	uint64_t restart_max_ns;
	uint32_t max_start_failures;
	uint32_t max_quick_deaths;
};

struct tally {
	uint64_t pause_ns;	/* before the next restart after a bad run; 0: none yet */
	uint32_t failed_starts; /* in a row */
	uint32_t quick_deaths;	/* in a row: ready, and dead before anything was completed */
};

/* How one process of a slot did. */
struct tally_run {
	bool ready;	   /* it became ready */
	bool worked;	   /* it completed at least one task */
	bool blameless;	   /* it was ended on request */
	bool hopeless;	   /* no further try can help */
	uint64_t ready_ns; /* how long it was ready */
};

struct tally_verdict {
	bool give_up;
	uint64_t pause_ns; /* before the next start, if not */
};

struct tally_verdict tally_count(struct tally *tally, const struct tally_limits *limits,
				 const struct tally_run *run);

#endif
