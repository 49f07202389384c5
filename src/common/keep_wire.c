/* SPDX-License-Identifier: MIT */
#include "common/keep_wire.h"

#include <string.h>

#include "common/state_wire.h"

void keep_header_init(struct keep_header *header, enum keep_type type, size_t bytes)
{
	*header = (struct keep_header){
		.magic = KEEP_MAGIC, .type = type, .bytes = (uint32_t)bytes, .layout = KEEP_LAYOUT};
	memcpy(header->version, GW_VERSION_TEXT, sizeof(GW_VERSION_TEXT));
}

static bool text_ends(const char *text, size_t bytes)
{
	return memchr(text, '\0', bytes) != NULL;
}

static bool device_is_good(const char device[KEEP_DEVICE_MAX])
{
	if (device[0] == '\0' || !text_ends(device, KEEP_DEVICE_MAX))
		return false;
	for (const char *c = device; *c; c++) {
		if (*c <= ' ' || *c > '~')
			return false;
	}
	return true;
}

static bool status_is_good(uint32_t kind, uint32_t status)
{
	return status == GW_STATE_READY || (status == GW_STATE_COPYING && kind == GW_STATE_MUTABLE);
}

static bool range_is_good(const struct keep_piece *piece)
{
	return piece->copy_bytes > 0 && piece->copy_bytes <= STATE_SPACE_BYTES / 2 &&
	       piece->copy_bytes % STATE_GRANULE == 0 && piece->bytes > 0 &&
	       piece->bytes <= piece->copy_bytes && piece->address >= STATE_BASE &&
	       piece->address % STATE_GRANULE == 0 &&
	       piece->address - STATE_BASE <= STATE_SPACE_BYTES - piece->copy_bytes;
}

static bool piece_is_good(const struct keep_piece *piece)
{
	return piece->place < GW_STATES_MAX &&
	       (piece->kind == GW_STATE_SEALED || piece->kind == GW_STATE_MUTABLE) &&
	       status_is_good(piece->kind, piece->status) && range_is_good(piece) &&
	       (piece->owner_pid == -1 ||
		(piece->owner_pid > 0 && piece->kind == GW_STATE_MUTABLE)) &&
	       device_is_good(piece->device) && state_wire_name_is_good(piece->name);
}

static bool welcome_is_good(const struct keep_welcome *welcome)
{
	return welcome->error.code <= 0 && welcome->error.domain <= GW_DOMAIN_NVML &&
	       text_ends(welcome->error.msg, sizeof(welcome->error.msg)) &&
	       welcome->pieces <= GW_STATES_MAX;
}

static bool body_is_good(const union keep_any *message)
{
	switch (message->header.type) {
	case KEEP_HELLO:
		return message->hello.role == KEEP_WARD || message->hello.role == KEEP_LOOKER;
	case KEEP_PIECE:
		return piece_is_good(&message->piece);
	case KEEP_STEP:
		return message->step.to == GW_STATE_READY || message->step.to == GW_STATE_COPYING;
	case KEEP_OWN:
		return message->own.place < GW_STATES_MAX &&
		       (message->own.pid == -1 || message->own.pid > 0);
	case KEEP_DROP:
		return message->drop.place < GW_STATES_MAX;
	case KEEP_REMOVE:
		return message->remove.name[0] == '\0' ||
		       state_wire_name_is_good(message->remove.name);
	case KEEP_WELCOME:
		return welcome_is_good(&message->welcome);
	default:
		return true;
	}
}

static size_t size_of_type(uint32_t type, bool to_keeper)
{
	switch (type) {
	case KEEP_PIECE:
		return sizeof(struct keep_piece);
	case KEEP_HELLO:
		return to_keeper ? sizeof(struct keep_hello) : 0;
	case KEEP_STEP:
		return to_keeper ? sizeof(struct keep_step) : 0;
	case KEEP_OWN:
		return to_keeper ? sizeof(struct keep_own) : 0;
	case KEEP_DROP:
		return to_keeper ? sizeof(struct keep_drop) : 0;
	case KEEP_REMOVE:
		return to_keeper ? sizeof(struct keep_remove) : 0;
	case KEEP_FOR:
		return to_keeper ? sizeof(struct keep_for) : 0;
	case KEEP_WELCOME:
		return to_keeper ? 0 : sizeof(struct keep_welcome);
	case KEEP_END:
		return to_keeper ? 0 : sizeof(struct keep_word);
	default:
		return 0;
	}
}

/* What another build says ends up in front of people. */
static void make_printable(char version[KEEP_VERSION_MAX])
{
	version[KEEP_VERSION_MAX - 1] = '\0';
	for (char *c = version; *c; c++) {
		if (*c <= ' ' || *c > '~')
			*c = '?';
	}
}

int keep_wire_check(union keep_any *message, size_t bytes, bool to_keeper)
{
	const struct keep_header *header = &message->header;

	if (bytes < sizeof(*header) || header->magic != KEEP_MAGIC || header->bytes != bytes)
		return GW_EPROTOCOL;
	if (header->layout != KEEP_LAYOUT) {
		make_printable(message->header.version);
		return GW_EVERSION;
	}
	if (size_of_type(header->type, to_keeper) != bytes || !body_is_good(message))
		return GW_EPROTOCOL;
	return 0;
}

size_t keep_wire_fds(const union keep_any *message)
{
	switch (message->header.type) {
	case KEEP_HELLO:
		return message->hello.role == KEEP_WARD ? 2 : 0;
	case KEEP_PIECE:
		return STATE_COPIES(message->piece.kind) + (message->piece.owner_pid > 0 ? 2U : 0U);
	case KEEP_OWN:
		return message->own.pid > 0 ? 2 : 0;
	default:
		return 0;
	}
}
