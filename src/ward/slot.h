/* SPDX-License-Identifier: MIT */
/*
 * A slot: the place of one worker in its pool, or of one standby, and the process that is in it.
 *
 * Runs in: ward. Everything that happens goes through slot_happens(), which asks the table and carries
 * out the one action that it names. A standby's slot lives by the same table; the host never hears of it.
 * Read next: slot_table.h, slot.c.
 */
#ifndef GPUWARD_WARD_SLOT_H
#define GPUWARD_WARD_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/wire.h"
#include "linux/loop.h"
#include "ward/process.h"
#include "ward/slot_table.h"
#include "ward/tally.h"

/* A worker that closed its socket, or said that it cannot start, is to be gone after this. */
#define SLOT_GRACE_NS 1000000000ULL

/* SIGKILL ends a process in milliseconds, unless it is stuck in the kernel; pinned memory takes 150 ms for each
 * GiB to be let go, and twice that is allowed for. */
#define SLOT_KILL_DEADLINE_NS	    10000000000ULL
#define SLOT_KILL_PINNED_NS_PER_GIB 300000000ULL

/* Processes of one slot that were killed and are not gone. Where so many do not end, the driver hangs, and
 * another one would hang too. */
#define SLOT_LEAVING_MAX 4U

/* What waits to be sent to the host: one of each kind at the most, and in this order. */
struct slot_outbox {
	bool has_up; /* slot->process->up */
	bool has_gone;
	bool has_failed;
	struct wire_gone gone;
	struct wire_failed failed;
};

struct slot {
	struct ward *ward;
	uint32_t number; /* among the workers, or among the standbys */
	int32_t device;	 /* the pool's number, or -1 */
	bool is_standby;
	enum slot_state state;
	struct process *process; /* NULL: none */
	uint32_t n_leaving;	 /* processes that were here and are not gone */

	/* All incarnations. */
	uint32_t n_started;
	struct tally tally;
	struct gw_error failure; /* why the last start failed */
	bool no_room;	   /* the context did not fit into the device: it waits for a change */
	uint64_t recovery; /* the number of the one that is under way here, or GW_UNKNOWN */
	struct slot_outbox outbox;
	uint64_t next_start_ns;
	struct loop_timer timer; /* of the state that the slot is in */
};

void slot_init(struct slot *slot, struct ward *ward, uint32_t number, bool is_standby);
void slot_done(struct slot *slot);

/* EVENT happens to the slot. WHY is the cause of an end that the event brings, or NULL. */
void slot_happens(struct slot *slot, enum slot_event event, const struct cause *why);

/* The host has been told of the incarnation's end, or there is no host any more. */
void slot_gone_was_sent(struct slot *slot);

/* A process that was in the slot is gone. */
void slot_left(struct slot *slot);

/* One that was in the slot does not end after SIGKILL. */
void slot_is_stuck(struct slot *slot);

/* When a process of the pool that is killed now should be gone. */
uint64_t slot_kill_deadline(const struct ward *ward);

/* Whether the slot has a process that may still become ready. */
bool slot_is_starting(const struct slot *slot);

#endif
