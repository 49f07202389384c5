/* SPDX-License-Identifier: MIT */
/*
 * The threads that look at processes, and what they have found so far.
 *
 * Runs in: scan_run(), which waits; and the crew's own threads. A thread that is stuck in the kernel is replaced,
 * and left behind when the time is over: the crew belongs to whoever leaves it last.
 *
 *	scan_run()             thread A                      thread B
 *	  starts both
 *	  waits                  looks at 17, publishes        hangs in 4711's command line
 *	  B has not moved: starts C, which goes on
 *	  time is over, takes what was published; 4711 is late
 *	  leaves                 leaves                        is let go, an hour later; publishes: refused;
 *	                                                       leaves as the last one, frees the crew
 *
 * Invariant: what was published is owned by the crew until crew_take(); nothing is published after it.
 */
#ifndef GPUWARD_HOLDERS_CREW_H
#define GPUWARD_HOLDERS_CREW_H

#include <gpuward.h>

#include "holders/look.h"

struct crew;

/* What crew_take() gives. All is the caller's. */
struct crew_result {
	struct finding *findings; /* a list, in no order */
	struct scan_unseen unseen;
	uint64_t descriptors;
	uint32_t looked_at;
	int32_t *denied; /* unseen.denied pids, in no order; free() */
	int32_t *late;	 /* unseen.late pids; free() */
};

struct crew_plan {
	int proc;		      /* taken over on success */
	struct device_table *devices; /* taken over on success; free() */
	int32_t *pids;		      /* taken over on success; free() */
	uint32_t pid_count;
	struct groups groups;
	struct quiet quiet; /* taken over on success; quiet_done() */
	bool own_proc;
	uint64_t pid_namespace; /* of this process */
	uint64_t mount_namespace;
	bool without_maps;
	bool without_details;
	uint32_t threads; /* 0: as many as there are allowed CPUs */
};

/* Starts the threads. Returns 0, -ENOMEM or -EAGAIN. */
int crew_start(const struct crew_plan *plan, struct crew **ret_crew, struct gw_error *ret_error);

/*
 * Waits until every process was looked at, or those that are left are all stuck, or DEADLINE_NS has come; then
 * takes what was found and leaves the crew, which is not to be used any more.
 */
void crew_take(struct crew *crew, uint64_t deadline_ns, struct crew_result *ret_result);

#endif
