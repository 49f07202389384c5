/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the fail-over benchmark share: the kinds of faults, the page in which the processes leave their
 * times, the rows of the results, and the few things that every section does with a pool.
 *
 * Runs in: the benchmark's host, its workers, its bystander and the bare processes. The host never loads CUDA;
 * failover_gpu.c is the only part that does, in all the others.
 *
 * Invariant: all times are on CLOCK_MONOTONIC, which the processes share. Nothing waits for ever: a wait that is late
 * ends the program with what it waited for, and what was measured before is in the files already.
 * Read next: failover.c for the sections, failover_faults.c for the first of them.
 */
#ifndef BENCH_FAILOVER_H
#define BENCH_FAILOVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench.h"

#define MS	   UINT64_C(1000000)
#define MIB	   UINT64_C(1048576)
#define WAIT_NS	   (30000 * MS) /* the longest wait for anything */
#define GAPS_MAX   4096U
#define GAP_MIN_NS 50000U

/* ---- kinds of faults ---- */

enum kind {
	KIND_NULL,
	KIND_MISALIGNED,
	KIND_SHARED,
	KIND_TRAP,
	KIND_ASSERT,
	KIND_EXIT, /* the worker calls _exit() */
	KIND_KILL, /* it gets SIGKILL */
	KINDS,
	KIND_NONE = KINDS,
};

#define KINDS_OF_GPU KIND_EXIT /* those before it are faults of kernels */

extern const char *const kind_names[KINDS + 1];

/* ---- the page ---- */

/* A time in which the bystander got nothing done. */
struct gap {
	uint64_t from_ns;
	uint64_t to_ns;
};

struct failover_page {
	_Atomic uint64_t launched_ns; /* the fault, taken right before its launch */
	_Atomic uint64_t reported_ns; /* by CUDA itself, where the process lived to see it */
	_Atomic uint64_t good_ns;     /* the successor's first kernel was done */
	_Atomic uint64_t attach_ns;   /* how long the successor needed to have its state mapped */
	_Atomic int32_t failure;  /* a CUDA result or gpuward's code that nobody expected, or 0 */
	_Atomic uint32_t waiting; /* a task has come to the gate */
	_Atomic uint32_t open;	  /* the gate */
	_Atomic uint64_t loops;	  /* of the bystander: kernels done */
	_Atomic uint64_t n_gaps;  /* of the bystander, all time; the last GAPS_MAX are kept */
	struct gap gaps[GAPS_MAX];
};

/* In the host: makes it, and names it in the environment. In a worker: maps it. */
extern struct failover_page *page;
void page_make(void);
bool page_map(void);

/* ---- in a process that uses the GPU (failover_gpu.c) ---- */

/* The input of the function "fault". */
struct fault_job {
	uint32_t kind;	 /* of the first attempt; KIND_NONE: it is good as well */
	bool gated;	 /* waits at the gate before the fault */
	uint32_t pieces; /* of sealed state that each attempt maps before its kernel */
};

/* The functions of the workers. */
extern const struct gw_function failover_functions[];

/* The bystander and the bare process; they do not return. CONNECTIONS 0: as it is. */
_Noreturn void bystander_main(int device, uint32_t connections);
_Noreturn void bare_main(int device, int socket);

/* ---- rows of the results (failover_rows.c) ---- */

#define COLUMNS_MAX 7

struct row {
	char name[64];
	char note[160];
	struct series columns[COLUMNS_MAX];
};

struct section {
	const char *name;
	const char *unit;
	const char *columns[COLUMNS_MAX + 1]; /* ended by NULL */
	struct row **rows;
	size_t n_rows;
	struct section *next;
};

/* Adds SECTION, which the caller keeps, and an empty row to it. */
void rows_add_section(struct section *section);
struct row *rows_add(struct section *section, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Writes everything that there is so far to the files; a path that is NULL is left out. */
void rows_write(const char *machine, const char *table_path, const char *json_path);

/* The table, to standard output. */
void rows_print(const char *machine);

/* ---- the host (failover_host.c) ---- */

struct failover_options {
	uint64_t repeat;
	uint64_t device;
	uint64_t budget_s;
	uint64_t faults;   /* of the soak */
	uint64_t unit_mib; /* what counts as 1 GiB of state */
	uint64_t pieces;   /* of 2 MiB */
	uint64_t queue;	   /* tasks of the longest queue */
	uint64_t trips;	   /* of one round of "steady" */
	const char *only;
	const char *table;
	const char *json;
};

extern struct failover_options failover;

/* Says on standard error how far it is. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes the files. Often, so that little is lost when the program is ended. */
void save(void);

struct gw_pool *open_failover_pool(uint32_t standby, uint32_t connections, uint32_t detect);

/* Until the worker and its standby, as the pool has it, are as far up as they come. */
void wait_settled(struct gw_pool *pool, uint32_t standby);

/* Until recovery NUMBER is complete. */
struct gw_recovery wait_recovery(struct gw_pool *pool, uint64_t number);

struct gw_pool_stat stat_of(struct gw_pool *pool);

/* A task of the function NAME; and its end, which must be good. Its output goes to OUTPUT, which may be NULL. */
struct gw_task *start_task(struct gw_pool *pool, const char *name, const void *input,
			   uint64_t input_bytes, uint64_t output_bytes);
void end_task(struct gw_task *task, const char *what, void *output, uint64_t output_bytes);

/* One fault of a worker that is settled, and everything about its recovery. */
struct gw_recovery fault_once(struct gw_pool *pool, const struct fault_job *job);

/* The bystander: a process of its own, with a context of its own, in a loop of tiny kernels. */
struct bystander {
	pid_t pid; /* 0: there is none */
	uint64_t seen;
};

void bystander_start(struct bystander *bystander, uint32_t connections);
void bystander_end(struct bystander *bystander);
/* The longest time between FROM_NS and TO_NS without a kernel done; zeros where it is under GAP_MIN_NS. */
struct gap bystander_longest_gap(struct bystander *bystander, uint64_t from_ns, uint64_t to_ns);

/* Milliseconds from START to TIME; whether TIME is known. */
double ms_since(uint64_t start_ns, uint64_t time_ns);
bool is_known(uint64_t time_ns);

/* ---- sections ---- */

void measure_faults(uint64_t deadline_ns);
void measure_sources(uint64_t deadline_ns);
void measure_state(uint64_t deadline_ns);
void measure_queue(uint64_t deadline_ns);
void measure_steady(uint64_t deadline_ns);
void measure_soak(uint64_t deadline_ns);

/* Set by measure_soak() where something was lost, came twice, or is unlike the model. */
extern bool soak_failed;

#endif
