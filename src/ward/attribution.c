/* SPDX-License-Identifier: MIT */
#include "ward/attribution.h"

static bool is_listed(const struct probe_processes *list, int32_t pid)
{
	for (uint32_t i = 0; i < list->count; i++) {
		if (list->list[i].pid == (uint32_t)pid)
			return true;
	}
	return false;
}

static bool is_ours(const struct attribution_process *ours, size_t count, uint32_t pid)
{
	for (size_t i = 0; i < count; i++) {
		if (ours[i].pid > 0 && (uint32_t)ours[i].pid == pid)
			return true;
	}
	return false;
}

/* Whether those who are listed, and the ward, have all the memory that is in use. */
static bool memory_is_accounted_for(const struct attribution_view *view)
{
	uint64_t left;

	if (!view->memory || view->memory->used_bytes == GW_UNKNOWN ||
	    view->memory->reserved_bytes == GW_UNKNOWN)
		return false;
	left = view->memory->used_bytes;
	left -= view->kept_bytes < left ? view->kept_bytes : left;
	for (uint32_t i = 0; i < view->processes->count; i++) {
		uint64_t used = view->processes->list[i].used_bytes;

		if (used == GW_UNKNOWN)
			return false;
		left -= used < left ? used : left;
	}
	return left <= ATTRIBUTION_SLACK_BYTES;
}

static bool can_have_caused(const struct attribution_process *process, uint64_t at_ns)
{
	bool gone_before =
		process->gone_ns < at_ns && at_ns - process->gone_ns > ATTRIBUTION_LATE_NS;

	return process->work_from_ns <= at_ns && !gone_before;
}

int attribution_find(const struct attribution_process *ours, size_t count,
		     const struct attribution_view *view, uint64_t at_ns)
{
	const struct probe_processes *list = view->processes;
	int found = ATTRIBUTION_NOBODY;

	if (!list || list->count < list->total || list->count > PROBE_PROCESSES_MAX)
		return ATTRIBUTION_UNKNOWN;
	for (uint32_t i = 0; i < list->count; i++) {
		if (!is_ours(ours, count, list->list[i].pid))
			return ATTRIBUTION_FOREIGN;
	}
	if (!view->sees_all && !memory_is_accounted_for(view))
		return ATTRIBUTION_FOREIGN;
	for (size_t i = 0; i < count; i++) {
		if (!can_have_caused(&ours[i], at_ns))
			continue;
		if (found >= 0)
			return ATTRIBUTION_SEVERAL;
		found = (int)i;
	}
	/* One that lives and is not listed had no context, so the list is not what it seems. */
	if (found >= 0 && ours[found].gone_ns == GW_FOREVER && !is_listed(list, ours[found].pid))
		return ATTRIBUTION_NOBODY;
	return found;
}

const char *attribution_text(int doubt)
{
	switch ((enum attribution_doubt)doubt) {
	case ATTRIBUTION_UNKNOWN:
		return "the processes on the GPU are not known";
	case ATTRIBUTION_FOREIGN:
		return "a process of somebody else is on the GPU";
	case ATTRIBUTION_NOBODY:
		return "no worker of the pool had work on the GPU";
	case ATTRIBUTION_SEVERAL:
		return "more than one worker of the pool can have caused it";
	}
	return "one worker can have caused it";
}
