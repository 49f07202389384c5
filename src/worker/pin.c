/* SPDX-License-Identifier: MIT */
#include "worker/pin.h"

#include <stdbool.h>
#include <sys/stat.h>

#include "common/wire.h"
#include "gpu/faults.h"
#include "linux/meminfo.h"

/* With unified addressing all contexts may use what one has registered; this says so for all drivers. */
#define FLAGS CUDA_HOST_REGISTER_PORTABLE

/* The ward has left this process one device. */
static bool device_has(const struct worker *worker, int attribute)
{
	int value = 0;

	return worker->door.cuDeviceGetAttribute(&value, attribute, 0) == CUDA_SUCCESS && value;
}

/* Whether the pages of FD that are still to be taken can be had: the kernel would end a process for them, and
 * not return an error. What is not known does not forbid. */
static bool has_room(int fd)
{
	uint64_t bytes, taken, available;
	struct stat status;

	if (fstat(fd, &status) < 0 || meminfo_available("", &available) < 0)
		return true;
	bytes = (uint64_t)status.st_size;
	taken = (uint64_t)status.st_blocks * 512;
	return taken >= bytes || bytes - taken <= available;
}

/* Sets PINNED if it works. Any result that leaves the process alive leaves the memory as it was. */
static int pin(struct worker *worker, const void *memory, uint64_t bytes, unsigned int flags,
	       uint32_t pinned, struct gw_error *ret_error)
{
	/* The driver's interface has no const; with the flag for it the memory is only read. */
	int result = worker->door.cuMemHostRegister_v2((void *)(uintptr_t)memory, bytes, flags);

	if (result == CUDA_SUCCESS)
		worker->pinned |= pinned;
	return cuda_ends_process(result) ? cuda_error(ret_error, "cuMemHostRegister", result) : 0;
}

/* The mapping is for reading, and sealed. A GPU that goes by the tables of the process knows that by itself. */
static int pin_input(struct worker *worker, struct gw_error *ret_error)
{
	unsigned int flags = FLAGS;

	if (device_has(worker, CUDA_ATTRIBUTE_READ_ONLY_HOST_REGISTER))
		flags |= CUDA_HOST_REGISTER_READ_ONLY;
	else if (!device_has(worker, CUDA_ATTRIBUTE_HOST_PAGE_TABLES))
		return 0;
	if (!has_room(WIRE_WORKER_INPUT))
		return 0;
	return pin(worker, worker->input, worker->input_bytes, flags, GW_CALL_INPUT_PINNED,
		   ret_error);
}

static int pin_output(struct worker *worker, struct gw_error *ret_error)
{
	if (!has_room(WIRE_WORKER_CHANNEL))
		return 0;
	return pin(worker, worker->channel.output, worker->channel.output_bytes, FLAGS,
		   GW_CALL_OUTPUT_PINNED, ret_error);
}

int pin_start(struct worker *worker, struct gw_error *ret_error)
{
	int result;

	if (!(worker->flags & GW_POOL_PINNED) || worker->device < 0 ||
	    !device_has(worker, CUDA_ATTRIBUTE_HOST_REGISTER))
		return 0;
	result = pin_input(worker, ret_error);
	return result < 0 ? result : pin_output(worker, ret_error);
}

void pin_stop(struct worker *worker)
{
	if (!worker->pinned)
		return;
	/* A function may have left a copy under way. */
	(void)device_synchronize(worker);
	if (worker->pinned & GW_CALL_OUTPUT_PINNED)
		(void)worker->door.cuMemHostUnregister(worker->channel.output);
	if (worker->pinned & GW_CALL_INPUT_PINNED)
		(void)worker->door.cuMemHostUnregister((void *)(uintptr_t)worker->input);
	worker->pinned = 0;
}
