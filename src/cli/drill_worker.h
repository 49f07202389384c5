/* SPDX-License-Identifier: MIT */
/*
 * What the drill runs in processes that may die: the functions of its pool, the children that show what
 * people do by hand, and the holder of memory.
 *
 * Runs in: worker, and children of the command line. The only files of this folder that call CUDA.
 */
#ifndef GPUWARD_CLI_DRILL_WORKER_H
#define GPUWARD_CLI_DRILL_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

#define DRILL_KINDS  7
#define DRILL_HOLDER "drill-holder"

struct drill_kind {
	const char *name;
	const char *kernel; /* in gpu/kernels_ptx.h */
	int32_t cuda;	    /* what CUDA says of it */
	const char *text;
};

extern const struct drill_kind drill_kinds[DRILL_KINDS];

/* Times that outlive the process that takes them: in a file that it maps. */
struct drill_stamps {
	uint64_t launched_ns;
	uint64_t told_ns; /* CUDA told the process */
};

/* Input of the pool's function "fault". */
struct drill_order {
	int32_t kind;
	char stamps_path[256];
};

/* "fault" and "good". */
extern const struct gw_function drill_functions[];

/* What a bare child is to do: the argument of drill_bare_run(). */
struct drill_bare_order {
	int32_t kind;
	int32_t device;
	bool reset; /* after the fault, try what does not work */
};

/* What it did, in memory that it shares with its parent. */
struct drill_bare {
	struct drill_stamps stamps;
	int32_t fault_result;
	int32_t reset_result;
	int32_t reset_next;
	uint64_t good_ns;
};

/* For gw_isolate(): faults in its first process, runs a good kernel in the next. */
int drill_bare_run(const struct gw_isolated *run);

/* The holder's first words to the drill, on descriptor 3; exported memory comes with it. */
struct drill_hello {
	int32_t result; /* CUresult, or 0 */
	int32_t code;	/* of the error, or 0 */
	char message[240];
};

#endif
