/* SPDX-License-Identifier: MIT */
#include "keeper/hold.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "common/fd.h"
#include "common/state_wire.h"

#define TABLE_BYTES (GW_STATES_MAX * sizeof(struct hold_piece))

int hold_init(struct hold *hold)
{
	void *all = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (all == MAP_FAILED)
		return -ENOMEM;
	*hold = (struct hold){.all = all};
	return 0;
}

static void disown(struct hold_piece *piece)
{
	fd_closep(&piece->owner_pidfd);
	fd_closep(&piece->owner_socket);
	piece->info.owner_pid = -1;
}

static void let_go(struct hold *hold, struct hold_piece *piece)
{
	fd_closep(&piece->copies[0]);
	fd_closep(&piece->copies[1]);
	disown(piece);
	hold->bytes -= STATE_HELD_BYTES(piece->info.kind, piece->info.copy_bytes);
	hold->count--;
	piece->info.status = 0;
}

void hold_done(struct hold *hold)
{
	if (!hold->all)
		return;
	(void)hold_remove(hold, "");
	(void)munmap(hold->all, TABLE_BYTES);
	*hold = (struct hold){0};
}

const struct hold_piece *hold_next(const struct hold *hold, uint32_t *place)
{
	while (*place < hold->high) {
		const struct hold_piece *piece = &hold->all[(*place)++];

		if (piece->info.status != 0)
			return piece;
	}
	return NULL;
}

uint32_t hold_remove(struct hold *hold, const char *name)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < hold->high; i++) {
		struct hold_piece *piece = &hold->all[i];

		if (piece->info.status == 0 ||
		    (name[0] != '\0' && strcmp(piece->info.name, name) != 0))
			continue;
		let_go(hold, piece);
		count++;
	}
	return count;
}

/* The piece in PLACE, or NULL. */
static struct hold_piece *piece_at(struct hold *hold, uint32_t place)
{
	return place < hold->high && hold->all[place].info.status != 0 ? &hold->all[place] : NULL;
}

static int add(struct hold *hold, const struct keep_piece *info, int *fds)
{
	struct hold_piece *piece = &hold->all[info->place];
	size_t copies = STATE_COPIES(info->kind);

	if (piece_at(hold, info->place))
		return GW_EPROTOCOL;
	*piece = (struct hold_piece){
		.info = *info, .copies = {-1, -1}, .owner_pidfd = -1, .owner_socket = -1};
	for (size_t i = 0; i < copies; i++)
		piece->copies[i] = fd_steal(&fds[i]);
	if (info->owner_pid > 0) {
		piece->owner_pidfd = fd_steal(&fds[copies]);
		piece->owner_socket = fd_steal(&fds[copies + 1]);
	}
	hold->high = info->place >= hold->high ? info->place + 1 : hold->high;
	hold->bytes += STATE_HELD_BYTES(info->kind, info->copy_bytes);
	hold->count++;
	return 0;
}

static bool is_meant(const struct keep_step *step, uint32_t place)
{
	return step->places[place / 64] >> place % 64 & 1;
}

/* All of them, or none. */
static int run_step(struct hold *hold, const struct keep_step *step)
{
	bool begins = step->to == GW_STATE_COPYING;

	for (uint32_t i = 0; i < GW_STATES_MAX; i++) {
		const struct hold_piece *piece = piece_at(hold, i);

		if (is_meant(step, i) &&
		    (!piece || piece->info.kind != GW_STATE_MUTABLE ||
		     piece->info.status != (begins ? GW_STATE_READY : GW_STATE_COPYING)))
			return GW_EPROTOCOL;
	}
	for (uint32_t i = 0; i < hold->high; i++) {
		struct keep_piece *info = &hold->all[i].info;

		if (!is_meant(step, i))
			continue;
		info->status = step->to;
		info->epoch += begins;
		info->task = begins ? step->task : info->task;
	}
	return 0;
}

static int own(struct hold *hold, const struct keep_own *message, int *fds)
{
	struct hold_piece *piece = piece_at(hold, message->place);

	if (!piece || piece->info.kind != GW_STATE_MUTABLE)
		return GW_EPROTOCOL;
	disown(piece);
	piece->info.owner_pid = message->pid;
	if (message->pid > 0) {
		piece->owner_pidfd = fd_steal(&fds[0]);
		piece->owner_socket = fd_steal(&fds[1]);
	}
	return 0;
}

int hold_apply(struct hold *hold, const union keep_any *message, int *fds, size_t n_fds)
{
	struct hold_piece *piece;

	if (n_fds != keep_wire_fds(message))
		return GW_EPROTOCOL;
	switch (message->header.type) {
	case KEEP_PIECE:
		return add(hold, &message->piece, fds);
	case KEEP_STEP:
		return run_step(hold, &message->step);
	case KEEP_OWN:
		return own(hold, &message->own, fds);
	case KEEP_DROP:
		piece = piece_at(hold, message->drop.place);
		if (piece)
			let_go(hold, piece);
		return piece ? 0 : GW_EPROTOCOL;
	default:
		return GW_EPROTOCOL;
	}
}

/* The descriptor that tells of the owner's end, or -1: it has come. */
static int waits_for(const struct hold_piece *piece)
{
	struct pollfd fds[] = {{.fd = piece->owner_pidfd, .events = POLLIN},
			       {.fd = piece->owner_socket}};

	/* A failure is no proof of an end. */
	if (poll(fds, 2, 0) < 0 || fds[0].revents == 0)
		return piece->owner_pidfd;
	return fds[1].revents & (POLLHUP | POLLERR) ? -1 : piece->owner_socket;
}

const struct hold_piece *hold_owned(struct hold *hold, int *ret_fd)
{
	const struct hold_piece *first = NULL;

	for (uint32_t i = 0; i < hold->high; i++) {
		struct hold_piece *piece = &hold->all[i];
		int fd;

		if (piece->info.status == 0 || piece->owner_pidfd < 0)
			continue;
		fd = waits_for(piece);
		if (fd < 0) {
			disown(piece);
		} else if (!first) {
			first = piece;
			*ret_fd = fd;
		}
	}
	return first;
}

size_t hold_fds(const struct hold_piece *piece, int fds[2])
{
	size_t copies = STATE_COPIES(piece->info.kind);

	for (size_t i = 0; i < copies; i++)
		fds[i] = piece->copies[i];
	return copies;
}
