/* SPDX-License-Identifier: MIT */
/*
 * The GPU in one of the drill's processes: a door, a module with the good and the bad kernels, and one
 * buffer. Runs in: worker and children of the drill.
 */
#ifndef GPUWARD_CLI_DRILL_GPU_WORKER_H
#define GPUWARD_CLI_DRILL_GPU_WORKER_H

#include <gpuward.h>

#include "cli/drill_worker.h"
#include "gpu/cuda.h"

struct drill_gpu {
	struct cuda_door door;
	struct cuda_module *module;
	uint64_t buffer;
};

/* Makes this process see the device of the pool's number DEVICE alone, as the ward does for workers. */
void drill_gpu_choose(int32_t device);

/* Opens the door and loads the kernels into the context that is current. Returns 0 or a code. */
int drill_gpu_open(struct drill_gpu *gpu, struct gw_error *ret_error);

/* The same for a process without a context: brings the device up first. */
int drill_gpu_start(struct drill_gpu *gpu, struct gw_error *ret_error);

/* Runs two good kernels and checks what they wrote. Returns a CUresult, or -EIO for wrong data. */
int drill_gpu_good(struct drill_gpu *gpu);

/* Fill BYTES of device memory at ADDRESS, and count the words that are not so any more (RET_BAD). They wait for
 * the device. Return a CUresult. */
int drill_gpu_fill(struct drill_gpu *gpu, uint64_t address, uint64_t bytes);
int drill_gpu_check(struct drill_gpu *gpu, uint64_t address, uint64_t bytes, uint64_t *ret_bad);

/* Launches an empty kernel and waits for it. Returns a CUresult. */
int drill_gpu_round_trip(struct drill_gpu *gpu);

/* Launches the bad kernel of KIND, waits, and returns what CUDA says. */
int drill_gpu_fault(struct drill_gpu *gpu, int kind, struct drill_stamps *stamps);

#endif
