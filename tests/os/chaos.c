/* SPDX-License-Identifier: MIT */
/*
 * Description: under random faults of every kind, SIGKILL and SIGSTOP of workers and standbys, stops of the ward,
 * deadlines and cancels, every task ends exactly once and right, and mutable state is at every step what a
 * model is that nothing happens to; in pools of 1 to 4 workers with cold, primed and hot standbys.
 *
 *	test-chaos [--kills N] [--seed S]	N faults and signals in all, in twelve pools
 *
 * Runs in: host and worker in one program, on the emulated GPU. Signals go through a pidfd, after a look whether
 * the process is the ward's child: no other process can be hit. The seed is printed; it repeats the choices,
 * though not the timing. Read next: chaos_worker.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../seed.h"
#include "../softgpu.h"
#include "../world.h"
#include "chaos_worker.h"
#include "common/fd.h"

#define MS UINT64_C(1000000)

enum {
	WINDOW = 48, /* tasks under way */
	LEDGERS = 6,
	ROUNDS = 12,
	CHILDREN_MAX = 64,
	POISON_ATTEMPTS = 2,
};

/* A row of steps, as it must be in the surviving state. */
struct ledger {
	int device;
	uint64_t number; /* of the last step that was started */
	uint64_t value;	 /* after it */
	bool busy;
};

struct job {
	struct gw_task *task; /* NULL: free */
	struct chaos_job input;
	struct ledger *ledger; /* NULL: "mix" */
	bool poison;
	bool cancelled;
	uint32_t ended;
};

struct chaos {
	struct gw_pool *pool;
	struct seed seed;
	uint32_t n_devices;
	int32_t ward_pid;
	uint64_t ward_stopped; /* turns that it stays so; 0: it runs */
	struct job jobs[WINDOW];
	struct ledger ledgers[LEDGERS];
	uint64_t started, ended[8]; /* by enum gw_outcome_kind */
	uint64_t signals;	    /* sent to workers and standbys */
	uint64_t faults;	    /* that tasks did by themselves, and kills with a cancel */
	uint64_t steps;		    /* of ledgers */
};

/* Of all rounds. */
static uint64_t kills_wanted = 1200;
static uint64_t all_noticed[GW_SOURCES];
static uint64_t all_standbys[3];

static bool chance(struct chaos *chaos, uint64_t percent)
{
	return seed_below(&chaos->seed, 100) < percent;
}

/* ---- tasks ---- */

static void choose_ledger(struct chaos *chaos, struct job *job)
{
	struct ledger *ledger = &chaos->ledgers[seed_below(&chaos->seed, LEDGERS)];

	if (ledger->busy || chance(chaos, 30))
		return;
	ledger->busy = true;
	ledger->number++;
	ledger->value = chaos_next(ledger->value, job->input.key);
	job->ledger = ledger;
	job->input.number = ledger->number;
	job->input.ledger = (uint32_t)(ledger - chaos->ledgers);
}

static void choose(struct chaos *chaos, struct job *job)
{
	*job = (struct job){.input = {.key = seed_next(&chaos->seed),
				      .fault = (uint32_t)seed_below(&chaos->seed, CHAOS_FAULTS),
				      .step = (uint32_t)seed_below(&chaos->seed, CHAOS_STEPS)}};
	choose_ledger(chaos, job);
	/* What only a deadline ends takes long: there are fewer of them. */
	if (job->input.fault >= CHAOS_STOP && chance(chaos, 80))
		job->input.fault = CHAOS_TRAP;
	if (chance(chaos, 12))
		job->input.bad_attempts = 1 + (uint32_t)seed_below(&chaos->seed, 2);
	job->poison = !job->ledger && chance(chaos, 2);
	if (job->poison)
		job->input.bad_attempts = UINT32_MAX;
}

static void start(struct chaos *chaos, struct job *job)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};

	choose(chaos, job);
	options.input_bytes = sizeof(job->input);
	options.output_bytes = sizeof(struct chaos_answer);
	options.user = job;
	options.max_attempts = job->poison ? POISON_ATTEMPTS : UINT32_MAX;
	options.device = job->ledger ? job->ledger->device : 0;
	options.set_device = job->ledger != NULL;
	if (gw_task_start(chaos->pool, job->ledger ? "ledger" : "mix", &job->input, &options,
			  &job->task, &error) != 0)
		fail_msg("gw_task_start: %s", error.msg);
	chaos->started++;
}

static void refill(struct chaos *chaos)
{
	for (int i = 0; i < WINDOW; i++) {
		if (!chaos->jobs[i].task)
			start(chaos, &chaos->jobs[i]);
	}
}

static void check_answer(const struct job *job, const struct gw_outcome *outcome)
{
	const struct chaos_answer *answer = outcome->output;
	uint64_t value = job->ledger ? job->ledger->value : chaos_next(0, job->input.key);

	assert_int_equal(outcome->output_bytes, sizeof(*answer));
	assert_int_equal(answer->wrong_words, 0);
	if (answer->value != value)
		fail_msg("step %" PRIu64 " of ledger %u: %" PRIx64 ", and not %" PRIx64,
			 job->input.number, job->input.ledger, answer->value, value);
}

static void take(struct chaos *chaos, struct gw_task *task)
{
	struct job *job = gw_task_user(task);
	struct gw_outcome outcome = {0};
	bool good;

	assert_ptr_equal(job->task, task);
	assert_int_equal(job->ended++, 0);
	assert_int_equal(gw_task_poll(task, &outcome, NULL), 1);
	good = outcome.kind == GW_DONE || (outcome.kind == GW_CANCELLED && job->cancelled) ||
	       (outcome.kind == GW_POISON && job->poison);
	if (!good)
		fail_msg("outcome %u, value %d, %u attempts: %s", outcome.kind, outcome.value,
			 outcome.attempts, outcome.message);
	if (outcome.kind == GW_DONE)
		check_answer(job, &outcome);
	if (outcome.kind == GW_POISON)
		assert_int_equal(outcome.attempts, POISON_ATTEMPTS);
	chaos->faults += job->input.bad_attempts < outcome.attempts ? job->input.bad_attempts
								    : outcome.attempts;
	chaos->steps += job->ledger != NULL;
	chaos->ended[outcome.kind]++;
	if (job->ledger)
		job->ledger->busy = false;
	gw_task_free(task);
	job->task = NULL;
}

static void stuck(struct chaos *chaos)
{
	struct gw_pool_stat stat = {0};

	(void)gw_pool_stat(chaos->pool, &stat);
	fail_msg("no task ends: %" PRIu64 " pending; workers: %u ready, %u starting, %u failed; "
		 "standbys: %u hot, %u primed, %u starting, %u failed; ward %d; last: %s",
		 stat.tasks_pending, stat.workers_ready, stat.workers_starting, stat.workers_failed,
		 stat.standbys_hot, stat.standbys_primed, stat.standbys_starting,
		 stat.standbys_failed, stat.ward_pid, stat.last_exit.text);
}

/* ---- chaos ---- */

static int parent_of(int32_t pid)
{
	char path[64], text[512] = "";
	const char *end;
	int parent = -1;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	end = strrchr(text, ')');
	if (end && sscanf(end + 1, " %*c %d", &parent) != 1)
		return -1;
	return parent;
}

/* Any child of the ward: workers, standbys, what is leaving, and the probe too. -1: there is none. */
static int32_t any_child(struct chaos *chaos)
{
	int32_t children[CHILDREN_MAX];
	char path[64], text[4096] = "";
	uint64_t count = 0;
	char *next = text;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", chaos->ward_pid,
		       chaos->ward_pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	while (count < CHILDREN_MAX) {
		char *end;
		int32_t pid = (int32_t)strtol(next, &end, 10);

		if (end == next)
			break;
		children[count++] = pid;
		next = end;
	}
	return count > 0 ? children[seed_below(&chaos->seed, count)] : -1;
}

static void strike(struct chaos *chaos, int number)
{
	int32_t pid = any_child(chaos);
	int pidfd;

	if (pid <= 1)
		return;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return;
	if (parent_of(pid) == chaos->ward_pid &&
	    syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0) == 0)
		chaos->signals++;
	(void)close(pidfd);
}

static void cancel(struct chaos *chaos)
{
	struct job *job = &chaos->jobs[seed_below(&chaos->seed, WINDOW)];
	bool with_kill = chance(chaos, 30);

	/* Whether a step that was cancelled counts cannot be known. */
	if (!job->task || job->ledger)
		return;
	job->cancelled = true;
	if (gw_task_cancel(job->task, with_kill, NULL) < 0)
		fail_msg("gw_task_cancel");
	chaos->faults += with_kill;
}

static void stop_ward(struct chaos *chaos)
{
	if (chaos->ward_stopped > 0 && --chaos->ward_stopped == 0)
		assert_int_equal(kill(chaos->ward_pid, SIGCONT), 0);
	if (chaos->ward_stopped > 0 || !chance(chaos, 1))
		return;
	chaos->ward_stopped = 1 + seed_below(&chaos->seed, 20);
	assert_int_equal(kill(chaos->ward_pid, SIGSTOP), 0);
}

static void do_harm(struct chaos *chaos)
{
	uint64_t number = seed_below(&chaos->seed, 100);

	if (number < 45)
		strike(chaos, SIGKILL);
	else if (number < 48)
		strike(chaos, SIGSTOP);
	else if (number < 50)
		strike(chaos, SIGTERM);
	else if (number < 55)
		cancel(chaos);
	stop_ward(chaos);
}

/* Takes up to COUNT tasks. */
static void take_some(struct chaos *chaos, uint64_t count)
{
	struct gw_task *task;

	for (; count > 0; count--) {
		int result = gw_pool_next(chaos->pool, 2 * MS, &task, NULL);

		if (result < 0)
			fail_msg("gw_pool_next: %d", result);
		if (result == 0)
			return;
		take(chaos, task);
	}
}

static void take_all(struct chaos *chaos)
{
	struct gw_task *task;

	if (chaos->ward_stopped > 0)
		assert_int_equal(kill(chaos->ward_pid, SIGCONT), 0);
	while (gw_pool_next(chaos->pool, 30000 * MS, &task, NULL) == 1)
		take(chaos, task);
	for (int i = 0; i < WINDOW; i++) {
		if (chaos->jobs[i].task)
			stuck(chaos);
	}
}

static uint64_t ended_of(const struct chaos *chaos)
{
	return chaos->ended[GW_DONE] + chaos->ended[GW_CANCELLED] + chaos->ended[GW_POISON];
}

static void rage(struct chaos *chaos, uint64_t kills)
{
	uint64_t heard_ns = now_ns();

	while (chaos->signals + chaos->faults < kills) {
		uint64_t ended = ended_of(chaos);

		refill(chaos);
		do_harm(chaos);
		take_some(chaos, 1 + seed_below(&chaos->seed, 8));
		if (ended_of(chaos) != ended)
			heard_ns = now_ns();
		else if (now_ns() - heard_ns > 30000 * MS)
			stuck(chaos);
	}
	take_all(chaos);
}

/* ---- rounds ---- */

static struct gw_pool_options options_of(struct chaos *chaos, uint32_t workers,
					 enum gw_standby standby)
{
	static const int devices[] = {0, 1};
	static const uint32_t detect[] = {0, GW_DETECT_KERNEL_LOG, GW_DETECT_NVML,
					  GW_DETECT_ERROR_LOG, GW_DETECT_RESULT_ONLY};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);

	chaos->n_devices = workers % 2 == 0 && chance(chaos, 50) ? 2 : 1;
	options.devices = devices;
	options.n_devices = chaos->n_devices;
	options.workers_per_device = workers / chaos->n_devices;
	options.total_input_bytes = options.total_output_bytes = 4 << 20;
	options.max_input_bytes = options.max_output_bytes = 1 << 16;
	options.queue_depth = 1 + (uint32_t)seed_below(&chaos->seed, 8);
	options.task_deadline_ns = 400 * MS;
	options.start_deadline_ns = 3000 * MS;
	options.stop_deadline_ns = 1000 * MS;
	options.heartbeat_ns = 150 * MS;
	options.restart_min_ns = options.restart_max_ns = MS;
	options.max_start_failures = options.max_quick_deaths = UINT32_MAX;
	options.standby = standby;
	options.standbys_per_device = 1 + (uint32_t)seed_below(&chaos->seed, 2);
	options.detect = detect[seed_below(&chaos->seed, sizeof(detect) / sizeof(detect[0]))];
	options.flags = chance(chaos, 50) ? GW_POOL_SLIM_STANDBYS : 0;
	return options;
}

static void begin(struct chaos *chaos, const struct gw_pool_options *options)
{
	struct gw_error error = {0};
	struct gw_pool_stat stat = {0};
	char log[300];

	(void)snprintf(log, sizeof(log), "%s/kmsg", soft_dir());
	assert_int_equal(setenv("GPUWARD_KERNEL_LOG", log, 1), 0);
	for (uint32_t i = 0; i < LEDGERS; i++)
		chaos->ledgers[i].device = (int)(i % chaos->n_devices);
	if (gw_pool_open(&chaos->pool, options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	assert_int_equal(gw_pool_stat(chaos->pool, &stat), 0);
	assert_true(stat.ward_pid > 1);
	chaos->ward_pid = stat.ward_pid;
}

/* What is kept of the last recoveries makes sense. */
static void check_recoveries(struct chaos *chaos, const struct gw_pool_stat *stat)
{
	struct gw_recovery recovery = {0};

	for (uint64_t n = 0; n < stat->recoveries; n++) {
		if (gw_pool_recovery(chaos->pool, n, &recovery) != 0)
			continue;
		assert_int_equal(recovery.number, n);
		assert_true(recovery.standby <= GW_STANDBY_HOT);
		all_standbys[recovery.standby]++;
		assert_true(recovery.exit.source < GW_SOURCES);
		assert_true(recovery.exit.noticed_ns <= recovery.fenced_ns);
		assert_true(recovery.fenced_ns <= recovery.ready_ns);
	}
}

static void end(struct chaos *chaos, uint32_t workers, enum gw_standby standby)
{
	struct gw_pool_stat stat = {0};
	uint64_t noticed = 0;

	assert_int_equal(gw_pool_stat(chaos->pool, &stat), 0);
	(void)fprintf(stderr,
		      "%u workers, standby %u, %u device(s): %" PRIu64 " signals, %" PRIu64
		      " faults, %" PRIu64 " recoveries; tasks: %" PRIu64 " done, %" PRIu64
		      " poison, %" PRIu64 " cancelled; %" PRIu64 " steps of state\n",
		      workers, standby, chaos->n_devices, chaos->signals, chaos->faults,
		      stat.recoveries, chaos->ended[GW_DONE], chaos->ended[GW_POISON],
		      chaos->ended[GW_CANCELLED], chaos->steps);
	assert_int_equal(ended_of(chaos), chaos->started);
	assert_int_equal(stat.tasks_done, chaos->started);
	assert_int_equal(stat.tasks_pending, 0);
	assert_int_equal(stat.input_bytes, 0);
	assert_int_equal(stat.output_bytes, 0);
	assert_int_equal(stat.workers_failed, 0);
	assert_int_equal(stat.standbys_failed, 0);
	for (int i = 0; i < GW_SOURCES; i++) {
		noticed += stat.noticed_by[i];
		all_noticed[i] += stat.noticed_by[i];
	}
	assert_int_equal(noticed, stat.recoveries);
	check_recoveries(chaos, &stat);
	gw_pool_close(chaos->pool);
	assert_int_equal(soft_used_bytes(0) + soft_used_bytes(1), 0);
}

static void one_round(uint32_t workers, enum gw_standby standby, struct seed seed)
{
	static struct chaos chaos;
	struct gw_pool_options options;

	chaos = (struct chaos){.seed = seed};
	soft_dir_new("devices=2\n");
	options = options_of(&chaos, workers, standby);
	begin(&chaos, &options);
	rage(&chaos, (kills_wanted + ROUNDS - 1) / ROUNDS);
	end(&chaos, workers, standby);
	soft_dir_free();
}

static void survive(enum gw_standby standby, const char *what)
{
	struct seed seed = seed_new(what);

	for (uint32_t workers = 1; workers <= 4; workers++)
		one_round(workers, standby, (struct seed){seed.state + standby * 4U + workers});
}

static void all_is_right_without_standbys(void **state)
{
	(void)state;
	survive(GW_STANDBY_COLD, "cold");
}

static void all_is_right_with_primed_standbys(void **state)
{
	(void)state;
	survive(GW_STANDBY_PRIMED, "primed");
}

static void all_is_right_with_hot_standbys(void **state)
{
	(void)state;
	survive(GW_STANDBY_HOT, "hot");
}

/* Otherwise the test has shown less than it says. */
static void each_kind_of_recovery_was_there(void **state)
{
	(void)state;
	assert_true(all_noticed[GW_SOURCE_RESULT] > 0);
	assert_true(all_noticed[GW_SOURCE_DEATH] > 0);
	assert_true(all_noticed[GW_SOURCE_DEADLINE] > 0);
	assert_true(all_noticed[GW_SOURCE_HEARTBEAT] > 0);
	assert_true(all_noticed[GW_SOURCE_KERNEL_LOG] + all_noticed[GW_SOURCE_NVML] +
			    all_noticed[GW_SOURCE_ERROR_LOG] >
		    0);
	for (int i = 0; i < 3; i++)
		assert_true(all_standbys[i] > 0);
}

static bool take_arguments(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--kills") == 0)
			kills_wanted = strtoull(argv[i + 1], NULL, 0);
		else if (strcmp(argv[i], "--seed") == 0)
			(void)setenv("GPUWARD_TEST_SEED", argv[i + 1], 1);
		else
			return false;
	}
	return argc % 2 == 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		world_test(all_is_right_without_standbys),
		world_test(all_is_right_with_primed_standbys),
		world_test(all_is_right_with_hot_standbys),
		world_test(each_kind_of_recovery_was_there),
	};
	const struct rlimit no_core = {0, 0};

	/* A search for leaks at the end of a worker traces it by another process, which would outlive it where it
	 * is killed just then. */
	if (gw_is_worker())
		_exit(chaos_worker_run());
	if (!take_arguments(argc, argv)) {
		(void)fprintf(stderr, "usage: test-chaos [--kills N] [--seed S]\n");
		return 2;
	}
	world_begin();
	(void)setrlimit(RLIMIT_CORE, &no_core);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
