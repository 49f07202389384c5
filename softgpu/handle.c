/* SPDX-License-Identifier: MIT */
/*
 * Device memory with a handle (cuMemCreate and its family): it can be mapped at an address of choice, for
 * reading only too, and can leave the process as a descriptor that keeps it alive without any CUDA.
 *
 * Runs in: a process that uses CUDA. Needs cuInit but no context.
 * Invariant: a handle's memory has one hold of this process, until the handle is released and the last
 * mapping is gone. The position of an exported descriptor is the memory's place in dev/nvidiactl, which
 * is how the importer finds it; the shared table has the last word.
 * Read next: reserve.h, client.h, table.h, space.h.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"
#include "engine.h"
#include "export.h"
#include "memory.h"
#include "process.h"
#include "reserve.h"
#include "space.h"

#define GRANULARITY (2ULL << 20)

/* Windows's two kinds and that of fabrics. Bits without a meaning are not looked at (measured). */
#define OTHER_HANDLES 0xeU

struct handle {
	struct handle *next;
	uint64_t number;
	uint64_t bytes;
	uint64_t offset;
	uint8_t *host;
	uint32_t memory;
	uint64_t memory_id;
	unsigned int uses;     /* cuMemCreate or import: 1, and 1 for each mapping */
	unsigned int unmapped; /* uses to drop once the work that may still touch them has ended */
	bool released;
	bool exportable;
};

/* Guarded by the process's lock. */
static struct handle *handles;
static uint64_t next_number = 1;

static struct handle *find_handle(uint64_t number)
{
	struct handle *one = handles;

	while (one && one->number != number)
		one = one->next;
	return one;
}

static int add_handle(uint32_t memory, bool exportable, uint64_t *ret_handle)
{
	const struct table_memory *entry = &process.table.memories[memory];
	struct handle *handle = calloc(1, sizeof(*handle));

	if (!handle)
		return CUDA_ERROR_OUT_OF_MEMORY;
	handle->host = client_map(&process.client, entry->offset, entry->bytes);
	if (handle->host == MAP_FAILED) {
		free(handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	handle->number = next_number++;
	handle->bytes = entry->bytes;
	handle->offset = entry->offset;
	handle->memory = memory;
	handle->memory_id = entry->id;
	handle->uses = 1;
	handle->exportable = exportable;
	handle->next = handles;
	handles = handle;
	*ret_handle = handle->number;
	return CUDA_SUCCESS;
}

static void drop_uses(struct handle *handle, unsigned int count)
{
	struct handle **link = &handles;

	handle->uses -= count;
	if (handle->uses > 0)
		return;
	while (*link && *link != handle)
		link = &(*link)->next;
	if (*link)
		*link = handle->next;
	(void)munmap(handle->host, handle->bytes);
	if (!process_open_table_as_is()) {
		(void)table_drop_hold(&process.table, process.client.index, handle->memory,
				      handle->memory_id);
		table_close(&process.table);
	}
	free(handle);
}

static int check_allocation(const struct cuda_allocation *allocation)
{
	if (!allocation || allocation->type != CUDA_MEMORY_PINNED ||
	    allocation->location.type != CUDA_LOCATION_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (allocation->handle_types & OTHER_HANDLES)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (allocation->location.id < 0 || allocation->location.id >= process.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS;
}

static int create(uint64_t bytes, const struct cuda_allocation *allocation, uint64_t *ret_handle)
{
	uint32_t device = process_device(allocation->location.id);
	struct table *table = &process.table;
	uint32_t memory = 0;
	int result;

	if (process.machine.settings.lost == device)
		return CUDA_ERROR_UNKNOWN;
	result = process_open_table();
	if (result)
		return result;
	result = process_result(table_new_memory(table, process.client.index, device, TABLE_HANDLE,
						 bytes, &memory));
	if (!result) {
		result = add_handle(memory, allocation->handle_types & CUDA_HANDLE_POSIX_FD,
				    ret_handle);
		if (result)
			(void)table_drop_hold(table, process.client.index, memory,
					      table->memories[memory].id);
	}
	table_close(table);
	return result;
}

SOFT_EXPORT int cuMemGetAllocationGranularity(size_t *bytes,
					      const struct cuda_allocation *allocation, int option)
{
	int result = process_enter(NEED_INIT);

	if (!result)
		result = bytes && option >= 0 && option <= 1 ? check_allocation(allocation)
							     : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*bytes = GRANULARITY;
	return process_leave("cuMemGetAllocationGranularity", result);
}

SOFT_EXPORT int cuMemCreate(uint64_t *handle, size_t bytes,
			    const struct cuda_allocation *allocation, unsigned long long flags)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);

	if (!result)
		result = check_allocation(allocation);
	if (!result && (!handle || flags || bytes == 0 || bytes % GRANULARITY))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && bytes > TABLE_DATA_END)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		result = create(bytes, allocation, handle);
	return process_leave("cuMemCreate", result);
}

SOFT_EXPORT int cuMemRelease(uint64_t number)
{
	int result = process_enter(NEED_INIT);
	struct handle *handle;

	if (!result) {
		handle = find_handle(number);
		if (!handle || handle->released) {
			result = CUDA_ERROR_INVALID_VALUE;
		} else {
			handle->released = true;
			drop_uses(handle, 1);
		}
	}
	return process_leave("cuMemRelease", result);
}

static int export_handle(void *shareable, uint64_t number, int type)
{
	const struct handle *handle = find_handle(number);
	int fd;

	if (!shareable || type != CUDA_HANDLE_POSIX_FD || !handle || handle->released ||
	    !handle->exportable)
		return CUDA_ERROR_INVALID_VALUE;
	fd = client_export(&process.machine, handle->offset, handle->bytes);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)shareable = fd;
	return CUDA_SUCCESS;
}

SOFT_EXPORT int cuMemExportToShareableHandle(void *shareable, uint64_t handle, int type,
					     unsigned long long flags)
{
	int result = process_enter(NEED_INIT);

	if (!result)
		result = flags ? CUDA_ERROR_INVALID_VALUE : export_handle(shareable, handle, type);
	return process_leave("cuMemExportToShareableHandle", result);
}

/* Which memory FD stands for: it must be our dev/nvidiactl, at the place of memory that lives. */
static uint32_t find_exported(int fd)
{
	struct stat theirs;
	struct stat ours;
	off_t place = lseek(fd, 0, SEEK_CUR);

	if (place < (off_t)TABLE_DATA_START || fstat(fd, &theirs) < 0 ||
	    fstat(process.client.data_fd, &ours) < 0 || theirs.st_ino != ours.st_ino ||
	    theirs.st_dev != ours.st_dev)
		return TABLE_NONE;
	for (uint32_t i = 0; i < process.table.header.memories; i++) {
		const struct table_memory *memory = &process.table.memories[i];

		if (memory->used && memory->kind == TABLE_HANDLE &&
		    memory->offset == (uint64_t)place)
			return i;
	}
	return TABLE_NONE;
}

static int import_handle(int fd, uint64_t *ret_handle)
{
	struct table *table = &process.table;
	uint32_t memory;
	/* The descriptor itself keeps what it stands for. */
	int result = process_open_table_as_is();

	if (result)
		return result;
	memory = find_exported(fd);
	if (memory == TABLE_NONE)
		result = CUDA_ERROR_UNKNOWN;
	else
		result = process_result(table_add_hold(table, process.client.index, memory));
	if (!result) {
		result = add_handle(memory, true, ret_handle);
		if (result)
			(void)table_drop_hold(table, process.client.index, memory,
					      table->memories[memory].id);
	}
	table_close(table);
	return result;
}

SOFT_EXPORT int cuMemImportFromShareableHandle(uint64_t *handle, void *shareable, int type)
{
	int result = process_enter(NEED_INIT);

	if (!result && (!handle || type != CUDA_HANDLE_POSIX_FD))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = import_handle((int)(intptr_t)shareable, handle);
	return process_leave("cuMemImportFromShareableHandle", result);
}

static int map(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t number)
{
	struct handle *handle = find_handle(number);
	struct range range;
	int result;

	if (!handle || handle->released)
		return CUDA_ERROR_INVALID_VALUE;
	if (offset || bytes != handle->bytes)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (address % GRANULARITY || !reserve_covers(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (!space_is_free(address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	range = (struct range){
		.address = address,
		.bytes = bytes,
		.host = handle->host,
		.offset = handle->offset,
		.kind = RANGE_HANDLE,
		.access = CUDA_ACCESS_NONE,
		.handle = number,
	};
	result = space_add(&range);
	if (!result)
		handle->uses++;
	return result;
}

SOFT_EXPORT int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
			 unsigned long long flags)
{
	int result = process_enter(NEED_INIT);

	if (!result)
		result = flags ? CUDA_ERROR_INVALID_VALUE : map(address, bytes, offset, handle);
	return process_leave("cuMemMap", result);
}

/* Whether ADDRESS to ADDRESS + BYTES is made of whole mappings of handles, or of GAPS too. */
static bool is_whole(uint64_t address, uint64_t bytes, bool gaps)
{
	while (bytes > 0) {
		const struct range *range = space_at(address);

		if (!range && gaps) {
			address += GRANULARITY;
			bytes -= GRANULARITY;
			continue;
		}
		if (!range || range->kind != RANGE_HANDLE || range->address != address ||
		    range->bytes > bytes)
			return false;
		address += range->bytes;
		bytes -= range->bytes;
	}
	return true;
}

void handle_settle(void)
{
	struct handle *next;

	if (!engine_is_idle())
		return;
	for (struct handle *one = handles; one; one = next) {
		unsigned int drops = one->unmapped;

		next = one->next;
		one->unmapped = 0;
		drop_uses(one, drops);
	}
}

static void unmap(uint64_t address, uint64_t bytes)
{
	while (bytes > 0) {
		const struct range *range = space_at(address);
		struct handle *handle = range ? find_handle(range->handle) : NULL;
		uint64_t some = range ? range->bytes : GRANULARITY;

		if (handle) {
			handle->unmapped++;
			space_remove(address);
		}
		address += some;
		bytes -= some;
	}
	handle_settle();
}

/* Does not wait (measured): work that is under way faults at what is gone. */
SOFT_EXPORT int cuMemUnmap(uint64_t address, size_t bytes)
{
	int result = process_enter(NEED_INIT);

	if (!result && (bytes == 0 || (address | bytes) % GRANULARITY ||
			!reserve_covers(address, bytes) || !is_whole(address, bytes, true)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		unmap(address, bytes);
	return process_leave("cuMemUnmap", result);
}

static int set_access(uint64_t address, uint64_t bytes, const struct cuda_access_range *access)
{
	if (access->location.type != CUDA_LOCATION_DEVICE || access->location.id < 0 ||
	    access->location.id >= process.devices)
		return CUDA_ERROR_INVALID_VALUE;
	if (access->flags != CUDA_ACCESS_NONE && access->flags != CUDA_ACCESS_READ &&
	    access->flags != CUDA_ACCESS_READWRITE)
		return CUDA_ERROR_INVALID_VALUE;
	while (bytes > 0) {
		struct range *range = space_at(address);

		range->access = access->flags;
		address += range->bytes;
		bytes -= range->bytes;
	}
	return CUDA_SUCCESS;
}

SOFT_EXPORT int cuMemSetAccess(uint64_t address, size_t bytes,
			       const struct cuda_access_range *access, size_t count)
{
	int result = process_enter(NEED_INIT);

	if (!result && (!access || count == 0 || bytes == 0 || !is_whole(address, bytes, false)))
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && !result; i++)
		result = set_access(address, bytes, &access[i]);
	return process_leave("cuMemSetAccess", result);
}
