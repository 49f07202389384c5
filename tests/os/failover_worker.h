/* SPDX-License-Identifier: MIT */
/*
 * The worker of the tests of fail-over. Its functions:
 *
 *	work	misbehaves in the first job.bad_attempts attempts, and gives a right answer afterwards
 *	hold	allocates job.hold_bytes of device memory and keeps it
 *
 * What it does on its way up the test says in a file of the emulated machine, the "situation" (failover_host.h),
 * which each process reads at each point of its way; so that it can change while the pool is open.
 * Runs in: worker. The points lie in calls of the library's own that pass through here (--wrap).
 */
#ifndef TESTS_OS_FAILOVER_WORKER_H
#define TESTS_OS_FAILOVER_WORKER_H

#include <stdint.h>

#define SITUATION_FILE "situation"
/* There too: a line for each context that is made, "worker", "standby", or "beside" if another one of the device
 * is being made; and the stack limit of the last standby that waits to be taken. */
#define CONTEXTS_FILE "contexts"
#define STACK_FILE    "stack"

/* What a bad attempt does after its kernel. */
enum failover_then {
	THEN_RETURN = 0, /* the kernel's result, as it is */
	THEN_HANG,	 /* in code of the CPU, whatever the driver said */
	THEN_EXIT,	 /* _exit(7) */
	THEN_ABORT,
	THEN_STOP, /* stops itself */
};

/* The input of a task. */
struct failover_job {
	char kernel[24]; /* "": none */
	uint32_t bad_attempts;
	uint32_t wait; /* 1: waits for its kernel */
	uint32_t then; /* enum failover_then */
	uint32_t seed;
	uint64_t hold_bytes;
	char gate[200]; /* not empty: come to this gate before anything else */
};

/* The output of "work". */
struct failover_answer {
	uint64_t number; /* failover_number(seed) */
	uint64_t wrong_words;
	uint64_t stack_bytes; /* the context's limit */
	int32_t pid;
	int32_t device;
	uint32_t was_standby;
	char connections[12]; /* CUDA_DEVICE_MAX_CONNECTIONS */
};

static inline uint64_t failover_number(uint32_t seed)
{
	return (seed + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Where the process is on its way up. */
enum failover_point {
	POINT_EXEC,
	POINT_CONTEXT, /* it has its turn */
	POINT_NO_ROOM, /* there was no memory for the context */
	POINT_PREPARE, /* its context is up */
	POINT_SERVE,   /* it is a worker, and waits for tasks */
	POINTS,
};

/* main() of such a worker. */
int failover_worker_run(void);

#endif
