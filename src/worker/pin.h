/* SPDX-License-Identifier: MIT */
/*
 * Pins the memory of tasks for the device: GW_POOL_PINNED.
 *
 * Runs in: worker, main thread, between the coming up of the context and its end. Inputs and outputs are
 * registered whole and once, since a copy must not cross the border of two registrations. What cannot be
 * pinned stays unpinned: a worker that is slow is better than none, and each call says what it has.
 * Never touches the ring of the channel: the device has nothing to do with it.
 */
#ifndef GPUWARD_WORKER_PIN_H
#define GPUWARD_WORKER_PIN_H

#include "worker/worker.h"

/*
 * Pins what the pool's flags ask for and the driver can, and sets worker->pinned. The context must be up and
 * current. Takes 43 ms per GiB, and longer where the pages are new.
 * Returns 0, or a negative code for a result of the driver that ends the process.
 */
int pin_start(struct worker *worker, struct gw_error *ret_error);

/* Unpins, at a clean end. The end of the process does it otherwise. */
void pin_stop(struct worker *worker);

#endif
