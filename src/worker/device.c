/* SPDX-License-Identifier: MIT */
/*
 * The GPU of a worker: brought up before the first task, let go in order at a clean end.
 *
 * Runs in: worker, main thread. The ward has set CUDA_VISIBLE_DEVICES to one device, so it is number 0
 * here, whatever the pool calls it. After a fault nothing here is called any more.
 */
#include "worker/worker.h"

#include "common/err.h"

int device_start(struct worker *worker, struct gw_error *ret_error)
{
	int result;

	if (worker->device < 0)
		return 0;
	result = cuda_open(&worker->door, ret_error);
	if (result < 0)
		return result;
	return cuda_start_device(&worker->door, 0, &worker->context, ret_error);
}

int device_synchronize(const struct worker *worker)
{
	return worker->device < 0 ? 0 : (int)worker->door.cuCtxSynchronize();
}

void device_stop(struct worker *worker)
{
	if (worker->device < 0)
		return;
	/* The reset frees everything that the functions allocated. The results do not matter: the end
	 * of the process does the rest. */
	(void)worker->door.cuCtxSynchronize();
	(void)worker->door.cuDevicePrimaryCtxReset_v2(0);
}
