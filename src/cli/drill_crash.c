/* SPDX-License-Identifier: MIT */
/*
 * `gpuward drill crash`: each kind of fault, through pools as any program would use them, one for each level of
 * standbys, and then without one. In each pool first without state, then with it.
 *
 * Runs in: command line, the host of the pools.
 */
#include "cli/drill.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/drill_by_hand.h"
#include "cli/drill_bystander.h"
#include "cli/drill_pool.h"
#include "cli/drill_run.h"
#include "cli/out.h"
#include "common/err.h"
#include "gpu/nodes.h"

/* What all runs in one pool share. */
struct at_level {
	struct drill *drill;
	struct gw_pool *pool;
	struct drill_child bystander;
	struct drill_stamp_file stamps;
	enum drill_level level;
};

static int run_kind(struct at_level *at, struct drill_crash *crash, uint64_t state_bytes,
		    struct gw_error *ret_error)
{
	const struct drill_run_order order = {
		.kind = crash->kind, .level = at->level, .state_bytes = state_bytes};
	uint32_t repeat = at->drill->options.repeat;
	struct drill_run runs[DRILL_REPEAT_MAX];
	char progress[120];

	for (uint32_t i = 0; i < repeat; i++) {
		int result;

		(void)snprintf(progress, sizeof(progress), "%s: %s%s, run %u of %u",
			       drill_level_name(at->level), drill_kinds[crash->kind].text,
			       state_bytes > 0 ? ", with state" : "", i + 1, repeat);
		out_progress(progress);
		result = drill_run(at->drill, at->pool, &at->bystander, &at->stamps, &order,
				   &runs[i], ret_error);
		if (result < 0)
			return result;
	}
	drill_run_summarise(&crash->rows[at->level][state_bytes > 0], runs, repeat);
	return 0;
}

static int run_kinds(struct at_level *at, uint64_t state_bytes, struct gw_error *ret_error)
{
	int result = 0;

	if (state_bytes > 0)
		result = drill_pool_make_state(at->pool, state_bytes, ret_error);
	for (size_t i = 0; result == 0 && i < at->drill->n_crash; i++)
		result = run_kind(at, &at->drill->crash[i], state_bytes, ret_error);
	return result;
}

/* Why the source that comes before all others is not heard, where it is not. */
static void note_kernel_log(struct drill *drill, struct gw_pool *pool)
{
	struct gw_pool_stat stat;
	int error;

	if (gw_pool_stat(pool, &stat) < 0 || stat.source_error[GW_SOURCE_KERNEL_LOG] == 0)
		return;
	error = stat.source_error[GW_SOURCE_KERNEL_LOG];
	if (error == -EPERM || error == -EACCES)
		drill_note(drill,
			   "the kernel log, which hears of most faults first, may not be read: "
			   "run as root or with CAP_SYSLOG");
	else if (error == -EXDEV)
		drill_note(drill,
			   "the kernel log, which hears of most faults first, has the pids of "
			   "another pid namespace");
	else
		drill_note(drill,
			   "the kernel log, which hears of most faults first, cannot be read: "
			   "%s",
			   error > -4096 ? strerror(-error) : "see gw_pool_stat(3)");
}

static int run_in_pool(struct at_level *at, struct gw_error *ret_error)
{
	enum gw_standby standby;
	int result = drill_pool_open(at->drill, at->level, &at->pool, ret_error);

	if (result < 0)
		return result;
	result = drill_pool_await_standby(at->drill, at->pool, at->level, &standby, ret_error);
	/* The last to take memory, since the drill can do without it. */
	if (result == 0)
		result = drill_bystander_start(at->drill, at->level == LEVEL_HOT_1, &at->bystander,
					       ret_error);
	if (result == 0)
		result = run_kinds(at, 0, ret_error);
	if (result == 0 && at->drill->options.state_bytes > 0)
		result = run_kinds(at, at->drill->options.state_bytes, ret_error);
	note_kernel_log(at->drill, at->pool);
	gw_pool_close(at->pool);
	return result;
}

static int run_level(struct drill *drill, enum drill_level level, struct gw_error *ret_error)
{
	struct at_level at = {.drill = drill,
			      .bystander = DRILL_CHILD_NONE,
			      .stamps = DRILL_STAMP_FILE_NONE,
			      .level = level};
	char progress[80];
	int result = drill_stamps_open(&at.stamps, ret_error);

	(void)snprintf(progress, sizeof(progress), "%s: starting", drill_level_name(level));
	out_progress(progress);
	if (result == 0)
		result = run_in_pool(&at, ret_error);
	drill_child_stop(&at.bystander);
	drill_stamps_close(&at.stamps);
	return result;
}

/* 512 MiB, or an eighth of what is free. Emulated device memory is the machine's own: a little is enough. */
static void choose_state(struct drill *drill)
{
	uint64_t usual = nodes_emulated() ? UINT64_C(32) << 20 : UINT64_C(512) << 20;
	uint64_t free_bytes = drill_free(drill);

	if (drill->options.state_bytes != GW_UNKNOWN)
		return;
	if (free_bytes != GW_UNKNOWN && usual > free_bytes / 8)
		usual = free_bytes / 8;
	drill->options.state_bytes = usual & ~((UINT64_C(2) << 20) - 1);
	if (drill->options.state_bytes == 0)
		drill_note(drill, "no state: no device memory is free for it");
}

int drill_crash_run(struct drill *drill, struct gw_error *ret_error)
{
	int result = 0;

	choose_state(drill);
	for (int kind = 0; kind < DRILL_KINDS; kind++) {
		if (drill->options.kinds[kind])
			drill->crash[drill->n_crash++] = (struct drill_crash){
				.kind = kind, .reset_result = -1, .reset_next = -1};
	}
	for (int level = LEVEL_COLD; result == 0 && level < DRILL_LEVELS; level++) {
		if (drill->options.levels[level])
			result = run_level(drill, (enum drill_level)level, ret_error);
	}
	if (result == 0 && drill->options.levels[LEVEL_BY_HAND])
		result = drill_by_hand(drill, ret_error);
	out_progress(NULL);
	return result;
}
