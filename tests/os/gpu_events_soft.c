/* SPDX-License-Identifier: MIT */
/*
 * Description: faults on the emulated GPU as NVML's events, with who was on the GPU: one worker is named, two
 * are not, a stranger beside it makes doubt, a hidden one shows by its memory; a storm of events starves
 * nobody, and what is dropped is counted.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "gpu/nvml_abi.h"
#include "softgpu.h"
#include "softgpu_calls.h"
#include "ward/attribution.h"
#include "ward/gpu_events.h"

#define MS 1000000ULL

static struct loop loop;
static struct loop_timer guard;
static struct gpu_events events;
static unsigned int count;
static int32_t last_xid, awaited_xid;
static struct probe_processes processes;
static struct probe_memory memory;
static bool has_processes, has_memory, works;
static uint64_t at_ns;

static void heard(struct gpu_events *source, const struct gpu_event *event)
{
	(void)source;
	count++;
	last_xid = event->xid;
	at_ns = event->at_ns;
	has_processes = event->processes != NULL;
	has_memory = event->memory != NULL;
	if (has_processes)
		processes = *event->processes;
	if (has_memory)
		memory = *event->memory;
	if (event->xid == awaited_xid)
		loop_end(&loop);
}

static void changed(struct gpu_events *source, const struct gw_error *error)
{
	(void)source;
	works = error->code == 0;
	loop_end(&loop);
}

static void too_late(struct loop_timer *timer)
{
	(void)timer;
	loop_end(&loop);
}

static void run_for(uint64_t time_ns)
{
	loop.ended = false;
	loop_set_timer(&guard, now_ns() + time_ns);
	assert_int_equal(loop_run(&loop), 0);
	loop_set_timer(&guard, GW_FOREVER);
}

static int set_up(void **state)
{
	(void)state;
	soft_dir_new(NULL);
	memset(&events, 0, sizeof(events));
	events.event = heard;
	events.changed = changed;
	count = 0;
	works = false;
	awaited_xid = -1;
	guard = (struct loop_timer){.due = too_late};
	if (loop_init(&loop) < 0)
		return -1;
	loop_add_timer(&loop, &guard);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	gpu_events_close(&events);
	loop_done(&loop);
	soft_dir_free();
	return 0;
}

static void open_events(void)
{
	struct gw_error error = {0};

	if (gpu_events_open(&events, &loop, &error) < 0)
		fail_msg("%s", error.msg);
	run_for(10000 * MS);
	assert_true(works);
}

/* A process with a context, which may trap when it is told to, and stays until it is told to end. */
struct gpu_process {
	pid_t pid;
	bool traps;
	struct signal_pipe up, go, end;
};

static int use_gpu(void *argument)
{
	struct gpu_process *process = argument;
	struct cuda_function *trap;

	child_context(0);
	trap = child_kernel("fault_trap");
	pipe_send(&process->up);
	if (process->traps && pipe_wait(&process->go)) {
		OK(child_launch(trap, NULL));
		NEED(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	}
	(void)pipe_wait(&process->end);
	return 0;
}

static void start(struct gpu_process *process, bool traps)
{
	process->traps = traps;
	pipe_open(&process->up);
	pipe_open(&process->go);
	pipe_open(&process->end);
	process->pid = child_start(use_gpu, process);
	assert_int_equal(pipe_wait(&process->up), 1);
}

static void end(struct gpu_process *process)
{
	pipe_send(&process->end);
	assert_int_equal(child_end(process->pid), 0);
	pipe_close(&process->up);
	pipe_close(&process->go);
	pipe_close(&process->end);
}

static void trap(const struct gpu_process *process)
{
	awaited_xid = 43;
	pipe_send(&process->go);
	run_for(10000 * MS);
	assert_int_equal(count, 1);
	assert_int_equal(last_xid, 43);
	assert_true(has_processes);
}

static int blame(const struct attribution_process *ours, size_t n, bool sees_all)
{
	const struct attribution_view view = {
		.processes = &processes,
		.memory = has_memory ? &memory : NULL,
		.sees_all = sees_all,
	};

	return attribution_find(ours, n, &view, at_ns);
}

static void a_fault_is_given_to_the_one_worker(void **state)
{
	struct gpu_process standby;
	struct gpu_process worker;
	struct attribution_process ours[2];

	(void)state;
	start(&standby, false);
	start(&worker, true);
	open_events();
	trap(&worker);
	assert_false(has_memory);
	ours[0] = (struct attribution_process){standby.pid, GW_FOREVER, GW_FOREVER};
	ours[1] = (struct attribution_process){worker.pid, 1, GW_FOREVER};
	assert_int_equal(blame(ours, 2, true), 1);
	ours[0].work_from_ns = 1;
	assert_int_equal(blame(ours, 2, true), ATTRIBUTION_SEVERAL);
	/* As if the standby were a stranger. */
	assert_int_equal(blame(ours + 1, 1, true), ATTRIBUTION_FOREIGN);
	end(&worker);
	end(&standby);
}

static void a_hidden_process_shows_by_its_memory(void **state)
{
	struct gpu_process hidden;
	struct gpu_process worker;
	struct attribution_process ours;
	uint32_t kept = 0;

	(void)state;
	start(&worker, true);
	start(&hidden, false);
	events.needs_memory = true;
	open_events();
	trap(&worker);
	assert_true(has_memory);
	ours = (struct attribution_process){worker.pid, 1, GW_FOREVER};
	/* As in a pid namespace: NVML's list lacks it. */
	for (uint32_t i = 0; i < processes.count; i++) {
		if (processes.list[i].pid == (uint32_t)worker.pid)
			processes.list[kept++] = processes.list[i];
	}
	assert_int_equal(kept, 1);
	processes.count = processes.total = kept;
	assert_int_equal(blame(&ours, 1, false), ATTRIBUTION_FOREIGN);
	assert_int_equal(blame(&ours, 1, true), 0);
	end(&hidden);
	end(&worker);
}

static void one_worker_is_named_in_a_namespace_too(void **state)
{
	struct gpu_process worker;
	struct attribution_process ours;

	(void)state;
	start(&worker, true);
	events.needs_memory = true;
	open_events();
	trap(&worker);
	ours = (struct attribution_process){worker.pid, 1, GW_FOREVER};
	assert_int_equal(blame(&ours, 1, false), 0);
	end(&worker);
}

/* One record of the machine's file of events. */
static void announce(int fd, uint64_t xid)
{
	const struct {
		uint64_t type, data;
		uint32_t device, reserved;
		uint64_t time_ns;
	} record = {.type = NVML_EVENT_XID, .data = xid};

	assert_int_equal(write(fd, &record, sizeof(record)), sizeof(record));
}

#define STORM	 5000U
#define LAST_XID 7777

static unsigned int turns, before, most_between_turns;

/* Wants a turn all the time, and sees how many events are handed on between two of them. */
static void take_turn(struct loop_timer *timer)
{
	if (count - before > most_between_turns)
		most_between_turns = count - before;
	before = count;
	turns++;
	loop_set_timer(timer, now_ns());
}

static void a_storm_is_counted_and_starves_nobody(void **state)
{
	struct loop_timer bystander = {.due = take_turn};
	char path[256];
	unsigned int sent = STORM;
	unsigned int rounds = 0;
	int fd;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/events", soft_dir());
	open_events();
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_true(fd >= 0);
	for (unsigned int i = 0; i < STORM; i++)
		announce(fd, 31);
	loop_add_timer(&loop, &bystander);
	loop_set_timer(&bystander, now_ns());
	/* One more, until one is not dropped. */
	awaited_xid = LAST_XID;
	while (last_xid != LAST_XID && rounds++ < 1000) {
		announce(fd, LAST_XID);
		sent++;
		run_for(10 * MS);
	}
	fd_close(fd);
	assert_int_equal(last_xid, LAST_XID);
	assert_true(turns > 0);
	assert_in_range(most_between_turns, 0, 64);
	/* Of the last ones some may still be under way. */
	assert_true(count + events.dropped <= sent);
	assert_true(count + events.dropped > STORM);
	assert_true(works);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_fault_is_given_to_the_one_worker),
		CASE(a_hidden_process_shows_by_its_memory),
		CASE(one_worker_is_named_in_a_namespace_too),
		CASE(a_storm_is_counted_and_starves_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
