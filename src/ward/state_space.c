/* SPDX-License-Identifier: MIT */
#include "ward/state_space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/state_wire.h"

#define FIRST_ROOM 16

void state_space_done(struct state_space *space)
{
	free(space->extents);
	*space = (struct state_space){0};
}

static int make_room(struct state_space *space)
{
	size_t room = space->room > 0 ? space->room * 2 : FIRST_ROOM;
	struct state_extent *grown;

	if (space->count < space->room)
		return 0;
	grown = reallocarray(space->extents, room, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	space->extents = grown;
	space->room = room;
	return 0;
}

int state_space_alloc(struct state_space *space, uint64_t bytes, uint64_t *ret_address)
{
	uint64_t wanted = bytes + STATE_GRANULE;
	uint64_t start = STATE_BASE;
	size_t at;

	if (make_room(space) < 0)
		return -ENOMEM;
	for (at = 0; at < space->count; at++) {
		const struct state_extent *extent = &space->extents[at];

		if (extent->start - start >= wanted)
			break;
		start = extent->start + extent->bytes;
	}
	if (STATE_BASE + STATE_SPACE_BYTES - start < wanted)
		return -ENOSPC;
	memmove(&space->extents[at + 1], &space->extents[at],
		(space->count - at) * sizeof(space->extents[0]));
	space->extents[at] = (struct state_extent){.start = start, .bytes = wanted};
	space->count++;
	*ret_address = start;
	return 0;
}

int state_space_take(struct state_space *space, uint64_t address, uint64_t bytes)
{
	struct state_extent wanted = {.start = address, .bytes = bytes + STATE_GRANULE};
	size_t at = 0;

	while (at < space->count && space->extents[at].start < address)
		at++;
	if ((at > 0 && space->extents[at - 1].start + space->extents[at - 1].bytes > address) ||
	    (at < space->count && address + wanted.bytes > space->extents[at].start))
		return -EEXIST;
	if (make_room(space) < 0)
		return -ENOMEM;
	memmove(&space->extents[at + 1], &space->extents[at],
		(space->count - at) * sizeof(space->extents[0]));
	space->extents[at] = wanted;
	space->count++;
	return 0;
}

void state_space_free(struct state_space *space, uint64_t address)
{
	size_t low = 0;
	size_t high = space->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (space->extents[middle].start < address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == space->count || space->extents[low].start != address)
		return;
	space->count--;
	memmove(&space->extents[low], &space->extents[low + 1],
		(space->count - low) * sizeof(space->extents[0]));
}
