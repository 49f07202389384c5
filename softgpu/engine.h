/* SPDX-License-Identifier: MIT */
/*
 * Queues of GPU work. Each has a thread that runs the work in order, so launches are asynchronous and
 * their faults show up later, and an endless kernel leaves the caller and other streams running.
 *
 * Runs in: the caller's thread with the process's lock held, and the engine's own thread, which blocks
 * all signals and takes the lock for everything but the work itself.
 * Invariant: the default stream and all streams that synchronise with it share one engine, which keeps
 * their order by doing one thing at a time; a non-blocking stream has one of its own. Work always comes
 * to an end after a fault, since all kernels look at engine_is_cut_off(); so waits need no way out.
 * Read next: kernels.h, fault.h.
 */
#ifndef SOFTGPU_ENGINE_H
#define SOFTGPU_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "context.h"

#define ENGINE_ARGUMENTS 16

struct kernel;
struct cuda_event;

enum work_kind {
	WORK_KERNEL = 1,
	WORK_COPY_IN = 2,  /* host to device */
	WORK_COPY_OUT = 3, /* device to host */
	WORK_COPY = 4,	   /* device to device */
	WORK_SET = 5,	   /* fill with a pattern of 1 or 4 bytes */
	WORK_MARK = 6,	   /* an event */
};

struct work {
	struct work *next;
	enum work_kind kind;
	uint64_t ticket;
	uint64_t order; /* among all work of the process */
	uint64_t after; /* kernels: not before all work of the context up to this order is done */
	uint64_t queued_ns;
	const struct kernel *kernel;
	uint64_t arguments[ENGINE_ARGUMENTS];
	size_t stack_bytes; /* the limit, when it was queued */
	uint64_t to;	    /* device address, or host pointer for WORK_COPY_OUT */
	uint64_t from;
	size_t bytes;
	uint32_t pattern;
	uint32_t pattern_bytes;
	void *staged;		  /* freed after the work: the host data of a copy */
	struct cuda_event *event; /* WORK_MARK */
};

struct engine {
	struct engine *next;
	struct cuda_context *context;
	struct work *first;
	struct work **last;
	uint64_t queued;  /* ticket of the newest work */
	uint64_t done;	  /* ticket of the newest finished work */
	uint64_t running; /* order of the work that was taken out and is not done; 0: none */
	bool started;
	bool stop;
	pthread_t thread;
};

/* An engine for CONTEXT, not linked anywhere. Returns a CUresult. */
int engine_new(struct cuda_context *context, struct engine **ret_engine);

/* Queues a copy of WORK. RET_TICKET may be NULL. Returns a CUresult. */
int engine_add(struct engine *engine, const struct work *work, uint64_t *ret_ticket);

/* Waits until TICKET is done. Returns CUDA_SUCCESS, or the fault that ended the process's GPU work. */
int engine_wait(struct engine *engine, uint64_t ticket);

/* Waits until all work of CONTEXT, or of all contexts, is done. */
int engine_wait_all(struct cuda_context *context);
int engine_wait_process(void);

/* Whether all work of the process is done. */
bool engine_is_idle(void);

/* The order of the newest work of CONTEXT that is not done, or 0. */
uint64_t engine_newest(const struct cuda_context *context);

/* Ends the thread of an idle engine, and frees it; of all engines of CONTEXT. */
void engine_free(struct engine *engine);
void engine_free_all(struct cuda_context *context);

/* Called by work that is under way, in the engine's thread without the lock: whether it should end. */
bool engine_is_cut_off(void);

/* The same: how large the stack of its threads can be. */
size_t engine_stack_bytes(void);

#endif
