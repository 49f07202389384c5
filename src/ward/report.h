/* SPDX-License-Identifier: MIT */
/*
 * How a worker's end is told: struct gw_exit from what the ward knows.
 *
 * Runs in: ward; pure. The first cause counts: what comes after it (SIGKILL, a signal) is the ward's own
 * doing. What is not known is GW_UNKNOWN or -1, never 0. Read next: slot.c.
 */
#ifndef GPUWARD_WARD_REPORT_H
#define GPUWARD_WARD_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

#include "linux/procref.h"

/* Why a process is to end, as far as it was known before it ended. */
struct cause {
	uint32_t end;	  /* enum gw_end; GW_END_UNKNOWN: no cause known */
	uint32_t source;  /* enum gw_source */
	int32_t cuda;	  /* with GW_END_CUDA; -1: only the Xid is known */
	int32_t xid;	  /* with GW_END_CUDA; 0 or -1: not known */
	uint64_t task;	  /* the task in hand, or 0 */
	const char *what; /* words for the text, or NULL; static */
};

struct report_facts {
	uint32_t slot;
	int32_t pid;
	int32_t device;
	bool was_ready;
	bool stuck;  /* SIGKILL does not end it: it is told of, and still there */
	bool reaped; /* `ended` is valid; false: it is still there, or somebody else reaped it */
	struct procref_end ended;
	struct cause cause;
	uint64_t started_ns;
	uint64_t noticed_ns;
	uint64_t gone_ns;
};

void report_fill(struct gw_exit *ret_exit, const struct report_facts *facts);

#endif
