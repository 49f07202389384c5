/* SPDX-License-Identifier: MIT */
/*
 * Sections "queue" and "steady": whether a recovery takes longer where many tasks wait, and what detection costs
 * while nothing happens.
 *
 * Runs in: the host. "queue": the task that faults waits at a gate until all others are queued behind it; each of
 * them must end well. "steady": two pools take turns, one with all sources of detection, one with none.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/futex.h"
#include "failover.h"

/* ---- recovery by length of the queue ---- */

enum queue_column {
	QUEUE_FENCED,
	QUEUE_GOOD,
	QUEUE_ALL,
};

static struct section queue_section = {
	.name = "Trap in front of a queue, launched to ...",
	.unit = "ms",
	.columns = {"fenced", "its successor's first kernel done", "the whole queue done", NULL},
};

static void wait_at_gate(void)
{
	uint64_t late_ns = bench_now_ns() + WAIT_NS;

	while (!atomic_load(&page->waiting)) {
		if (bench_now_ns() > late_ns)
			bench_die("a task does not come to its gate");
		(void)futex_wait(&page->waiting, 0, late_ns);
	}
}

static void fault_before(struct gw_pool *pool, struct gw_task **tasks, uint64_t n, struct row *row)
{
	const struct fault_job job = {.kind = KIND_TRAP, .gated = true};
	uint64_t number = stat_of(pool).recoveries;
	struct gw_recovery recovery;
	struct gw_task *first;
	uint64_t launched_ns;

	atomic_store(&page->waiting, 0);
	atomic_store(&page->open, 0);
	first = start_task(pool, "fault", &job, sizeof(job), 0);
	wait_at_gate();
	for (uint64_t i = 0; i < n; i++)
		tasks[i] = start_task(pool, "empty", NULL, 0, 0);
	atomic_store(&page->open, 1);
	futex_wake_all(&page->open);
	end_task(first, "the task that faults", NULL, 0);
	for (uint64_t i = 0; i < n; i++)
		end_task(tasks[i], "a queued task", NULL, 0);
	launched_ns = atomic_load(&page->launched_ns);
	series_add(&row->columns[QUEUE_ALL], ms_since(launched_ns, bench_now_ns()));
	series_add(&row->columns[QUEUE_GOOD], ms_since(launched_ns, atomic_load(&page->good_ns)));
	recovery = wait_recovery(pool, number);
	series_add(&row->columns[QUEUE_FENCED], ms_since(launched_ns, recovery.fenced_ns));
}

void measure_queue(uint64_t deadline_ns)
{
	const uint64_t lengths[] = {10, 1000, failover.queue};
	struct gw_task **tasks = calloc(failover.queue + 1000, sizeof(*tasks));
	struct gw_pool *pool = open_failover_pool(GW_STANDBY_HOT, 1, 0);
	struct row *rows[3];

	if (!tasks)
		bench_die("no memory for tasks");
	rows_add_section(&queue_section);
	for (size_t i = 0; i < 3; i++)
		rows[i] = rows_add(&queue_section, "%" PRIu64 " tasks queued", lengths[i]);
	for (uint64_t r = 0; r < failover.repeat && bench_now_ns() < deadline_ns; r++) {
		for (size_t i = 0; i < 3; i++) {
			wait_settled(pool, GW_STANDBY_HOT);
			fault_before(pool, tasks, lengths[i], rows[i]);
		}
	}
	gw_pool_close(pool);
	free(tasks);
	say("queue: done");
}

/* ---- the cost of detection ---- */

enum steady_column {
	STEADY_MEDIAN,
	STEADY_P99,
};

static struct section steady_section = {
	.name = "Round trip of an empty task on a GPU, without faults",
	.unit = "us",
	.columns = {"median of a round", "99th percentile of a round", NULL},
};

static int by_value(const void *left, const void *right)
{
	const double a = *(const double *)left;
	const double b = *(const double *)right;

	return a < b ? -1 : a > b;
}

static void measure_round(struct gw_pool *pool, double *trips, struct row *row)
{
	uint64_t n = failover.trips;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t began_ns = bench_now_ns();

		end_task(start_task(pool, "empty", NULL, 0, 0), "an empty task", NULL, 0);
		trips[i] = (double)(bench_now_ns() - began_ns) / 1e3;
	}
	qsort(trips, n, sizeof(*trips), by_value);
	/* The first rounds of each warm up; so little of so many is not seen in a median of medians. */
	series_add(&row->columns[STEADY_MEDIAN], trips[n / 2]);
	series_add(&row->columns[STEADY_P99], trips[n * 99 / 100]);
}

void measure_steady(uint64_t deadline_ns)
{
	struct gw_pool *pools[] = {open_failover_pool(GW_STANDBY_COLD, 0, 0),
				   open_failover_pool(GW_STANDBY_COLD, 0, GW_DETECT_RESULT_ONLY)};
	double *trips = calloc(failover.trips, sizeof(*trips));
	struct row *rows[2];

	if (!trips)
		bench_die("no memory for trips");
	rows_add_section(&steady_section);
	rows[0] = rows_add(&steady_section, "all sources of detection");
	rows[1] = rows_add(&steady_section, "none");
	for (uint64_t r = 0; r < failover.repeat && bench_now_ns() < deadline_ns; r++) {
		for (uint64_t i = 0; i < 2; i++)
			measure_round(pools[(i + r) % 2], trips, rows[(i + r) % 2]);
	}
	gw_pool_close(pools[0]);
	gw_pool_close(pools[1]);
	free(trips);
	say("steady: done");
}
