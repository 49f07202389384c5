/* SPDX-License-Identifier: MIT */
/*
 * The environment of a worker: the host's, with what makes the process a worker of one device.
 *
 * Runs in: ward; pure. The pool's device N means the N-th entry of CUDA_VISIBLE_DEVICES where the host
 * has that variable (a scheduler's share of the machine, which no worker may leave), and otherwise the
 * N-th device in PCI bus order. Read next: start.c.
 */
#ifndef GPUWARD_WARD_ENV_H
#define GPUWARD_WARD_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

struct env_worker {
	uint32_t slot;
	uint32_t incarnation;
	int32_t device; /* -1: none, and the device variables are left alone */
	uint32_t spin_ns;
	uint64_t stop_deadline_ns;
	bool standby;	      /* it waits for WIRE_PROMOTE once it is ready */
	uint32_t detect;      /* enum gw_detect, added up */
	uint32_t flags;	      /* enum gw_pool_flags, added up */
	uint32_t connections; /* CUDA_DEVICE_MAX_CONNECTIONS; 0: as it is. With a device */
};

/*
 * Makes the environment from BASE. Owns: the caller frees *RET_ENVIRONMENT (one block), which borrows
 * the strings of BASE.
 * Returns 0; -ENODEV the device is not in the list; -ENOMEM.
 */
int env_new(const char *const *base, const struct env_worker *worker, const char ***ret_environment,
	    struct gw_error *ret_error);

#endif
