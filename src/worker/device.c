/* SPDX-License-Identifier: MIT */
/*
 * The GPU of a worker: brought up before the first task, let go in order at a clean end.
 *
 * Runs in: worker, main thread. The ward has set CUDA_VISIBLE_DEVICES to one device, so it is number 0
 * here, whatever the pool calls it. After a fault nothing here is called any more.
 */
#include "worker/worker.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "gpu/nodes.h"
#include "worker/error_log.h"

/* Of a slim standby. */
#define SLIM_STACK_BYTES 256

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
			       "device %d is not there: the driver sees none as "
			       "CUDA_VISIBLE_DEVICES=%.80s, which the ward has set for this "
			       "worker; numbers count as in `nvidia-smi -L`, or in the host's own "
			       "CUDA_VISIBLE_DEVICES",
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
	worker->error_log = error_log_start(worker);
	return 0;
}

/* In the form of nvidia-smi; "" where the driver is too old to tell. */
static void read_uuid(const struct worker *worker, char text[48])
{
	struct cuda_uuid uuid = {{0}};
	size_t used;

	if (!worker->door.cuDeviceGetUuid_v2 ||
	    worker->door.cuDeviceGetUuid_v2(&uuid, 0) != CUDA_SUCCESS)
		return;
	used = (size_t)snprintf(text, 48, "GPU-");
	for (size_t i = 0; i < sizeof(uuid.bytes); i++)
		used += (size_t)snprintf(text + used, 48 - used, "%s%02x",
					 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
					 uuid.bytes[i]);
}

int device_start(struct worker *worker, struct wire_context *context, struct gw_error *ret_error)
{
	struct gw_error error = {0};
	int result;

	memset(context, 0, sizeof(*context));
	if (worker->device < 0)
		return 0;
	result = cuda_start_device(&worker->door, 0, &worker->context, &error);
	if (result < 0)
		return explain(worker, &error, ret_error);
	/* Without it only Xids that name the process are understood. */
	if (worker->door.cuDeviceGetPCIBusId(context->pci, sizeof(context->pci), 0) != CUDA_SUCCESS)
		context->pci[0] = '\0';
	read_uuid(worker, context->uuid);
	return 0;
}

/* The stack limit is the only one that takes device memory while nothing runs: 768 bytes for each thread that
 * the device can hold, 198 MiB on an H200. After `prepare`, which may have set a limit of its own. */
void device_slim(struct worker *worker)
{
	size_t value = 0;

	if (worker->device >= 0 && (worker->flags & GW_POOL_SLIM_STANDBYS) &&
	    worker->door.cuCtxGetLimit(&value, CUDA_LIMIT_STACK_SIZE) == CUDA_SUCCESS &&
	    value > SLIM_STACK_BYTES &&
	    worker->door.cuCtxSetLimit(CUDA_LIMIT_STACK_SIZE, SLIM_STACK_BYTES) == CUDA_SUCCESS)
		worker->stack_bytes = value;
}

/* Not left to the first launch: the driver raises the limit for what it sees in a kernel, and a kernel that
 * recurses would fault. */
int device_grow(struct worker *worker)
{
	if (worker->stack_bytes == 0)
		return 0;
	return worker->door.cuCtxSetLimit(CUDA_LIMIT_STACK_SIZE, worker->stack_bytes);
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
