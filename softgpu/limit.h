/* SPDX-License-Identifier: MIT */
/*
 * Limits of a context: stack of each thread, printf's FIFO, and the heap of malloc().
 *
 * Runs in: a process that uses CUDA, with the process's lock held.
 * Invariant: what a context costs follows its stack limit alone, as measured; heap and FIFO cost nothing.
 * Read next: context.h.
 */
#ifndef SOFTGPU_LIMIT_H
#define SOFTGPU_LIMIT_H

#include "context.h"

struct kernel;

/* The limits of a new context. */
void limit_init(struct cuda_context *context);

/*
 * Before a launch of KERNEL in CONTEXT: a static frame that is larger than the stack limit raises it for
 * good, and after a kernel that can print the FIFO keeps its size. Returns a CUresult.
 */
int limit_note_launch(struct cuda_context *context, const struct kernel *kernel);

#endif
