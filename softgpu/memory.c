/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "context.h"
#include "engine.h"
#include "export.h"
#include "process.h"

#define LARGE_PAGE (2ULL << 20)

/* The public ones: portable, device map, I/O memory, read only. */
#define REGISTER_FLAGS 0xfU

uint64_t memory_round(uint64_t bytes)
{
	uint64_t unit = bytes < LARGE_PAGE ? TABLE_DATA_ALIGN : LARGE_PAGE;

	if (bytes > TABLE_DATA_END)
		return 0;
	return (bytes + unit - 1) / unit * unit;
}

static int map_plain(uint32_t memory, struct cuda_context *context, uint64_t *ret_address)
{
	const struct table_memory *entry = &process.table.memories[memory];
	struct range range = {
		.address = space_new_address(entry->bytes, 0),
		.bytes = entry->bytes,
		.offset = entry->offset,
		.kind = RANGE_PLAIN,
		.access = CUDA_ACCESS_READWRITE,
		.memory = memory,
		.memory_id = entry->id,
		.context = context,
	};
	int result;

	range.host = client_map(&process.client, entry->offset, entry->bytes);
	if (range.host == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = space_add(&range);
	if (result)
		(void)munmap(range.host, range.bytes);
	else
		*ret_address = range.address;
	return result;
}

static int allocate(uint64_t bytes, uint64_t *ret_address)
{
	struct cuda_context *context = context_current();
	struct table *table = &process.table;
	uint32_t memory = 0;
	int result;

	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (memory_round(bytes) == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = process_open_table();
	if (result)
		return result;
	result = process_result(table_new_memory(table, process.client.index,
						 context->machine_device, TABLE_PLAIN,
						 memory_round(bytes), &memory));
	if (!result) {
		result = map_plain(memory, context, ret_address);
		if (result)
			(void)table_drop_hold(table, process.client.index, memory,
					      table->memories[memory].id);
	}
	table_close(table);
	return result;
}

SOFT_EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result)
		result = address ? allocate(bytes, address) : CUDA_ERROR_INVALID_VALUE;
	return process_leave("cuMemAlloc_v2", result);
}

void memory_unmap(uint64_t address)
{
	struct range range = *space_at(address);

	space_remove(address);
	(void)munmap(range.host, range.bytes);
	if (process_open_table())
		return;
	(void)table_drop_hold(&process.table, process.client.index, range.memory, range.memory_id);
	table_close(&process.table);
}

static void forget_host(const struct range *range)
{
	void *memory = range->host;
	uint64_t bytes = range->bytes;
	bool owned = range->owned;

	space_remove(range->address);
	if (owned)
		(void)munmap(memory, bytes);
}

void memory_free_of(const struct cuda_context *context)
{
	size_t i = 0;

	while (space_number(i)) {
		const struct range *range = space_number(i);

		if (range->context != context)
			i++;
		else if (range->kind == RANGE_HOST)
			forget_host(range);
		else
			memory_unmap(range->address);
	}
}

/* Needs no current context, as measured; but a current one that is destroyed or lost is in the way. */
SOFT_EXPORT int cuMemFree_v2(uint64_t address)
{
	int result = process_enter(context_current() ? NEED_CONTEXT : NEED_INIT);
	const struct range *range;

	if (!result && address) {
		result = engine_wait_process();
		range = space_at(address);
		if (!result && (!range || range->address != address || range->kind != RANGE_PLAIN))
			result = CUDA_ERROR_INVALID_VALUE;
		if (!result)
			memory_unmap(address);
	}
	return process_leave("cuMemFree_v2", result);
}

SOFT_EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	int result = process_enter(NEED_CONTEXT);
	uint64_t total;
	uint64_t used;
	uint32_t device;

	if (!result)
		result = process_open_table();
	if (!result) {
		device = context_current()->machine_device;
		used = table_used_bytes(&process.table, device, TABLE_NONE);
		table_close(&process.table);
		total = settings_usable_bytes(&process.machine.settings, device);
		if (total_bytes)
			*total_bytes = total;
		if (free_bytes)
			*free_bytes = used < total ? total - used : 0;
	}
	return process_leave("cuMemGetInfo_v2", result);
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

	if (!memory || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (!space_is_free(range.address, bytes))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return space_add(&range);
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
	forget_host(range);
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

SOFT_EXPORT int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags)
{
	int result = process_enter(NEED_CONTEXT);

	if (!result && (flags & ~REGISTER_FLAGS || !is_mapped(memory, bytes)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = add_host(memory, bytes,
				  flags & CUDA_HOST_REGISTER_READ_ONLY ? CUDA_ACCESS_READ
								       : CUDA_ACCESS_READWRITE,
				  false);
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
