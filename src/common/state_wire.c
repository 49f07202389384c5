/* SPDX-License-Identifier: MIT */
#include "common/state_wire.h"

#include <string.h>

void state_wire_header(struct state_header *header, enum state_wire_type type, size_t bytes)
{
	*header = (struct state_header){.magic = STATE_WIRE_MAGIC,
					.type = type,
					.bytes = (uint32_t)bytes,
					.layout = STATE_WIRE_LAYOUT};
}

bool state_wire_name_is_good(const char name[GW_NAME_MAX])
{
	if (name[0] == '\0' || !memchr(name, '\0', GW_NAME_MAX))
		return false;
	for (const char *c = name; *c; c++) {
		if (*c <= ' ' || *c > '~')
			return false;
	}
	return true;
}

static bool kind_is_good(uint32_t kind)
{
	return kind == GW_STATE_SEALED || kind == GW_STATE_MUTABLE;
}

/* A piece and both its copies fit the range of addresses, so that no sum of them overflows. */
static bool sizes_are_good(uint64_t bytes, uint64_t copy_bytes)
{
	return bytes > 0 && copy_bytes >= bytes && copy_bytes <= STATE_SPACE_BYTES / 2 &&
	       copy_bytes % STATE_GRANULE == 0 && copy_bytes - bytes < STATE_SPACE_BYTES / 2;
}

static bool header_is_good(const struct state_header *header, size_t bytes)
{
	return bytes >= sizeof(*header) && header->magic == STATE_WIRE_MAGIC &&
	       header->layout == STATE_WIRE_LAYOUT && header->bytes == bytes;
}

int state_wire_check_request(const union state_any *message, size_t bytes)
{
	const struct state_request *request = &message->request;
	bool good = bytes == sizeof(*request) && header_is_good(&message->header, bytes);

	if (!good || !memchr(request->name, '\0', sizeof(request->name)))
		return GW_EPROTOCOL;
	switch (message->header.type) {
	case STATE_RESERVE:
		good = state_wire_name_is_good(request->name) && kind_is_good(request->kind) &&
		       sizes_are_good(request->bytes, request->copy_bytes);
		break;
	case STATE_MAP:
		good = state_wire_name_is_good(request->name) &&
		       (request->access == GW_STATE_READ || request->access == GW_STATE_WRITE);
		break;
	case STATE_DROP:
		good = state_wire_name_is_good(request->name);
		break;
	case STATE_OFFER:
	case STATE_SEAL:
	case STATE_UNMAP:
	case STATE_REFUSED:
		good = request->piece != 0;
		break;
	case STATE_COMMIT:
	case STATE_SETTLE:
	case STATE_LIST:
	case STATE_NEXT:
	case STATE_USAGE:
		break;
	default:
		good = false;
	}
	return good ? 0 : GW_EPROTOCOL;
}

static bool range_is_good(const struct state_entry *entry)
{
	return entry->address >= STATE_BASE && entry->address % STATE_GRANULE == 0 &&
	       entry->address - STATE_BASE <= STATE_SPACE_BYTES - entry->copy_bytes;
}

static bool entry_is_good(const struct state_entry *entry)
{
	bool mapped = entry->act == STATE_DO_MAP || entry->act == STATE_DO_REDO;

	return entry->piece != 0 && state_wire_name_is_good(entry->name) &&
	       kind_is_good(entry->kind) && sizes_are_good(entry->bytes, entry->copy_bytes) &&
	       range_is_good(entry) && entry->status >= GW_STATE_MAKING &&
	       entry->status <= GW_STATE_DROPPED && entry->act <= STATE_DO_FORGET &&
	       entry->n_fds == (mapped ? STATE_COPIES(entry->kind) : 0);
}

static bool error_is_good(const struct gw_error *error)
{
	return error->code <= 0 && error->domain <= GW_DOMAIN_NVML &&
	       memchr(error->msg, '\0', sizeof(error->msg));
}

static bool answer_is_good(const struct state_answer *answer, size_t bytes)
{
	if (bytes < STATE_ANSWER_BYTES(0) || answer->count > STATE_BATCH ||
	    bytes != STATE_ANSWER_BYTES(answer->count) || !error_is_good(&answer->error))
		return false;
	for (uint32_t i = 0; i < answer->count; i++) {
		if (!entry_is_good(&answer->entries[i]))
			return false;
	}
	return true;
}

int state_wire_check_answer(const union state_any *message, size_t bytes)
{
	bool good = header_is_good(&message->header, bytes) &&
		    message->header.type == STATE_ANSWER && answer_is_good(&message->answer, bytes);

	return good ? 0 : GW_EPROTOCOL;
}
