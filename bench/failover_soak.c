/* SPDX-License-Identifier: MIT */
/*
 * Section "soak": many faults of all kinds over a queue that is never empty, with mutable state that is compared
 * with a model before and after every single task.
 *
 * Runs in: the host. The queue holds WINDOW tasks at all times. Most faults wait until the standby is hot, so that
 * the times are those of a fail-over; every fifth comes at once, and meets a recovery that is under way. Kinds
 * and places take turns; one more kind is SIGKILL from outside, at a moment that nobody chose.
 *
 * Nothing lost: each task ends with GW_DONE, once, and its answer carries its own number. Nothing twice: the
 * model adds each number once, and the state must be equal to it. Read next: failover_soak_worker.c.
 */
#include "failover_soak.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failover.h"

#define WINDOW	     64U
#define KIND_OUTSIDE KINDS /* SIGKILL by the host */
#define ROWS	     (KINDS + 1)
#define BURST_EVERY  5U
#define SAY_EVERY    100U
#define ATTEMPTS_MAX 16U
#define WORST_MAX    3U /* mismatches that are described */

struct soak {
	struct gw_pool *pool;
	uint64_t submitted;
	uint64_t done;
	uint64_t faults;     /* caused */
	uint64_t under_way;  /* tasks that are to fault and have not ended */
	uint64_t lost;	     /* ended in another way than GW_DONE */
	uint64_t twice;	     /* delivered again */
	uint64_t mismatches; /* of state and model */
	uint64_t repeated;   /* tasks whose commit had counted before */
	uint64_t recoveries_seen;
	uint64_t levels[GW_STANDBY_HOT + 1]; /* of the recoveries */
	uint8_t *delivered;
	uint64_t delivered_size;
	uint32_t model[STATE_WORDS];
	uint64_t epoch;
	struct row *rows[ROWS];
};

static struct section section = {
	.name = "Soak: fault launched to the first committed update after it",
	.unit = "ms",
	.columns = {"with mutable state", NULL},
};

bool soak_failed;

/* ---- the model ---- */

static void add_to_model(struct soak *soak, uint64_t number)
{
	soak->model[number % COUNTERS]++;
	soak->model[COUNTERS] = (uint32_t)number;
	soak->epoch++;
}

static bool is_model(const struct soak *soak, const uint32_t *words, uint64_t epoch)
{
	return epoch == soak->epoch && memcmp(words, soak->model, sizeof(soak->model)) == 0;
}

static void mismatch(struct soak *soak, const struct count_answer *answer, const char *when)
{
	if (soak->mismatches++ < WORST_MAX)
		say("MISMATCH %s task %" PRIu64 ", attempt %u: epochs %" PRIu64 " and %" PRIu64
		    ", model %" PRIu64 "; last task %u and %u, model %u",
		    when, answer->number, answer->attempt, answer->found_epoch, answer->left_epoch,
		    soak->epoch, answer->found[COUNTERS], answer->left[COUNTERS],
		    soak->model[COUNTERS]);
}

static void compare(struct soak *soak, const struct count_answer *answer)
{
	if (answer->already) {
		soak->repeated++;
		add_to_model(soak, answer->number);
	}
	if (!is_model(soak, answer->found, answer->found_epoch))
		mismatch(soak, answer, "before");
	if (!answer->already)
		add_to_model(soak, answer->number);
	if (!is_model(soak, answer->left, answer->left_epoch))
		mismatch(soak, answer, "after");
}

static void note_delivery(struct soak *soak, uint64_t number)
{
	if (soak->delivered[number]++ > 0)
		soak->twice++;
}

/* ---- tasks ---- */

static void make_room(struct soak *soak, uint64_t number)
{
	uint64_t size = soak->delivered_size;

	if (number < size)
		return;
	size = size ? size * 2 : 65536;
	soak->delivered = realloc(soak->delivered, size);
	if (!soak->delivered)
		bench_die("no memory for %" PRIu64 " tasks", size);
	memset(soak->delivered + soak->delivered_size, 0, size - soak->delivered_size);
	soak->delivered_size = size;
}

static void submit(struct soak *soak, uint32_t kind, uint32_t when)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	const struct count_job job = {.number = soak->submitted, .kind = kind, .when = when};
	struct gw_error error = {0};
	struct gw_task *task;

	make_room(soak, job.number);
	options.input_bytes = sizeof(job);
	options.output_bytes = sizeof(struct count_answer);
	options.max_attempts = ATTEMPTS_MAX;
	options.user = (void *)(uintptr_t)(kind + 1);
	if (gw_task_start(soak->pool, "count", &job, &options, &task, &error) < 0)
		bench_die("soak: %s", error.msg);
	soak->submitted++;
	soak->under_way += kind < KINDS;
}

static void kill_worker(struct soak *soak)
{
	struct gw_worker_info info = {.pid = -1};

	if (gw_pool_worker(soak->pool, 0, &info) < 0 || info.pid <= 1)
		return;
	atomic_store(&page->launched_ns, bench_now_ns());
	if (kill(info.pid, SIGKILL) == 0)
		soak->faults++;
}

/* Causes the next fault, if it is time, as task or from outside; otherwise the next task is a good one. */
static void submit_next(struct soak *soak, bool more_faults)
{
	uint64_t n = soak->faults;
	uint32_t kind = (uint32_t)(n % ROWS);
	struct gw_pool_stat stat = {0};

	(void)gw_pool_stat(soak->pool, &stat);
	if (!more_faults || soak->under_way > 0 ||
	    (n % BURST_EVERY != 0 && stat.standbys_hot == 0) || stat.workers_ready == 0) {
		submit(soak, KIND_NONE, 0);
	} else if (kind == KIND_OUTSIDE) {
		kill_worker(soak);
		submit(soak, KIND_NONE, 0);
	} else {
		submit(soak, kind, (uint32_t)(n / ROWS % WHENS));
		soak->faults++;
	}
}

static void take_in(struct soak *soak, struct gw_task *task)
{
	uint32_t kind = (uint32_t)(uintptr_t)gw_task_user(task) - 1;
	struct count_answer answer;
	struct gw_outcome outcome = {0};

	if (gw_task_poll(task, &outcome, NULL) != 1)
		bench_die("soak: a task that has ended has not");
	soak->done++;
	soak->under_way -= kind < KINDS;
	if (outcome.kind != GW_DONE || outcome.output_bytes != sizeof(answer)) {
		if (soak->lost++ < WORST_MAX)
			say("LOST: outcome %u, result %d: %s", outcome.kind, outcome.value,
			    outcome.message);
		gw_task_free(task);
		return;
	}
	memcpy(&answer, outcome.output, sizeof(answer));
	gw_task_free(task);
	if (answer.number >= soak->submitted)
		bench_die("soak: a task has number %" PRIu64, answer.number);
	note_delivery(soak, answer.number);
	compare(soak, &answer);
	if (answer.attempt > 0)
		series_add(&soak->rows[kind < KINDS ? kind : KIND_OUTSIDE]->columns[0],
			   ms_since(answer.launched_ns, answer.good_ns));
}

/* ---- the whole ---- */

static void count_recoveries(struct soak *soak)
{
	uint64_t n = stat_of(soak->pool).recoveries;
	struct gw_recovery recovery;

	/* Level and number of one are known when its successor is ready. */
	for (; soak->recoveries_seen < n; soak->recoveries_seen++) {
		if (gw_pool_recovery(soak->pool, soak->recoveries_seen, &recovery) < 0)
			continue;
		if (recovery.ready_ns == GW_UNKNOWN)
			return;
		if (recovery.standby <= GW_STANDBY_HOT)
			soak->levels[recovery.standby]++;
	}
}

static void step(struct soak *soak, bool more_faults)
{
	struct gw_task *task;
	struct gw_error error = {0};

	while (more_faults && soak->submitted - soak->done < WINDOW)
		submit_next(soak, more_faults && soak->faults < failover.faults);
	if (gw_pool_next(soak->pool, WAIT_NS, &task, &error) != 1)
		bench_die("soak: no task ends any more: %s", error.msg);
	take_in(soak, task);
	count_recoveries(soak);
}

static void run(struct soak *soak, uint64_t deadline_ns)
{
	uint64_t said = 0;

	while ((soak->faults < failover.faults || soak->under_way > 0) &&
	       bench_now_ns() < deadline_ns) {
		step(soak, true);
		if (soak->faults / SAY_EVERY > said) {
			said = soak->faults / SAY_EVERY;
			say("soak: %" PRIu64 " faults, %" PRIu64 " tasks, %" PRIu64
			    " lost, %" PRIu64 " twice, %" PRIu64 " mismatches",
			    soak->faults, soak->done, soak->lost, soak->twice, soak->mismatches);
			save();
		}
	}
	while (soak->done < soak->submitted)
		step(soak, false);
	for (uint64_t i = 0; i < soak->submitted; i++)
		soak->lost += soak->delivered[i] == 0;
}

static void judge(struct soak *soak)
{
	struct row *row = rows_add(&section, "verdict");

	soak_failed = soak->lost > 0 || soak->twice > 0 || soak->mismatches > 0 ||
		      soak->faults < failover.faults;
	(void)snprintf(row->note, sizeof(row->note),
		       "%s: %" PRIu64 " faults, %" PRIu64 " tasks: %" PRIu64 " lost, %" PRIu64
		       " twice, %" PRIu64 " states unlike the model",
		       soak_failed ? "FAILED" : "passed", soak->faults, soak->done, soak->lost,
		       soak->twice, soak->mismatches);
	say("soak: %s", row->note);
	row = rows_add(&section, "recoveries");
	(void)snprintf(row->note, sizeof(row->note),
		       "%" PRIu64 " hot, %" PRIu64 " primed, %" PRIu64 " cold; %" PRIu64
		       " commits had counted before their attempt died",
		       soak->levels[GW_STANDBY_HOT], soak->levels[GW_STANDBY_PRIMED],
		       soak->levels[GW_STANDBY_COLD], soak->repeated);
	say("soak: %s", row->note);
}

void measure_soak(uint64_t deadline_ns)
{
	struct soak soak = {.pool = open_failover_pool(GW_STANDBY_HOT, 1, 0)};

	rows_add_section(&section);
	for (uint32_t k = 0; k < KINDS; k++)
		soak.rows[k] = rows_add(&section, "%s", kind_names[k]);
	soak.rows[KIND_OUTSIDE] = rows_add(&section, "SIGKILL from outside");
	run(&soak, deadline_ns);
	gw_pool_close(soak.pool);
	judge(&soak);
	free(soak.delivered);
}
