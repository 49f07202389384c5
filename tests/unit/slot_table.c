/* SPDX-License-Identifier: MIT */
/*
 * Description: the table of a worker's life has an answer to everything; no state with a process can be
 * left except by the process's end; every wait is bounded by a timer; and what crossed with something
 * else is ignored.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ward/slot_table.h"

static const enum slot_state with_process[] = {SLOT_STARTING, SLOT_PRIMED,   SLOT_WARMING,
					       SLOT_READY,    SLOT_STOPPING, SLOT_KILLING};
#define WITH_PROCESS (sizeof(with_process) / sizeof(with_process[0]))

static struct slot_step step(enum slot_state state, enum slot_event event)
{
	return slot_table_step(state, event);
}

static void check_cell(enum slot_state from, enum slot_event event)
{
	struct slot_step found = step(from, event);

	assert_true(found.action < SLOT_ACTIONS);
	assert_non_null(slot_action_name(found.action));
	if (found.action == ACTION_IGNORE)
		assert_int_equal(found.next, from);
	if (found.next == SLOT_DECIDED)
		assert_true(found.action == ACTION_START || found.action == ACTION_SETTLE ||
			    found.action == ACTION_REPLACE || found.action == ACTION_FOLLOW);
	else
		assert_true(found.next < SLOT_STATES);
}

static void every_cell_is_in_range(void **state)
{
	(void)state;
	for (enum slot_state from = 0; from < SLOT_STATES; from++) {
		assert_non_null(slot_state_name(from));
		for (enum slot_event event = 0; event < SLOT_EVENTS; event++) {
			assert_non_null(slot_event_name(event));
			check_cell(from, event);
		}
	}
}

static void only_its_end_takes_a_process_out_of_the_slot(void **state)
{
	(void)state;
	for (size_t i = 0; i < WITH_PROCESS; i++) {
		assert_int_equal(step(with_process[i], EVENT_EXITED).action, ACTION_SETTLE);
		for (enum slot_event event = 0; event < SLOT_EVENTS; event++) {
			struct slot_step found = step(with_process[i], event);

			assert_int_not_equal(found.action, ACTION_START);
			if (event == EVENT_EXITED || found.action == ACTION_GIVE_UP ||
			    found.action == ACTION_REPLACE || found.action == ACTION_FOLLOW ||
			    found.action == ACTION_GIVE)
				continue;
			assert_true(found.next >= SLOT_STARTING && found.next <= SLOT_KILLING);
		}
	}
}

/* Each state that waits for something has its timer, and the timers lead to the end of the process. */
static void every_wait_is_bounded(void **state)
{
	(void)state;
	assert_int_equal(step(SLOT_STARTING, EVENT_START_DEADLINE).next, SLOT_KILLING);
	assert_int_equal(step(SLOT_WARMING, EVENT_START_DEADLINE).next, SLOT_KILLING);
	assert_int_equal(step(SLOT_READY, EVENT_TASK_DEADLINE).action, ACTION_REPLACE);
	assert_int_equal(step(SLOT_STOPPING, EVENT_STOP_DEADLINE).next, SLOT_KILLING);
	assert_int_equal(step(SLOT_STOPPING, EVENT_TASK_DEADLINE).next, SLOT_KILLING);
	assert_int_equal(step(SLOT_KILLING, EVENT_KILL_DEADLINE).next, SLOT_FAILED);
	assert_int_equal(step(SLOT_BACKOFF, EVENT_BACKOFF_TIMER).action, ACTION_START);
}

static void a_request_to_stop_ends_every_state(void **state)
{
	(void)state;
	assert_int_equal(step(SLOT_STARTING, EVENT_STOP).next, SLOT_KILLING);
	assert_int_equal(step(SLOT_PRIMED, EVENT_STOP).next, SLOT_KILLING);
	assert_int_equal(step(SLOT_WARMING, EVENT_STOP).next, SLOT_KILLING);
	assert_int_equal(step(SLOT_READY, EVENT_STOP).next, SLOT_STOPPING);
	assert_int_equal(step(SLOT_BACKOFF, EVENT_STOP).next, SLOT_EMPTY);
	for (size_t i = 0; i < WITH_PROCESS; i++) {
		struct slot_step found = step(with_process[i], EVENT_KILL_REQUEST);

		assert_true(found.next == SLOT_KILLING || found.action == ACTION_REPLACE);
	}
}

static void a_faulted_or_lying_process_is_killed(void **state)
{
	const enum slot_state alive[] = {SLOT_STARTING, SLOT_PRIMED, SLOT_WARMING, SLOT_READY,
					 SLOT_STOPPING};

	(void)state;
	for (size_t i = 0; i < sizeof(alive) / sizeof(alive[0]); i++) {
		enum slot_action kill = alive[i] == SLOT_READY ? ACTION_REPLACE : ACTION_KILL;

		assert_int_equal(step(alive[i], EVENT_FAULT).action, kill);
		assert_int_equal(step(alive[i], EVENT_PROTOCOL_ERROR).action, kill);
	}
	assert_int_equal(step(SLOT_READY, EVENT_READY_MSG).action, ACTION_REPLACE);
}

static void what_crossed_is_ignored(void **state)
{
	(void)state;
	for (enum slot_event event = EVENT_READY_MSG; event < SLOT_EVENTS; event++) {
		assert_int_equal(step(SLOT_EMPTY, event).action, ACTION_IGNORE);
		if (event != EVENT_EXITED)
			assert_int_equal(step(SLOT_FAILED, event).action, ACTION_IGNORE);
	}
	assert_int_equal(step(SLOT_BACKOFF, EVENT_KILL_REQUEST).action, ACTION_IGNORE);
	assert_int_equal(step(SLOT_KILLING, EVENT_FAULT).action, ACTION_IGNORE);
}

/* In every state in which a standby can be, and in no other. */
static void only_a_living_standby_is_adopted(void **state)
{
	(void)state;
	for (enum slot_state from = 0; from < SLOT_STATES; from++) {
		struct slot_step found = step(from, EVENT_ADOPTED);

		if (from >= SLOT_STARTING && from <= SLOT_READY)
			assert_int_equal(found.next, SLOT_EMPTY);
		else
			assert_int_equal(found.action, ACTION_IGNORE);
	}
}

/* A turn is taken once, and given back by one that found no room. */
static void a_turn_is_for_one_that_waits(void **state)
{
	(void)state;
	for (enum slot_state from = 0; from < SLOT_STATES; from++) {
		if (from != SLOT_PRIMED)
			assert_int_equal(step(from, EVENT_TURN).action, ACTION_IGNORE);
	}
	assert_int_equal(step(SLOT_PRIMED, EVENT_TURN).next, SLOT_WARMING);
	assert_int_equal(step(SLOT_WARMING, EVENT_NO_ROOM_MSG).next, SLOT_PRIMED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cell_is_in_range),
		cmocka_unit_test(only_its_end_takes_a_process_out_of_the_slot),
		cmocka_unit_test(every_wait_is_bounded),
		cmocka_unit_test(a_request_to_stop_ends_every_state),
		cmocka_unit_test(a_faulted_or_lying_process_is_killed),
		cmocka_unit_test(what_crossed_is_ignored),
		cmocka_unit_test(only_a_living_standby_is_adopted),
		cmocka_unit_test(a_turn_is_for_one_that_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
