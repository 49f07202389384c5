/* SPDX-License-Identifier: MIT */
#include "worker/state_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 16U

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 2166136261U; /* FNV-1a */

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619U;
	return hash;
}

int state_table_reserve(struct state_table *table, uint32_t more)
{
	uint32_t room = table->room > 0 ? table->room : FIRST_ROOM;
	struct state_local **chosen;
	struct state_local *locals;
	uint32_t *hashes;

	if (table->room - table->count >= more)
		return 0;
	while (room - table->count < more)
		room *= 2;
	locals = reallocarray(table->locals, room, sizeof(*locals));
	if (!locals)
		return -ENOMEM;
	table->locals = locals;
	hashes = reallocarray(table->hashes, room, sizeof(*hashes));
	if (!hashes)
		return -ENOMEM;
	table->hashes = hashes;
	chosen = reallocarray(table->chosen, room, sizeof(struct state_local *));
	if (!chosen)
		return -ENOMEM;
	table->chosen = chosen;
	table->room = room;
	return 0;
}

void state_table_add(struct state_table *table, const struct state_local *local)
{
	table->locals[table->count] = *local;
	table->hashes[table->count] = hash_of(local->entry.name);
	table->count++;
}

void state_table_remove(struct state_table *table, struct state_local *local)
{
	uint32_t at = (uint32_t)(local - table->locals);

	table->count--;
	table->locals[at] = table->locals[table->count];
	table->hashes[at] = table->hashes[table->count];
}

struct state_local *state_table_by_name(const struct state_table *table, const char *name)
{
	uint32_t hash = hash_of(name);

	for (uint32_t i = 0; i < table->count; i++) {
		struct state_local *local = &table->locals[i];

		if (table->hashes[i] == hash && local->wanted &&
		    strcmp(local->entry.name, name) == 0)
			return local;
	}
	return NULL;
}

struct state_local *state_table_by_piece(const struct state_table *table, uint64_t piece)
{
	for (uint32_t i = 0; i < table->count; i++) {
		if (table->locals[i].entry.piece == piece)
			return &table->locals[i];
	}
	return NULL;
}
