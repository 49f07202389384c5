/* SPDX-License-Identifier: MIT */
/*
 * The pieces of surviving state that this process has mapped.
 *
 * Runs in: worker, main thread. Pure. Invariant: after state_table_reserve() an add cannot fail, so that what
 * was agreed with the ward and the driver is never lost for want of memory. Read next: state.c.
 */
#ifndef GPUWARD_WORKER_STATE_TABLE_H
#define GPUWARD_WORKER_STATE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/state_memory.h"

struct state_table {
	struct state_local *locals;
	uint32_t *hashes;	     /* of their names: a look at thousands takes microseconds */
	struct state_local **chosen; /* room for as many, so that a commit needs no memory */
	uint32_t count;
	uint32_t room;
};

/* Makes room for MORE pieces. Returns 0 or -ENOMEM. */
int state_table_reserve(struct state_table *table, uint32_t more);

void state_table_add(struct state_table *table, const struct state_local *local);
void state_table_remove(struct state_table *table, struct state_local *local);

/* The piece that a function has under NAME; one that is only mapped in advance is not found. Or NULL. */
struct state_local *state_table_by_name(const struct state_table *table, const char *name);
struct state_local *state_table_by_piece(const struct state_table *table, uint64_t piece);

#endif
