/* SPDX-License-Identifier: MIT */
#include "ward/tally.h"

static uint64_t longer(const struct tally_limits *limits, uint64_t pause_ns)
{
	if (pause_ns == 0)
		return limits->restart_min_ns;
	if (pause_ns > limits->restart_max_ns / 2)
		return limits->restart_max_ns;
	return pause_ns * 2;
}

static struct tally_verdict failed_start(struct tally *tally, const struct tally_limits *limits,
					 bool hopeless)
{
	tally->failed_starts++;
	tally->pause_ns = longer(limits, tally->pause_ns);
	return (struct tally_verdict){.give_up = hopeless ||
						 tally->failed_starts >= limits->max_start_failures,
				      .pause_ns = tally->pause_ns};
}

struct tally_verdict tally_count(struct tally *tally, const struct tally_limits *limits,
				 const struct tally_run *run)
{
	struct tally_verdict verdict = {0};

	if (!run->ready && !run->blameless)
		return failed_start(tally, limits, run->hopeless);
	if (run->ready)
		tally->failed_starts = 0;
	if (run->blameless)
		return verdict;
	tally->quick_deaths++;
	if (run->worked || run->ready_ns >= TALLY_GOOD_RUN_NS) {
		tally->quick_deaths = 0;
		tally->pause_ns = 0;
	}
	verdict.give_up = tally->quick_deaths >= limits->max_quick_deaths;
	/* The pause is for the second quick death and the ones after it: the first one is replaced at
	 * once, since a task may have killed a worker that was good. */
	verdict.pause_ns = tally->pause_ns;
	tally->pause_ns = longer(limits, tally->pause_ns);
	return verdict;
}
