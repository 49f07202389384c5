/* SPDX-License-Identifier: MIT */
/*
 * Hands out pieces of a range of bytes, by offset. It never touches the bytes themselves: its books
 * are in private memory, so that nobody who can write to the range can confuse it.
 *
 * Runs in: host, under the pool's lock. Sizes are rounded up to powers of two; each size has a stack
 * of free pieces, and new ones are cut from the top. Only when the top is reached are free neighbours
 * joined (once, in one sweep), since tasks of the same size follow each other nearly always.
 * Invariant: a free never needs memory; the room for it is made when the piece is handed out.
 */
#ifndef GPUWARD_LIB_ARENA_H
#define GPUWARD_LIB_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_MIN_SHIFT 6U /* 64 bytes: the alignment that tasks are promised */
#define ARENA_CLASSES	42U

/* Sizes are rounded up to powers of two: an arena of so many times the limit always has room. */
#define ARENA_FACTOR 2U

/* Free pieces of one size. */
struct arena_class {
	uint64_t *offsets;
	size_t free;
	size_t capacity; /* at least the number of pieces of this size, free or not */
	size_t pieces;
};

struct arena {
	uint64_t bytes;
	uint64_t top; /* everything from here on was never handed out */
	struct arena_class classes[ARENA_CLASSES];
};

void arena_init(struct arena *arena, uint64_t bytes);
void arena_done(struct arena *arena);

/* Returns 0 and *RET_OFFSET (aligned to 64), -ENOSPC, or -ENOMEM. BYTES must not be 0. */
int arena_alloc(struct arena *arena, uint64_t bytes, uint64_t *ret_offset);

/* BYTES is what was asked for. Returns true when the piece is large and there are enough free ones of
 * its size: the caller may then give its pages back to the system. */
bool arena_release(struct arena *arena, uint64_t offset, uint64_t bytes);

#endif
