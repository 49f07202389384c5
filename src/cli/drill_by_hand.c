/* SPDX-License-Identifier: MIT */
#include "cli/drill_by_hand.h"

#include <errno.h>
#include <stdio.h>

#include "cli/drill_bystander.h"
#include "cli/drill_run.h"
#include "cli/out.h"
#include "common/err.h"

#define RUN_DEADLINE_NS 60000000000ULL

/* For gw_isolate(): its argument is the child's order and what the parent learns. */
struct bare_run {
	struct drill_bare_order order; /* first: what the child sees */
	uint64_t gone_ns;
};

static void on_attempt(const struct gw_exit *exit, uint32_t attempt, void *argument)
{
	struct bare_run *run = argument;

	if (attempt == 0)
		run->gone_ns = exit->gone_ns;
}

/* Fork, fault, CUDA tells, exit, wait, fork, first good kernel. */
static int run_bare(struct bare_run *run, struct drill_bare *ret_bare, struct gw_error *ret_error)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_exit exit;
	void *shared = NULL;
	int result;

	run->gone_ns = GW_UNKNOWN;
	options.shared_bytes = DRILL_BARE_BYTES(run->order.state_bytes);
	options.max_attempts = 2;
	options.deadline_ns = RUN_DEADLINE_NS;
	options.argument = run;
	options.on_attempt = on_attempt;
	result = gw_isolate(drill_bare_run, &options, &shared, &exit, ret_error);
	if (result == 1)
		result = err_own(ret_error, -EIO, "by hand: %s", exit.text);
	if (shared)
		*ret_bare = *(struct drill_bare *)shared;
	gw_isolate_free_shared(shared, options.shared_bytes);
	return result;
}

static void read_bare(const struct bare_run *run, const struct drill_bare *bare,
		      struct drill_child *bystander, struct drill_run *ret_run)
{
	const struct drill_bare_order *order = &run->order;

	*ret_run = (struct drill_run){.cuda = bare->fault_result,
				      .source = GW_SOURCE_RESULT,
				      .bad_words = bare->good.bad_words};
	for (int mark = 0; mark < DRILL_MARKS; mark++)
		ret_run->at_ns[mark] = GW_UNKNOWN;
	ret_run->at_ns[MARK_LAUNCHED] = bare->stamps.launched_ns;
	ret_run->at_ns[MARK_SIGN] = bare->stamps.told_ns;
	ret_run->at_ns[MARK_GONE] = run->gone_ns;
	ret_run->at_ns[MARK_GOOD] = bare->good.good_ns;
	ret_run->at_ns[MARK_CHECKED] = bare->good.checked_ns;
	ret_run->ok = bare->fault_result == drill_kinds[order->kind].cuda &&
		      (order->state_bytes == 0 || bare->good.bad_words == 0);
	ret_run->stall =
		drill_bystander_longest(bystander, bare->stamps.launched_ns, bare->good.good_ns);
}

static int run_kind(struct drill *drill, struct drill_crash *crash, uint64_t state_bytes,
		    struct drill_child *bystander, struct gw_error *ret_error)
{
	struct bare_run run = {.order = {.kind = crash->kind,
					 .device = drill->options.device,
					 .state_bytes = state_bytes}};
	struct drill_run runs[DRILL_REPEAT_MAX];
	struct drill_bare bare = {0};
	int result;

	for (uint32_t i = 0; i < drill->options.repeat; i++) {
		result = run_bare(&run, &bare, ret_error);
		if (result < 0)
			return result;
		read_bare(&run, &bare, bystander, &runs[i]);
	}
	drill_run_summarise(&crash->rows[LEVEL_BY_HAND][state_bytes > 0], runs,
			    drill->options.repeat);
	return 0;
}

/* What people try first. It would spoil the times, so it has a run of its own. */
static int run_reset(struct drill *drill, struct drill_crash *crash, struct gw_error *ret_error)
{
	struct bare_run run = {
		.order = {.kind = crash->kind, .device = drill->options.device, .reset = true}};
	struct drill_bare bare = {0};
	int result = run_bare(&run, &bare, ret_error);

	crash->reset_result = bare.reset_result;
	crash->reset_next = bare.reset_next;
	return result;
}

int drill_by_hand(struct drill *drill, struct gw_error *ret_error)
{
	struct drill_child bystander = DRILL_CHILD_NONE;
	char progress[80];
	int result = drill_bystander_start(drill, false, &bystander, ret_error);

	for (size_t i = 0; result == 0 && i < drill->n_crash; i++) {
		struct drill_crash *crash = &drill->crash[i];

		(void)snprintf(progress, sizeof(progress), "by hand: %s",
			       drill_kinds[crash->kind].text);
		out_progress(progress);
		result = run_reset(drill, crash, ret_error);
		if (result == 0)
			result = run_kind(drill, crash, 0, &bystander, ret_error);
		if (result == 0 && drill->options.state_bytes > 0)
			result = run_kind(drill, crash, drill->options.state_bytes, &bystander,
					  ret_error);
	}
	drill_child_stop(&bystander);
	return result;
}
