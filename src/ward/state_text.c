/* SPDX-License-Identifier: MIT */
#include "ward/state_text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ward/state_piece.h"

#define NAMED 3U /* pieces that are named, the largest first */

void state_text_bytes(uint64_t bytes, char text[STATE_BYTES_TEXT])
{
	const uint64_t mib = UINT64_C(1) << 20;
	const uint64_t gib = UINT64_C(1) << 30;

	if (bytes < gib)
		(void)snprintf(text, STATE_BYTES_TEXT, "%" PRIu64 " MiB", bytes / mib);
	else if (bytes % gib == 0)
		(void)snprintf(text, STATE_BYTES_TEXT, "%" PRIu64 " GiB", bytes / gib);
	else
		(void)snprintf(text, STATE_BYTES_TEXT, "%" PRIu64 ".%" PRIu64 " GiB", bytes / gib,
			       bytes % gib * 10 / gib);
}

/* Keeps PIECE among LARGEST if it is one of them. */
static void rank(const struct state_piece *largest[NAMED], const struct state_piece *piece)
{
	for (uint32_t i = 0; i < NAMED; i++) {
		const struct state_piece *other = largest[i];

		if (other && STATE_HELD_BYTES(other->kind, other->copy_bytes) >=
				     STATE_HELD_BYTES(piece->kind, piece->copy_bytes))
			continue;
		largest[i] = piece;
		if (!other)
			return;
		piece = other;
	}
}

void state_text_usage(const struct state_pieces *pieces, uint32_t device,
		      char text[STATE_TEXT_BYTES])
{
	const struct state_piece *largest[NAMED] = {NULL};
	uint32_t count = pieces->devices[device].pieces;
	char bytes[STATE_BYTES_TEXT];
	size_t used;

	for (uint32_t i = 0; i < pieces->high; i++) {
		if (pieces->all[i].status != 0 && pieces->all[i].device == device)
			rank(largest, &pieces->all[i]);
	}
	state_text_bytes(pieces->devices[device].held_bytes, bytes);
	used = (size_t)snprintf(text, STATE_TEXT_BYTES, "%u piece%s, %s", count,
				count == 1 ? "" : "s", bytes);
	for (uint32_t i = 0; i < NAMED && largest[i]; i++) {
		state_text_bytes(STATE_HELD_BYTES(largest[i]->kind, largest[i]->copy_bytes), bytes);
		used += (size_t)snprintf(text + used, STATE_TEXT_BYTES - used, "%s %.16s %s",
					 i == 0 ? ":" : ",", largest[i]->name, bytes);
	}
	if (count > NAMED)
		(void)snprintf(text + used, STATE_TEXT_BYTES - used, ", %u more", count - NAMED);
}
