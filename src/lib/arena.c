/* SPDX-License-Identifier: MIT */
#include "lib/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/fd.h"

/* From 1 MiB on, pages are given back when more than this many pieces of a size are free. */
#define LARGE_CLASS	14U
#define LARGE_KEPT_FREE 2U

static size_t class_of(uint64_t bytes)
{
	uint64_t units = (bytes + (1U << ARENA_MIN_SHIFT) - 1) >> ARENA_MIN_SHIFT;

	return units <= 1 ? 0 : 64U - (size_t)__builtin_clzll(units - 1);
}

static uint64_t class_bytes(size_t class)
{
	return UINT64_C(1) << (class + ARENA_MIN_SHIFT);
}

void arena_init(struct arena *arena, uint64_t bytes)
{
	memset(arena, 0, sizeof(*arena));
	arena->bytes = bytes;
}

void arena_done(struct arena *arena)
{
	for (size_t i = 0; i < ARENA_CLASSES; i++)
		free(arena->classes[i].offsets);
	memset(arena, 0, sizeof(*arena));
}

/* Makes room to free one more piece of CLASS than there are. */
static int reserve_piece(struct arena_class *class)
{
	size_t capacity = class->capacity ? class->capacity * 2 : 16;
	uint64_t *offsets;

	if (class->pieces < class->capacity)
		return 0;
	offsets = reallocarray(class->offsets, capacity, sizeof(*offsets));
	if (!offsets)
		return -ENOMEM;
	class->offsets = offsets;
	class->capacity = capacity;
	return 0;
}

/* A free piece, while all sizes are joined. */
struct piece {
	uint64_t offset;
	uint64_t bytes;
};

static int by_offset(const void *left, const void *right)
{
	const struct piece *a = left;
	const struct piece *b = right;

	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static size_t gather_free(struct arena *arena, struct piece *pieces)
{
	size_t count = 0;

	for (size_t c = 0; c < ARENA_CLASSES; c++) {
		struct arena_class *class = &arena->classes[c];

		for (size_t i = 0; i < class->free; i++)
			pieces[count++] = (struct piece){class->offsets[i], class_bytes(c)};
		class->pieces -= class->free;
		class->free = 0;
	}
	qsort(pieces, count, sizeof(*pieces), by_offset);
	return count;
}

/* Cuts PIECE into pieces of the classes' sizes. One that finds no memory for its books stays unused:
 * the range is large, and the loss ends with the arena. */
static void give_back(struct arena *arena, struct piece piece)
{
	if (piece.offset + piece.bytes == arena->top) {
		arena->top = piece.offset;
		return;
	}
	while (piece.bytes > 0) {
		size_t c = 63U - (size_t)__builtin_clzll(piece.bytes) - ARENA_MIN_SHIFT;
		struct arena_class *class = &arena->classes[c];

		if (reserve_piece(class) == 0) {
			class->offsets[class->free++] = piece.offset;
			class->pieces++;
		}
		piece.offset += class_bytes(c);
		piece.bytes -= class_bytes(c);
	}
}

/* Joins free neighbours of all sizes. Returns 0 or -ENOMEM. */
static int join_free(struct arena *arena)
{
	cleanup_free struct piece *pieces = NULL;
	struct piece joined = {0};
	size_t count = 0;

	for (size_t c = 0; c < ARENA_CLASSES; c++)
		count += arena->classes[c].free;
	if (count == 0)
		return 0;
	pieces = reallocarray(NULL, count, sizeof(*pieces));
	if (!pieces)
		return -ENOMEM;
	count = gather_free(arena, pieces);
	for (size_t i = 0; i < count; i++) {
		if (joined.offset + joined.bytes == pieces[i].offset) {
			joined.bytes += pieces[i].bytes;
			continue;
		}
		give_back(arena, joined);
		joined = pieces[i];
	}
	give_back(arena, joined);
	return 0;
}

static bool take_free(struct arena *arena, size_t c, uint64_t *ret_offset)
{
	struct arena_class *class = &arena->classes[c];

	if (class->free == 0)
		return false;
	*ret_offset = class->offsets[--class->free];
	return true;
}

/* Cuts a piece of class C from a larger free piece. */
static int cut_larger(struct arena *arena, size_t c, uint64_t *ret_offset)
{
	uint64_t bytes = class_bytes(c);
	uint64_t offset;

	for (size_t larger = c + 1; larger < ARENA_CLASSES; larger++) {
		if (!take_free(arena, larger, &offset))
			continue;
		arena->classes[larger].pieces--;
		arena->classes[c].pieces++;
		*ret_offset = offset;
		give_back(arena, (struct piece){offset + bytes, class_bytes(larger) - bytes});
		return 0;
	}
	return -ENOSPC;
}

/* Cuts a new piece of class C, from the top while there is room. */
static int cut_new(struct arena *arena, size_t c, uint64_t *ret_offset)
{
	uint64_t bytes = class_bytes(c);

	if (reserve_piece(&arena->classes[c]) < 0)
		return -ENOMEM;
	if (arena->bytes < bytes || arena->top > arena->bytes - bytes)
		return cut_larger(arena, c, ret_offset);
	arena->classes[c].pieces++;
	*ret_offset = arena->top;
	arena->top += bytes;
	return 0;
}

int arena_alloc(struct arena *arena, uint64_t bytes, uint64_t *ret_offset)
{
	size_t c;
	int result;

	if (bytes > arena->bytes)
		return -ENOSPC;
	c = class_of(bytes);
	if (take_free(arena, c, ret_offset))
		return 0;
	result = cut_new(arena, c, ret_offset);
	if (result == -ENOSPC && join_free(arena) == 0)
		result = take_free(arena, c, ret_offset) ? 0 : cut_new(arena, c, ret_offset);
	return result;
}

bool arena_release(struct arena *arena, uint64_t offset, uint64_t bytes)
{
	size_t c = class_of(bytes);
	struct arena_class *class = &arena->classes[c];

	class->offsets[class->free++] = offset;
	return c >= LARGE_CLASS && class->free > LARGE_KEPT_FREE;
}
