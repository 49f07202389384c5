/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the check that every message of the control sockets passes before it is used.
 *
 * An input begins with a byte. With its top bit set the rest is a datagram as it is. Otherwise it picks
 * a type of message, whose header is made right, and the rest are changes to its zeroed body: offset
 * (2 bytes), value, count. So that the fuzzer gets past the header, and inputs stay small.
 * What is accepted is held against what a receiver relies on. Read next: common/wire.h.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const struct {
	enum wire_type type;
	uint32_t bytes;
} kinds[] = {
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
	{WIRE_STOP, sizeof(struct wire_word)},
	{WIRE_PRIMED, sizeof(struct wire_word)},
	{WIRE_CONTEXT, sizeof(struct wire_context)},
	{WIRE_NO_ROOM, sizeof(struct wire_word)},
	{WIRE_PONG, sizeof(struct wire_word)},
	{WIRE_WARM, sizeof(struct wire_word)},
	{WIRE_PROMOTE, sizeof(struct wire_word)},
	{WIRE_PING, sizeof(struct wire_word)},
	{WIRE_STATE, sizeof(struct wire_word)},
};

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void require_names(uint32_t count, const char names[GW_FUNCTIONS_MAX][GW_NAME_MAX])
{
	require(count <= GW_FUNCTIONS_MAX);
	for (uint32_t i = 0; i < count; i++)
		require(names[i][0] != '\0' && memchr(names[i], 0, GW_NAME_MAX));
}

static void require_error(const struct gw_error *error)
{
	require(error->code < 0 && memchr(error->msg, 0, sizeof(error->msg)));
}

/* Each of the announced strings lies in the message and ends there. */
static void require_command(const struct wire_open *open)
{
	size_t at = 0;

	require(open->command_bytes <= sizeof(open->command));
	for (uint32_t i = 0; i < open->command_count; i++) {
		require(at < open->command_bytes);
		at += strnlen(open->command + at, open->command_bytes - at) + 1;
	}
	require(at == open->command_bytes);
}

static void require_open(const struct wire_open *open)
{
	require(open->n_devices <= WIRE_DEVICES_MAX);
	require(open->workers >= 1 && open->workers <= GW_WORKERS_MAX);
	require(open->standby <= GW_STANDBY_HOT && open->standbys <= GW_WORKERS_MAX);
	require(open->max_start_failures >= 1 && open->max_quick_deaths >= 1);
	require(memchr(open->state_name, 0, sizeof(open->state_name)));
	require_command(open);
}

static void require_body(const union wire_any *message)
{
	switch (message->header.type) {
	case WIRE_OPEN:
		require_open(&message->open);
		break;
	case WIRE_FAULT:
		require(message->fault.source == GW_SOURCE_RESULT ||
			message->fault.source == GW_SOURCE_ERROR_LOG);
		break;
	case WIRE_CONTEXT:
		require(memchr(message->context.pci, 0, sizeof(message->context.pci)));
		break;
	case WIRE_UP:
		require(message->up.slot < GW_WORKERS_MAX);
		require_names(message->up.n_functions, message->up.functions);
		break;
	case WIRE_GONE:
		require(message->gone.slot < GW_WORKERS_MAX);
		require(message->gone.exit.source < GW_SOURCES);
		require(memchr(message->gone.exit.text, 0, sizeof(message->gone.exit.text)));
		break;
	case WIRE_FAILED:
		require(message->failed.slot < GW_WORKERS_MAX);
		require_error(&message->failed.error);
		break;
	case WIRE_READY:
		require_names(message->ready.n_functions, message->ready.functions);
		break;
	case WIRE_START_FAILED:
		require_error(&message->start_failed.error);
		break;
	default:
		break;
	}
}

static size_t build(union wire_any *message, const uint8_t *data, size_t bytes)
{
	size_t kind = data[0] % (sizeof(kinds) / sizeof(kinds[0]));
	uint8_t *body = (uint8_t *)message + sizeof(message->header);
	size_t room = kinds[kind].bytes - sizeof(message->header);

	wire_header_init(&message->header, kinds[kind].type, kinds[kind].bytes);
	for (size_t i = 1; i + 4 <= bytes; i += 4) {
		size_t offset = (size_t)(data[i] | data[i + 1] << 8);

		for (size_t j = 0; j < data[i + 3] && offset + j < room; j++)
			body[offset + j] = data[i + 2];
	}
	return kinds[kind].bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static union wire_any message;
	size_t length;

	if (bytes == 0)
		return 0;
	memset(&message, 0, sizeof(message));
	if (data[0] & 0x80) {
		length = bytes - 1 < sizeof(message) ? bytes - 1 : sizeof(message);
		memcpy(&message, data + 1, length);
	} else {
		length = build(&message, data, bytes);
	}
	if (wire_check(&message, length) == 0) {
		require(message.header.bytes == length);
		require_body(&message);
	}
	return 0;
}
