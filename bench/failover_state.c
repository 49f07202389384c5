/* SPDX-License-Identifier: MIT */
/*
 * Section "state": what sealed state costs a recovery, by size and number of pieces.
 *
 *	hot	the standby has it mapped in advance: gw_state_map() only looks it up
 *	primed	the successor maps it at its first gw_state_map()
 *
 * Runs in: the host. The fault is a trap, which is known soonest, with one connection. Each successor maps all
 * pieces and runs a kernel that reads the last; at the end a kernel compares every word.
 * Read next: failover_state_worker.c.
 */
#include "failover_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "failover.h"

/* Primed recoveries, at the most: each takes as long as a context. */
#define PRIMED_ROUNDS 5U

enum column {
	COLUMN_AHEAD,
	COLUMN_FIRST,
	COLUMN_RECOVERY,
	COLUMN_PRIMED,
};

static struct section section = {
	.name = "Sealed state",
	.unit = "ms",
	.columns = {"to map, mapped in advance", "to map, first in a worker",
		    "trap to a kernel that read it, hot", "the same, primed", NULL},
};

/* Returns whether there is room for it on this device. */
static bool make(struct gw_pool *pool, const struct make_job *job, struct row *row)
{
	struct gw_task *task;
	struct gw_outcome outcome = {0};

	if (job->pieces == 0)
		return true;
	task = start_task(pool, "make", job, sizeof(*job), 0);
	if (gw_task_wait(task, WAIT_NS, &outcome, NULL) != 1)
		bench_die("%s: it is not made in time", row->name);
	if (outcome.kind != GW_DONE)
		(void)snprintf(row->note, sizeof(row->note), "not made: %.120s", outcome.message);
	gw_task_free(task);
	return outcome.kind == GW_DONE;
}

static void check(struct gw_pool *pool, uint32_t pieces, struct row *row)
{
	uint64_t bad = 0;

	if (pieces == 0)
		return;
	end_task(start_task(pool, "check", &pieces, sizeof(pieces), sizeof(bad)), row->name, &bad,
		 sizeof(bad));
	if (bad > 0)
		bench_die("%s: %" PRIu64 " words changed", row->name, bad);
	(void)snprintf(row->note, sizeof(row->note), "every word intact");
}

static void measure_round(struct gw_pool *pool, uint32_t standby, uint32_t pieces, struct row *row)
{
	const struct fault_job job = {.kind = KIND_TRAP, .pieces = pieces};
	bool hot = standby == GW_STANDBY_HOT;

	wait_settled(pool, standby);
	if (fault_once(pool, &job).standby != standby)
		return;
	if (pieces > 0)
		series_add(&row->columns[hot ? COLUMN_AHEAD : COLUMN_FIRST],
			   (double)atomic_load(&page->attach_ns) / 1e6);
	series_add(&row->columns[hot ? COLUMN_RECOVERY : COLUMN_PRIMED],
		   ms_since(atomic_load(&page->launched_ns), atomic_load(&page->good_ns)));
}

static void measure_level(const struct make_job *job, uint32_t standby, uint64_t rounds,
			  struct row *row, uint64_t deadline_ns)
{
	const struct fault_job first = {.kind = KIND_KILL, .pieces = job->pieces};
	struct gw_pool *pool = open_failover_pool(standby, 1, 0);

	if (make(pool, job, row)) {
		/* The first standby was up before there was any state: it is not counted. */
		wait_settled(pool, standby);
		(void)fault_once(pool, &first);
		for (uint64_t r = 0; r < rounds && bench_now_ns() < deadline_ns; r++)
			measure_round(pool, standby, job->pieces, row);
		check(pool, job->pieces, row);
	}
	gw_pool_close(pool);
}

static void measure_size(const struct make_job *job, struct row *row, uint64_t deadline_ns)
{
	uint64_t few = failover.repeat < PRIMED_ROUNDS ? failover.repeat : PRIMED_ROUNDS;

	if (bench_now_ns() >= deadline_ns) {
		(void)snprintf(row->note, sizeof(row->note), "left out: the budget is used up");
		return;
	}
	measure_level(job, GW_STANDBY_HOT, failover.repeat, row, deadline_ns);
	measure_level(job, GW_STANDBY_PRIMED, few, row, deadline_ns);
	say("state: %s", row->name);
	save();
}

void measure_state(uint64_t deadline_ns)
{
	static const uint32_t sizes[] = {1, 8, 100};
	struct make_job job = {0};

	rows_add_section(&section);
	measure_size(&job, rows_add(&section, "none"), deadline_ns);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t mib = sizes[i] * failover.unit_mib;

		job = (struct make_job){.bytes = mib * MIB, .pieces = 1};
		measure_size(&job,
			     rows_add(&section, "1 piece of %" PRIu64 " %s",
				      mib % 1024 ? mib : mib / 1024, mib % 1024 ? "MiB" : "GiB"),
			     deadline_ns);
	}
	job = (struct make_job){.bytes = 2 * MIB, .pieces = (uint32_t)failover.pieces};
	measure_size(&job, rows_add(&section, "%" PRIu64 " pieces of 2 MiB", failover.pieces),
		     deadline_ns);
}
