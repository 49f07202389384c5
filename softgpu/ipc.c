/* SPDX-License-Identifier: MIT */
/*
 * CUDA's own sharing of memory between processes (cuIpc*).
 *
 * Runs in: a process that uses CUDA. The handle is plain data that names the memory in the shared table.
 * Invariant: an importer has a hold like the exporter's, so the memory outlives the exporter, and NVML
 * then charges it to the importer.
 * Read next: table.h, memory.h.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "context.h"
#include "engine.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "space.h"

#define MAGIC 0x53495043U

struct ipc_handle {
	uint32_t magic;
	uint32_t memory;
	uint64_t memory_id;
	uint64_t machine;
	int64_t pid;
	uint8_t reserved[32];
};

_Static_assert(sizeof(struct ipc_handle) == sizeof(struct cuda_ipc_memory), "same size");

SOFT_EXPORT int cuIpcGetMemHandle(struct cuda_ipc_memory *handle, uint64_t address)
{
	int result = process_enter(NEED_CONTEXT);
	const struct range *range;
	struct ipc_handle made;

	if (!result) {
		range = space_at(address);
		if (!handle || !range || range->kind != RANGE_PLAIN) {
			result = CUDA_ERROR_INVALID_VALUE;
		} else {
			made = (struct ipc_handle){
				.magic = MAGIC,
				.memory = range->memory,
				.memory_id = range->memory_id,
				.machine = process.machine.id,
				.pid = getpid(),
			};
			memcpy(handle, &made, sizeof(made));
		}
	}
	return process_leave("cuIpcGetMemHandle", result);
}

/* Opened again, memory has the address that it has. */
static bool open_again(const struct ipc_handle *handle, uint64_t *ret_address)
{
	struct range *range;

	for (size_t i = 0; (range = space_number(i)); i++) {
		if (range->kind != RANGE_IPC || range->memory_id != handle->memory_id ||
		    range->context != context_current())
			continue;
		range->opens++;
		*ret_address = range->address;
		return true;
	}
	return false;
}

/* Inside a transaction. */
static int map_import(const struct ipc_handle *handle, uint64_t *ret_address)
{
	const struct table_memory *entry = &process.table.memories[handle->memory];
	struct range range = {
		.address = space_new_address(entry->bytes, 0),
		.bytes = entry->bytes,
		.offset = entry->offset,
		.kind = RANGE_IPC,
		.access = CUDA_ACCESS_READWRITE,
		.memory = handle->memory,
		.memory_id = handle->memory_id,
		.context = context_current(),
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

static int import_memory(const struct ipc_handle *handle, uint64_t *ret_address)
{
	struct table *table = &process.table;
	int result;

	if (handle->magic != MAGIC || handle->machine != process.machine.id ||
	    handle->memory >= TABLE_MEMORIES)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle->pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (open_again(handle, ret_address))
		return CUDA_SUCCESS;
	result = process_open_table();
	if (result)
		return result;
	if (handle->memory >= table->header.memories || !table->memories[handle->memory].used ||
	    table->memories[handle->memory].id != handle->memory_id)
		result = CUDA_ERROR_INVALID_HANDLE;
	else
		result =
			process_result(table_add_hold(table, process.client.index, handle->memory));
	if (!result) {
		result = map_import(handle, ret_address);
		if (result)
			(void)table_drop_hold(table, process.client.index, handle->memory,
					      handle->memory_id);
	}
	table_close(table);
	return result;
}

SOFT_EXPORT int cuIpcOpenMemHandle_v2(uint64_t *address, struct cuda_ipc_memory handle,
				      unsigned int flags)
{
	int result = process_enter(NEED_CONTEXT);
	struct ipc_handle named;

	memcpy(&named, &handle, sizeof(named));
	if (!result && (!address || flags != CUDA_IPC_LAZY_PEER_ACCESS))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = import_memory(&named, address);
	return process_leave("cuIpcOpenMemHandle_v2", result);
}

SOFT_EXPORT int cuIpcCloseMemHandle(uint64_t address)
{
	int result = process_enter(NEED_CONTEXT);
	struct range *range;

	if (!result)
		result = engine_wait_process();
	if (!result) {
		range = space_at(address);
		if (!range || range->address != address || range->kind != RANGE_IPC)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (range->opens > 0)
			range->opens--;
		else
			memory_unmap(address);
	}
	return process_leave("cuIpcCloseMemHandle", result);
}
