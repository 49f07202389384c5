/* SPDX-License-Identifier: MIT */
/*
 * The functions of workers that use an (emulated) GPU, for tests of pools:
 *
 *	kernel	runs job.kernel in the first job.bad_attempts attempts, and a good computation afterwards
 *	hold	allocates job.hold_bytes of device memory and keeps it
 *
 * Runs in: worker. Read next: src/gpu/kernels_ptx.h for the kernels.
 */
#ifndef TESTS_OS_POOL_GPU_WORKER_H
#define TESTS_OS_POOL_GPU_WORKER_H

#include <stdbool.h>
#include <stdint.h>

/* The input of a task. */
struct gpu_job {
	char kernel[24];
	uint32_t bad_attempts;
	bool wait;	/* the function waits for its bad kernel itself */
	uint32_t words; /* of the good computation */
	uint32_t seed;
	uint64_t hold_bytes;
	char gate[200]; /* not empty: come to this gate first */
};

/* The output of "kernel". */
struct gpu_answer {
	uint64_t wrong_words; /* that the check kernel found */
	int32_t device;	      /* the pool's number, by the call */
	bool by_command;
	char bus_id[16]; /* by the driver */
	int32_t pid;
};

/* main() of such a worker. */
int gpu_worker_run(bool by_command);

#endif
