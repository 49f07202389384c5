/* SPDX-License-Identifier: MIT */
/*
 * The ward's connection to the keeper, which holds surviving state beyond the pool.
 *
 * Runs in: ward; never waits. All that the ward has of state it has itself, so a keeper is a copy: one that is
 * killed is replaced by a new one, which gets everything again, and so is one that takes nothing for a second
 * (somebody has stopped it), after it was killed. What a worker asks for meanwhile waits. Where no new one can be
 * had, the pool goes on, its state ends with it, and that is said.
 *
 *	CONNECTING	to a keeper that lives, or one is started
 *	GREETING	HELLO was sent; the keeper may wait for the ward before to be gone
 *	TAKING		the pieces that are there
 *	GIVING		a new keeper in place of a dead one: gets the pieces that are here
 *	LIVE
 *	KILLING		waits for the end of a keeper that answers no more
 *	LOST
 *
 * Read next: ../common/keep_wire.h for the messages, state_kept.h for what is sent.
 */
#ifndef GPUWARD_WARD_KEEP_H
#define GPUWARD_WARD_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/keep_wire.h"
#include "linux/loop.h"

struct keep;

/* What the state's side does. */
struct keep_calls {
	/* Once: the state is here, or ERROR (not NULL) why it cannot be had. */
	void (*opened)(void *owner, const struct gw_error *error);
	/* A piece that was there. Takes FDS (sets them to -1), or returns a negative code. */
	int (*adopt)(void *owner, const struct keep_piece *piece, int *fds);
	/* The first piece from place *PLACE on (which goes on behind it), with FDS, borrowed. Returns false
	 * when there is none. */
	bool (*give)(void *owner, uint32_t *place, struct keep_piece *piece, int fds[KEEP_FDS_MAX],
		     size_t *n_fds);
	/* What keep_send() did not take can be tried again. */
	void (*ready)(void *owner);
	/* The pool goes on without a keeper. */
	void (*lost)(void *owner);
};

/* Begins; opened() is called later, never from here. Returns 0 or a negative code. NAME is copied; HOST is the
 * host's pidfd, and outlives it. */
int keep_new(struct loop *loop, const char *name, int host, const struct keep_calls *calls,
	     void *owner, struct keep **ret_keep, struct gw_error *ret_error);

/* Lets go. Where the keeper holds nothing (EMPTY), its end is waited for, a second at most. NULL is fine. */
void keep_free(struct keep *keep, bool empty);

/* The name, and the keeper's pid, or -1. */
const char *keep_name(const struct keep *keep);
int32_t keep_pid(const struct keep *keep);

/* Sends MESSAGE. Returns false when it cannot be taken now: ready() will be called. True also where the keeper
 * is lost, and nothing is sent any more. */
bool keep_send(struct keep *keep, const void *message, size_t bytes, const int *fds, size_t n_fds);

#endif
