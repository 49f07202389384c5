/* SPDX-License-Identifier: MIT */
/*
 * Description: a hostile worker cannot crash, hang or mislead host or ward. While it does its worst, an
 * honest worker of the same pool serves: every one of its results is right, no task ends twice, nothing
 * that the hostile one says exceeds the room that was asked for, and the pool closes.
 *
 * Runs in: host, with a ward and two workers: slot 0 is hostile_worker.c, slot 1 an ordinary one; and so are their
 * standbys. Each has an (emulated) device of its own, so that tasks can be bound to one of them.
 * GPUWARD_TEST_HOSTILE_SECONDS says how long; 5 if it is not set. Read next: hostile_worker.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../seed.h"
#include "../softgpu.h"
#include "../world.h"
#include "common/fd.h"
#include "common/wire.h"
#include "hostile_worker.h"

enum {
	HOSTILE = 0, /* device and slot */
	HONEST = 1,
	WINDOW = 24, /* tasks under way per worker */
	BYTES_MAX = 20000,
};

/* A task that is under way, or was. */
struct job {
	struct gw_task *task; /* NULL: free */
	int32_t device;
	uint64_t key;
	uint64_t bytes;
	int ended;
};

struct battle {
	struct gw_pool *pool;
	struct seed seed;
	struct job jobs[2 * WINDOW];
	uint64_t started;
	uint64_t ended[2];
	uint64_t kinds[8]; /* how the hostile worker's tasks ended */
};

/* ---- the honest worker ---- */

static uint8_t mixed(uint64_t key, uint64_t i)
{
	return (uint8_t)((key >> (i % 57)) + i * 31);
}

/* The first eight bytes of the input are the key, the output is as long as the input. */
static int run_mix(struct gw_call *call)
{
	uint8_t *output = call->output;
	uint64_t key;

	if (call->input_bytes < sizeof(key) || call->output_capacity_bytes < call->input_bytes)
		return 1;
	memcpy(&key, call->input, sizeof(key));
	for (uint64_t i = 0; i < call->input_bytes; i++)
		output[i] = mixed(key, i);
	call->output_bytes = call->input_bytes;
	return 0;
}

static const struct gw_function functions[] = {
	{.name = HOSTILE_FUNCTION, .run = run_mix},
	{.name = NULL},
};

/* ---- the host ---- */

static void start(struct battle *battle, struct job *job, int32_t device)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};

	job->key = seed_next(&battle->seed);
	job->bytes = sizeof(job->key) + seed_below(&battle->seed, BYTES_MAX);
	job->device = device;
	job->ended = 0;
	options.input_bytes = options.output_bytes = job->bytes;
	options.device = device;
	options.set_device = true;
	options.deadline_ns = device == HOSTILE ? 100000000 : 0;
	options.user = job;
	if (gw_task_new(battle->pool, HOSTILE_FUNCTION, &options, &job->task, &error) != 0)
		fail_msg("gw_task_new: %s", error.msg);
	memcpy(gw_task_input(job->task), &job->key, sizeof(job->key));
	if (gw_task_submit(job->task, &error) != 0)
		fail_msg("gw_task_submit: %s", error.msg);
	battle->started++;
}

static void check_honest(const struct job *job, const struct gw_outcome *outcome)
{
	const uint8_t *output = outcome->output;

	assert_int_equal(outcome->kind, GW_DONE);
	assert_int_equal(outcome->device, HONEST);
	assert_int_equal(outcome->attempts, 0);
	assert_int_equal(outcome->output_bytes, job->bytes);
	for (uint64_t i = 0; i < job->bytes; i++)
		assert_int_equal(output[i], mixed(job->key, i));
}

/* Every byte that is offered can be read, and a message is a line of text. */
static void check_hostile(const struct job *job, const struct gw_outcome *outcome)
{
	const volatile uint8_t *output = outcome->output;
	size_t length = strnlen(outcome->message, sizeof(outcome->message));
	uint32_t sum = 0;

	assert_true(outcome->output_bytes <= job->bytes);
	assert_true(outcome->output_bytes == 0 || output);
	for (uint64_t i = 0; i < outcome->output_bytes; i++)
		sum += output[i];
	assert_true(sum <= 255 * outcome->output_bytes);
	assert_true(length < sizeof(outcome->message));
	for (size_t i = 0; i < length; i++)
		assert_true((unsigned char)outcome->message[i] >= ' ');
}

static void take(struct battle *battle, struct gw_task *task)
{
	struct job *job = gw_task_user(task);
	struct gw_outcome outcome = {0};

	assert_ptr_equal(job->task, task);
	assert_int_equal(job->ended, 0);
	job->ended++;
	assert_int_equal(gw_task_poll(task, &outcome, NULL), 1);
	if (job->device == HONEST)
		check_honest(job, &outcome);
	else
		check_hostile(job, &outcome);
	battle->ended[job->device]++;
	if (job->device == HOSTILE)
		battle->kinds[outcome.kind & 7]++;
	gw_task_free(task);
	job->task = NULL;
}

static void refill(struct battle *battle)
{
	for (uint32_t i = 0; i < 2 * WINDOW; i++) {
		struct job *job = &battle->jobs[i];

		if (!job->task)
			start(battle, job, i < WINDOW ? HOSTILE : HONEST);
	}
}

/* Says what is known of a task that does not end, and fails. */
static void stuck(struct battle *battle, const struct job *job)
{
	struct gw_pool_stat stat = {0};
	struct gw_worker_info info = {0};

	(void)gw_pool_stat(battle->pool, &stat);
	(void)gw_pool_worker(battle->pool, (uint32_t)job->device, &info);
	fail_msg("a task of device %d does not end; %" PRIu64
		 " pending, workers: %u ready, %u starting, %u failed; its worker: pid %d, "
		 "incarnation %u, %u in flight; last: %s",
		 job->device, stat.tasks_pending, stat.workers_ready, stat.workers_starting,
		 stat.workers_failed, info.pid, info.incarnation, info.in_flight,
		 stat.last_exit.text);
}

/* Takes what has ended, by one of the ways that a host has. */
static void take_some(struct battle *battle)
{
	struct pollfd fd = {.events = POLLIN};
	struct gw_task *task;

	if (seed_below(&battle->seed, 2)) {
		fd.fd = gw_pool_fd(battle->pool);
		if (poll(&fd, 1, 20000) != 1)
			stuck(battle, &battle->jobs[0]);
		if (gw_pool_dispatch(battle->pool, NULL) < 0)
			fail_msg("the ward was lost");
		while (gw_pool_next(battle->pool, 0, &task, NULL) == 1)
			take(battle, task);
		return;
	}
	if (gw_pool_next(battle->pool, UINT64_C(20000000000), &task, NULL) != 1)
		stuck(battle, &battle->jobs[0]);
	take(battle, task);
}

static void take_all(struct battle *battle)
{
	struct gw_task *task;

	while (gw_pool_next(battle->pool, UINT64_C(20000000000), &task, NULL) == 1)
		take(battle, task);
	for (uint32_t i = 0; i < 2 * WINDOW; i++) {
		if (battle->jobs[i].task)
			stuck(battle, &battle->jobs[i]);
	}
}

static struct gw_pool *open_pool(void)
{
	static const int devices[] = {HOSTILE, HONEST};
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_error error = {0};
	struct gw_pool *pool = NULL;
	struct gw_pool_stat stat = {0};
	struct pollfd fd = {.events = POLLIN};

	options.devices = devices;
	options.n_devices = 2;
	options.total_input_bytes = options.total_output_bytes = 16 << 20;
	options.max_input_bytes = options.max_output_bytes = 1 << 20;
	options.queue_depth = 16;
	options.restart_min_ns = options.restart_max_ns = 1000000;
	options.max_start_failures = options.max_quick_deaths = 1000000;
	options.standby = GW_STANDBY_HOT;
	options.heartbeat_ns = 500000000;
	options.stop_deadline_ns = 200000000;
	if (gw_pool_open(&pool, &options, &error) != 0)
		fail_msg("gw_pool_open: %s", error.msg);
	/* The honest one has to announce its function before there can be a task for it. */
	fd.fd = gw_pool_fd(pool);
	for (;;) {
		struct gw_worker_info info;

		assert_int_equal(gw_pool_worker(pool, HONEST, &info), 0);
		if (info.pid > 1)
			break;
		assert_int_equal(poll(&fd, 1, 20000), 1);
		assert_true(gw_pool_dispatch(pool, NULL) >= 0);
	}
	assert_int_equal(gw_pool_stat(pool, &stat), 0);
	assert_true(stat.ward_pid > 1);
	return pool;
}

static uint64_t seconds(void)
{
	const char *text = getenv("GPUWARD_TEST_HOSTILE_SECONDS");

	return text ? strtoull(text, NULL, 10) : 5;
}

static void check_complaints(const char *path)
{
	char text[256] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	(void)unlink(path);
	if (text[0])
		fail_msg("the hostile worker could do what it must not: %s", text);
}

static void a_hostile_worker_harms_nobody(void **state)
{
	static struct battle battle;
	struct gw_pool_stat stat = {0};
	uint64_t end = now_ns() + seconds() * 1000000000U;
	char log[300];

	(void)state;
	/* A host that blocks for ever is ended, and the test has failed. */
	(void)alarm((unsigned int)seconds() + 50);
	soft_dir_new("devices=2\n");
	(void)snprintf(log, sizeof(log), "%s.hostile", soft_dir());
	assert_int_equal(setenv(HOSTILE_LOG_ENV, log, 1), 0);
	battle.seed = seed_new("hostile");
	battle.pool = open_pool();
	while (now_ns() < end) {
		refill(&battle);
		take_some(&battle);
	}
	take_all(&battle);
	assert_int_equal(gw_pool_stat(battle.pool, &stat), 0);
	assert_int_equal(stat.tasks_done, battle.started);
	assert_int_equal(stat.tasks_pending, 0);
	assert_int_equal(stat.input_bytes, 0);
	assert_int_equal(stat.output_bytes, 0);
	assert_int_equal(battle.ended[HOSTILE] + battle.ended[HONEST], battle.started);
	gw_pool_close(battle.pool);
	(void)fprintf(stderr,
		      "honest tasks %" PRIu64 ", hostile %" PRIu64 " (done %" PRIu64
		      ", failed %" PRIu64 ", poison %" PRIu64 ", lost %" PRIu64
		      "), hostile workers %" PRIu64 "\n",
		      battle.ended[HONEST], battle.ended[HOSTILE], battle.kinds[GW_DONE],
		      battle.kinds[GW_FAILED], battle.kinds[GW_POISON], battle.kinds[GW_LOST],
		      stat.recoveries);
	/* Otherwise the test has shown nothing. */
	assert_true(stat.recoveries > 5);
	assert_int_equal(stat.workers_failed, 0);
	assert_int_equal(stat.standbys_failed, 0);
	assert_true(battle.ended[HONEST] > 100);
	assert_true(battle.kinds[GW_DONE] > 0 && battle.kinds[GW_POISON] > 0);
	check_complaints(log);
	assert_int_equal(unsetenv(HOSTILE_LOG_ENV), 0);
	soft_dir_free();
	(void)alarm(0);
}

/* What the ward wrote for this process: slot, incarnation, and whether it is a standby. */
static int run_worker(void)
{
	const char *text = getenv(WIRE_WORKER_ENV);
	unsigned int slot, incarnation, standby;

	if (!text || sscanf(text, "%*u:%u:%u:%*d:%*u:%*u:%u", &slot, &incarnation, &standby) != 3)
		return 96;
	return slot == HOSTILE ? hostile_run(2 * incarnation + standby) : gw_worker_run(functions);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(a_hostile_worker_harms_nobody),
	};

	if (gw_is_worker())
		return run_worker();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
