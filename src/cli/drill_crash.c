/* SPDX-License-Identifier: MIT */
/*
 * `gpuward drill crash`: each kind of fault, through a pool as any program would use it, and then without
 * one.
 *
 * Runs in: command line, the host of the pool. A bad task is submitted with a good one behind it; the
 * worker leaves the time of the launch in shared memory, since it does not come back. While the pool recovers,
 * NVML is asked again and again whether it still charges memory to the old process.
 */
#include "cli/drill.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/out.h"
#include "common/err.h"
#include "common/fd.h"

/* How long NVML is watched for the old process's memory after the recovery. */
#define BACK_DEADLINE_NS 5000000000ULL
#define SAMPLE_NS	 1000000ULL
#define RUN_DEADLINE_NS	 60000000000ULL

/* A CUDA that takes longer to start does not answer; it gets a second chance. */
#define START_DEADLINE_NS 15000000000ULL
#define START_TRIES	  2U

/* Memory with the stamps. It has no name in any folder, so nothing is left of it if the drill is killed:
 * a worker opens it as a descriptor of this process. */
struct stamp_file {
	char path[256];
	int fd;
	struct drill_stamps *stamps;
};

struct crash_run {
	uint64_t at_ns[DRILL_MARKS];
	uint32_t source;
	int32_t cuda;
	bool ok;
};

static int stamps_open(struct stamp_file *file, struct gw_error *ret_error)
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

static void stamps_close(struct stamp_file *file)
{
	if (file->stamps)
		(void)munmap(file->stamps, sizeof(*file->stamps));
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
static void watch_recovery(struct drill *drill, struct gw_task *good, int32_t pid, bool listed,
			   struct crash_run *run)
{
	uint64_t deadline = now_ns() + RUN_DEADLINE_NS;
	struct gw_outcome outcome;
	bool done = false;
	int ended = 0;

	run->at_ns[MARK_BACK] = run->at_ns[MARK_GOOD] = GW_UNKNOWN;
	while (ended >= 0 && drill->probe.socket >= 0 &&
	       (!done || (listed && run->at_ns[MARK_BACK] == GW_UNKNOWN))) {
		if (listed && run->at_ns[MARK_BACK] == GW_UNKNOWN && is_listed(drill, pid) == 0)
			run->at_ns[MARK_BACK] = now_ns();
		ended = gw_task_wait(good, SAMPLE_NS, &outcome, NULL);
		if (ended == 1 && !done) {
			done = true;
			run->ok = outcome.kind == GW_DONE;
			run->at_ns[MARK_GOOD] = outcome.ended_ns;
			deadline = now_ns() + BACK_DEADLINE_NS;
		}
		if (now_ns() > deadline)
			return;
	}
}

static int start_tasks(struct gw_pool *pool, const struct stamp_file *file, int kind,
		       struct gw_task *tasks[2], struct gw_error *ret_error)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct drill_order order = {.kind = kind};
	int result;

	memcpy(order.stamps_path, file->path, sizeof(order.stamps_path));
	options.max_attempts = 1;
	options.input_bytes = sizeof(order);
	result = gw_task_start(pool, "fault", &order, &options, &tasks[0], ret_error);
	if (result < 0)
		return result;
	options.max_attempts = 3;
	options.input_bytes = 0;
	return gw_task_start(pool, "good", NULL, &options, &tasks[1], ret_error);
}

/* What is known of the bad task: its worker's story. */
static void read_story(struct gw_task *task, struct crash_run *run)
{
	struct gw_exit exit;

	run->at_ns[MARK_NOTICED] = run->at_ns[MARK_GONE] = GW_UNKNOWN;
	run->cuda = -1;
	if (gw_task_attempt(task, 0, &exit) < 0)
		return;
	run->at_ns[MARK_NOTICED] = exit.noticed_ns;
	run->at_ns[MARK_GONE] = exit.gone_ns;
	run->source = exit.source;
	run->cuda = exit.cuda;
}

static int run_once(struct drill *drill, struct gw_pool *pool, const struct stamp_file *file,
		    int kind, struct crash_run *run, struct gw_error *ret_error)
{
	struct gw_task *tasks[2] = {NULL, NULL};
	struct gw_worker_info worker = {.pid = -1};
	bool listed;
	int result;

	(void)gw_pool_worker(pool, 0, &worker);
	listed = worker.pid > 0 && is_listed(drill, worker.pid) == 1;
	memset(file->stamps, 0, sizeof(*file->stamps));
	result = start_tasks(pool, file, kind, tasks, ret_error);
	if (result == 0) {
		watch_recovery(drill, tasks[1], worker.pid, listed, run);
		read_story(tasks[0], run);
		run->at_ns[MARK_LAUNCHED] = file->stamps->launched_ns;
		run->ok = run->ok && run->cuda == drill_kinds[kind].cuda &&
			  run->at_ns[MARK_LAUNCHED] != 0;
	}
	gw_task_free(tasks[0]);
	gw_task_free(tasks[1]);
	return result;
}

static void summarise(struct drill_crash *crash, const struct crash_run *runs, uint32_t count)
{
	uint64_t after[DRILL_REPEAT_MAX];

	crash->ok = true;
	for (uint32_t i = 0; i < count; i++)
		crash->ok = crash->ok && runs[i].ok;
	crash->cuda = runs[count - 1].cuda;
	crash->source = runs[count - 1].source;
	for (int mark = 0; mark < DRILL_MARKS; mark++) {
		for (uint32_t i = 0; i < count; i++) {
			uint64_t at = runs[i].at_ns[mark], launched = runs[i].at_ns[MARK_LAUNCHED];

			after[i] = at == GW_UNKNOWN || at < launched ? GW_UNKNOWN : at - launched;
		}
		crash->after_ns[mark] = drill_median(after, count);
	}
}

/* By hand: fork, fault, CUDA tells, exit, wait, fork, first good kernel. */
static int run_bare(const struct drill *drill, int kind, bool reset, struct drill_bare *ret_bare,
		    struct gw_error *ret_error)
{
	const struct drill_bare_order order = {
		.kind = kind, .device = drill->options.device, .reset = reset};
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_exit exit;
	void *shared = NULL;
	int result;

	options.shared_bytes = sizeof(*ret_bare);
	options.max_attempts = 2;
	options.deadline_ns = RUN_DEADLINE_NS;
	options.argument = (void *)(uintptr_t)&order;
	result = gw_isolate(drill_bare_run, &options, &shared, &exit, ret_error);
	if (result == 1)
		result = err_own(ret_error, -EIO, "without a pool: %s", exit.text);
	if (shared)
		*ret_bare = *(struct drill_bare *)shared;
	gw_isolate_free_shared(shared, sizeof(*ret_bare));
	return result;
}

/* Alone on the GPU, as such a program is: after the pool was closed. */
static int compare(struct drill *drill, struct drill_crash *crash)
{
	uint64_t cold[DRILL_REPEAT_MAX];
	struct drill_bare bare = {0};
	char progress[80];
	int result;

	(void)snprintf(progress, sizeof(progress), "%s, by hand", drill_kinds[crash->kind].text);
	out_progress(progress);
	result = run_bare(drill, crash->kind, true, &bare, &crash->error);
	if (result < 0)
		return result;
	crash->reset_result = bare.reset_result;
	crash->reset_next = bare.reset_next;
	for (uint32_t i = 0; i < drill->options.repeat; i++) {
		result = run_bare(drill, crash->kind, false, &bare, &crash->error);
		if (result < 0)
			return result;
		cold[i] = bare.good_ns - bare.stamps.launched_ns;
	}
	crash->cold_ns = drill_median(cold, drill->options.repeat);
	return 0;
}

static int run_kind(struct drill *drill, struct gw_pool *pool, const struct stamp_file *file,
		    int kind)
{
	struct crash_run runs[DRILL_REPEAT_MAX] = {0};
	struct drill_crash *crash = &drill->crash[drill->n_crash++];
	char progress[80];

	*crash = (struct drill_crash){.kind = kind, .cold_ns = GW_UNKNOWN};
	for (int mark = 0; mark < DRILL_MARKS; mark++)
		crash->after_ns[mark] = GW_UNKNOWN;
	for (uint32_t i = 0; i < drill->options.repeat; i++) {
		int result;

		(void)snprintf(progress, sizeof(progress), "%s, run %u of %u",
			       drill_kinds[kind].text, i + 1, drill->options.repeat);
		out_progress(progress);
		result = run_once(drill, pool, file, kind, &runs[i], &crash->error);
		if (result < 0)
			return result;
	}
	summarise(crash, runs, drill->options.repeat);
	return 0;
}

static int run_kinds(struct drill *drill, struct gw_pool *pool, struct gw_error *ret_error)
{
	struct stamp_file file = {.fd = -1};
	int result = stamps_open(&file, ret_error);

	for (int kind = 0; result == 0 && kind < DRILL_KINDS; kind++) {
		if (!drill->options.kinds[kind])
			continue;
		result = run_kind(drill, pool, &file, kind);
		if (result < 0 && ret_error)
			*ret_error = drill->crash[drill->n_crash - 1].error;
	}
	stamps_close(&file);
	return result;
}

int drill_crash_run(struct drill *drill, struct gw_error *ret_error)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	int device = drill->options.device;
	struct gw_pool *pool = NULL;
	int result;

	options.devices = &device;
	options.n_devices = 1;
	options.total_input_bytes = options.total_output_bytes = 1 << 20;
	options.max_input_bytes = options.max_output_bytes = 1 << 20;
	options.start_deadline_ns = START_DEADLINE_NS;
	options.max_start_failures = START_TRIES;
	out_progress("starting a worker");
	result = gw_pool_open(&pool, &options, ret_error);
	if (result == -ETIMEDOUT)
		return err_set(ret_error, GW_EDRIVER, GW_DOMAIN_OS, ETIMEDOUT,
			       "CUDA does not answer (%llu s, %u times)",
			       START_DEADLINE_NS / 1000000000U, START_TRIES);
	if (result < 0)
		return result;
	result = run_kinds(drill, pool, ret_error);
	gw_pool_close(pool);
	for (size_t i = 0; result == 0 && i < drill->n_crash; i++) {
		result = compare(drill, &drill->crash[i]);
		if (result < 0 && ret_error)
			*ret_error = drill->crash[i].error;
	}
	out_progress(NULL);
	return result;
}
