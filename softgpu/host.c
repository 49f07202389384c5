/* SPDX-License-Identifier: MIT */
/*
 * Host memory that the GPU reaches: registered, or allocated through CUDA. It counts as pinned.
 *
 * Runs in: a process that uses CUDA, with the process's lock held.
 * Registering takes all pages at once, as pinning does, and needs the mapping to allow what the GPU may do:
 * writing too, unless the flag says that it only reads. The limit of locked memory does not count, because
 * the kernel driver does not ask for it. Invariant: the process's entry in the shared table says how many
 * bytes it has pinned, so they are gone with it. Read next: memory.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "context.h"
#include "engine.h"
#include "export.h"
#include "memory.h"
#include "process.h"

/* The public ones: portable, device map, I/O memory, read only. */
#define REGISTER_FLAGS 0xfU

/* Since Linux 5.14, and in no header of glibc before 2.35. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* Counts BYTES as pinned by this process. CUDA_ERROR_OUT_OF_MEMORY: the machine has no more. */
static int charge(uint64_t bytes)
{
	struct table *table = &process.table;
	int result = process_open_table();

	if (result)
		return result;
	if (bytes > process.machine.settings.pinnable_bytes ||
	    table_pinned_bytes(table) > process.machine.settings.pinnable_bytes - bytes) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		table->clients[process.client.index].pinned_bytes += bytes;
		result = process_result(table_put_client(table, process.client.index));
	}
	table_close(table);
	return result;
}

static void discharge(uint64_t bytes)
{
	struct table *table = &process.table;

	if (process_open_table())
		return;
	table->clients[process.client.index].pinned_bytes -= bytes;
	(void)table_put_client(table, process.client.index);
	table_close(table);
}

static int add_host(void *memory, uint64_t bytes, unsigned int access, bool owned)
{
	struct range range = {
		.address = (uintptr_t)memory,
		.bytes = bytes,
		.host = memory,
		.kind = RANGE_HOST,
		.access = access,
		.owned = owned,
		.context = context_current(),
	};
	int result;

	if (!memory || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!space_is_free(range.address, bytes))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	result = charge(bytes);
	if (result)
		return result;
	result = space_add(&range);
	if (result)
		discharge(bytes);
	return result;
}

void host_forget(const struct range *range)
{
	void *memory = range->host;
	uint64_t bytes = range->bytes;
	bool owned = range->owned;

	space_remove(range->address);
	discharge(bytes);
	if (owned)
		(void)munmap(memory, bytes);
}

static int drop_host(const void *memory, bool owned)
{
	const struct range *range;
	int result = engine_wait_process();

	if (result)
		return result;
	range = space_at((uintptr_t)memory);
	if (!owned && (!range || range->kind != RANGE_HOST))
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	if (!range || range->kind != RANGE_HOST || range->host != memory || range->owned != owned)
		return CUDA_ERROR_INVALID_VALUE;
	host_forget(range);
	return CUDA_SUCCESS;
}

/* Whether the program has memory at all pages of the range. */
static bool is_mapped(void *memory, size_t bytes)
{
	unsigned char states[256];
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)memory & ~(page - 1);
	uintptr_t end = (uintptr_t)memory + bytes;

	while (at < end) {
		uintptr_t some =
			end - at < page * sizeof(states) ? end - at : page * sizeof(states);

		if (mincore((void *)at, some, states) < 0 && errno == ENOMEM)
			return false;
		at += some;
	}
	return true;
}

/* Takes all pages of the range, for reading or for writing too. */
static int populate(void *memory, size_t bytes, bool write)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t at = (uintptr_t)memory & ~(page - 1);
	uintptr_t end = ((uintptr_t)memory + bytes + page - 1) & ~(page - 1);

	/* Memory that can be read for certain: EINVAL says that the kernel is too old. */
	if (madvise((void *)((uintptr_t)&process & ~(page - 1)), page, MADV_POPULATE_READ) < 0 &&
	    errno == EINVAL)
		return CUDA_SUCCESS;
	if (madvise((void *)at, end - at, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
		return CUDA_SUCCESS;
	return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

static int check_register(void *memory, size_t bytes, unsigned int flags)
{
	const struct settings *settings = &process.machine.settings;
	bool read_only = flags & CUDA_HOST_REGISTER_READ_ONLY;

	if (flags & ~REGISTER_FLAGS || !memory || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!settings->host_register || (read_only && !settings->read_only_register))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!is_mapped(memory, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static int register_host(void *memory, size_t bytes, unsigned int flags)
{
	bool write = !(flags & CUDA_HOST_REGISTER_READ_ONLY);
	int result = check_register(memory, bytes, flags);

	if (!result)
		result = add_host(memory, bytes, write ? CUDA_ACCESS_READWRITE : CUDA_ACCESS_READ,
				  false);
	if (result)
		return result;
	result = populate(memory, bytes, write);
	if (result)
		host_forget(space_at((uintptr_t)memory));
	return result;
}

SOFT_EXPORT int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = register_host(memory, bytes, flags);
	/* Measured: 43 ms for each GiB. */
	if (!result)
		process_delay((unsigned int)(bytes * 43 >> 30));
	return process_leave("cuMemHostRegister_v2", result);
}

SOFT_EXPORT int cuMemHostUnregister(void *memory)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = drop_host(memory, false);
	return process_leave("cuMemHostUnregister", result);
}

SOFT_EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned int flags)
{
	int result = process_enter(NEED_CONTEXT);
	const struct range *range;

	if (!result && (!address || flags))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		range = space_at((uintptr_t)memory);
		if (range && range->kind == RANGE_HOST)
			*address = (uintptr_t)memory;
		else
			result = CUDA_ERROR_INVALID_VALUE;
	}
	return process_leave("cuMemHostGetDevicePointer_v2", result);
}

SOFT_EXPORT int cuMemAllocHost_v2(void **memory, size_t bytes)
{
	int result = process_enter(NEED_CONTEXT);
	void *made;

	if (!result && !memory)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && bytes == 0) {
		*memory = NULL;
	} else if (!result) {
		made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
		result = made == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY
					    : add_host(made, bytes, CUDA_ACCESS_READWRITE, true);
		if (result && made != MAP_FAILED)
			(void)munmap(made, bytes);
		if (!result)
			*memory = made;
	}
	return process_leave("cuMemAllocHost_v2", result);
}

SOFT_EXPORT int cuMemFreeHost(void *memory)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result && memory)
		result = drop_host(memory, true);
	return process_leave("cuMemFreeHost", result);
}
