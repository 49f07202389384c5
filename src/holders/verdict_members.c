/* SPDX-License-Identifier: MIT */
/*
 * The processes that a verdict is about: a list that grows. In a file of its own, where gcc's static analyser sees that
 * it is kept.
 *
 * Read next: cause_run.h.
 */
#include <stdlib.h>

#include "holders/cause_run.h"

void tell_member(struct cause_run *run, struct verdict *verdict, const struct scan_process *process)
{
	uint32_t count = verdict->member_count;
	uint32_t *members = verdict->members;

	/* The room is the next power of two. */
	if (!(count & (count - 1))) {
		members = realloc(members, (count ? 2 * (size_t)count : 1) * sizeof(*members));
		if (!members) {
			run->out->no_memory = true;
			return;
		}
		verdict->members = members;
	}
	members[count] = (uint32_t)(process - run->scan->processes);
	verdict->member_count = count + 1;
	verdict->process = members[0];
}
