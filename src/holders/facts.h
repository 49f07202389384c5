/* SPDX-License-Identifier: MIT */
/*
 * Gathers what the causes want to know beside scan and amounts: what NVML's pids are now, who shares open files, use
 * counts of kernel modules, and which sort of system this is.
 *
 * Runs in: command line; reads /proc and compares descriptors by kcmp, signals nobody, loads no driver. What it does not
 * find stays unknown: jobs, containers, Xids and what was watched are for the caller to add.
 *
 * Read next: cause.h.
 */
#ifndef GPUWARD_HOLDERS_FACTS_H
#define GPUWARD_HOLDERS_FACTS_H

#include "holders/cause.h"
#include "holders/share.h"

/* Zero-initialise; end with facts_free(). `facts` is what causes take. */
struct facts {
	struct causes_facts facts;
	struct fact_label *labels;
	struct fact_module *modules;
	struct share share;
};

/*
 * Gathers. AMOUNTS may be NULL. PROC is where proc is mounted; NULL "/proc". DEADLINE_NS, on CLOCK_MONOTONIC, is for
 * comparing open files. Returns 0 and *RET_FACTS, which is the caller's; or -ENOMEM.
 * Source: /proc/PID/{stat,status}, /proc/modules, /proc/driver/nvidia/gpus, uname.
 */
int facts_gather(const struct scan *scan, const struct amounts *amounts, const char *proc,
		 uint64_t deadline_ns, struct facts *ret_facts, struct gw_error *ret_error);

/* Ends them, also those that are all zero. */
void facts_free(struct facts *facts);

/* What PID is now, below the folder PROC (a path). Never fails: what cannot be read is unknown. `listed` is unknown. */
void facts_look_at_label(const char *proc, int32_t pid, struct fact_label *ret_label);

#endif
