/* SPDX-License-Identifier: MIT */
/*
 * The GPU of a worker: brought up before the first task, let go in order at a clean end.
 *
 * Runs in: worker, main thread. The ward has set CUDA_VISIBLE_DEVICES to one device, so it is number 0
 * here, whatever the pool calls it. After a fault nothing here is called any more.
 */
#include "worker/worker.h"

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "gpu/nodes.h"

/* The driver has few words for a device that may not be opened, and for one that is not there. */
static int explain(const struct worker *worker, const struct gw_error *error,
		   struct gw_error *ret_error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct nodes nodes;

	if (nodes_read("", &nodes, NULL) == 0 && nodes_check(&nodes, ret_error) == -EACCES)
		return -EACCES;
	if (error->code == -ENODEV)
		return err_set(ret_error, -ENODEV, GW_DOMAIN_CUDA, error->native,
			       "device %d is not there: with CUDA_VISIBLE_DEVICES=%.80s the driver "
			       "sees no device; compare the pool's numbers with `nvidia-smi -L`",
			       worker->device, visible ? visible : "");
	*ret_error = *error;
	return error->code;
}

int device_start(struct worker *worker, struct gw_error *ret_error)
{
	struct gw_error error = {0};
	int result;

	if (worker->device < 0)
		return 0;
	result = cuda_open(&worker->door, ret_error);
	if (result < 0)
		return result;
	result = cuda_start_device(&worker->door, 0, &worker->context, &error);
	return result < 0 ? explain(worker, &error, ret_error) : 0;
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
