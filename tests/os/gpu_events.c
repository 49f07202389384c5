/* SPDX-License-Identifier: MIT */
/*
 * Description: NVML's events in a loop that never waits: a driver that is missing, hangs, or whose probe dies
 * or stops is said once, others have their turns all the while, and it is tried again after pauses that
 * grow; an event is handed on in each of these cases; no process is left.
 *
 * NVML is a fake that the environment steers; the probe finds it through LD_LIBRARY_PATH.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "ward/gpu_events.h"

#define MS 1000000ULL

static char folder[64];
static char library[128];
static struct loop loop;
static struct loop_timer guard;
static struct loop_timer bystander;
static unsigned int turns; /* of the bystander */
static struct gpu_events events;
static struct gpu_event last;
static unsigned int count, changes;
static struct gw_error state_now;
/* What ends the loop. */
static unsigned int wanted_events, wanted_changes;

static void check_end(void)
{
	if (count >= wanted_events && changes >= wanted_changes)
		loop_end(&loop);
}

static void heard(struct gpu_events *source, const struct gpu_event *event)
{
	assert_ptr_equal(source, &events);
	last = *event;
	count++;
	check_end();
}

static void changed(struct gpu_events *source, const struct gw_error *error)
{
	assert_ptr_equal(source, &events);
	state_now = *error;
	changes++;
	check_end();
}

static void too_late(struct loop_timer *timer)
{
	(void)timer;
	loop_end(&loop);
}

static void take_turn(struct loop_timer *timer)
{
	turns++;
	loop_set_timer(timer, now_ns() + 5 * MS);
}

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/gpuward-events-XXXXXX");
	if (!mkdtemp(folder) || loop_init(&loop) < 0)
		return -1;
	(void)snprintf(library, sizeof(library), "%s/libnvidia-ml.so.1", folder);
	guard = (struct loop_timer){.due = too_late};
	bystander = (struct loop_timer){.due = take_turn};
	loop_add_timer(&loop, &guard);
	loop_add_timer(&loop, &bystander);
	loop_set_timer(&bystander, now_ns());
	memset(&events, 0, sizeof(events));
	memset(&state_now, 0, sizeof(state_now));
	events.event = heard;
	events.changed = changed;
	events.pause_min_ns = 10 * MS;
	events.pause_max_ns = 80 * MS;
	count = changes = turns = 0;
	return setenv("LD_LIBRARY_PATH", folder, 1);
}

/* Whatever the test did, no child may be left. */
static int tear_down(void **state)
{
	(void)state;
	gpu_events_close(&events);
	gpu_events_close(&events);
	loop_done(&loop);
	(void)unlink(library);
	unsetenv("FAKE_NVML_INIT");
	unsetenv("FAKE_NVML_XID");
	unsetenv("FAKE_NVML_PROCESSES");
	if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
		printf("a child is left\n");
		return -1;
	}
	return rmdir(folder);
}

static void install(const char *variable)
{
	const char *target = getenv(variable);

	assert_non_null(target);
	assert_int_equal(symlink(target, library), 0);
}

static void open_events(void)
{
	struct gw_error error = {0};

	if (gpu_events_open(&events, &loop, &error) < 0)
		fail_msg("%s", error.msg);
}

/* Runs the loop until there were so many of each in all. */
static void await(unsigned int n_events, unsigned int n_changes)
{
	wanted_events = n_events;
	wanted_changes = n_changes;
	loop.ended = false;
	check_end();
	loop_set_timer(&guard, now_ns() + 10000 * MS);
	assert_int_equal(loop_run(&loop), 0);
	loop_set_timer(&guard, GW_FOREVER);
	assert_int_equal(count, n_events);
	assert_int_equal(changes, n_changes);
}

static void run_for(uint64_t time_ns)
{
	wanted_events = wanted_changes = UINT32_MAX;
	loop.ended = false;
	loop_set_timer(&guard, now_ns() + time_ns);
	assert_int_equal(loop_run(&loop), 0);
	loop_set_timer(&guard, GW_FOREVER);
}

static void says(int code, const char *words)
{
	assert_int_equal(state_now.code, code);
	if (!strstr(state_now.msg, words))
		fail_msg("'%s' is not in '%s'", words, state_now.msg);
}

/* Device 1 of the fake does not say who uses it. */
static void an_event_comes_without_a_list_that_nvml_keeps(void **state)
{
	uint64_t before = now_ns();

	(void)state;
	assert_int_equal(setenv("FAKE_NVML_XID", "43", 1), 0);
	install("FAKE_NVML");
	open_events();
	await(1, 1);
	says(0, "");
	assert_int_equal(last.xid, 43);
	assert_true(last.ends_process);
	assert_null(last.processes);
	assert_null(last.memory);
	assert_string_equal(last.pci, "00000000:00:07.0");
	assert_true(last.at_ns >= before && last.at_ns <= now_ns());
}

static void a_driver_that_comes_later_is_heard(void **state)
{
	(void)state;
	open_events();
	await(0, 1);
	if (state_now.code == 0) {
		printf("this machine has a driver\n");
		skip();
	}
	says(GW_EDRIVER, "is not on this machine");
	install("FAKE_NVML");
	await(0, 2);
	says(0, "");
}

static void an_old_driver_is_said(void **state)
{
	(void)state;
	install("FAKE_NVML_OLD");
	open_events();
	await(0, 1);
	says(GW_EDRIVER, "too old");
}

static void a_driver_that_hangs_holds_nobody_up(void **state)
{
	(void)state;
	assert_int_equal(setenv("FAKE_NVML_INIT", "hang", 1), 0);
	install("FAKE_NVML");
	events.start_ns = 50 * MS;
	open_events();
	await(0, 1);
	says(GW_EDRIVER, "driver does not answer (0.050 s)");
	assert_true(turns >= 2);
	/* It goes on so: said once, with pauses that grow to their bound. */
	while (events.pause_ns < events.pause_max_ns)
		run_for(20 * MS);
	run_for(100 * MS);
	assert_int_equal(changes, 1);
	assert_int_equal(events.pause_ns, events.pause_max_ns);
	/* Then it comes back. */
	assert_int_equal(unsetenv("FAKE_NVML_INIT"), 0);
	await(0, 2);
	says(0, "");
}

static void a_probe_that_dies_is_replaced(void **state)
{
	(void)state;
	install("FAKE_NVML");
	open_events();
	await(0, 1);
	says(0, "");
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(kill(events.probe.child.process.pid, SIGKILL), 0);
		await(0, 2 + 2 * i);
		says(GW_EDRIVER, "killed by signal 9");
		await(0, 3 + 2 * i);
		says(0, "");
	}
}

/* The list of processes is what the driver hangs at. */
static void a_question_that_hangs_costs_its_deadline(void **state)
{
	(void)state;
	assert_int_equal(setenv("FAKE_NVML_XID", "31", 1), 0);
	assert_int_equal(setenv("FAKE_NVML_PROCESSES", "hang", 1), 0);
	install("FAKE_NVML");
	events.deadline_ns = 50 * MS;
	open_events();
	/* The next probe finds the driver well, and no event. */
	assert_int_equal(unsetenv("FAKE_NVML_XID"), 0);
	assert_int_equal(unsetenv("FAKE_NVML_PROCESSES"), 0);
	await(1, 2);
	assert_int_equal(last.xid, 31);
	assert_null(last.processes);
	says(GW_EDRIVER, "driver does not answer (0.050 s)");
	await(1, 3);
	says(0, "");
}

static void another_program_is_no_probe(void **state)
{
	(void)state;
	events.program = "/bin/true";
	open_events();
	await(0, 1);
	says(GW_EDRIVER, "exited with code 0");
}

static void a_missing_program_is_said_at_once(void **state)
{
	struct gw_error error = {0};

	(void)state;
	events.program = "/nowhere/gpuward-probe";
	assert_int_equal(gpu_events_open(&events, &loop, &error), -ENOENT);
	assert_non_null(strstr(error.msg, "cannot start /nowhere/gpuward-probe"));
	run_for(30 * MS);
	assert_int_equal(changes, 0);
}

static void stop_at_event(struct gpu_events *source, const struct gpu_event *event)
{
	(void)event;
	count++;
	gpu_events_stop(source);
	loop_end(&loop);
}

static void nothing_comes_after_a_stop(void **state)
{
	(void)state;
	assert_int_equal(setenv("FAKE_NVML_XID", "43", 1), 0);
	install("FAKE_NVML");
	events.event = stop_at_event;
	open_events();
	await(1, 1);
	/* The loop reaps the probe. */
	while (events.probe.child.process.pidfd >= 0)
		run_for(5 * MS);
	assert_int_equal(count, 1);
	assert_int_equal(changes, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_event_comes_without_a_list_that_nvml_keeps),
		CASE(a_driver_that_comes_later_is_heard),
		CASE(an_old_driver_is_said),
		CASE(a_driver_that_hangs_holds_nobody_up),
		CASE(a_probe_that_dies_is_replaced),
		CASE(a_question_that_hangs_costs_its_deadline),
		CASE(another_program_is_no_probe),
		CASE(a_missing_program_is_said_at_once),
		CASE(nothing_comes_after_a_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
