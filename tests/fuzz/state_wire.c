/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the checks that every message about surviving state passes before it is used, in the ward and
 * in the worker.
 *
 * An input begins with a byte. With its top bit set the rest is a datagram as it is. Otherwise it picks a
 * message, whose header is made right, and the rest are changes to its zeroed body: offset (2 bytes), value,
 * count. What is accepted is held against what a receiver relies on. Read next: common/state_wire.h.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/state_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void require_sizes(uint64_t bytes, uint64_t copy_bytes)
{
	require(bytes > 0 && bytes <= copy_bytes && copy_bytes % STATE_GRANULE == 0);
	require(2 * copy_bytes <= STATE_SPACE_BYTES);
}

static void require_request(const struct state_request *request)
{
	require(memchr(request->name, 0, sizeof(request->name)));
	require(request->header.type >= STATE_RESERVE && request->header.type <= STATE_REFUSED);
	if (request->header.type == STATE_RESERVE) {
		require(request->name[0] != '\0');
		require_sizes(request->bytes, request->copy_bytes);
		require(STATE_COPIES(request->kind) <= 2);
	}
}

static void require_answer(const struct state_answer *answer)
{
	uint32_t n_fds = 0;

	require(answer->count <= STATE_BATCH);
	require(answer->header.bytes == STATE_ANSWER_BYTES(answer->count));
	require(memchr(answer->error.msg, 0, sizeof(answer->error.msg)));
	for (uint32_t i = 0; i < answer->count; i++) {
		const struct state_entry *entry = &answer->entries[i];

		require(entry->name[0] != '\0' && memchr(entry->name, 0, sizeof(entry->name)));
		require_sizes(entry->bytes, entry->copy_bytes);
		require(entry->address >= STATE_BASE);
		require(entry->address + entry->copy_bytes <= STATE_BASE + STATE_SPACE_BYTES);
		n_fds += entry->n_fds;
	}
	require(n_fds <= STATE_FDS_MAX);
}

static size_t build(union state_any *message, const uint8_t *data, size_t bytes)
{
	uint32_t type = data[0] % 48;
	size_t size = sizeof(struct state_request);
	uint8_t *body = (uint8_t *)message + sizeof(message->header);

	if (type >= STATE_ANSWER)
		size = STATE_ANSWER_BYTES((type - STATE_ANSWER) % 4);
	for (size_t i = 1; i + 4 <= bytes; i += 4) {
		size_t offset = (size_t)(data[i] | data[i + 1] << 8);

		for (size_t j = 0; j < data[i + 3] && offset + j < size - sizeof(message->header);
		     j++)
			body[offset + j] = data[i + 2];
	}
	/* Types from 32 on are answers of none to three entries. */
	state_wire_header(&message->header, type > STATE_ANSWER ? STATE_ANSWER : type, size);
	return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static union state_any message;
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
	if (state_wire_check_request(&message, length) == 0)
		require_request(&message.request);
	if (state_wire_check_answer(&message, length) == 0 && message.header.type == STATE_ANSWER)
		require_answer(&message.answer);
	return 0;
}
