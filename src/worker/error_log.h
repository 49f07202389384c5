/* SPDX-License-Identifier: MIT */
/*
 * Hears of a fault from the driver's own error log, and tells the ward at once: before the call that failed
 * has returned, and even where the function that made it looks at no result.
 *
 * Runs in: worker. The driver calls back in whichever thread made the failing call, inside that call. So the
 * callback calls no CUDA, takes no lock, allocates nothing, never blocks, and keeps errno. Of one process
 * only the first fault is told: all later ones are its echo.
 * Read next: gpu/cuda_log.h.
 */
#ifndef GPUWARD_WORKER_ERROR_LOG_H
#define GPUWARD_WORKER_ERROR_LOG_H

#include <stdbool.h>

#include "worker/worker.h"

/*
 * Starts to listen, after cuInit, if GW_DETECT_ERROR_LOG is among the worker's sources. WORKER stays for as
 * long as the process. Returns 0; -EOPNOTSUPP the driver has no such log (before CUDA 12.9), or
 * GW_EDRIVER it refused: the worker can do without.
 */
int error_log_start(const struct worker *worker);

/*
 * From here on (EXPECTS), until it is called again, the main thread asks for what the driver may refuse: its word that
 * something of it is wrong is no news then. What poisons the process still is.
 */
void error_log_expect(bool expects);

#endif
