/* SPDX-License-Identifier: MIT */
/*
 * The messages of the keeper, which holds surviving device memory beyond its pool: with the ward of the pool that
 * uses the state, and with the command line. Each is one datagram, with descriptors beside it where it says so.
 *
 * Runs in: keeper, ward, command line; all of the same user (SO_PEERCRED), since nobody else is listened to.
 *
 *	ward				keeper
 *	HELLO + pidfds			refuses; or waits until the ward before, and the workers that could
 *					write, are gone for certain
 *					WELCOME, PIECE + copies ..., END
 *	PIECE + copies			holds it
 *	STEP, OWN + pidfd + socket, DROP
 *
 * What the ward says is not answered, and need not be: what was sent lies in the kernel, in order, and is read by
 * a keeper that lives whatever happens to the ward meanwhile. So a message that was sent counts, and a commit is
 * as atomic as a datagram:
 *
 *	ward				keeper			if everything but the keeper ends here
 *	(asked to commit)					the old epoch
 *	STEP -> lies in the socket				the new epoch
 *					reads it, sees the end	the new epoch
 *	answers the worker
 *
 * A piece is named by its place in the ward's table, which the next ward gives it again.
 * A receiver checks every message with the functions below. Read next: ../keeper/keeper.h, ../ward/keep.h.
 */
#ifndef GPUWARD_COMMON_KEEP_WIRE_H
#define GPUWARD_COMMON_KEEP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuward.h>

#define KEEP_MAGIC	 0x7065656bU /* "keep" */
#define KEEP_LAYOUT	 1U
#define KEEP_VERSION_MAX 16U
#define KEEP_DEVICE_MAX	 48U
#define KEEP_FDS_MAX	 4U

/* A keeper that was started by a ward has its first connection as this descriptor. */
#define KEEP_FIRST_FD 3

enum keep_type {
	/* to the keeper, from whoever connects */
	KEEP_HELLO = 1, /* role; fds: the pidfds of a ward and of its host */
	/* from the ward, once it was welcomed */
	KEEP_PIECE =
		2, /* fds: copies, then with an owner its pidfd and the ward's end of its socket */
	KEEP_STEP = 3, /* some pieces begin or end a commit, together */
	KEEP_OWN = 4,  /* who may write a piece; fds: pidfd and socket, or none */
	KEEP_DROP = 5,
	/* from the command line */
	KEEP_REMOVE = 16, /* name of a piece, or "" for all */
	KEEP_FOR = 17,	  /* how long to hold what nobody uses */
	/* from the keeper */
	KEEP_WELCOME =
		32, /* or, with an error, the reason why not; also the answer to REMOVE and FOR */
	KEEP_END = 33, /* that were all pieces */
};

/* The same in every layout. */
struct keep_header {
	uint32_t magic;
	uint32_t type; /* enum keep_type */
	uint32_t bytes;
	uint32_t layout;
	char version[KEEP_VERSION_MAX]; /* GW_VERSION_TEXT of the sender */
};

enum keep_role {
	KEEP_WARD = 1,
	KEEP_LOOKER = 2, /* the command line: PIECE comes without descriptors */
};

struct keep_hello {
	struct keep_header header;
	uint32_t role; /* enum keep_role */
	int32_t pid;
};

struct keep_piece {
	struct keep_header header;
	uint32_t place;	   /* below GW_STATES_MAX */
	uint32_t kind;	   /* enum gw_state_kind */
	uint32_t status;   /* GW_STATE_READY or GW_STATE_COPYING */
	int32_t owner_pid; /* who may write it, or -1 */
	uint64_t address;
	uint64_t bytes;
	uint64_t copy_bytes;
	uint64_t epoch;
	uint64_t task;		      /* that committed last: its number in its own pool */
	int64_t made_s;		      /* seconds of CLOCK_REALTIME */
	char device[KEEP_DEVICE_MAX]; /* UUID of the device, or where it has none its PCI id */
	char name[GW_NAME_MAX];
};

/* All pieces in PLACES go to status `to`, as one: COPYING (with one more epoch, by TASK) or READY. */
struct keep_step {
	struct keep_header header;
	uint32_t to; /* enum gw_state_status */
	uint32_t reserved;
	uint64_t task;
	uint64_t places[GW_STATES_MAX / 64]; /* a bit each */
};

struct keep_own {
	struct keep_header header;
	uint32_t place;
	int32_t pid; /* -1: nobody */
};

struct keep_drop {
	struct keep_header header;
	uint32_t place;
	uint32_t reserved;
};

struct keep_remove {
	struct keep_header header;
	char name[GW_NAME_MAX]; /* "": all */
};

struct keep_for {
	struct keep_header header;
	uint64_t ns; /* GW_FOREVER: until it is removed */
};

struct keep_welcome {
	struct keep_header header;
	struct gw_error error; /* code 0: welcome, or done */
	int32_t keeper_pid;
	int32_t ward_pid; /* who uses the state, or -1 */
	uint32_t pieces;
	uint32_t reserved;
	uint64_t bytes;	      /* of device memory */
	uint64_t for_ns;      /* how long it holds what nobody uses, or GW_FOREVER */
	uint64_t left_ns;     /* of that; GW_UNKNOWN while it is used, or for ever */
	int64_t used_since_s; /* or unused since; seconds of CLOCK_REALTIME */
};

struct keep_word {
	struct keep_header header;
};

union keep_any {
	struct keep_header header;
	struct keep_hello hello;
	struct keep_piece piece;
	struct keep_step step;
	struct keep_own own;
	struct keep_drop drop;
	struct keep_remove remove;
	struct keep_for hold_for;
	struct keep_welcome welcome;
	struct keep_word word;
};

void keep_header_init(struct keep_header *header, enum keep_type type, size_t bytes);

/*
 * Checks that BYTES bytes at MESSAGE are one whole message that a keeper may get (TO_KEEPER), or may send, with all
 * numbers in range and all strings ended. Returns 0, GW_EPROTOCOL, or GW_EVERSION for one of another layout,
 * whose version text is ended then. Pure: the fuzzer runs it.
 */
int keep_wire_check(union keep_any *message, size_t bytes, bool to_keeper);

/* How many descriptors belong to a good MESSAGE of a ward. */
size_t keep_wire_fds(const union keep_any *message);

#endif
