/* SPDX-License-Identifier: MIT */
#include "common/wire.h"

#include <errno.h>
#include <string.h>

#include "common/packet.h"

void wire_header_init(struct wire_header *header, enum wire_type type, uint32_t bytes)
{
	memset(header, 0, sizeof(*header));
	header->magic = WIRE_MAGIC;
	header->type = type;
	header->bytes = bytes;
	header->layout = WIRE_LAYOUT;
	memcpy(header->version, GW_VERSION_TEXT, sizeof(GW_VERSION_TEXT));
}

int wire_send(int socket, const void *message, const int *fds, size_t n_fds)
{
	const struct wire_header *header = message;

	if (n_fds > WIRE_FDS_MAX)
		return -EINVAL;
	return packet_send(socket, message, header->bytes, fds, n_fds);
}

int wire_receive(int socket, union wire_any *ret_message, int ret_fds[WIRE_FDS_MAX])
{
	struct packet packet;
	int result = packet_receive(socket, ret_message, sizeof(*ret_message), ret_fds,
				    WIRE_FDS_MAX, &packet);

	if (result <= 0)
		return result;
	result = packet.too_much ? GW_EPROTOCOL : wire_check(ret_message, packet.bytes);
	if (result == 0 && packet.no_room)
		result = -EMFILE;
	if (result < 0) {
		packet_close_fds(ret_fds, WIRE_FDS_MAX);
		return result;
	}
	return (int)packet.bytes;
}

static bool text_ends(const char *text, size_t bytes)
{
	return memchr(text, '\0', bytes) != NULL;
}

static bool name_is_good(const char name[GW_NAME_MAX])
{
	if (!text_ends(name, GW_NAME_MAX) || name[0] == '\0')
		return false;
	for (const char *c = name; *c; c++) {
		if (*c <= ' ' || *c > '~')
			return false;
	}
	return true;
}

static bool names_are_good(uint32_t count, const char names[GW_FUNCTIONS_MAX][GW_NAME_MAX])
{
	if (count > GW_FUNCTIONS_MAX)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		if (!name_is_good(names[i]))
			return false;
	}
	return true;
}

static bool error_is_good(const struct gw_error *error)
{
	return error->code < 0 && error->domain <= GW_DOMAIN_NVML &&
	       text_ends(error->msg, sizeof(error->msg));
}

static bool exit_is_good(const struct gw_exit *exit)
{
	return exit->end <= GW_END_PROTOCOL && exit->source < GW_SOURCES &&
	       text_ends(exit->text, sizeof(exit->text));
}

static bool command_is_good(const struct wire_open *open)
{
	uint32_t strings = 0;

	if (open->command_bytes > WIRE_COMMAND_MAX)
		return false;
	for (uint32_t i = 0; i < open->command_bytes; i++)
		strings += open->command[i] == '\0';
	if (open->command_bytes > 0 && open->command[open->command_bytes - 1] != '\0')
		return false;
	return strings == open->command_count;
}

static bool open_is_good(const struct wire_open *open)
{
	return open->n_devices <= WIRE_DEVICES_MAX && open->workers >= 1 &&
	       open->workers <= GW_WORKERS_MAX && open->max_start_failures >= 1 &&
	       open->max_quick_deaths >= 1 && open->standby <= GW_STANDBY_HOT &&
	       open->standbys <= GW_WORKERS_MAX &&
	       text_ends(open->state_name, sizeof(open->state_name)) && command_is_good(open);
}

/* The size that a message of TYPE must have; 0 for a type that is not known. */
static size_t size_of_type(uint32_t type)
{
	static const struct {
		uint32_t type;
		uint32_t bytes;
	} sizes[] = {
		{WIRE_OPEN, sizeof(struct wire_open)},
		{WIRE_KICK, sizeof(struct wire_kick)},
		{WIRE_KILL, sizeof(struct wire_kill)},
		{WIRE_CLOSE, sizeof(struct wire_close)},
		{WIRE_UP, sizeof(struct wire_up)},
		{WIRE_GONE, sizeof(struct wire_gone)},
		{WIRE_FAILED, sizeof(struct wire_failed)},
		{WIRE_READY, sizeof(struct wire_ready)},
		{WIRE_FAULT, sizeof(struct wire_fault)},
		{WIRE_START_FAILED, sizeof(struct wire_start_failed)},
		{WIRE_PRIMED, sizeof(struct wire_word)},
		{WIRE_CONTEXT, sizeof(struct wire_context)},
		{WIRE_NO_ROOM, sizeof(struct wire_word)},
		{WIRE_PONG, sizeof(struct wire_word)},
		{WIRE_STOP, sizeof(struct wire_word)},
		{WIRE_WARM, sizeof(struct wire_word)},
		{WIRE_PROMOTE, sizeof(struct wire_word)},
		{WIRE_PING, sizeof(struct wire_word)},
		{WIRE_STATE, sizeof(struct wire_word)},
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (sizes[i].type == type)
			return sizes[i].bytes;
	}
	return 0;
}

static bool body_is_good(const union wire_any *message)
{
	switch (message->header.type) {
	case WIRE_OPEN:
		return open_is_good(&message->open);
	case WIRE_KILL:
		return message->kill.slot < GW_WORKERS_MAX &&
		       (message->kill.reason == GW_END_STOPPED ||
			message->kill.reason == GW_END_PROTOCOL ||
			(message->kill.reason == GW_END_START && message->kill.error > 0));
	case WIRE_UP:
		return message->up.slot < GW_WORKERS_MAX &&
		       names_are_good(message->up.n_functions, message->up.functions);
	case WIRE_GONE:
		return message->gone.slot < GW_WORKERS_MAX && exit_is_good(&message->gone.exit);
	case WIRE_FAILED:
		return message->failed.slot < GW_WORKERS_MAX &&
		       error_is_good(&message->failed.error);
	case WIRE_READY:
		return names_are_good(message->ready.n_functions, message->ready.functions);
	case WIRE_FAULT:
		return message->fault.source == GW_SOURCE_RESULT ||
		       message->fault.source == GW_SOURCE_ERROR_LOG;
	case WIRE_CONTEXT:
		return text_ends(message->context.pci, sizeof(message->context.pci)) &&
		       text_ends(message->context.uuid, sizeof(message->context.uuid));
	case WIRE_START_FAILED:
		return error_is_good(&message->start_failed.error);
	default:
		return true;
	}
}

int wire_check(const union wire_any *message, size_t bytes)
{
	const struct wire_header *header = &message->header;

	if (bytes < sizeof(*header) || header->magic != WIRE_MAGIC)
		return GW_EPROTOCOL;
	if (!text_ends(header->version, sizeof(header->version)))
		return GW_EPROTOCOL;
	if (header->layout != WIRE_LAYOUT || strcmp(header->version, GW_VERSION_TEXT) != 0)
		return GW_EVERSION;
	if (header->bytes != bytes || size_of_type(header->type) != bytes)
		return GW_EPROTOCOL;
	return body_is_good(message) ? 0 : GW_EPROTOCOL;
}
