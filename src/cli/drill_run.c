/* SPDX-License-Identifier: MIT */
/*
 * A bad task is submitted with a good one behind it; the worker leaves the time of the launch in shared memory,
 * since it does not come back. All other times are of the ward (gw_pool_recovery()), of the good task, and of the
 * bystander. Only where no standby waits is NVML asked meanwhile whether it still charges memory to the old process:
 * its questions would cost a fast recovery more than that takes.
 */
#include "cli/drill_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/drill_bystander.h"
#include "cli/drill_pool.h"
#include "common/err.h"
#include "common/fd.h"

/* How long NVML is watched for the old process's memory after the recovery. */
#define BACK_DEADLINE_NS 5000000000ULL
#define SAMPLE_NS	 1000000ULL
#define RUN_DEADLINE_NS	 60000000000ULL

int drill_stamps_open(struct drill_stamp_file *file, struct gw_error *ret_error)
{
	void *stamps;

	file->fd = fd_new_memory("gpuward-drill", sizeof(*file->stamps));
	if (file->fd < 0)
		return err_os(ret_error, -file->fd, "cannot make memory for the drill's times");
	stamps = mmap(NULL, sizeof(*file->stamps), PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	if (stamps == MAP_FAILED)
		return err_os(ret_error, errno, "cannot map the drill's times");
	file->stamps = stamps;
	(void)snprintf(file->path, sizeof(file->path), "/proc/%d/fd/%d", getpid(), file->fd);
	return 0;
}

void drill_stamps_close(struct drill_stamp_file *file)
{
	if (file->stamps)
		(void)munmap(file->stamps, sizeof(*file->stamps));
	file->stamps = NULL;
	fd_closep(&file->fd);
}

/* 1 listed, 0 not listed, -1 not known. */
static int is_listed(struct drill *drill, int32_t pid)
{
	struct probe_processes list;

	if (drill->nvml_index == PROBE_DEVICE_UNKNOWN ||
	    probe_ask_processes(&drill->probe, drill->nvml_index, &list, NULL) < 0)
		return -1;
	for (uint32_t i = 0; i < list.count; i++) {
		if (list.list[i].pid == (uint32_t)pid)
			return 1;
	}
	return list.total > list.count ? -1 : 0;
}

/* Waits for GOOD, and meanwhile looks when PID vanishes from NVML's list. */
static int await_watching(struct drill *drill, struct gw_task *good, int32_t pid,
			  struct gw_outcome *outcome, struct drill_run *run)
{
	uint64_t deadline = now_ns() + RUN_DEADLINE_NS;
	bool done = false;
	int ended = 0;

	while (ended >= 0 && now_ns() < deadline && drill->probe.socket >= 0 &&
	       (!done || run->at_ns[MARK_BACK] == GW_UNKNOWN)) {
		if (run->at_ns[MARK_BACK] == GW_UNKNOWN && is_listed(drill, pid) == 0)
			run->at_ns[MARK_BACK] = now_ns();
		ended = gw_task_wait(good, SAMPLE_NS, outcome, NULL);
		if (ended == 1 && !done) {
			done = true;
			deadline = now_ns() + BACK_DEADLINE_NS;
		}
	}
	return ended;
}

static int start_tasks(struct gw_pool *pool, const struct drill_stamp_file *file,
		       const struct drill_run_order *what, struct gw_task *tasks[2],
		       struct gw_error *ret_error)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	const struct drill_state_order state = {.bytes = what->state_bytes};
	struct drill_order order = {.kind = what->kind};
	int result;

	memcpy(order.stamps_path, file->path, sizeof(order.stamps_path));
	options.max_attempts = 1;
	options.input_bytes = sizeof(order);
	result = gw_task_start(pool, "fault", &order, &options, &tasks[0], ret_error);
	if (result < 0)
		return result;
	options.max_attempts = 3;
	options.input_bytes = sizeof(state);
	options.output_bytes = sizeof(struct drill_good);
	return gw_task_start(pool, "good", &state, &options, &tasks[1], ret_error);
}

/* What the good task says. */
static void read_good(const struct gw_outcome *outcome, const struct drill_run_order *order,
		      struct drill_run *run)
{
	struct drill_good good;

	if (outcome->kind != GW_DONE || outcome->output_bytes != sizeof(good))
		return;
	memcpy(&good, outcome->output, sizeof(good));
	run->at_ns[MARK_GOOD] = good.good_ns;
	run->at_ns[MARK_CHECKED] = good.checked_ns;
	run->bad_words = good.bad_words;
	run->ok = order->state_bytes == 0 || good.bad_words == 0;
}

/* The kernel log alone cannot tell a trap from a failed assert, nor what some first lines of a fault mean: then it
 * has to be an Xid of a program's own fault. */
static bool is_expected(const struct gw_exit *exit, int kind)
{
	if (exit->cuda < 0)
		return exit->xid == 13 || exit->xid == 31 || exit->xid == 43;
	return exit->cuda == drill_kinds[kind].cuda;
}

/* What the ward says. */
static void read_recovery(const struct gw_recovery *recovery, int kind, struct drill_run *run)
{
	const struct gw_exit *exit = &recovery->exit;

	run->source = exit->source < GW_SOURCES ? exit->source : GW_SOURCE_UNKNOWN;
	run->cuda = exit->cuda;
	run->standby = (enum gw_standby)recovery->standby;
	run->at_ns[MARK_SIGN] = recovery->spoke_ns[run->source];
	if (run->at_ns[MARK_SIGN] == GW_UNKNOWN)
		run->at_ns[MARK_SIGN] = exit->noticed_ns;
	run->at_ns[MARK_FENCED] = recovery->fenced_ns;
	run->at_ns[MARK_READY] = recovery->ready_ns;
	run->at_ns[MARK_GONE] = exit->gone_ns;
	run->ok = run->ok && is_expected(exit, kind);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return b != GW_UNKNOWN && (a == GW_UNKNOWN || b > a) ? b : a;
}

/* Submits both tasks and waits for all that follows. */
static int follow(struct drill *drill, struct gw_pool *pool, const struct drill_stamp_file *file,
		  const struct drill_run_order *order, struct drill_run *run,
		  struct gw_error *ret_error)
{
	struct gw_task *tasks[2] = {NULL, NULL};
	struct gw_worker_info worker = {.pid = -1};
	struct gw_outcome outcome = {0};
	struct gw_recovery recovery;
	struct gw_pool_stat stat = {0};
	bool listed;
	int result;

	(void)gw_pool_stat(pool, &stat);
	(void)gw_pool_worker(pool, 0, &worker);
	listed = order->level == LEVEL_COLD && worker.pid > 0 && is_listed(drill, worker.pid) == 1;
	result = start_tasks(pool, file, order, tasks, ret_error);
	if (result == 0)
		result = listed ? await_watching(drill, tasks[1], worker.pid, &outcome, run)
				: gw_task_wait(tasks[1], RUN_DEADLINE_NS, &outcome, ret_error);
	if (result >= 0) {
		read_good(&outcome, order, run);
		if (drill_pool_await_recovery(pool, stat.recoveries, worker.pid, &recovery))
			read_recovery(&recovery, order->kind, run);
		else
			run->ok = false;
	}
	gw_task_free(tasks[0]);
	gw_task_free(tasks[1]);
	return result < 0 ? result : 0;
}

int drill_run(struct drill *drill, struct gw_pool *pool, struct drill_child *bystander,
	      const struct drill_stamp_file *file, const struct drill_run_order *order,
	      struct drill_run *ret_run, struct gw_error *ret_error)
{
	struct drill_run run = {.cuda = -1};
	enum gw_standby standby;
	int result = drill_pool_await_standby(drill, pool, order->level, &standby, ret_error);

	if (result < 0)
		return result;
	for (int mark = 0; mark < DRILL_MARKS; mark++)
		run.at_ns[mark] = GW_UNKNOWN;
	memset(file->stamps, 0, sizeof(*file->stamps));
	result = follow(drill, pool, file, order, &run, ret_error);
	if (result < 0)
		return result;
	if (file->stamps->launched_ns != 0)
		run.at_ns[MARK_LAUNCHED] = file->stamps->launched_ns;
	run.ok = run.ok && run.at_ns[MARK_LAUNCHED] != GW_UNKNOWN && run.standby >= standby;
	run.stall = drill_bystander_longest(bystander, run.at_ns[MARK_LAUNCHED],
					    later(run.at_ns[MARK_GOOD], run.at_ns[MARK_GONE]));
	*ret_run = run;
	return 0;
}

static void summarise_times(struct drill_row *row, const struct drill_run *runs, uint32_t count)
{
	uint64_t after[DRILL_REPEAT_MAX];

	for (int mark = 0; mark < DRILL_MARKS; mark++) {
		for (uint32_t i = 0; i < count; i++) {
			uint64_t at = runs[i].at_ns[mark];
			uint64_t launched = runs[i].at_ns[MARK_LAUNCHED];

			after[i] = launched == GW_UNKNOWN || at == GW_UNKNOWN || at < launched
					   ? GW_UNKNOWN
					   : at - launched;
		}
		row->after_ns[mark] = drill_median(after, count);
	}
	for (uint32_t i = 0; i < count; i++)
		after[i] = runs[i].stall.to_ns == GW_UNKNOWN
				   ? GW_UNKNOWN
				   : runs[i].stall.to_ns - runs[i].stall.from_ns;
	row->stall_ns = drill_median(after, count);
}

void drill_run_summarise(struct drill_row *row, const struct drill_run *runs, uint32_t count)
{
	const struct drill_run *last = &runs[count - 1];
	uint64_t launched = last->at_ns[MARK_LAUNCHED];

	row->ran = row->ok = row->intact = true;
	row->standby = (uint32_t)last->standby;
	for (uint32_t i = 0; i < count; i++) {
		row->ok = row->ok && runs[i].ok;
		row->intact = row->intact && runs[i].at_ns[MARK_CHECKED] != GW_UNKNOWN &&
			      runs[i].bad_words == 0;
		if ((uint32_t)runs[i].standby < row->standby)
			row->standby = (uint32_t)runs[i].standby;
	}
	row->cuda = last->cuda;
	row->source = last->source;
	summarise_times(row, runs, count);
	/* A round trip that was under way at the launch began before it. */
	row->stall_from_ns = GW_UNKNOWN;
	if (last->stall.from_ns != GW_UNKNOWN && launched != GW_UNKNOWN)
		row->stall_from_ns =
			last->stall.from_ns > launched ? last->stall.from_ns - launched : 0;
}
