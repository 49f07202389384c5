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
#include <string.h>

#include "common/err.h"
#include "gpu/nodes.h"
#include "worker/error_log.h"

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

int device_prime(struct worker *worker, struct gw_error *ret_error)
{
	struct gw_error error = {0};
	int result;

	if (worker->device < 0)
		return 0;
	result = cuda_open(&worker->door, ret_error);
	if (result < 0)
		return result;
	result = cuda_init(&worker->door, &error);
	if (result < 0)
		return explain(worker, &error, ret_error);
	/* A driver without a log is no failure: the other sources are there. */
	(void)error_log_start(worker);
	return 0;
}

int device_start(struct worker *worker, char pci[32], struct gw_error *ret_error)
{
	struct gw_error error = {0};
	int result;

	memset(pci, 0, 32);
	if (worker->device < 0)
		return 0;
	result = cuda_start_device(&worker->door, 0, &worker->context, &error);
	if (result < 0)
		return explain(worker, &error, ret_error);
	/* Without it only Xids that name the process are understood. */
	if (worker->door.cuDeviceGetPCIBusId(pci, 32, 0) != CUDA_SUCCESS)
		pci[0] = '\0';
	return 0;
}

/* What is left while nothing runs: 330 MiB of a context instead of 530. */
static const struct {
	int limit;
	size_t slim;
} slimmed[DEVICE_LIMITS] = {
	{CUDA_LIMIT_STACK_SIZE, 256},
	{CUDA_LIMIT_MALLOC_HEAP_SIZE, 1 << 20},
	{CUDA_LIMIT_PRINTF_FIFO_SIZE, 64 << 10},
};

/* After `prepare`, which may have set limits of its own: those are what comes back at the promotion. A limit
 * that cannot be changed any more stays as it is. */
void device_slim(struct worker *worker)
{
	if (worker->device < 0)
		return;
	for (size_t i = 0; i < DEVICE_LIMITS; i++) {
		size_t value = 0;

		if (worker->door.cuCtxGetLimit(&value, slimmed[i].limit) == CUDA_SUCCESS &&
		    value > slimmed[i].slim &&
		    worker->door.cuCtxSetLimit(slimmed[i].limit, slimmed[i].slim) == CUDA_SUCCESS)
			worker->limits[i] = value;
	}
}

void device_grow(struct worker *worker)
{
	for (size_t i = 0; i < DEVICE_LIMITS; i++) {
		if (worker->limits[i] > 0)
			(void)worker->door.cuCtxSetLimit(slimmed[i].limit, worker->limits[i]);
		worker->limits[i] = 0;
	}
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
