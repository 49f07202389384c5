/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: what a keeper does with the messages of a ward, and the check that each passes before.
 *
 * An input is a list of messages: kind (1 byte), number of changes to a good message of that kind (1), and each
 * change: offset (2 bytes, little end first), value (1). Descriptors come as many as the message's header asks for, or
 * with the kind's top bit one too few. Whatever comes, the sums are those of the pieces, a place is empty or has all
 * its copies, and every descriptor is closed at the end.
 * Built with libFuzzer (-Dfuzz=true, clang) or with replay.c.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fd.h"
#include "common/state_wire.h"
#include "keeper/hold.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static const struct {
	enum keep_type type;
	size_t bytes;
} kinds[] = {
	{KEEP_PIECE, sizeof(struct keep_piece)},     {KEEP_STEP, sizeof(struct keep_step)},
	{KEEP_OWN, sizeof(struct keep_own)},	     {KEEP_DROP, sizeof(struct keep_drop)},
	{KEEP_HELLO, sizeof(struct keep_hello)},     {KEEP_REMOVE, sizeof(struct keep_remove)},
	{KEEP_WELCOME, sizeof(struct keep_welcome)}, {KEEP_FOR, sizeof(struct keep_for)},
};

/* A mutable piece without an owner, at the first address. */
static void fill_good(union keep_any *message, size_t kind)
{
	memset(message, 0, sizeof(*message));
	keep_header_init(&message->header, kinds[kind].type, kinds[kind].bytes);
	if (kinds[kind].type == KEEP_PIECE) {
		message->piece.kind = GW_STATE_MUTABLE;
		message->piece.status = GW_STATE_READY;
		message->piece.owner_pid = -1;
		message->piece.address = STATE_BASE;
		message->piece.bytes = 1;
		message->piece.copy_bytes = STATE_GRANULE;
		memcpy(message->piece.device, "GPU-1", 6);
		memcpy(message->piece.name, "a", 2);
	} else if (kinds[kind].type == KEEP_STEP) {
		message->step.to = GW_STATE_COPYING;
		message->step.places[0] = 1;
	} else if (kinds[kind].type == KEEP_OWN) {
		message->own.pid = -1;
	}
}

/* Takes one message from DATA. Returns the bytes that it took, 0: no more. */
static size_t take(const uint8_t *data, size_t bytes, union keep_any *message, bool *ret_short)
{
	size_t kind, count, used = 2;

	if (bytes < 2)
		return 0;
	kind = (data[0] & 0x7fU) % (sizeof(kinds) / sizeof(kinds[0]));
	*ret_short = data[0] & 0x80U;
	count = data[1];
	fill_good(message, kind);
	for (size_t i = 0; i < count && bytes - used >= 3; i++, used += 3) {
		size_t at = (size_t)(data[used] | data[used + 1] << 8) % kinds[kind].bytes;

		((uint8_t *)message)[at] = data[used + 2];
	}
	return used;
}

static void apply(struct hold *hold, union keep_any *message, bool one_less)
{
	size_t n_fds = keep_wire_fds(message);
	int fds[KEEP_FDS_MAX] = {-1, -1, -1, -1};
	uint32_t count = hold->count;

	n_fds -= one_less && n_fds > 0;
	for (size_t i = 0; i < n_fds; i++)
		require((fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
	if (hold_apply(hold, message, fds, n_fds) < 0)
		require(hold->count == count);
	for (size_t i = 0; i < KEEP_FDS_MAX; i++)
		fd_close(fds[i]);
}

static void check(const struct hold *hold)
{
	const struct hold_piece *piece;
	uint64_t sum = 0;
	uint32_t count = 0;

	for (uint32_t place = 0; (piece = hold_next(hold, &place));) {
		require(piece->copies[0] >= 0);
		require((piece->copies[1] >= 0) == (piece->info.kind == GW_STATE_MUTABLE));
		require((piece->owner_pidfd >= 0) == (piece->info.owner_pid > 0));
		require(memchr(piece->info.name, 0, GW_NAME_MAX) != NULL);
		sum += STATE_HELD_BYTES(piece->info.kind, piece->info.copy_bytes);
		count++;
	}
	require(sum == hold->bytes && count == hold->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct hold hold;
	union keep_any message;
	int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int last, fd = -1;
	bool one_less;
	size_t used;

	if (!hold.all)
		require(hold_init(&hold) == 0);
	while ((used = take(data, bytes, &message, &one_less)) > 0) {
		if (keep_wire_check(&message, message.header.bytes, true) == 0)
			apply(&hold, &message, one_less);
		check(&hold);
		(void)hold_owned(&hold, &fd);
		data += used;
		bytes -= used;
	}
	(void)hold_remove(&hold, "");
	require(hold.count == 0 && hold.bytes == 0);
	/* The lowest number that is free is the same again: nothing was left open. */
	fd_close(first);
	last = open("/dev/null", O_RDONLY | O_CLOEXEC);
	require(last == first);
	fd_close(last);
	return 0;
}
