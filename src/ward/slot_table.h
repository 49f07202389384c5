/* SPDX-License-Identifier: MIT */
/*
 * A worker's life as a table: what the ward does when something happens to a slot, and which state
 * the slot is in afterwards.
 *
 * Runs in: ward; pure data, so that tests go through all of it without a process. A slot is the place
 * of one worker in its pool, or of one standby; processes come and go in it, one at a time. A process that
 * is ending leaves the slot to its successor (leaving.h), and a standby's process moves to the slot of the
 * worker that it replaces, in whatever state it is (standby.h). "Started" and "ready" are different
 * states: a process counts only once it has said what it can do.
 *
 * Invariant: every pair of state and event has an answer. Read next: slot.c, which carries it out.
 */
#ifndef GPUWARD_WARD_SLOT_TABLE_H
#define GPUWARD_WARD_SLOT_TABLE_H

enum slot_state {
	SLOT_EMPTY,    /* no process, none wanted: before the first start, and after the end */
	SLOT_STARTING, /* a process runs and has said nothing yet */
	SLOT_PRIMED,   /* its driver is initialised; it waits for its turn to make a context */
	SLOT_WARMING,  /* it makes its context and prepares its functions */
	SLOT_READY,
	SLOT_STOPPING, /* it is to end by itself, soon */
	SLOT_KILLING,  /* it was sent SIGKILL and is not gone yet */
	SLOT_BACKOFF,  /* the last process is gone, the next one comes after a pause */
	SLOT_FAILED,   /* given up */
	SLOT_STATES,
	SLOT_DECIDED, /* only in the table: the action decides, among the states that it names */
};

enum slot_event {
	EVENT_START,
	EVENT_PRIMED_MSG,
	EVENT_TURN, /* no other process of the device makes a context now */
	EVENT_NO_ROOM_MSG,
	EVENT_READY_MSG,
	EVENT_FAULT, /* a source of detection says that it is poisoned, or does not answer */
	EVENT_START_FAILED_MSG,
	EVENT_START_DEADLINE,
	EVENT_TASK_DEADLINE,
	EVENT_EXITED, /* the pidfd says so */
	EVENT_STOP,
	EVENT_KILL_REQUEST,
	EVENT_STOP_DEADLINE,
	EVENT_KILL_DEADLINE, /* SIGKILL was sent long ago, and the process is still there */
	EVENT_BACKOFF_TIMER,
	EVENT_SOCKET_EOF,
	EVENT_PROTOCOL_ERROR,
	EVENT_ADOPTED, /* a worker's slot takes the standby's process */
	SLOT_EVENTS,
};

enum slot_action {
	ACTION_IGNORE,
	ACTION_START, /* take a standby as it is, or start a process; where that fails BACKOFF or FAILED */
	ACTION_QUEUE,	 /* it can make a context: its turn comes */
	ACTION_WARM,	 /* tell it to make its context */
	ACTION_ANNOUNCE, /* tell the host that the worker is ready */
	ACTION_ASK,	 /* ask it to stop, and give it the stop deadline */
	ACTION_GRACE,	 /* it should be ending by itself: give it a moment */
	ACTION_KILL,	 /* note why, and SIGKILL */
	ACTION_REPLACE, /* fence and kill it, and go on with the next process at once if that is allowed */
	ACTION_FOLLOW,	/* as REPLACE if it is ending by itself, else as GRACE */
	ACTION_GIVE,	/* it has gone to another slot */
	ACTION_SETTLE,	/* reap, report, go on; EMPTY where the ward is closing */
	ACTION_GIVE_UP, /* report a process that SIGKILL does not end */
	ACTION_BURY,	/* reap and report what was given up */
	ACTION_REST,	/* nothing to do any more */
	SLOT_ACTIONS,
};

struct slot_step {
	enum slot_action action;
	enum slot_state next;
};

/* What to do. STATE and EVENT are in range. */
struct slot_step slot_table_step(enum slot_state state, enum slot_event event);

const char *slot_state_name(enum slot_state state);
const char *slot_event_name(enum slot_event event);
const char *slot_action_name(enum slot_action action);

/* Writes the table as text for ARCHITECTURE.md to FD. */
void slot_table_print(int fd);

#endif
