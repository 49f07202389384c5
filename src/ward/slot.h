/* SPDX-License-Identifier: MIT */
/*
 * A slot: the place of one worker in its pool, and the process that is in it.
 *
 * Runs in: ward. Everything that happens goes through slot_happens(), which asks the table and carries
 * out the one action that it names. A process and what belongs to it (channel, event descriptor,
 * socket) are one incarnation; nothing of it is used again for the next. Read next: slot_table.h, slot.c.
 */
#ifndef GPUWARD_WARD_SLOT_H
#define GPUWARD_WARD_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/channel.h"
#include "common/wire.h"
#include "linux/loop.h"
#include "linux/spawn.h"
#include "ward/leaving.h"
#include "ward/report.h"
#include "ward/slot_table.h"
#include "ward/tally.h"

/* A worker that closed its socket, or said that it cannot start, is to be gone after this. */
#define SLOT_GRACE_NS 1000000000ULL

/* SIGKILL ends a process in milliseconds, unless it is stuck in the kernel. */
#define SLOT_KILL_DEADLINE_NS 10000000000ULL

struct ward;

/* What waits to be sent to the host: one of each kind at the most, and in this order. */
struct slot_outbox {
	bool has_left;	    /* of the process before this one */
	struct wire_up *up; /* NULL: none */
	bool has_gone;
	bool has_failed;
	struct wire_gone left;
	struct wire_gone gone;
	struct wire_failed failed;
};

/* What the deadline knows of the entry that the worker is at. */
struct slot_watch {
	bool running;	    /* an entry was in flight at the last look */
	uint32_t head;	    /* its number */
	uint64_t since_ns;  /* when it began, as far as can be told */
	uint64_t looked_ns; /* the last look */
};

struct slot {
	struct ward *ward;
	uint32_t number;
	int32_t device; /* the pool's number, or -1 */
	enum slot_state state;

	/* This incarnation. */
	uint32_t incarnation;
	struct spawned spawned;
	int socket;
	int state_socket; /* surviving memory */
	int channel_fd;
	int event_fd;
	const struct channel *channel; /* its header alone */
	bool beside;		       /* it was started beside the end of the one before */
	uint64_t ready_ns;	       /* 0: never */
	uint64_t noticed_ns;	       /* the first sign of its end; 0: none */
	struct cause cause;
	struct wire_up *announced;   /* from a WIRE_READY that is being handled */
	struct gw_error start_error; /* why it is not ready; code 0: not known */
	struct slot_watch watch;

	/* The one before, if it is not gone yet. */
	struct leaving leaving;

	/* All incarnations. */
	uint32_t n_started;
	struct tally tally;
	struct slot_outbox outbox;
	uint64_t next_start_ns;
	struct loop_source socket_source;
	struct loop_source exit_source;
	struct loop_timer timer; /* of the state that the slot is in */
};

void slot_init(struct slot *slot, struct ward *ward, uint32_t number);
void slot_done(struct slot *slot);

/* EVENT happens to the slot. WHY is the cause of an end that the event brings, or NULL. */
void slot_happens(struct slot *slot, enum slot_event event, const struct cause *why);

/* The host has been told of the incarnation's end, or there is no host any more. */
void slot_gone_was_sent(struct slot *slot);

/* start.c: makes the next incarnation. Returns 0 or a negative code. */
int slot_start_process(struct slot *slot, struct gw_error *ret_error);

/* start.c: lets go of what belongs to the incarnation; what the host has not been told of yet stays. */
void slot_end_process(struct slot *slot);

#endif
