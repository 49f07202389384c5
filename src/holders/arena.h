/* SPDX-License-Identifier: MIT */
/*
 * Memory for texts that all end together: many small pieces, one free.
 *
 * Runs in: any thread, one at a time per arena. A piece never moves and is never given back alone.
 * Invariant: an arena that is all zero is empty and valid.
 */
#ifndef GPUWARD_HOLDERS_ARENA_H
#define GPUWARD_HOLDERS_ARENA_H

#include <stddef.h>

struct arena_chunk {
	struct arena_chunk *next;
	size_t used;
	size_t room;
	char bytes[];
};

/* Room for BYTES, not cleared and not aligned: for texts. NULL when there is no memory. */
char *arena_take(struct arena_chunk **chunks, size_t bytes);

/* A copy of TEXT, BYTES of it, with a NUL behind them. NULL when there is no memory. */
const char *arena_copy(struct arena_chunk **chunks, const char *text, size_t bytes);

/* Gives everything back. */
void arena_free(struct arena_chunk **chunks);

#endif
