/* SPDX-License-Identifier: MIT */
#include "ward/state_piece.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/err.h"
#include "common/fd.h"
#include "ward/state_text.h"

#define TABLE_BYTES (GW_STATES_MAX * sizeof(struct state_piece))

/* ---- sets of clients ---- */

bool state_clients_has(const struct state_clients *clients, uint32_t client)
{
	return clients->words[client / 64] >> client % 64 & 1;
}

void state_clients_add(struct state_clients *clients, uint32_t client)
{
	clients->words[client / 64] |= UINT64_C(1) << client % 64;
}

void state_clients_remove(struct state_clients *clients, uint32_t client)
{
	clients->words[client / 64] &= ~(UINT64_C(1) << client % 64);
}

uint32_t state_clients_other(const struct state_clients *clients, uint32_t client)
{
	for (uint32_t i = 0; i < STATE_CLIENTS_MAX / 64; i++) {
		uint64_t word = clients->words[i];

		if (client / 64 == i)
			word &= ~(UINT64_C(1) << client % 64);
		if (word)
			return i * 64 + (uint32_t)__builtin_ctzll(word);
	}
	return STATE_NOBODY;
}

/* ---- the table ---- */

int state_pieces_init(struct state_pieces *pieces, const int32_t *devices, uint32_t n_devices,
		      uint64_t max_bytes, struct state_page *page)
{
	void *all = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (all == MAP_FAILED)
		return -errno;
	*pieces = (struct state_pieces){
		.all = all, .n_devices = n_devices, .max_bytes = max_bytes, .page = page};
	for (uint32_t i = 0; i < n_devices; i++)
		pieces->devices[i].number = devices[i];
	pieces->devices[n_devices].number = -1;
	return 0;
}

void state_pieces_done(struct state_pieces *pieces)
{
	for (uint32_t i = 0; pieces->all && i < pieces->high; i++) {
		if (pieces->all[i].status == 0)
			continue;
		fd_close(pieces->all[i].fds[0]);
		fd_close(pieces->all[i].fds[1]);
	}
	for (uint32_t i = 0; i < pieces->n_devices; i++)
		state_space_done(&pieces->devices[i].space);
	if (pieces->all)
		(void)munmap(pieces->all, TABLE_BYTES);
	*pieces = (struct state_pieces){0};
}

int state_pieces_device(const struct state_pieces *pieces, int32_t number)
{
	for (uint32_t i = 0; i < pieces->n_devices; i++) {
		if (pieces->devices[i].number == number)
			return (int)i;
	}
	return -1;
}

static uint32_t *bucket(struct state_pieces *pieces, uint32_t device, const char *name)
{
	uint32_t hash = 2166136261U ^ device; /* FNV-1a */

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619U;
	return &pieces->by_name[hash % STATE_NAME_HASHES];
}

struct state_piece *state_piece_by_name(struct state_pieces *pieces, uint32_t device,
					const char *name)
{
	uint32_t at = *bucket(pieces, device, name);

	while (at > 0) {
		struct state_piece *piece = &pieces->all[at - 1];

		if (piece->device == device && strcmp(piece->name, name) == 0)
			return piece;
		at = piece->next;
	}
	return NULL;
}

static uint32_t place_of(const struct state_pieces *pieces, const struct state_piece *piece)
{
	return (uint32_t)(piece - pieces->all);
}

uint64_t state_piece_number(const struct state_pieces *pieces, const struct state_piece *piece)
{
	return (uint64_t)piece->generation << 32 | (place_of(pieces, piece) + 1);
}

struct state_piece *state_piece_by_number(struct state_pieces *pieces, uint64_t number)
{
	uint32_t at = (uint32_t)number;
	struct state_piece *piece;

	if (at == 0 || at > pieces->high)
		return NULL;
	piece = &pieces->all[at - 1];
	return piece->status != 0 && piece->generation == number >> 32 ? piece : NULL;
}

bool state_pieces_are_gone(struct state_pieces *pieces)
{
	const struct state_piece *piece;

	for (uint32_t place = 0; (piece = state_piece_next(pieces, &place));) {
		if (piece->status == GW_STATE_READY || piece->status == GW_STATE_COPYING)
			return false;
	}
	return true;
}

struct state_piece *state_piece_next(struct state_pieces *pieces, uint32_t *place)
{
	while (*place < pieces->high) {
		struct state_piece *piece = &pieces->all[(*place)++];

		if (piece->status != 0)
			return piece;
	}
	return NULL;
}

static void put_name(struct state_pieces *pieces, struct state_piece *piece)
{
	uint32_t *first = bucket(pieces, piece->device, piece->name);

	piece->next = *first;
	*first = place_of(pieces, piece) + 1;
}

static void take_name_away(struct state_pieces *pieces, struct state_piece *piece)
{
	uint32_t *link = bucket(pieces, piece->device, piece->name);

	while (*link > 0 && &pieces->all[*link - 1] != piece)
		link = &pieces->all[*link - 1].next;
	if (*link > 0)
		*link = piece->next;
	piece->next = 0;
}

/* ---- the page that the host reads ---- */

static void fill_info(const struct state_pieces *pieces, const struct state_piece *piece,
		      struct gw_state_info *info)
{
	*info = (struct gw_state_info){
		.size = sizeof(*info),
		.address = piece->address,
		.bytes = piece->bytes,
		.held_bytes = STATE_HELD_BYTES(piece->kind, piece->copy_bytes),
		.epoch = piece->epoch,
		.task = piece->task,
		.device = pieces->devices[piece->device].number,
		.kind = piece->kind,
		.status = piece->status,
		.owner_pid = piece->owner_pid,
	};
	memcpy(info->name, piece->name, sizeof(info->name));
}

void state_piece_changed(struct state_pieces *pieces, const struct state_piece *piece)
{
	struct gw_state_info info = {0};

	if (piece->status != 0)
		fill_info(pieces, piece, &info);
	state_page_put(pieces->page, place_of(pieces, piece), &info);
}

static void put_sums(struct state_pieces *pieces)
{
	uint64_t bytes = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i <= pieces->n_devices; i++) {
		bytes += pieces->devices[i].held_bytes;
		count += pieces->devices[i].pieces;
	}
	state_page_put_sums(pieces->page, count, bytes, pieces->high);
}

/* ---- the life of a piece ---- */

static int check_limits(const struct state_pieces *pieces, const struct state_plan *plan,
			struct gw_error *ret_error)
{
	const struct state_device *device = &pieces->devices[plan->device];
	uint64_t wanted = STATE_HELD_BYTES(plan->kind, plan->copy_bytes);
	char usage[STATE_TEXT_BYTES];
	char bytes[2][STATE_BYTES_TEXT];

	if (pieces->free == 0 && pieces->high == GW_STATES_MAX)
		return err_own(ret_error, GW_ELIMIT,
			       "a pool can have %u pieces of state, and has them", GW_STATES_MAX);
	if (pieces->max_bytes == 0 ||
	    (wanted <= pieces->max_bytes && device->held_bytes <= pieces->max_bytes - wanted))
		return 0;
	state_text_usage(pieces, plan->device, usage);
	state_text_bytes(wanted, bytes[0]);
	state_text_bytes(pieces->max_bytes, bytes[1]);
	return err_own(ret_error, GW_ELIMIT,
		       "state '%.24s' needs %s, and max_state_bytes is %s; in use: %s", plan->name,
		       bytes[0], bytes[1], usage);
}

static uint32_t take_place(struct state_pieces *pieces)
{
	uint32_t place = pieces->free;

	if (place == 0)
		return pieces->high++;
	pieces->free = pieces->all[place - 1].next;
	return place - 1;
}

static void fill_piece(struct state_piece *piece, const struct state_plan *plan, uint64_t address)
{
	uint32_t generation = piece->generation + 1;

	*piece = (struct state_piece){
		.address = address,
		.bytes = plan->bytes,
		.copy_bytes = plan->copy_bytes,
		.device = plan->device,
		.kind = plan->kind,
		.status = GW_STATE_MAKING,
		.owner = plan->client,
		.owner_pid = plan->pid,
		.generation = generation,
		.fds = {-1, -1},
	};
	(void)strncpy(piece->name, plan->name, sizeof(piece->name) - 1);
	state_clients_add(&piece->mapped, plan->client);
	state_clients_add(&piece->wanted, plan->client);
	state_clients_add(&piece->told, plan->client);
}

int state_piece_make(struct state_pieces *pieces, const struct state_plan *plan,
		     struct state_piece **ret_piece, struct gw_error *ret_error)
{
	struct state_device *device = &pieces->devices[plan->device];
	const struct state_piece *other = state_piece_by_name(pieces, plan->device, plan->name);
	struct state_piece *piece;
	uint64_t address;
	int result;

	if (other)
		return err_own(ret_error, -EEXIST,
			       "device %d has state called '%s' already: map it, or drop it first",
			       device->number, plan->name);
	result = check_limits(pieces, plan, ret_error);
	if (result < 0)
		return result;
	result = state_space_alloc(&device->space, plan->copy_bytes, &address);
	if (result == -ENOSPC)
		return err_own(ret_error, GW_ELIMIT,
			       "there is no gap in the addresses of surviving state for '%s'",
			       plan->name);
	if (result < 0)
		return err_os(ret_error, -result, "the ward cannot keep state '%s'", plan->name);
	piece = &pieces->all[take_place(pieces)];
	fill_piece(piece, plan, address);
	put_name(pieces, piece);
	device->held_bytes += STATE_HELD_BYTES(piece->kind, piece->copy_bytes);
	device->pieces++;
	state_piece_changed(pieces, piece);
	put_sums(pieces);
	*ret_piece = piece;
	return 0;
}

void state_piece_own(struct state_pieces *pieces, struct state_piece *piece, uint32_t owner,
		     int32_t pid)
{
	piece->owner = owner;
	piece->owner_pid = pid;
	state_piece_changed(pieces, piece);
}

/* ---- pieces that were kept ---- */

/*
 * `task` stays 0: tasks are numbered anew in each pool, and a function that finds its own number takes its work for
 * done.
 *
 *	pool A				keeper		pool B
 *	task 1 commits			task 1
 *	ends						task 1 finds 1, and does nothing
 */
int state_piece_adopt(struct state_pieces *pieces, const struct keep_piece *kept, int *fds)
{
	struct state_piece *piece = &pieces->all[kept->place];
	struct state_device *elsewhere = &pieces->devices[pieces->n_devices];

	if (piece->status != 0)
		return GW_EPROTOCOL;
	*piece = (struct state_piece){
		.address = kept->address,
		.bytes = kept->bytes,
		.copy_bytes = kept->copy_bytes,
		.epoch = kept->epoch,
		.device = pieces->n_devices,
		.kind = kept->kind,
		.status = kept->status,
		.kept = true,
		.owner = STATE_NOBODY,
		.owner_pid = -1,
		.generation = piece->generation + 1,
		.made_s = kept->made_s,
		.fds = {-1, -1},
	};
	memcpy(piece->name, kept->name, sizeof(piece->name));
	memcpy(piece->home, kept->device, sizeof(piece->home));
	for (size_t i = 0; i < STATE_COPIES(kept->kind); i++)
		piece->fds[i] = fd_steal(&fds[i]);
	if (kept->place >= pieces->high)
		pieces->high = kept->place + 1;
	put_name(pieces, piece);
	elsewhere->held_bytes += STATE_HELD_BYTES(piece->kind, piece->copy_bytes);
	elsewhere->pieces++;
	return 0;
}

void state_piece_adopted(struct state_pieces *pieces)
{
	for (uint32_t i = pieces->high; i > 0; i--) {
		struct state_piece *piece = &pieces->all[i - 1];

		if (piece->status == 0) {
			piece->next = pieces->free;
			pieces->free = i;
		} else {
			state_piece_changed(pieces, piece);
		}
	}
	put_sums(pieces);
}

/* One whose addresses overlap another's stays elsewhere: nobody can map it. */
static void bring_home(struct state_pieces *pieces, struct state_piece *piece, uint32_t device)
{
	struct state_device *elsewhere = &pieces->devices[pieces->n_devices];
	struct state_device *home = &pieces->devices[device];
	uint64_t bytes = STATE_HELD_BYTES(piece->kind, piece->copy_bytes);

	if (state_piece_by_name(pieces, device, piece->name) ||
	    state_space_take(&home->space, piece->address, piece->copy_bytes) < 0)
		return;
	take_name_away(pieces, piece);
	piece->device = device;
	piece->home[0] = '\0';
	put_name(pieces, piece);
	elsewhere->held_bytes -= bytes;
	elsewhere->pieces--;
	home->held_bytes += bytes;
	home->pieces++;
	state_piece_changed(pieces, piece);
}

/* A worker's word, which goes on to the keeper and to people. */
static void fill_id(char to[KEEP_DEVICE_MAX], const char *id)
{
	(void)strncpy(to, id[0] ? id : "?", KEEP_DEVICE_MAX - 1);
	for (; *to; to++)
		*to = (char)(*to <= ' ' || *to > '~' ? '?' : *to);
}

void state_pieces_name(struct state_pieces *pieces, uint32_t device, const char *id)
{
	struct state_piece *piece;

	if (pieces->devices[device].id[0])
		return;
	fill_id(pieces->devices[device].id, id);
	id = pieces->devices[device].id;
	for (uint32_t place = 0; (piece = state_piece_next(pieces, &place));) {
		if (piece->device == pieces->n_devices && strcmp(piece->home, id) == 0)
			bring_home(pieces, piece, device);
	}
	put_sums(pieces);
}

/* ---- the end of a piece ---- */

/* Nobody has it mapped, and it has no name. */
static void end_piece(struct state_pieces *pieces, struct state_piece *piece)
{
	struct state_device *device = &pieces->devices[piece->device];

	fd_closep(&piece->fds[0]);
	fd_closep(&piece->fds[1]);
	state_space_free(&device->space, piece->address);
	device->held_bytes -= STATE_HELD_BYTES(piece->kind, piece->copy_bytes);
	device->pieces--;
	piece->status = 0;
	piece->next = pieces->free;
	pieces->free = place_of(pieces, piece) + 1;
	state_piece_changed(pieces, piece);
	put_sums(pieces);
}

void state_piece_drop(struct state_pieces *pieces, struct state_piece *piece)
{
	if (piece->status == GW_STATE_DROPPED)
		return;
	take_name_away(pieces, piece);
	piece->status = GW_STATE_DROPPED;
	state_piece_own(pieces, piece, STATE_NOBODY, -1);
	if (state_clients_other(&piece->mapped, STATE_NOBODY) == STATE_NOBODY)
		end_piece(pieces, piece);
}

void state_piece_unmap(struct state_pieces *pieces, struct state_piece *piece, uint32_t client)
{
	bool making = piece->status == GW_STATE_MAKING;

	state_clients_remove(&piece->mapped, client);
	state_clients_remove(&piece->wanted, client);
	if (piece->owner == client)
		state_piece_own(pieces, piece, STATE_NOBODY, -1);
	if (piece->status == GW_STATE_DROPPED) {
		if (state_clients_other(&piece->mapped, STATE_NOBODY) == STATE_NOBODY)
			end_piece(pieces, piece);
	} else if (making && state_clients_other(&piece->mapped, STATE_NOBODY) == STATE_NOBODY) {
		/* Nobody will ever fill it. */
		state_piece_drop(pieces, piece);
	}
}
