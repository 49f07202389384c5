/* SPDX-License-Identifier: MIT */
/*
 * Surviving state that is kept beyond the pool: what changes is sent to the keeper before a worker hears of it.
 *
 * Runs in: ward; never waits. Each function is called when all was checked and nothing has changed yet. It returns
 * false when the keeper cannot take it now: the request then waits, and is run again. In a pool whose state ends
 * with it all of them do nothing, and return true.
 *
 *	a worker asks to commit		ward				keeper
 *					STEP ->
 *					is killed here			the new epoch, to be redone
 *					epoch + 1, answers		the same
 *
 * The pieces' numbers in messages to the keeper are their places in the table, which the next ward gives them again.
 * Read next: keep.h, state_request.c.
 */
#ifndef GPUWARD_WARD_STATE_KEPT_H
#define GPUWARD_WARD_STATE_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "ward/state_request.h"

/* What a commit or its end changes, of many pieces at once. */
struct state_kept_step {
	struct keep_step message;
};

/* Whether the device of CLIENT is known by its own name, so that its state can be kept. */
bool state_kept_knows_device(const struct state_client *client);

/* PIECE, of which all copies are here, becomes READY; CLIENT may write it if it is mutable. */
bool state_kept_piece(struct state_client *client, struct state_piece *piece);

/* CLIENT may write PIECE from here on. */
bool state_kept_own(struct state_client *client, const struct state_piece *piece);

/* Nobody writes PIECE. Where the keeper does not take it now, it waits in vain for a process's end later. */
void state_kept_disown(struct state *state, const struct state_piece *piece);

/* A driver does not take PIECE. Returns -ESTALE, with what there is to do, where that is one which a keeper has had
 * from another pool; or 0. */
int state_kept_explain(const struct state *state, const struct state_piece *piece,
		       struct gw_error *ret_error);

/* PIECE loses its name. */
bool state_kept_drop(struct state *state, const struct state_piece *piece);

/* All pieces that were added go to status TO, as one. */
void state_kept_step_begin(struct state_kept_step *step, uint32_t to, uint64_t task);
void state_kept_step_add(struct state_kept_step *step, const struct state *state,
			 const struct state_piece *piece);
bool state_kept_step_send(const struct state_kept_step *step, struct state *state);

#endif
