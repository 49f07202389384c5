/* SPDX-License-Identifier: MIT */
/*
 * Names of results, and the callbacks that hear of every call that fails.
 *
 * Runs in: a process that uses CUDA. A callback runs in the thread whose call failed, without any lock,
 * so it may call CUDA.
 * Invariant: a callback that is being unregistered can be running in another thread for a moment more.
 * Read next: process.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "process.h"

#define NAME(name, text)                                                                           \
	{                                                                                          \
		name, #name, text                                                                  \
	}

static const struct {
	int result;
	const char *name;
	const char *text;
} names[] = {
	NAME(CUDA_SUCCESS, "no error"),
	NAME(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
	NAME(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
	NAME(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
	NAME(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
	NAME(CUDA_ERROR_STUB_LIBRARY, "the library is a stub"),
	NAME(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "the call needs a newer driver"),
	NAME(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device is busy or unavailable"),
	NAME(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
	NAME(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
	NAME(CUDA_ERROR_INVALID_IMAGE, "the kernel image is invalid"),
	NAME(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
	NAME(CUDA_ERROR_MAP_FAILED, "mapping failed"),
	NAME(CUDA_ERROR_ALREADY_MAPPED, "already mapped"),
	NAME(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image for this device"),
	NAME(CUDA_ERROR_NOT_MAPPED, "not mapped"),
	NAME(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error"),
	NAME(CUDA_ERROR_UNSUPPORTED_LIMIT, "the limit is not supported"),
	NAME(CUDA_ERROR_INVALID_PTX, "the PTX is not valid"),
	NAME(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error"),
	NAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the PTX version is not supported"),
	NAME(CUDA_ERROR_CONTAINED, "contained error"),
	NAME(CUDA_ERROR_OPERATING_SYSTEM, "a call to the operating system failed"),
	NAME(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
	NAME(CUDA_ERROR_ILLEGAL_STATE, "illegal state"),
	NAME(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
	NAME(CUDA_ERROR_NOT_READY, "device not ready"),
	NAME(CUDA_ERROR_ILLEGAL_ADDRESS, "illegal memory access"),
	NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
	NAME(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out"),
	NAME(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "the primary context is active"),
	NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is destroyed"),
	NAME(CUDA_ERROR_ASSERT, "device-side assert triggered"),
	NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "host memory is already registered"),
	NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "host memory is not registered"),
	NAME(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
	NAME(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction"),
	NAME(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
	NAME(CUDA_ERROR_INVALID_ADDRESS_SPACE, "invalid address space"),
	NAME(CUDA_ERROR_INVALID_PC, "invalid program counter"),
	NAME(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
	NAME(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory leak"),
	NAME(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
	NAME(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
	NAME(CUDA_ERROR_SYSTEM_NOT_READY, "system not ready"),
	NAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "driver and library version mismatch"),
	NAME(CUDA_ERROR_MPS_RPC_FAILURE, "MPS server not reachable"),
	NAME(CUDA_ERROR_MPS_CLIENT_TERMINATED, "MPS client terminated"),
	NAME(CUDA_ERROR_TIMEOUT, "wait timed out"),
	NAME(CUDA_ERROR_EXTERNAL_DEVICE, "external device error"),
	NAME(CUDA_ERROR_KEY_ROTATION, "key rotation failed"),
	NAME(CUDA_ERROR_UNKNOWN, "unknown error"),
};

struct cuda_log_callback {
	struct cuda_log_callback *next;
	void (*function)(void *data, int level, char *message, size_t length);
	void *data;
};

/* Callbacks live outside struct process: they are called without its lock. */
static pthread_mutex_t callbacks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_log_callback *callbacks;

static int find_result(int result)
{
	for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++) {
		if (names[i].result == result)
			return i;
	}
	return -1;
}

SOFT_EXPORT int cuGetErrorName(int result, const char **name)
{
	int found = find_result(result);

	if (!name)
		process_crash("cuGetErrorName without a place for the name");
	*name = found < 0 ? NULL : names[found].name;
	return found < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SOFT_EXPORT int cuGetErrorString(int result, const char **text)
{
	int found = find_result(result);

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = found < 0 ? NULL : names[found].text;
	return found < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void process_log(int level, const char *text)
{
	struct cuda_log_callback copies[8];
	int count = 0;
	char message[200];
	size_t length = strlen(text);

	if (length >= sizeof(message))
		length = sizeof(message) - 1;
	memcpy(message, text, length);
	message[length] = '\0';
	(void)pthread_mutex_lock(&callbacks_lock);
	for (struct cuda_log_callback *one = callbacks; one && count < 8; one = one->next)
		copies[count++] = *one;
	(void)pthread_mutex_unlock(&callbacks_lock);
	for (int i = 0; i < count; i++)
		copies[i].function(copies[i].data, level, message, length);
}

SOFT_EXPORT int cuLogsRegisterCallback(void (*callback)(void *data, int level, char *message,
							size_t length),
				       void *data, struct cuda_log_callback **handle)
{
	struct cuda_log_callback *made;

	if (!callback)
		return CUDA_ERROR_INVALID_VALUE;
	made = malloc(sizeof(*made));
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*made = (struct cuda_log_callback){.function = callback, .data = data};
	(void)pthread_mutex_lock(&callbacks_lock);
	made->next = callbacks;
	callbacks = made;
	(void)pthread_mutex_unlock(&callbacks_lock);
	if (handle)
		*handle = made;
	return CUDA_SUCCESS;
}

SOFT_EXPORT int cuLogsUnregisterCallback(struct cuda_log_callback *handle)
{
	struct cuda_log_callback **link = &callbacks;
	struct cuda_log_callback *found;

	(void)pthread_mutex_lock(&callbacks_lock);
	while (*link && *link != handle)
		link = &(*link)->next;
	found = *link;
	if (found)
		*link = found->next;
	(void)pthread_mutex_unlock(&callbacks_lock);
	free(found);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
