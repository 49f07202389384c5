/* SPDX-License-Identifier: MIT */
#include "ward/slot_table.h"

#include <stdio.h>

#define STEP(action, next)                                                                         \
	{                                                                                          \
		ACTION_##action, SLOT_##next                                                       \
	}

/* What is not listed is ignored: a message or a timer that crossed with something else. */
/* clang-format off */
static const struct slot_step table[SLOT_STATES][SLOT_EVENTS] = {
	[SLOT_EMPTY] = {
		[EVENT_START]            = STEP(START,    DECIDED),
	},
	[SLOT_STARTING] = {
		[EVENT_PRIMED_MSG]       = STEP(QUEUE,    PRIMED),
		[EVENT_READY_MSG]        = STEP(ANNOUNCE, READY),
		[EVENT_FAULT]            = STEP(KILL,     KILLING),
		[EVENT_START_FAILED_MSG] = STEP(GRACE,    STOPPING),
		[EVENT_START_DEADLINE]   = STEP(KILL,     KILLING),
		[EVENT_EXITED]           = STEP(SETTLE,   DECIDED),
		[EVENT_STOP]             = STEP(KILL,     KILLING),
		[EVENT_KILL_REQUEST]     = STEP(KILL,     KILLING),
		[EVENT_SOCKET_EOF]       = STEP(GRACE,    STOPPING),
		[EVENT_PROTOCOL_ERROR]   = STEP(KILL,     KILLING),
		[EVENT_ADOPTED]          = STEP(GIVE,     EMPTY),
	},
	[SLOT_PRIMED] = {
		[EVENT_TURN]             = STEP(WARM,     WARMING),
		[EVENT_FAULT]            = STEP(KILL,     KILLING),
		[EVENT_START_FAILED_MSG] = STEP(GRACE,    STOPPING),
		[EVENT_EXITED]           = STEP(SETTLE,   DECIDED),
		[EVENT_STOP]             = STEP(KILL,     KILLING),
		[EVENT_KILL_REQUEST]     = STEP(KILL,     KILLING),
		[EVENT_SOCKET_EOF]       = STEP(GRACE,    STOPPING),
		[EVENT_PROTOCOL_ERROR]   = STEP(KILL,     KILLING),
		[EVENT_ADOPTED]          = STEP(GIVE,     EMPTY),
	},
	[SLOT_WARMING] = {
		[EVENT_NO_ROOM_MSG]      = STEP(QUEUE,    PRIMED),
		[EVENT_READY_MSG]        = STEP(ANNOUNCE, READY),
		[EVENT_FAULT]            = STEP(KILL,     KILLING),
		[EVENT_START_FAILED_MSG] = STEP(GRACE,    STOPPING),
		[EVENT_START_DEADLINE]   = STEP(KILL,     KILLING),
		[EVENT_EXITED]           = STEP(SETTLE,   DECIDED),
		[EVENT_STOP]             = STEP(KILL,     KILLING),
		[EVENT_KILL_REQUEST]     = STEP(KILL,     KILLING),
		[EVENT_SOCKET_EOF]       = STEP(GRACE,    STOPPING),
		[EVENT_PROTOCOL_ERROR]   = STEP(KILL,     KILLING),
		[EVENT_ADOPTED]          = STEP(GIVE,     EMPTY),
	},
	[SLOT_READY] = {
		[EVENT_READY_MSG]        = STEP(REPLACE,  DECIDED),
		[EVENT_FAULT]            = STEP(REPLACE,  DECIDED),
		[EVENT_START_FAILED_MSG] = STEP(REPLACE,  DECIDED),
		[EVENT_TASK_DEADLINE]    = STEP(REPLACE,  DECIDED),
		[EVENT_EXITED]           = STEP(SETTLE,   DECIDED),
		[EVENT_STOP]             = STEP(ASK,      STOPPING),
		[EVENT_KILL_REQUEST]     = STEP(REPLACE,  DECIDED),
		[EVENT_SOCKET_EOF]       = STEP(FOLLOW,   DECIDED),
		[EVENT_PROTOCOL_ERROR]   = STEP(REPLACE,  DECIDED),
		[EVENT_ADOPTED]          = STEP(GIVE,     EMPTY),
	},
	[SLOT_STOPPING] = {
		[EVENT_FAULT]            = STEP(KILL,     KILLING),
		[EVENT_TASK_DEADLINE]    = STEP(KILL,     KILLING),
		[EVENT_EXITED]           = STEP(SETTLE,   DECIDED),
		[EVENT_KILL_REQUEST]     = STEP(KILL,     KILLING),
		[EVENT_STOP_DEADLINE]    = STEP(KILL,     KILLING),
		[EVENT_PROTOCOL_ERROR]   = STEP(KILL,     KILLING),
	},
	[SLOT_KILLING] = {
		[EVENT_EXITED]           = STEP(SETTLE,   DECIDED),
		[EVENT_KILL_DEADLINE]    = STEP(GIVE_UP,  FAILED),
	},
	[SLOT_BACKOFF] = {
		[EVENT_STOP]             = STEP(REST,     EMPTY),
		[EVENT_KILL_DEADLINE]    = STEP(GIVE_UP,  FAILED),
		[EVENT_BACKOFF_TIMER]    = STEP(START,    DECIDED),
	},
	[SLOT_FAILED] = {
		[EVENT_EXITED]           = STEP(BURY,     FAILED),
	},
};
/* clang-format on */

static const char *const state_names[] = {
	[SLOT_EMPTY] = "EMPTY",	    [SLOT_STARTING] = "STARTING", [SLOT_PRIMED] = "PRIMED",
	[SLOT_WARMING] = "WARMING", [SLOT_READY] = "READY",	  [SLOT_STOPPING] = "STOPPING",
	[SLOT_KILLING] = "KILLING", [SLOT_BACKOFF] = "BACKOFF",	  [SLOT_FAILED] = "FAILED",
};

static const char *const event_names[] = {
	[EVENT_START] = "START",
	[EVENT_PRIMED_MSG] = "PRIMED_MSG",
	[EVENT_TURN] = "TURN",
	[EVENT_NO_ROOM_MSG] = "NO_ROOM_MSG",
	[EVENT_READY_MSG] = "READY_MSG",
	[EVENT_FAULT] = "FAULT",
	[EVENT_START_FAILED_MSG] = "START_FAILED_MSG",
	[EVENT_START_DEADLINE] = "START_DEADLINE",
	[EVENT_TASK_DEADLINE] = "TASK_DEADLINE",
	[EVENT_EXITED] = "EXITED",
	[EVENT_STOP] = "STOP",
	[EVENT_KILL_REQUEST] = "KILL_REQUEST",
	[EVENT_STOP_DEADLINE] = "STOP_DEADLINE",
	[EVENT_KILL_DEADLINE] = "KILL_DEADLINE",
	[EVENT_BACKOFF_TIMER] = "BACKOFF_TIMER",
	[EVENT_SOCKET_EOF] = "SOCKET_EOF",
	[EVENT_PROTOCOL_ERROR] = "PROTOCOL_ERROR",
	[EVENT_ADOPTED] = "ADOPTED",
};

static const char *const action_names[] = {
	[ACTION_IGNORE] = "ignore",   [ACTION_START] = "start",	      [ACTION_QUEUE] = "queue",
	[ACTION_WARM] = "warm",	      [ACTION_ANNOUNCE] = "announce", [ACTION_ASK] = "ask",
	[ACTION_GRACE] = "grace",     [ACTION_KILL] = "kill",	      [ACTION_REPLACE] = "replace",
	[ACTION_FOLLOW] = "follow",   [ACTION_GIVE] = "give",	      [ACTION_SETTLE] = "settle",
	[ACTION_GIVE_UP] = "give up", [ACTION_BURY] = "bury",	      [ACTION_REST] = "rest",
};

struct slot_step slot_table_step(enum slot_state state, enum slot_event event)
{
	struct slot_step step = table[state][event];

	if (step.action == ACTION_IGNORE)
		step.next = state;
	return step;
}

const char *slot_state_name(enum slot_state state)
{
	return state_names[state];
}

const char *slot_event_name(enum slot_event event)
{
	return event_names[event];
}

const char *slot_action_name(enum slot_action action)
{
	return action_names[action];
}

/* The states that an action chooses from. */
static const char *choices(enum slot_action action)
{
	switch (action) {
	case ACTION_START:
	case ACTION_REPLACE:
		return "START";
	case ACTION_FOLLOW:
		return "STOPPING or START";
	case ACTION_SETTLE:
		return "EMPTY or START";
	case ACTION_IGNORE:
	case ACTION_QUEUE:
	case ACTION_WARM:
	case ACTION_ANNOUNCE:
	case ACTION_ASK:
	case ACTION_GRACE:
	case ACTION_KILL:
	case ACTION_GIVE:
	case ACTION_GIVE_UP:
	case ACTION_BURY:
	case ACTION_REST:
	case SLOT_ACTIONS:
		break;
	}
	return "?";
}

void slot_table_print(int fd)
{
	(void)dprintf(fd, "%-10s %-17s %-9s %s\n", "state", "event", "action", "next state");
	for (int state = 0; state < SLOT_STATES; state++) {
		for (int event = 0; event < SLOT_EVENTS; event++) {
			struct slot_step step = table[state][event];
			const char *next;

			if (step.action == ACTION_IGNORE)
				continue;
			next = step.next == SLOT_DECIDED ? choices(step.action)
							 : state_names[step.next];
			(void)dprintf(fd, "%-10s %-17s %-9s %s\n", state_names[state],
				      event_names[event], action_names[step.action], next);
		}
	}
	(void)dprintf(fd, "\nSTART: STARTING; PRIMED, WARMING or READY with a standby's process; "
			  "BACKOFF; FAILED\n");
}
