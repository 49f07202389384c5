/* SPDX-License-Identifier: MIT */
/*
 * gpuward state: the surviving device memory that keepers of this user hold beyond its pools.
 *
 * Runs in: command line. A keeper is asked by its socket, and given two seconds for each answer: one that is
 * stopped is said to be, and the others are shown.
 *
 *	state_ask.c	the questions
 *	state_print.c	tables; state_json.c the same for programs
 *	state.c		options
 */
#ifndef GPUWARD_CLI_STATE_H
#define GPUWARD_CLI_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/keep_wire.h"

/* The state of one name. */
struct state_kept {
	char name[GW_NAME_MAX];
	struct gw_error problem; /* code not 0: nothing more is known */
	struct keep_welcome welcome;
	struct keep_piece *pieces;
	size_t n_pieces;
};

struct state_list {
	struct state_kept *all;
	size_t count;
};

/* Asks all keepers of this user, or that of NAME. In the order of names. Returns 0, -ENOENT there is none of NAME,
 * or why the folder cannot be read. */
int state_ask_all(const char *name, struct state_list *ret_list, struct gw_error *ret_error);
void state_list_done(struct state_list *list);

/* Removes PIECE of NAME, "" all of it. Returns 0, -ENOENT, -EBUSY a pool uses it, or what keeps it from being
 * asked. */
int state_ask_remove(const char *name, const char *piece, struct gw_error *ret_error);

/* How long NAME is to be held when no pool uses it; GW_FOREVER. */
int state_ask_for(const char *name, uint64_t ns, struct gw_error *ret_error);

void state_print(const struct state_list *list);

/* False in a build without jansson. */
bool state_has_json(void);
int state_json(const struct state_list *list);

#endif
