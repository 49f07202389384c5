/* SPDX-License-Identifier: MIT */
/*
 * Addresses of surviving state on one device: which parts of the range are taken, and where a new piece goes.
 *
 * Runs in: ward; pure. First fit, with one granule left free behind each piece, so that a kernel that runs
 * past the end of one meets a fault and not its neighbour. An address is given out again only after
 * state_space_free(), which the caller calls when nobody can have the piece mapped any more.
 * Invariant: extents are sorted and do not overlap; a free never needs memory. Read next: state_piece.h.
 */
#ifndef GPUWARD_WARD_STATE_SPACE_H
#define GPUWARD_WARD_STATE_SPACE_H

#include <stddef.h>
#include <stdint.h>

struct state_extent {
	uint64_t start;
	uint64_t bytes; /* with the granule behind it */
};

struct state_space {
	struct state_extent *extents;
	size_t count;
	size_t room;
};

void state_space_done(struct state_space *space);

/* BYTES is a multiple of STATE_GRANULE and not 0. Returns 0 and *RET_ADDRESS, -ENOSPC or -ENOMEM. */
int state_space_alloc(struct state_space *space, uint64_t bytes, uint64_t *ret_address);

/* Takes BYTES bytes from ADDRESS on, which was given out before. Returns 0, -EEXIST: not all of it is free;
 * -ENOMEM. */
int state_space_take(struct state_space *space, uint64_t address, uint64_t bytes);

/* ADDRESS is from state_space_alloc() or state_space_take(). */
void state_space_free(struct state_space *space, uint64_t address);

#endif
