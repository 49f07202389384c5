/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <sys/mman.h>

#include "context.h"
#include "engine.h"
#include "export.h"
#include "process.h"

#define LARGE_PAGE (2ULL << 20)

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

void memory_free_of(const struct cuda_context *context)
{
	size_t i = 0;

	while (space_number(i)) {
		const struct range *range = space_number(i);

		if (range->context != context)
			i++;
		else if (range->kind == RANGE_HOST)
			host_forget(range);
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
