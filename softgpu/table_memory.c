/* SPDX-License-Identifier: MIT */
/*
 * The part of the shared table that gives out entries and device memory.
 *
 * Runs in: every process that loads the emulated driver, inside a transaction (table.h).
 * Invariant: an entry counts only once it lies below the count in the header and its `used` is 1, so
 * whatever a killed process left half done is not seen, or is seen without a living hold and removed.
 */
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"

uint64_t table_used_bytes(const struct table *table, uint32_t device, uint32_t client)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < table->header.memories; i++) {
		const struct table_memory *memory = &table->memories[i];

		if (memory->used && memory->device == device &&
		    (client == TABLE_NONE || table->charged[i] == client))
			bytes += memory->bytes;
	}
	return bytes;
}

uint64_t table_pinned_bytes(const struct table *table)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < table->header.clients; i++) {
		if (table->clients[i].used)
			bytes += table->clients[i].pinned_bytes;
	}
	return bytes;
}

uint32_t table_new_client(struct table *table)
{
	uint32_t index = 0;

	while (index < table->header.clients && table->clients[index].used)
		index++;
	if (index == TABLE_CLIENTS)
		return TABLE_NONE;
	if (index == table->header.clients) {
		table->clients[index] = (struct table_client){0};
		table->header.clients++;
		if (table_put_client(table, index) < 0 || table_put_header(table) < 0)
			return TABLE_NONE;
	}
	return index;
}

static uint32_t new_memory_entry(struct table *table)
{
	uint32_t index = 0;

	while (index < table->header.memories && table->memories[index].used)
		index++;
	if (index == TABLE_MEMORIES)
		return TABLE_NONE;
	if (index == table->header.memories) {
		table->memories[index] = (struct table_memory){0};
		table->header.memories++;
		if (table_put_memory(table, index) < 0)
			return TABLE_NONE;
	}
	return index;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct table_memory *const *first = a;
	const struct table_memory *const *second = b;

	return ((*first)->offset > (*second)->offset) - ((*first)->offset < (*second)->offset);
}

/* First fit between the living ranges of dev/nvidiactl. Returns 0 when there is no gap. */
static uint64_t find_gap(struct table *table, uint64_t bytes)
{
	const struct table_memory **sorted = table->sorted;
	uint64_t end = TABLE_DATA_START;
	size_t count = 0;

	for (uint32_t i = 0; i < table->header.memories; i++) {
		if (table->memories[i].used && table->memories[i].offset)
			sorted[count++] = &table->memories[i];
	}
	if (count > 1)
		qsort(sorted, count, sizeof(sorted[0]), compare_offsets);
	for (size_t i = 0; i < count; i++) {
		if (sorted[i]->offset >= end && sorted[i]->offset - end >= bytes)
			return end;
		if (sorted[i]->offset + sorted[i]->bytes > end)
			end = sorted[i]->offset + sorted[i]->bytes;
	}
	return end <= TABLE_DATA_END && TABLE_DATA_END - end >= bytes ? end : 0;
}

/* Makes dev/nvidiactl long enough; it is sparse. Beyond RLIMIT_FSIZE the kernel would send SIGXFSZ. */
static int grow_data(struct table *table, uint64_t end)
{
	cleanup_fd int fd = machine_device_file(table->machine, -1, O_RDWR);
	struct rlimit limit;
	struct stat status;

	if (fd < 0 || fstat(fd, &status) < 0)
		return -EIO;
	if ((uint64_t)status.st_size >= end)
		return 0;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < end) {
		machine_say("RLIMIT_FSIZE is too small for device memory; needed: %llu",
			    (unsigned long long)end);
		return -ENOMEM;
	}
	return ftruncate(fd, (off_t)end) < 0 ? -ENOMEM : 0;
}

int table_add_hold(struct table *table, uint32_t client, uint32_t memory)
{
	uint32_t index = 0;

	while (index < table->header.holds && table->holds[index].used)
		index++;
	if (index == TABLE_HOLDS)
		return -ENOMEM;
	table->holds[index] = (struct table_hold){
		.used = 1,
		.client = client,
		.memory = memory,
		.memory_id = table->memories[memory].id,
		.order = table->header.next_id++,
	};
	if (index == table->header.holds)
		table->header.holds++;
	if (table->charged[memory] == TABLE_NONE)
		table->charged[memory] = client;
	/* An entry beyond the count is invisible until the header is written: entry first is right. */
	return table_put_hold(table, index) < 0 || table_put_header(table) < 0 ? -EIO : 0;
}

static bool fits(const struct table *table, uint32_t device, uint64_t bytes)
{
	const struct settings *settings = &table->machine->settings;
	uint64_t used = table_used_bytes(table, device, TABLE_NONE) + settings->reserved_bytes;

	return used <= settings->memory_bytes[device] &&
	       settings->memory_bytes[device] - used >= bytes;
}

int table_new_memory(struct table *table, uint32_t client, uint32_t device, enum table_kind kind,
		     uint64_t bytes, uint32_t *ret_memory)
{
	uint64_t offset = 0;
	uint32_t index;

	if (!fits(table, device, bytes))
		return -ENOMEM;
	if (kind != TABLE_OVERHEAD) {
		offset = find_gap(table, bytes);
		if (offset == 0 || grow_data(table, offset + bytes) < 0)
			return -ENOMEM;
	}
	index = new_memory_entry(table);
	if (index == TABLE_NONE)
		return -ENOMEM;
	table->memories[index] = (struct table_memory){
		.used = 1,
		.device = device,
		.kind = kind,
		.bytes = bytes,
		.offset = offset,
		.id = table->header.next_id++,
	};
	table->charged[index] = TABLE_NONE;
	/* The id is given away by the header first: it must never be used twice. */
	if (table_put_header(table) < 0 || table_put_memory(table, index) < 0)
		return -EIO;
	*ret_memory = index;
	return table_add_hold(table, client, index);
}

int table_drop_hold(struct table *table, uint32_t client, uint32_t memory, uint64_t id)
{
	for (uint32_t i = 0; i < table->header.holds; i++) {
		struct table_hold *hold = &table->holds[i];

		if (!hold->used || hold->client != client || hold->memory != memory ||
		    hold->memory_id != id)
			continue;
		hold->used = 0;
		return table_put_hold(table, i);
	}
	return -ENOENT;
}
