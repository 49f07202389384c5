/* SPDX-License-Identifier: MIT */
/*
 * The messages about surviving device memory, between ward and worker. Each is one datagram of a socket of
 * their own (WIRE_WORKER_STATE), apart from the control messages.
 *
 * Runs in: ward, worker. The worker asks one thing at a time, and the ward answers it, sooner or later; it
 * says nothing unasked. (That STATE_NEXT has something to give is a control message: WIRE_STATE.) So neither
 * side ever has more than one message to read, and what a worker does not read costs the ward nothing.
 *
 *	making a piece			mapping one		committing
 *	RESERVE -> address		MAP -> descriptors	COMMIT -> it counts from here on
 *	(makes and clears memory)	(imports, maps)		(copies)
 *	OFFER + descriptors -> held	SETTLE, if it copied	SETTLE -> it may be written again
 *	SEAL -> others may map it
 *
 * A receiver checks every message with the functions below before it uses anything of it.
 * Read next: ../ward/state.h, ../worker/state.h.
 */
#ifndef GPUWARD_COMMON_STATE_WIRE_H
#define GPUWARD_COMMON_STATE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuward.h>

#define STATE_WIRE_MAGIC  0x74617473U /* "stat" */
#define STATE_WIRE_LAYOUT 1U

/* Pieces in one answer. Each has up to two descriptors. */
#define STATE_BATCH   16U
#define STATE_FDS_MAX 32U

/*
 * Where state lies in the address space of every worker: a range that is large enough to be given on request
 * (small ones are not, as measured), and where the kernel puts nothing by itself on x86-64. Mappings come
 * down from 0x7fff00000000, by up to 16 TiB (where vm.mmap_rnd_bits is 32) to 0x6fff00000000; programs begin
 * at 0x555500000000, or up to 16 TiB above. AddressSanitizer has 0x600000000000 to 0x640000000000.
 */
#define STATE_BASE	  0x680000000000ULL
#define STATE_SPACE_BYTES (1ULL << 40)
#define STATE_SPACE_LEAST (1ULL << 30)
#define STATE_GRANULE	  (2ULL << 20)

enum state_wire_type {
	/* worker -> ward */
	STATE_RESERVE = 1, /* name, bytes, copy_bytes, kind: a piece and its address */
	STATE_OFFER = 2,   /* piece; fds: the copies */
	STATE_SEAL = 3,	   /* piece */
	STATE_MAP = 4,	   /* name, access */
	STATE_COMMIT = 5,  /* piece, or 0 for all; task */
	STATE_SETTLE = 6,  /* piece, or 0 for all: the copies are whole */
	STATE_UNMAP = 7,   /* piece: not mapped here any more, or not after all */
	STATE_DROP = 8,	   /* name */
	STATE_LIST = 9,	   /* piece: the number to go on from */
	STATE_NEXT = 10,   /* sealed pieces to map in advance, dropped ones to unmap */
	STATE_USAGE = 11,  /* who uses how much, as the answer's text */
	STATE_REFUSED =
		12, /* piece: the driver does not take it; unmapped, and why as the answer's text */
	/* ward -> worker */
	STATE_ANSWER = 32,
};

struct state_header {
	uint32_t magic;
	uint32_t type;	/* enum state_wire_type */
	uint32_t bytes; /* of the whole message */
	uint32_t layout;
};

struct state_request {
	struct state_header header;
	uint64_t number; /* the answer has the same */
	uint64_t piece;
	uint64_t bytes;	     /* as asked for */
	uint64_t copy_bytes; /* of one copy: a multiple of STATE_GRANULE */
	uint64_t task;
	uint32_t kind;	 /* enum gw_state_kind */
	uint32_t access; /* enum gw_state_access */
	char name[GW_NAME_MAX];
};

/* What a worker is to do with a piece that an answer names. */
enum state_wire_act {
	STATE_LOOK = 0,	     /* nothing: it is told of */
	STATE_DO_MAP = 1,    /* descriptors come with it */
	STATE_DO_UNMAP = 2,  /* and confirm it by STATE_UNMAP */
	STATE_DO_REDO = 3,   /* as MAP; the committed copy is to be made again, then STATE_SETTLE */
	STATE_HAVE_IT = 4,   /* it is mapped there already */
	STATE_DO_FORGET = 5, /* it is dropped: unmap it if it is mapped */
};

struct state_entry {
	uint64_t piece;
	uint64_t address;
	uint64_t bytes;
	uint64_t copy_bytes;
	uint64_t epoch;
	uint64_t task;
	int32_t device;
	uint32_t kind;
	uint32_t status;
	int32_t owner_pid;
	uint32_t act; /* enum state_wire_act */
	uint32_t
		n_fds; /* of this piece: 0, 1 (sealed) or 2 (mutable: working copy, committed copy) */
	char name[GW_NAME_MAX];
};

struct state_answer {
	struct state_header header;
	uint64_t number;
	uint64_t next;	       /* STATE_LIST: to go on from; 0: that was all */
	struct gw_error error; /* code 0: done */
	uint32_t count;	       /* of entries; the message ends behind the last */
	uint32_t more;	       /* STATE_NEXT: 1: ask again */
	struct state_entry entries[STATE_BATCH];
};

union state_any {
	struct state_header header;
	struct state_request request;
	struct state_answer answer;
};

/* Bytes of an answer with COUNT entries. */
#define STATE_ANSWER_BYTES(count)                                                                  \
	(offsetof(struct state_answer, entries) + (count) * sizeof(struct state_entry))

/* Bytes of device memory that all copies of a piece take. */
#define STATE_HELD_BYTES(kind, copy_bytes) ((copy_bytes) * ((kind) == GW_STATE_MUTABLE ? 2 : 1))

/* Descriptors of a piece. */
#define STATE_COPIES(kind) ((kind) == GW_STATE_MUTABLE ? 2U : 1U)

void state_wire_header(struct state_header *header, enum state_wire_type type, size_t bytes);

/* Whether NAME ends, is not empty, and is printable ASCII without spaces. */
bool state_wire_name_is_good(const char name[GW_NAME_MAX]);

/*
 * Checks that BYTES bytes at MESSAGE are one whole message that a worker, or the ward, may send, with all
 * numbers in range and all strings ended. Return 0 or GW_EPROTOCOL. Pure: the fuzzer runs them.
 */
int state_wire_check_request(const union state_any *message, size_t bytes);
int state_wire_check_answer(const union state_any *message, size_t bytes);

#endif
