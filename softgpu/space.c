/* SPDX-License-Identifier: MIT */
#include "space.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "engine.h"
#include "process.h"

#define ADDRESS_ALIGN (2ULL << 20)
#define CHUNK	      (1ULL << 20) /* between two looks at engine_is_cut_off() */
#define CHUNK_ALIGN   (1ULL << 16) /* of whole pages, whatever their size */

/* Guarded by the process's lock. */
static struct {
	struct range *ranges;
	size_t count;
	size_t room;
	uint64_t next_address;
} space = {.next_address = SPACE_FIRST};

uint64_t space_new_address(uint64_t bytes, uint64_t alignment)
{
	uint64_t address;

	if (alignment > ADDRESS_ALIGN)
		space.next_address = (space.next_address + alignment - 1) & ~(alignment - 1);
	address = space.next_address;
	space.next_address += (bytes + 2 * ADDRESS_ALIGN - 1) / ADDRESS_ALIGN * ADDRESS_ALIGN;
	return address;
}

/* The number of ranges that begin at or below ADDRESS. */
static size_t find(uint64_t address)
{
	size_t low = 0;
	size_t high = space.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (space.ranges[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct range *space_at(uint64_t address)
{
	size_t after = find(address);
	struct range *range;

	if (after == 0)
		return NULL;
	range = &space.ranges[after - 1];
	return address - range->address < range->bytes ? range : NULL;
}

struct range *space_number(size_t i)
{
	return i < space.count ? &space.ranges[i] : NULL;
}

bool space_is_free(uint64_t address, uint64_t bytes)
{
	size_t after = find(address);

	if (address + bytes < address || space_at(address))
		return false;
	return after == space.count || space.ranges[after].address - address >= bytes;
}

bool space_covers(uint64_t address, uint64_t bytes, unsigned int access)
{
	while (bytes > 0) {
		const struct range *range = space_at(address);
		uint64_t left;

		if (!range || (range->access & access) != access)
			return false;
		left = range->bytes - (address - range->address);
		if (left >= bytes)
			return true;
		address += left;
		bytes -= left;
	}
	return true;
}

int space_add(const struct range *range)
{
	size_t at = find(range->address);

	if (space.count == space.room) {
		size_t room = space.room ? space.room * 2 : 16;
		struct range *grown = realloc(space.ranges, room * sizeof(*grown));

		if (!grown)
			return CUDA_ERROR_OUT_OF_MEMORY;
		space.ranges = grown;
		space.room = room;
	}
	memmove(&space.ranges[at + 1], &space.ranges[at],
		(space.count - at) * sizeof(space.ranges[0]));
	space.ranges[at] = *range;
	space.count++;
	return CUDA_SUCCESS;
}

void space_remove(uint64_t address)
{
	size_t after = find(address);

	if (after == 0 || space.ranges[after - 1].address != address)
		return;
	memmove(&space.ranges[after - 1], &space.ranges[after],
		(space.count - after) * sizeof(space.ranges[0]));
	space.count--;
}

/* Somebody may have cut dev/nvidiactl short: touching such a page would be a SIGBUS. */
static bool data_is_there(const struct range *range)
{
	struct stat status;

	if (range->kind == RANGE_HOST)
		return true;
	if (fstat(process.client.data_fd, &status) == 0 &&
	    (uint64_t)status.st_size >= range->offset + range->bytes)
		return true;
	(void)machine_trouble(&process.machine, "%s/dev/nvidiactl was cut short while in use",
			      process.machine.dir);
	return false;
}

enum fault space_span(uint64_t address, uint64_t bytes, bool write, uint8_t **ret_host,
		      uint64_t *ret_bytes)
{
	enum fault fault = FAULT_NONE;
	const struct range *range;

	(void)pthread_mutex_lock(&process.lock);
	range = space_at(address);
	if (process.stopping) {
		fault = FAULT_CUT_OFF;
	} else if (!range || !(range->access & CUDA_ACCESS_READ) || !data_is_there(range)) {
		fault = FAULT_ADDRESS;
	} else if (write && range->access != CUDA_ACCESS_READWRITE) {
		fault = FAULT_READ_ONLY;
	} else {
		uint64_t left = range->bytes - (address - range->address);

		left = left < CHUNK ? left : CHUNK;
		*ret_bytes = left < bytes ? left : bytes;
		*ret_host = range->host + (address - range->address);
	}
	(void)pthread_mutex_unlock(&process.lock);
	return fault;
}

/* A whole word is written as one: a kernel may be waiting for it to change. */
static void put(uint8_t *host, const uint8_t *source, uint64_t bytes)
{
	uint32_t word;

	if (bytes != sizeof(word) || (uintptr_t)host % sizeof(word)) {
		memcpy(host, source, bytes);
		return;
	}
	memcpy(&word, source, sizeof(word));
	__atomic_store_n((uint32_t *)(void *)host, word, __ATOMIC_RELEASE);
}

enum fault space_write(uint64_t to, const void *from, uint64_t bytes)
{
	const uint8_t *source = from;

	while (bytes > 0) {
		uint8_t *host;
		uint64_t some;
		enum fault fault = space_span(to, bytes, true, &host, &some);

		if (fault != FAULT_NONE)
			return fault;
		put(host, source, some);
		to += some;
		source += some;
		bytes -= some;
	}
	return FAULT_NONE;
}

enum fault space_read(void *to, uint64_t from, uint64_t bytes)
{
	uint8_t *target = to;

	while (bytes > 0) {
		uint8_t *host;
		uint64_t some;
		enum fault fault = space_span(from, bytes, false, &host, &some);

		if (fault != FAULT_NONE)
			return fault;
		memcpy(target, host, some);
		from += some;
		target += some;
		bytes -= some;
	}
	return FAULT_NONE;
}

enum fault space_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
	while (bytes > 0) {
		uint8_t *host;
		uint64_t some;
		enum fault fault = space_span(from, bytes, false, &host, &some);

		if (fault == FAULT_NONE)
			fault = space_write(to, host, some);
		if (fault != FAULT_NONE)
			return fault;
		to += some;
		from += some;
		bytes -= some;
	}
	return FAULT_NONE;
}

/* Zeros in device memory take no room: a gigabyte that is only cleared costs nothing. */
static bool clear_pages(uint8_t *host, uint64_t bytes)
{
	return bytes == CHUNK && (uintptr_t)host % CHUNK_ALIGN == 0 &&
	       madvise(host, bytes, MADV_REMOVE) == 0;
}

enum fault space_set(uint64_t to, uint32_t pattern, uint32_t pattern_bytes, uint64_t bytes)
{
	while (bytes > 0) {
		uint8_t *host;
		uint64_t some;
		enum fault fault = space_span(to, bytes, true, &host, &some);

		if (fault != FAULT_NONE)
			return fault;
		if (pattern == 0 && clear_pages(host, some)) {
			/* Nothing is left to do. */
		} else if (pattern_bytes == 1) {
			memset(host, (int)pattern, some);
		} else {
			/* Ranges begin and end at whole words, but host memory may not. */
			for (uint64_t i = 0; i < some; i++)
				host[i] = (uint8_t)(pattern >> 8 * ((to + i) % 4));
		}
		to += some;
		bytes -= some;
	}
	return FAULT_NONE;
}
