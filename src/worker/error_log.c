/* SPDX-License-Identifier: MIT */
#include "worker/error_log.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fd.h"
#include "common/wire.h"
#include "gpu/cuda_log.h"
#include "gpu/faults.h"

static pid_t listener; /* a child that a function forks inherits the callback, but not the device */
static atomic_bool told;
static atomic_bool expected;

/* The ward may be stopped, and its socket full: then this source stays silent, and another one speaks. */
static void tell(const struct worker *worker, int result)
{
	struct wire_fault fault = {
		.cuda = result,
		.source = GW_SOURCE_ERROR_LOG,
		.task = atomic_load(&worker->running_task),
		.noticed_ns = now_ns(),
	};

	wire_header_init(&fault.header, WIRE_FAULT, sizeof(fault));
	(void)send(WIRE_WORKER_SOCKET, &fault, sizeof(fault), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static bool is_news(int result)
{
	return cuda_ends_process(result) && getpid() == listener &&
	       (!atomic_load(&expected) || gw_cuda_class(result) == GW_FAULT_POISONED);
}

static void hear(void *data, int level, char *message, size_t length)
{
	int number = errno;
	int result = cuda_log_result(message, length);

	(void)level;
	if (result > 0 && is_news(result) && !atomic_exchange(&told, true))
		tell(data, result);
	errno = number;
}

void error_log_expect(bool expects)
{
	atomic_store(&expected, expects);
}

int error_log_start(const struct worker *worker)
{
	struct cuda_log_callback *handle;

	if (worker->device < 0 || !(worker->detect & GW_DETECT_ERROR_LOG))
		return 0;
	if (!worker->door.cuLogsRegisterCallback)
		return -EOPNOTSUPP;
	listener = getpid();
	/* The driver hands DATA back as it is. Nobody ever unregisters: the process ends with it. */
	if (worker->door.cuLogsRegisterCallback(hear, (void *)(uintptr_t)worker, &handle) != 0)
		return GW_EDRIVER;
	return 0;
}
