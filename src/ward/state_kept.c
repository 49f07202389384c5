/* SPDX-License-Identifier: MIT */
#include "ward/state_kept.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/keep_place.h"
#include "ward/keep.h"

static uint32_t place_of(const struct state *state, const struct state_piece *piece)
{
	return (uint32_t)(piece - state->pieces.all);
}

static bool send_to(struct state *state, const void *message, size_t bytes, const int *fds,
		    size_t n_fds)
{
	return !state->keep || keep_send(state->keep, message, bytes, fds, n_fds);
}

bool state_kept_knows_device(const struct state_client *client)
{
	return !client->state->keep || client->device < 0 ||
	       client->state->pieces.devices[client->device].id[0] != '\0';
}

/* ---- whole pieces ---- */

static void fill_piece(const struct state *state, const struct state_piece *piece,
		       struct keep_piece *message)
{
	const struct state_device *device = &state->pieces.devices[piece->device];

	*message = (struct keep_piece){
		.place = place_of(state, piece),
		.kind = piece->kind,
		.status = piece->status == GW_STATE_COPYING ? GW_STATE_COPYING : GW_STATE_READY,
		.owner_pid = -1,
		.address = piece->address,
		.bytes = piece->bytes,
		.copy_bytes = piece->copy_bytes,
		.epoch = piece->epoch,
		.task = piece->task,
		.made_s = piece->made_s,
	};
	keep_header_init(&message->header, KEEP_PIECE, sizeof(*message));
	memcpy(message->device, piece->home[0] ? piece->home : device->id, sizeof(message->device));
	memcpy(message->name, piece->name, sizeof(message->name));
}

/* Puts the owner of a mutable piece behind its copies. Returns the number of descriptors. */
static size_t add_owner(const struct state_client *owner, struct keep_piece *message,
			const struct state_piece *piece, int fds[KEEP_FDS_MAX])
{
	size_t n_fds = STATE_COPIES(piece->kind);

	for (size_t i = 0; i < n_fds; i++)
		fds[i] = piece->fds[i];
	if (!owner || owner->pidfd < 0 || piece->kind != GW_STATE_MUTABLE)
		return n_fds;
	message->owner_pid = owner->who.pid;
	fds[n_fds] = owner->pidfd;
	fds[n_fds + 1] = owner->socket;
	return n_fds + 2;
}

bool state_kept_piece(struct state_client *client, struct state_piece *piece)
{
	struct state *state = client->state;
	struct keep_piece message;
	int fds[KEEP_FDS_MAX];
	struct timespec now = {0};
	size_t n_fds;

	if (!state->keep)
		return true;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	piece->made_s = now.tv_sec;
	fill_piece(state, piece, &message);
	n_fds = add_owner(client, &message, piece, fds);
	return send_to(state, &message, sizeof(message), fds, n_fds);
}

/* A keeper that is new gets all that the one before had. */
static bool give(void *owner, uint32_t *place, struct keep_piece *message, int fds[KEEP_FDS_MAX],
		 size_t *n_fds)
{
	struct state *state = owner;
	const struct state_piece *piece;

	while ((piece = state_piece_next(&state->pieces, place))) {
		if (piece->status != GW_STATE_READY && piece->status != GW_STATE_COPYING)
			continue;
		fill_piece(state, piece, message);
		*n_fds = add_owner(piece->owner == STATE_NOBODY ? NULL
								: state->clients[piece->owner],
				   message, piece, fds);
		return true;
	}
	return false;
}

/* ---- changes ---- */

static bool send_owner(struct state *state, const struct state_piece *piece, int32_t pid,
		       const int *fds, size_t n_fds)
{
	struct keep_own message = {.place = place_of(state, piece), .pid = pid};

	keep_header_init(&message.header, KEEP_OWN, sizeof(message));
	return send_to(state, &message, sizeof(message), fds, n_fds);
}

bool state_kept_own(struct state_client *client, const struct state_piece *piece)
{
	const int fds[] = {client->pidfd, client->socket};

	return client->pidfd < 0 || send_owner(client->state, piece, client->who.pid, fds, 2);
}

void state_kept_disown(struct state *state, const struct state_piece *piece)
{
	if (piece->kind == GW_STATE_MUTABLE && piece->status != GW_STATE_MAKING &&
	    piece->status != GW_STATE_DROPPED)
		(void)send_owner(state, piece, -1, NULL, 0);
}

int state_kept_explain(const struct state *state, const struct state_piece *piece,
		       struct gw_error *ret_error)
{
	char name[KEEP_QUOTED_MAX];
	char keeper[32] = "lost keeper";
	int32_t pid;

	if (!piece->kept)
		return 0;
	pid = keep_pid(state->keep);
	if (pid > 0)
		(void)snprintf(keeper, sizeof(keeper), "keeper pid %d", pid);
	keep_place_quote(keep_name(state->keep), name);
	return err_own(
		ret_error, -ESTALE,
		"state '%s' of another GPU or driver instance cannot be mapped (%s): drop it "
		"with `gpuward state rm %s`",
		piece->name, keeper, name);
}

bool state_kept_drop(struct state *state, const struct state_piece *piece)
{
	struct keep_drop message = {.place = place_of(state, piece)};

	/* Of one that is being made the keeper has not heard. */
	if (piece->status != GW_STATE_READY && piece->status != GW_STATE_COPYING)
		return true;
	keep_header_init(&message.header, KEEP_DROP, sizeof(message));
	return send_to(state, &message, sizeof(message), NULL, 0);
}

void state_kept_step_begin(struct state_kept_step *step, uint32_t to, uint64_t task)
{
	step->message = (struct keep_step){.to = to, .task = task};
	keep_header_init(&step->message.header, KEEP_STEP, sizeof(step->message));
}

void state_kept_step_add(struct state_kept_step *step, const struct state *state,
			 const struct state_piece *piece)
{
	uint32_t place = place_of(state, piece);

	step->message.places[place / 64] |= UINT64_C(1) << place % 64;
}

bool state_kept_step_send(const struct state_kept_step *step, struct state *state)
{
	return send_to(state, &step->message, sizeof(step->message), NULL, 0);
}

/* ---- the keeper ---- */

static void on_opened(void *owner, const struct gw_error *error)
{
	struct state *state = owner;

	if (!error) {
		state_piece_adopted(&state->pieces);
		atomic_store(&state->pieces.page->kept, STATE_PAGE_KEPT);
	}
	state->kept(state->kept_owner, error);
}

static int adopt(void *owner, const struct keep_piece *piece, int *fds)
{
	struct state *state = owner;

	return state_piece_adopt(&state->pieces, piece, fds);
}

static void on_ready(void *owner)
{
	state_run_waiting(owner);
}

static void on_lost(void *owner)
{
	struct state *state = owner;

	atomic_store(&state->pieces.page->kept, STATE_PAGE_LOST);
}

int state_keep(struct state *state, const char *name, int host,
	       void (*kept)(void *owner, const struct gw_error *error), void *owner,
	       struct gw_error *ret_error)
{
	static const struct keep_calls calls = {.opened = on_opened,
						.adopt = adopt,
						.give = give,
						.ready = on_ready,
						.lost = on_lost};

	state->kept = kept;
	state->kept_owner = owner;
	return keep_new(state->loop, name, host, &calls, state, &state->keep, ret_error);
}

void state_name_device(struct state *state, int32_t number, const char *id)
{
	int device = state_pieces_device(&state->pieces, number);

	if (!state->keep || device < 0)
		return;
	state_pieces_name(&state->pieces, (uint32_t)device, id);
	state_run_waiting(state);
}
