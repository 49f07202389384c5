/* SPDX-License-Identifier: MIT */
/*
 * Description: what a worker does after it was declared dead counts for nothing. A ghost of it, which lives on
 * with its memory and its sockets, finishes the task at every step of its way: before the host has heard of the
 * end, and after the successor has finished the task. Each task is delivered once, by the one whose it is;
 * state has no commit of the ghost's; nobody crashes, and nobody is blamed for what the ghost says.
 *
 * Runs in: host and worker in one program, on the emulated GPU. Read next: fence_worker.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../gate.h"
#include "../softgpu.h"
#include "../world.h"
#include "failover_host.h"
#include "fence_worker.h"

/* How long a task may take. */
#define LATE_NS (120 * MS)

/* When the ghost is let go. */
enum moment {
	BEFORE_THE_HOST_HEARS, /* the fence stands in the page, and the host has not looked since */
	AFTER_THE_SUCCESSOR,   /* which has finished the task */
	MOMENTS,
};

struct scene {
	enum fence_step step;
	enum moment moment;
	bool state;
	struct gw_pool *pool;
	struct gate gate;
	int32_t worker;
	struct gw_task *tasks[2];
	struct gate_visit ghost;
};

static void write_fence(const struct scene *scene)
{
	char path[300], text[300];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/" FENCE_FILE, soft_dir());
	(void)snprintf(text, sizeof(text), "%u %s", scene->step, scene->gate.path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(close(fd), 0);
}

static struct gw_task *start(const struct scene *scene, uint32_t seed, uint64_t deadline_ns)
{
	struct fence_job job = {.seed = seed, .state = scene->state};
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	struct gw_error error = {0};
	struct gw_task *task = NULL;

	options.input_bytes = sizeof(job);
	options.output_bytes = sizeof(struct fence_answer);
	options.deadline_ns = deadline_ns;
	if (gw_task_start(scene->pool, "count", &job, &options, &task, &error) != 0)
		fail_msg("gw_task_start: %s", error.msg);
	return task;
}

static struct fence_answer answer_of(struct gw_task *task, uint32_t seed)
{
	struct gw_outcome outcome = {0};
	struct fence_answer answer;

	if (gw_task_wait(task, 20000 * MS, &outcome, NULL) != 1)
		fail_msg("a task does not end");
	if (outcome.kind != GW_DONE)
		fail_msg("outcome %u: %s", outcome.kind, outcome.message);
	assert_int_equal(outcome.output_bytes, sizeof(answer));
	memcpy(&answer, outcome.output, sizeof(answer));
	assert_int_equal(answer.number, fence_number(seed));
	return answer;
}

/* Lets the ghost do what it does, and waits until it has; it lives on. */
static void let_go(const struct scene *scene)
{
	gate_open(&scene->gate);
	assert_int_equal(gate_expect(&scene->gate).pid, scene->ghost.pid);
}

static void end_ghost(const struct scene *scene)
{
	gate_open(&scene->gate);
	world_wait_gone(scene->ghost.pid);
}

/* Who must have delivered the first task. */
static void check_first(const struct scene *scene, const struct fence_answer *first)
{
	struct gw_recovery recovery = failover_wait_begun(scene->pool, 0);

	if (scene->step == FENCE_AFTER_COMPLETED)
		assert_int_equal(first->pid, scene->worker);
	else
		assert_int_equal(first->pid, failover_pid(scene->pool, 0));
	assert_int_not_equal(first->pid, scene->ghost.pid);
	assert_int_equal(recovery.exit.pid, scene->worker);
	assert_int_equal(recovery.exit.source, GW_SOURCE_DEADLINE);
}

static void check_answers(void)
{
	int commit, reserve;
	char *text = soft_text(FENCE_ANSWERS);

	/* No answer is as good: the ward has hung up. */
	assert_int_equal(sscanf(text, "%d %d", &commit, &reserve), 2);
	assert_true(commit == GW_EFENCED || commit == 0);
	assert_true(reserve == GW_EFENCED || reserve == 0);
	free(text);
}

static void check_pool(const struct scene *scene)
{
	struct gw_pool_stat stat;
	struct gw_task *task;

	for (uint32_t seed = 100; seed < 110; seed++) {
		task = start(scene, seed, 0);
		(void)answer_of(task, seed);
		gw_task_free(task);
	}
	(void)failover_wait_complete(scene->pool, 0);
	stat = failover_stat(scene->pool);
	if (stat.recoveries != 1)
		fail_msg("%llu recoveries, the last: %s", (unsigned long long)stat.recoveries,
			 stat.last_exit.text);
	assert_int_equal(stat.workers_failed, 0);
	assert_int_equal(stat.tasks_done, 12);
	assert_int_equal(stat.tasks_pending, 0);
	assert_int_equal(stat.attempts_failed, 1);
	assert_int_equal(gw_pool_next(scene->pool, 0, &task, NULL), 0);
}

static void play(enum fence_step step, enum moment moment, enum gw_standby standby)
{
	const struct gw_pool_options options = failover_options(1, standby, 1);
	struct scene scene = {.step = step, .moment = moment};
	struct fence_answer first, second, again;

	soft_dir_new(NULL);
	gate_new(&scene.gate, "fence");
	scene.pool = failover_open(&options);
	if (standby == GW_STANDBY_HOT)
		(void)failover_wait_standbys(scene.pool, 1, 0);
	scene.worker = failover_pid(scene.pool, 0);
	write_fence(&scene);
	for (uint32_t i = 0; i < 2; i++)
		scene.tasks[i] = start(&scene, i, LATE_NS);
	scene.ghost = gate_expect(&scene.gate);
	(void)failover_wait_begun(scene.pool, 0);
	if (moment == BEFORE_THE_HOST_HEARS)
		let_go(&scene);
	first = answer_of(scene.tasks[0], 0);
	second = answer_of(scene.tasks[1], 1);
	if (moment == AFTER_THE_SUCCESSOR)
		let_go(&scene);
	check_first(&scene, &first);
	assert_int_equal(second.pid, failover_pid(scene.pool, 0));
	again = answer_of(scene.tasks[1], 1);
	assert_memory_equal(&again, &second, sizeof(again));
	check_answers();
	check_pool(&scene);
	for (int i = 0; i < 2; i++)
		gw_task_free(scene.tasks[i]);
	end_ghost(&scene);
	gate_done(&scene.gate);
	failover_close(scene.pool);
}

static bool is_of_state(enum fence_step step)
{
	return step == FENCE_BEFORE_COMMIT || step == FENCE_AFTER_COMMIT;
}

static void play_all(enum moment moment, enum gw_standby standby)
{
	for (int step = FENCE_NEVER + 1; step < FENCE_STEPS; step++) {
		if (!is_of_state((enum fence_step)step))
			play((enum fence_step)step, moment, standby);
	}
}

static void a_ghost_counts_for_nothing_before_the_host_hears(void **state)
{
	(void)state;
	play_all(BEFORE_THE_HOST_HEARS, GW_STANDBY_COLD);
	play_all(BEFORE_THE_HOST_HEARS, GW_STANDBY_HOT);
}

static void a_ghost_counts_for_nothing_after_its_successor(void **state)
{
	(void)state;
	play_all(AFTER_THE_SUCCESSOR, GW_STANDBY_HOT);
}

/* What the ghost has in its hands is handed on to nobody while it lives; then the last commit is found. */
static void play_state(enum fence_step step, uint64_t count)
{
	const struct gw_pool_options options = failover_options(1, GW_STANDBY_HOT, 1);
	struct scene scene = {.step = step, .state = true};
	struct gw_outcome outcome = {0};
	struct gw_state_info info = {.size = sizeof(info)};
	struct gw_task *task;

	soft_dir_new(NULL);
	gate_new(&scene.gate, "fence");
	scene.pool = failover_open(&options);
	/* Two commits of an honest worker. */
	for (uint32_t i = 0; i < 2; i++) {
		task = start(&scene, i, 0);
		assert_int_equal(answer_of(task, i).count, i + 1);
		gw_task_free(task);
	}
	write_fence(&scene);
	task = start(&scene, 2, LATE_NS);
	scene.ghost = gate_expect(&scene.gate);
	(void)failover_wait_begun(scene.pool, 0);
	let_go(&scene);
	check_answers();
	/* Its second attempt is refused, since the ghost is there. */
	assert_int_equal(gw_task_wait(task, 20000 * MS, &outcome, NULL), 1);
	assert_int_equal(outcome.kind, GW_FAILED);
	assert_int_equal(outcome.value, -EBUSY);
	gw_task_free(task);
	assert_int_equal(gw_pool_states(scene.pool, &info, 1), 1);
	assert_int_equal(info.epoch, count);
	end_ghost(&scene);
	task = start(&scene, 3, 0);
	assert_int_equal(answer_of(task, 3).count, count + 1);
	gw_task_free(task);
	assert_int_equal(gw_pool_states(scene.pool, &info, 1), 1);
	assert_int_equal(info.epoch, count + 1);
	assert_string_equal(info.name, "counter");
	gate_done(&scene.gate);
	failover_close(scene.pool);
}

static void a_ghost_commits_nothing(void **state)
{
	(void)state;
	play_state(FENCE_BEFORE_COMMIT, 2);
}

static void a_commit_of_before_the_fence_stands(void **state)
{
	(void)state;
	play_state(FENCE_AFTER_COMMIT, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(a_ghost_counts_for_nothing_before_the_host_hears),
		world_test(a_ghost_counts_for_nothing_after_its_successor),
		world_test(a_ghost_commits_nothing),
		world_test(a_commit_of_before_the_fence_stands),
	};

	if (gw_is_worker())
		return fence_worker_run();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
