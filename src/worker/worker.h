/* SPDX-License-Identifier: MIT */
/*
 * The worker's side: what its files share.
 *
 * Runs in: worker. Two threads: the main thread serves tasks (serve.c) and is the only one that calls
 * functions or CUDA; the control thread (control.c) watches the ward, the host and SIGTERM, and ends
 * the process when they are gone or a stop takes too long. device.c brings the GPU up and down.
 */
#ifndef GPUWARD_WORKER_WORKER_H
#define GPUWARD_WORKER_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/channel.h"
#include "common/wire.h"
#include "gpu/cuda.h"

/* Exit codes of a worker, for the ward's texts and for people who look at them. */
enum worker_exit {
	WORKER_EXIT_START = 125, /* could not start; the reason went to the ward */
	WORKER_EXIT_FAULT = 124, /* left after a fault, without a destructor */
	WORKER_EXIT_ALONE = 123, /* ward or host ended */
	WORKER_EXIT_LATE = 122,	 /* a stop took longer than its deadline */
};

struct worker {
	uint32_t slot;
	uint32_t incarnation;
	int32_t device; /* the pool's number, or -1 */
	struct spin spin;
	uint64_t stop_deadline_ns;
	uint32_t standby; /* 1: waits for WIRE_PROMOTE once it is ready */
	uint32_t detect;  /* enum gw_detect, added up */
	uint32_t flags;	  /* enum gw_pool_flags, added up */

	const struct gw_function *functions;
	uint32_t n_functions;

	struct channel_map channel;
	const uint8_t *input;
	uint64_t input_bytes;

	struct cuda_door door; /* device >= 0 */
	struct cuda_context *context;
	size_t stack_bytes; /* of a slim standby: what the stack limit is to be again; 0: as it is */
	int error_log;	    /* 0 or why the driver's error log is not heard */
	uint32_t pinned;    /* enum gw_call_flags of what pin.c has pinned */

	atomic_bool stop;	    /* set by the control thread */
	atomic_bool attention;	    /* so that the main thread looks at stop and orders */
	_Atomic uint32_t orders;    /* enum order, set by the control thread */
	int order_fd;		    /* readable once there was an order */
	atomic_ullong running_task; /* the number of the task that runs, or 0: for error_log.c */
};

/* orders.c: what the control thread passes on to the main thread, in bits. */
enum order {
	ORDER_WARM = 1,
	ORDER_PROMOTE = 2,
	ORDER_STOP = 4,
	ORDER_STATE = 8, /* there is news of surviving memory */
};

/* Returns 0 or -errno. */
int orders_init(struct worker *worker);
/* Control thread. */
void orders_give(struct worker *worker, enum order order);
/* Main thread: whether there was ORDER, which it takes. */
bool orders_take(struct worker *worker, enum order order);
/* Main thread: waits for WANTED or ORDER_STOP, takes it, and returns it; a stop stays. Meanwhile it takes
 * in what is new about surviving memory. */
enum order orders_wait(struct worker *worker, enum order wanted);

/* control.c: starts the control thread. SIGTERM must be blocked. Returns 0 or -errno. */
int control_start(struct worker *worker);

/* device.c. Each returns 0 or a negative code, and does nothing without a device. */
/* The driver alone: no device memory yet. */
int device_prime(struct worker *worker, struct gw_error *ret_error);
/* The context. -ENOMEM: the device has no room for it now. Fills in where the device is. */
int device_start(struct worker *worker, struct wire_context *context, struct gw_error *ret_error);
/* A slim standby takes less device memory until it is promoted. */
void device_slim(struct worker *worker);
/* Returns a CUresult: out of memory, or the device does not work. */
int device_grow(struct worker *worker);
/* Waits for the device. Returns the CUresult. */
int device_synchronize(const struct worker *worker);
/* A clean end: memory first, then the context, so that it is back before the process ends. */
void device_stop(struct worker *worker);

/* serve.c: runs tasks until a stop. */
void serve(struct worker *worker);
/* serve.c: tells the ward of CUDA result VALUE, in TASK or 0, and leaves at once. */
_Noreturn void leave_after_fault(int value, uint64_t task);

#endif
