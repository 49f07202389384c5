/* SPDX-License-Identifier: MIT */
#include "reserve.h"

#include <stdlib.h>

#include "export.h"
#include "process.h"
#include "space.h"

#define GRANULARITY (2ULL << 20)

/*
 * Measured: before the process has made a context, a wish for an address counts for every size. After
 * it, a smaller reservation than this comes out of the driver's own pool, whatever it wishes for.
 */
#define WISH_BYTES (512ULL << 20)

/* What a wish is rounded up to. */
#define WISH_ALIGN (32ULL << 20)

/* Where user programs have no addresses: a wish there is not kept. */
#define WISH_END (1ULL << 47)

/* Measured: this one fails. What lies below it, from WISH_END on, was not measured. */
#define TOO_HIGH (1ULL << 52)

struct reservation {
	struct reservation *next;
	uint64_t address;
	uint64_t bytes;
};

/* Guarded by the process's lock. */
static struct reservation *reservations;

bool reserve_covers(uint64_t address, uint64_t bytes)
{
	for (const struct reservation *one = reservations; one; one = one->next) {
		if (address >= one->address && bytes <= one->bytes &&
		    address - one->address <= one->bytes - bytes)
			return true;
	}
	return false;
}

/* The end of what has some of ADDRESS to ADDRESS + BYTES: a reservation or the pool. 0: nothing has. */
static uint64_t in_the_way(uint64_t address, uint64_t bytes)
{
	if (address < SPACE_END && SPACE_FIRST < address + bytes)
		return SPACE_END;
	for (const struct reservation *one = reservations; one; one = one->next) {
		if (address < one->address + one->bytes && one->address < address + bytes)
			return one->address + one->bytes;
	}
	return 0;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/*
 * The wanted address, or where the next hole begins: behind a reservation of 4 TiB at the wanted address
 * the hardware's driver gave the first address after it. 0: there is none, and the wish is ignored.
 */
static uint64_t wished(uint64_t wanted, uint64_t bytes, uint64_t alignment)
{
	uint64_t unit = alignment > WISH_ALIGN ? alignment : WISH_ALIGN;
	uint64_t address = round_up(wanted, unit);
	uint64_t end;

	if (wanted == 0 || (bytes < WISH_BYTES && process.contexts))
		return 0;
	while (address < WISH_END && (end = in_the_way(address, bytes)))
		address = round_up(end, unit);
	return address < WISH_END && space_is_free(address, bytes) ? address : 0;
}

static int reserve(uint64_t *ret_address, uint64_t bytes, uint64_t alignment, uint64_t wanted)
{
	struct reservation *made = calloc(1, sizeof(*made));

	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->address = wished(wanted, bytes, alignment);
	if (!made->address)
		made->address = space_new_address(bytes, alignment);
	made->bytes = bytes;
	made->next = reservations;
	reservations = made;
	*ret_address = made->address;
	return CUDA_SUCCESS;
}

SOFT_EXPORT int cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment,
				    uint64_t wanted, unsigned long long flags)
{
	int result = process_enter(NEED_INIT | NEED_EVEN_DEAD);

	if (!result &&
	    (!address || flags || bytes == 0 || bytes % GRANULARITY || bytes > TABLE_DATA_END ||
	     (alignment & (alignment - 1)) || alignment > TABLE_DATA_END))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && wanted >= TOO_HIGH)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		result = reserve(address, bytes, alignment, wanted);
	return process_leave("cuMemAddressReserve", result);
}

SOFT_EXPORT int cuMemAddressFree(uint64_t address, size_t bytes)
{
	int result = process_enter(NEED_INIT);
	struct reservation **link = &reservations;
	struct reservation *found;

	if (!result) {
		while (*link && !((*link)->address == address && (*link)->bytes == bytes))
			link = &(*link)->next;
		found = *link;
		if (!found || !space_is_free(address, bytes)) {
			result = CUDA_ERROR_INVALID_VALUE;
		} else {
			*link = found->next;
			free(found);
		}
	}
	return process_leave("cuMemAddressFree", result);
}
