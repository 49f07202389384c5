/* SPDX-License-Identifier: MIT */
#include "holders/arena.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 16384

char *arena_take(struct arena_chunk **chunks, size_t bytes)
{
	struct arena_chunk *chunk = *chunks;

	if (!chunk || chunk->room - chunk->used < bytes) {
		size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;

		chunk = malloc(sizeof(*chunk) + room);
		if (!chunk)
			return NULL;
		chunk->next = *chunks;
		chunk->used = 0;
		chunk->room = room;
		*chunks = chunk;
	}
	chunk->used += bytes;
	return chunk->bytes + chunk->used - bytes;
}

const char *arena_copy(struct arena_chunk **chunks, const char *text, size_t bytes)
{
	char *copy = arena_take(chunks, bytes + 1);

	if (!copy)
		return NULL;
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	return copy;
}

void arena_free(struct arena_chunk **chunks)
{
	while (*chunks) {
		struct arena_chunk *chunk = *chunks;

		*chunks = chunk->next;
		free(chunk);
	}
}
