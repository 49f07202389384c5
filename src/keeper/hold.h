/* SPDX-License-Identifier: MIT */
/*
 * What a keeper holds: the descriptors of surviving device memory, what is known of each piece, and who may still
 * be writing it.
 *
 * Runs in: keeper. No socket of its own and no loop, so that the fuzzer goes through it alone. A message either
 * changes what it says or nothing.
 * Invariant: a place is empty, or has all copies of its piece; the sums are those of all pieces.
 * Read next: keeper.h for who may say what.
 */
#ifndef GPUWARD_KEEPER_HOLD_H
#define GPUWARD_KEEPER_HOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/keep_wire.h"

struct hold_piece {
	struct keep_piece info; /* status 0: the place is empty */
	int copies[2];
	int owner_pidfd; /* -1: nobody may write it */
	int owner_socket; /* closed at the other end when no copy of the owner's descriptors is left */
};

struct hold {
	struct hold_piece *all; /* GW_STATES_MAX; pages are taken when they are touched */
	uint32_t high;		/* places from here on were never used */
	uint32_t count;
	uint64_t bytes;
};

/* Returns 0 or -ENOMEM. */
int hold_init(struct hold *hold);
void hold_done(struct hold *hold);

/*
 * Does what a ward says: PIECE, STEP, OWN or DROP, which was checked. FDS are those that came with it; the ones
 * that are kept are taken out (-1). Returns 0, or GW_EPROTOCOL: nothing has changed.
 */
int hold_apply(struct hold *hold, const union keep_any *message, int *fds, size_t n_fds);

/* Lets go of the pieces called NAME, "" all. Returns how many. */
uint32_t hold_remove(struct hold *hold, const char *name);

/* The first piece from place *PLACE on (which goes on behind it), or NULL. */
const struct hold_piece *hold_next(const struct hold *hold, uint32_t *place);

/*
 * Forgets all owners that are gone for certain. Returns the first piece whose owner is not, or NULL; *RET_FD is what
 * becomes readable, or is hung up, when that has changed. Never blocks.
 */
const struct hold_piece *hold_owned(struct hold *hold, int *ret_fd);

/* The descriptors of PIECE's copies; returns their number. */
size_t hold_fds(const struct hold_piece *piece, int fds[2]);

#endif
