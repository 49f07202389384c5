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

#define DRILL_KINDS	7
#define DRILL_HOLDER	"drill-holder"
#define DRILL_BYSTANDER "drill-bystander"

/* The sealed state's name, and what fill() makes it of. */
#define DRILL_STATE "drill"
#define DRILL_SEED  2025U

struct drill_kind {
	const char *name;
	const char *kernel; /* in gpu/kernels_ptx.h */
	int32_t cuda;	    /* what CUDA says of it */
	const char *text;
	bool by_chance; /* it becomes known at one of two moments, 40 ms apart */
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

/* Input of "make", and of "good" where it is to look at the state. */
struct drill_state_order {
	uint64_t bytes; /* a multiple of 2 MiB; 0: no state */
};

/* Output of "good". It was written in a worker: the host checks what it relies on. */
struct drill_good {
	uint64_t good_ns;    /* the first good kernel was done: on the state, where there is one */
	uint64_t checked_ns; /* all of the state was looked at; GW_UNKNOWN without one */
	uint64_t bad_words;  /* of the state, that are not as they were made */
};

/* "fault", "good" and "make", which makes the sealed state. */
extern const struct gw_function drill_functions[];

/* What a bare child is to do: the argument of drill_bare_run(). */
struct drill_bare_order {
	int32_t kind;
	int32_t device;
	bool reset;	      /* after the fault, try what does not work */
	uint64_t state_bytes; /* what is copied to the device again; 0: nothing */
};

/* What it did, in memory that it shares with its parent. */
struct drill_bare {
	struct drill_stamps stamps;
	int32_t fault_result;
	int32_t reset_result;
	int32_t reset_next;
	struct drill_good good;
};

/* Where the host's copy of the state begins in that memory, and how large it is with it. */
#define DRILL_BARE_STATE	4096U
#define DRILL_BARE_BYTES(state) (DRILL_BARE_STATE + (state))

/* For gw_isolate(): faults in its first process, runs a good kernel in the next. */
int drill_bare_run(const struct gw_isolated *run);

/* The first words of holder and bystander to the drill, on descriptor 3; exported memory comes with it. */
struct drill_hello {
	int32_t result; /* CUresult, or 0 */
	int32_t code;	/* of the error, or 0 */
	char message[240];
};

/* What the drill asks its bystander, and what it answers: its longest round trip that overlaps a span of time,
 * or GW_UNKNOWN where it does not remember that far back. The answer comes after a round trip that began later. */
struct drill_span {
	uint64_t from_ns;
	uint64_t to_ns;
};

#endif
