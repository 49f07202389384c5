/* SPDX-License-Identifier: MIT */
/*
 * Contexts: the primary one of each device and others.
 *
 * Runs in: a process that uses CUDA, with the process's lock held.
 * Invariant: a context costs device memory from its making to its end, as an entry without data in the
 * shared table. A handle is only believed when it is in the list of contexts.
 * Read next: limit.h, engine.h, memory.h.
 */
#ifndef SOFTGPU_CONTEXT_H
#define SOFTGPU_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct cuda_stream;

#define CONTEXT_LIMITS 3

struct cuda_context {
	struct cuda_context *next;
	int device;		 /* of this process */
	uint32_t machine_device; /* of the machine */
	bool primary;
	bool destroyed;
	unsigned int uses; /* retains of a primary context */
	unsigned int flags;
	size_t limits[CONTEXT_LIMITS];
	bool has_printed; /* a kernel was launched that can print or assert */
	uint32_t memory;  /* what it costs, in the table */
	uint64_t memory_id;
	struct engine *engines;	     /* queues of work; the first is that of the default stream */
	struct cuda_stream *streams; /* not the default one */
};

/* This thread's current context, or NULL. */
struct cuda_context *context_current(void);

/* Whether CONTEXT is one of this process. */
bool context_exists(const struct cuda_context *context);

/* Takes BYTES of device memory as what CONTEXT costs. Returns a CUresult. */
int context_charge(struct cuda_context *context, uint64_t bytes);

/* Gives that back. CONTEXT can be a copy from before another charge. */
void context_discharge(const struct cuda_context *context);

#endif
