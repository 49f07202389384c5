/* SPDX-License-Identifier: MIT */
/*
 * Device memory of one process: plain allocations, and host memory that the GPU reaches (host.c).
 *
 * Runs in: a process that uses CUDA, with the process's lock held.
 * Invariant: everything that is mapped has a hold in the shared table, except host memory, of which the
 * process's entry only counts the bytes.
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

/* Ends a registration, or an allocation of host memory. RANGE is gone after it. */
void host_forget(const struct range *range);

/* Frees everything of CONTEXT but memory with handles, which belongs to the process. */
void memory_free_of(const struct cuda_context *context);

#endif
