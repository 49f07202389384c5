/* SPDX-License-Identifier: MIT */
/*
 * One connection of a keeper: a ward, or the command line.
 *
 * Runs in: keeper; never waits. A guest that breaks the rules is let go of; what it had said before counts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/keep_place.h"
#include "common/packet.h"
#include "keeper/keeper.h"

/* When the kernel had no memory for a message: it does not say when it has again. */
#define RETRY_NS 20000000ULL

static void fill_welcome(const struct guest *guest, const struct gw_error *error,
			 struct keep_welcome *welcome)
{
	const struct keeper *keeper = guest->keeper;
	uint64_t now = now_ns();

	*welcome = (struct keep_welcome){
		.error = *error,
		.keeper_pid = getpid(),
		.ward_pid = keeper->user ? keeper->user->pid : -1,
		.pieces = keeper->hold.count,
		.bytes = keeper->hold.bytes,
		.for_ns = keeper->for_ns,
		.left_ns = GW_UNKNOWN,
		.used_since_s = keeper->since_s,
	};
	if (!keeper->user && keeper->for_ns != GW_FOREVER && keeper->unused_ns != GW_UNKNOWN)
		welcome->left_ns = keeper->unused_ns + keeper->for_ns > now
					   ? keeper->unused_ns + keeper->for_ns - now
					   : 0;
	keep_header_init(&welcome->header, KEEP_WELCOME, sizeof(*welcome));
}

void guest_answer(struct guest *guest, const struct gw_error *error, bool close)
{
	struct keep_welcome welcome;

	fill_welcome(guest, error, &welcome);
	/* It is the first thing in this socket, or the answer to the only request: there is room. */
	(void)packet_send(guest->socket, &welcome, sizeof(welcome), NULL, 0);
	if (close)
		guest_free(guest);
}

/* Returns 0, or as packet_send(). */
static int send_next(struct guest *guest)
{
	uint32_t place = guest->next_place;
	const struct hold_piece *piece = hold_next(&guest->keeper->hold, &place);
	struct keep_word end;
	struct keep_piece info;
	int fds[2];
	int result;

	if (!piece) {
		keep_header_init(&end.header, KEEP_END, sizeof(end));
		result = packet_send(guest->socket, &end, sizeof(end), NULL, 0);
		guest->sending = result < 0;
		return result;
	}
	info = piece->info;
	keep_header_init(&info.header, KEEP_PIECE, sizeof(info));
	result = packet_send(guest->socket, &info, sizeof(info), fds,
			     guest->role == KEEP_WARD ? hold_fds(piece, fds) : 0);
	if (result == 0)
		guest->next_place = place;
	return result;
}

void guest_send_more(struct guest *guest)
{
	int result = 0;

	while (guest->sending && result == 0)
		result = send_next(guest);
	if (result == -ENOMEM || result == -ENOBUFS || result == -ETOOMANYREFS)
		loop_set_timer(&guest->keeper->retry_timer, now_ns() + RETRY_NS);
	else if (result < 0 && result != -EAGAIN)
		guest->sending = false; /* nobody reads it: its end is in the socket */
	(void)loop_change(&guest->keeper->loop, &guest->source,
			  EPOLLIN | (result == -EAGAIN ? (uint32_t)EPOLLOUT : 0));
}

void guest_welcome(struct guest *guest)
{
	static const struct gw_error none = {0};

	int fd;

	/* Who has died since is no owner any more, to those who look. */
	(void)hold_owned(&guest->keeper->hold, &fd);
	guest_answer(guest, &none, false);
	guest->sending = true;
	guest->next_place = 0;
	guest_send_more(guest);
}

static void refuse_version(struct guest *guest, const struct keep_header *header)
{
	struct gw_error error;

	(void)err_own(&error, GW_EVERSION,
		      "state '%.63s' is held by gpuward-keeper %s (layout %u, pid %d), and this is "
		      "gpuward %.15s (layout %u): use the same build, or end the keeper and its "
		      "state",
		      guest->keeper->name, GW_VERSION_TEXT, KEEP_LAYOUT, getpid(), header->version,
		      header->layout);
	guest_answer(guest, &error, true);
}

static void on_hello(struct guest *guest, const struct keep_hello *hello, int *fds)
{
	guest->role = hello->role;
	guest->pid = hello->pid;
	if (hello->role == KEEP_WARD) {
		guest->pidfd = fd_steal(&fds[0]);
		guest->host = fd_steal(&fds[1]);
		keeper_enter(guest);
	} else {
		/* What the ward has sent counts, although it was not read yet. */
		if (guest->keeper->user)
			guest_drain(guest->keeper->user);
		guest_welcome(guest);
	}
}

/* What the command line wants. Returns whether it may want that. */
static bool on_wish(struct guest *guest, const union keep_any *message)
{
	static const struct gw_error none = {0};

	if (message->header.type == KEEP_REMOVE) {
		keeper_remove(guest, message->remove.name);
	} else if (message->header.type == KEEP_FOR) {
		keeper_hold_for(guest->keeper, message->hold_for.ns);
		guest_answer(guest, &none, false);
	} else {
		return false;
	}
	return true;
}

/* Returns whether GUEST is still there. */
static bool on_message(struct guest *guest, const union keep_any *message, int *fds, size_t n_fds)
{
	struct keeper *keeper = guest->keeper;
	bool good = n_fds == keep_wire_fds(message);

	if (good && guest->role == 0 && message->header.type == KEEP_HELLO) {
		uint32_t number = guest->number;

		on_hello(guest, &message->hello, fds);
		return keeper->guests[number] == guest;
	}
	if (good && guest == keeper->user)
		good = hold_apply(&keeper->hold, message, fds, n_fds) == 0;
	else if (good)
		good = guest->role == KEEP_LOOKER && on_wish(guest, message);
	if (!good)
		guest_free(guest);
	return good;
}

/* Takes one message. Returns whether there may be more. */
static bool read_one(struct guest *guest)
{
	union keep_any message;
	int fds[KEEP_FDS_MAX];
	struct packet packet;
	bool more;
	int result = packet_receive(guest->socket, &message, sizeof(message), fds, KEEP_FDS_MAX,
				    &packet);

	if (result == -EAGAIN || result == -ENOMEM || result == -ENOBUFS)
		return false;
	if (result > 0 && !packet.too_much && !packet.no_room)
		result = keep_wire_check(&message, packet.bytes, true);
	else
		result = GW_EPROTOCOL; /* or the end of it */
	if (result == 0) {
		more = on_message(guest, &message, fds, packet.n_fds);
	} else {
		if (result == GW_EVERSION && guest->role == 0)
			refuse_version(guest, &message.header);
		else
			guest_free(guest);
		more = false;
	}
	packet_close_fds(fds, KEEP_FDS_MAX);
	return more;
}

void guest_drain(struct guest *guest)
{
	while (read_one(guest))
		continue;
}

static void on_ready(struct loop_source *source, uint32_t events)
{
	struct guest *guest = source->owner;

	if (events & EPOLLOUT)
		guest_send_more(guest);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		(void)read_one(guest);
}

int guest_new(struct keeper *keeper, int *socket)
{
	uint32_t number = 0;
	struct guest *guest;
	int result;

	while (number < KEEPER_GUESTS_MAX && keeper->guests[number])
		number++;
	if (number == KEEPER_GUESTS_MAX)
		return -EMFILE;
	guest = calloc(1, sizeof(*guest));
	if (!guest)
		return -ENOMEM;
	*guest = (struct guest){
		.keeper = keeper, .socket = *socket, .number = number, .pidfd = -1, .host = -1};
	guest->source = (struct loop_source){.fd = -1, .ready = on_ready, .owner = guest};
	result = loop_add(&keeper->loop, &guest->source, *socket, EPOLLIN);
	if (result < 0) {
		free(guest);
		return result;
	}
	*socket = -1;
	keeper->guests[number] = guest;
	return 0;
}

void guest_free(struct guest *guest)
{
	struct keeper *keeper = guest->keeper;

	loop_remove(&keeper->loop, &guest->source);
	fd_close(guest->socket);
	keeper->guests[guest->number] = NULL;
	keeper_leave(guest);
	fd_close(guest->pidfd);
	fd_close(guest->host);
	free(guest);
}
