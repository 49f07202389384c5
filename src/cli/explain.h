/* SPDX-License-Identifier: MIT */
/*
 * `gpuward explain`: why memory of a GPU is in use, in sentences for people.
 *
 * Runs in: command line. Looks as `gpuward ps` does: the kernel first, then NVML in what is left of the time; signals
 * nobody. Verdicts come from the causes and are printed as they are; their texts are printable already.
 *
 * Read next: explain.c, explain_life.c, ../holders/cause.h.
 */
#ifndef GPUWARD_CLI_EXPLAIN_H
#define GPUWARD_CLI_EXPLAIN_H

#include "holders/accounting.h"
#include "holders/facts.h"

struct explain {
	int32_t pid;  /* 0: all */
	uint32_t gpu; /* into amounts.gpus; CAUSE_NOBODY: all */
	struct scan scan;
	struct amounts amounts;
	struct facts facts;
	struct verdicts verdicts;
};

/* Prints what there is to say about explain->pid or explain->gpu. */
void explain_print(const struct explain *explain);

/* Where in its life the process explain->pid is: running, told to stop, ending, a zombie, gone. */
void explain_life(const struct explain *explain);

#endif
