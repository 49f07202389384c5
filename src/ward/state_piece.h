/* SPDX-License-Identifier: MIT */
/*
 * The pieces of surviving state of one pool: names, addresses, descriptors, who has them, how much they take.
 *
 * Runs in: ward; no socket and no process, so that tests go through it alone. The ward holds the descriptors
 * that keep the memory alive, and never looks at what they are: it has no GPU driver.
 *
 * A client is a number below STATE_CLIENTS_MAX. A piece knows of each client whether it may have it mapped
 * (`mapped`), whether a function of it asked for it (`wanted`; the others mapped it in advance), and whether
 * it was told of it (`told`).
 *
 * Invariant: a piece keeps its address, its descriptors and its place in the sums until it has no name and
 * no client has it mapped; only then can its memory be gone and its address be given to another piece.
 * Each change is in the pool's page before the call returns. Read next: state_request.c, state_space.h.
 */
#ifndef GPUWARD_WARD_STATE_PIECE_H
#define GPUWARD_WARD_STATE_PIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/keep_wire.h"
#include "common/state_page.h"
#include "common/state_wire.h"
#include "common/wire.h"
#include "ward/state_space.h"

/* Workers and standbys of a pool, and those that are killed and do not go. */
#define STATE_CLIENTS_MAX 768U
#define STATE_NOBODY	  UINT32_MAX

#define STATE_NAME_HASHES 16384U

struct state_clients {
	uint64_t words[STATE_CLIENTS_MAX / 64];
};

struct state_piece {
	char name[GW_NAME_MAX];
	uint64_t address;
	uint64_t bytes;
	uint64_t copy_bytes;
	uint64_t epoch;
	uint64_t task;	     /* of this pool, that committed last; 0: none of it has */
	uint32_t device;     /* index in the pool's list */
	uint32_t kind;	     /* enum gw_state_kind */
	uint32_t status;     /* enum gw_state_status; 0: no piece */
	uint32_t owner;	     /* the client that may write it, or STATE_NOBODY */
	int32_t owner_pid;   /* of that client, or -1 */
	uint32_t generation; /* of this place in the table */
	bool kept;	     /* it was a pool's before this one */
	uint32_t next;	     /* + 1: of the same hash, or free */
	int64_t made_s;	     /* seconds of CLOCK_REALTIME */
	int fds[2]; /* working copy, committed copy; or the only one; -1: not offered yet */
	struct state_clients mapped;
	struct state_clients wanted;
	struct state_clients told;
	char home[KEEP_DEVICE_MAX]; /* a piece elsewhere: its device, or "" */
};

/* What one device has. */
struct state_device {
	int32_t number; /* the pool's */
	uint64_t held_bytes;
	uint32_t pieces;
	char id[KEEP_DEVICE_MAX]; /* "": not known yet */
	struct state_space space;
};

struct state_pieces {
	struct state_piece *all; /* GW_STATES_MAX; pages are taken when they are touched */
	uint32_t high;		 /* places from here on were never used */
	uint32_t free;		 /* + 1: the first place that is free again */
	uint32_t by_name[STATE_NAME_HASHES]; /* + 1 */
	/* The pool's, and one more for pieces that were kept and whose device is not known yet, or is none of the
	 * pool's. */
	struct state_device devices[WIRE_DEVICES_MAX + 1];
	uint32_t n_devices;
	uint64_t max_bytes; /* per device; 0: no limit */
	struct state_page *page;
};

/* Returns 0 or -ENOMEM. PAGE outlives it. */
int state_pieces_init(struct state_pieces *pieces, const int32_t *devices, uint32_t n_devices,
		      uint64_t max_bytes, struct state_page *page);
void state_pieces_done(struct state_pieces *pieces);

/* The index of the pool's device NUMBER, or -1. */
int state_pieces_device(const struct state_pieces *pieces, int32_t number);

struct state_piece *state_piece_by_name(struct state_pieces *pieces, uint32_t device,
					const char *name);

/* The number by which messages name a piece, never 0, and the piece of a number; NULL: it is gone. */
uint64_t state_piece_number(const struct state_pieces *pieces, const struct state_piece *piece);
struct state_piece *state_piece_by_number(struct state_pieces *pieces, uint64_t number);

/* Whether there is none that a keeper would hold. */
bool state_pieces_are_gone(struct state_pieces *pieces);

/* The first piece from place *PLACE on (which goes on behind it), or NULL. */
struct state_piece *state_piece_next(struct state_pieces *pieces, uint32_t *place);

/* What a new piece is to be. */
struct state_plan {
	const char *name;
	uint64_t bytes;
	uint64_t copy_bytes;
	uint32_t kind;
	uint32_t device;
	uint32_t client;
	int32_t pid;
};

/* Makes a piece that CLIENT has, in status MAKING. Returns 0, -EEXIST, GW_ELIMIT, -ENOMEM, with the text. */
int state_piece_make(struct state_pieces *pieces, const struct state_plan *plan,
		     struct state_piece **ret_piece, struct gw_error *ret_error);

/* Puts a piece that was kept into its old place, on no device yet, and takes FDS; no task of this pool has committed
 * it. Returns 0, or GW_EPROTOCOL. */
int state_piece_adopt(struct state_pieces *pieces, const struct keep_piece *kept, int *fds);

/* After the last state_piece_adopt(). */
void state_piece_adopted(struct state_pieces *pieces);

/* DEVICE (an index) is the one that ID names: gives it the pieces that were kept and are its. */
void state_pieces_name(struct state_pieces *pieces, uint32_t device, const char *id);

/* OWNER is a client with its PID, or STATE_NOBODY and -1. */
void state_piece_own(struct state_pieces *pieces, struct state_piece *piece, uint32_t owner,
		     int32_t pid);

/* To be called after a change of a piece's status, epoch or task. */
void state_piece_changed(struct state_pieces *pieces, const struct state_piece *piece);

/* Takes the name away; the piece ends now, or with the last client that has it mapped. */
void state_piece_drop(struct state_pieces *pieces, struct state_piece *piece);

/* CLIENT has the piece not mapped any more. May end it. */
void state_piece_unmap(struct state_pieces *pieces, struct state_piece *piece, uint32_t client);

bool state_clients_has(const struct state_clients *clients, uint32_t client);
void state_clients_add(struct state_clients *clients, uint32_t client);
void state_clients_remove(struct state_clients *clients, uint32_t client);
/* Any member but CLIENT, or STATE_NOBODY. */
uint32_t state_clients_other(const struct state_clients *clients, uint32_t client);

#endif
