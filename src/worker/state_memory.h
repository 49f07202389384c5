/* SPDX-License-Identifier: MIT */
/*
 * What the driver does for surviving state: makes, imports, maps, copies and unmaps the copies of a piece.
 *
 * Runs in: worker, main thread, with a context current. Two ranges of addresses are reserved: one where every
 * worker has every piece at the same address, and its shadow of the same layout anywhere else. A committed
 * copy is mapped in the shadow, and only while it is copied to or from, so that no stray kernel reaches it.
 *
 *	STATE_BASE  [ weights ] [ working copy of cache ]
 *	shadow                  [ committed copy         ]
 *
 * Every function returns 0 or a negative code with the text; a CUresult is in `native`. Read next: state.c.
 */
#ifndef GPUWARD_WORKER_STATE_MEMORY_H
#define GPUWARD_WORKER_STATE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/state_wire.h"
#include "gpu/cuda.h"

struct state_memory {
	const struct cuda_door *door;
	uint64_t bytes;	 /* of the range that is reserved; 0: none yet */
	uint64_t shadow; /* 0: not reserved yet */
};

/* One piece in this process. */
struct state_local {
	struct state_entry entry;
	bool wanted;	    /* a function asked for it; otherwise it is mapped in advance */
	bool unmapped;	    /* it is not mapped any more, and the ward does not know */
	bool shadowed;	    /* the committed copy is mapped */
	uint64_t committed; /* mutable: handle of the committed copy, 0: none */
};

/* BYTES rounded up to what the driver gives; -EINVAL where that is more than the range. */
int state_memory_round(struct state_memory *memory, const char *name, uint64_t bytes,
		       uint64_t *ret_bytes, struct gw_error *ret_error);

/* Whether this process is a client of an MPS server. */
bool state_memory_has_mps(const struct state_memory *memory);

/* Makes the copies of LOCAL, all zero, maps the first, and exports all into FDS. */
int state_memory_make(struct state_memory *memory, struct state_local *local, int fds[2],
		      struct gw_error *ret_error);

/* Imports the copies of LOCAL from FDS, and maps the first: sealed ones for reading. */
int state_memory_attach(struct state_memory *memory, struct state_local *local, const int *fds,
			struct gw_error *ret_error);

/* Lets LOCAL be read only from here on. */
int state_memory_protect(struct state_memory *memory, const struct state_local *local,
			 struct gw_error *ret_error);

/* Unmaps LOCAL and lets go of its handles. No kernel may be using it. */
int state_memory_detach(struct state_memory *memory, struct state_local *local,
			struct gw_error *ret_error);

/* Maps the committed copy of LOCAL, and takes it away again. */
int state_memory_shadow(struct state_memory *memory, struct state_local *local,
			struct gw_error *ret_error);
void state_memory_unshadow(struct state_memory *memory, struct state_local *local);

/* Queues the copy from the working to the committed copy, or back. Both are mapped. */
int state_memory_copy(struct state_memory *memory, const struct state_local *local, bool back,
		      struct gw_error *ret_error);

/* Waits until the device has done all work. */
int state_memory_wait(struct state_memory *memory, struct gw_error *ret_error);

#endif
