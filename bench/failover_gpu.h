/* SPDX-License-Identifier: MIT */
/*
 * The GPU of a process of the fail-over benchmark: its kernels, looked up in advance.
 *
 * Runs in: worker, bystander, bare process. Each function returns a CUDA result. Kernels are asked for before
 * anything runs: one that is asked for later is loaded behind the work that is under way.
 * Read next: ../src/gpu/kernels_ptx.h.
 */
#ifndef BENCH_FAILOVER_GPU_H
#define BENCH_FAILOVER_GPU_H

#include <stdint.h>

#include "failover.h"
#include "gpu/cuda.h"

enum kernel {
	KERNEL_NOP,
	KERNEL_FILL,
	KERNEL_ADD1,
	KERNEL_CHECK,
	KERNELS,
};

extern struct cuda_door gpu_door;

/* Loads the kernels into the current context, and runs one. */
int gpu_load(void);

/* BLOCKS of 256 threads, or one thread where BLOCKS is 0. */
int gpu_launch(enum kernel kernel, uint32_t blocks, void **parameters);

/* Runs `nop` and waits for it; then it is this time. */
int gpu_good(uint64_t *ret_done_ns);

/* Takes the time, and does what KIND says. Returns what CUDA says, if the process lives. */
int gpu_fault(enum kind kind, _Atomic uint64_t *launched_ns);

/* The same by a kernel that is left behind: 0 where its launch succeeded. */
int gpu_fault_later(enum kind kind, _Atomic uint64_t *launched_ns);

/* `prepare` of the workers. */
int gpu_prepare(int device);

#endif
