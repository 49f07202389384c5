/* SPDX-License-Identifier: MIT */
/*
 * May this process be forked, and its child go on as a whole program?
 *
 * Runs in: the host, in the thread that wants to fork. Changes nothing and blocks for nothing.
 *
 * Two things do not survive a fork. A CUDA driver: every call of the child fails, or hangs. Other
 * threads: the locks that they held (malloc's among them) stay locked in the child for ever. A thread
 * that is on its way out is no obstacle: pthread_join() returns a little before the kernel has taken the
 * thread off the list, and no lock of the program is held by then.
 *
 * Invariant: "yes" is said only after both were looked at. Read next: isolate.c.
 */
#ifndef GPUWARD_LIB_FORKABLE_H
#define GPUWARD_LIB_FORKABLE_H

#include <gpuward.h>

/*
 * Returns 0, GW_ECUDALOADED, GW_ETHREADS, or -errno when the threads cannot be counted: -ENOSYS where
 * /proc is not mounted, -EMFILE without a descriptor for it.
 */
int forkable_check(struct gw_error *ret_error);

#endif
