/* SPDX-License-Identifier: MIT */
/*
 * Device memory of one process: plain allocations, host memory that the GPU reaches, and copies.
 *
 * Runs in: a process that uses CUDA, with the process's lock held.
 * Invariant: everything that is mapped has a hold in the shared table, except host memory.
 * Read next: space.h, handle.c (memory with a handle), ipc.c.
 */
#ifndef SOFTGPU_MEMORY_H
#define SOFTGPU_MEMORY_H

#include <stdint.h>

#include "space.h"

/* 64 KiB up to 2 MiB, else whole 2 MiB. Returns 0 for 0 and for what is more than any device has. */
uint64_t memory_round(uint64_t bytes);

/* Unmaps the plain or IPC range at ADDRESS and drops its hold. No work may be under way. */
void memory_unmap(uint64_t address);

/* Lets go of unmapped memory with handles, if no work is under way that may still touch it. */
void handle_settle(void);

/* Frees everything of CONTEXT but memory with handles, which belongs to the process. */
void memory_free_of(const struct cuda_context *context);

#endif
