/* SPDX-License-Identifier: MIT */
/*
 * Description: host, ward and worker are each killed, and each stopped and continued, at every point of a
 * worker's life. What can go on goes on, what cannot is an error, and no process is left.
 *
 * Runs in: a test that directs, a host that it forks (host_main below), its ward, and its worker. The worker
 * is held at the point by a gate, so that nothing depends on time. A scene is: wait until the worker is
 * there, send the signal, open the gate, see how the host ends. Read next: ../gate.h.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpuward.h>

#include "../gate.h"
#include "../world.h"
#include "common/fd.h"
#include "common/wire.h"

#define MS UINT64_C(1000000)

/* Where the worker is held, by the value of this variable: "main" or "prepare". */
#define POINT_ENV "GPUWARD_TEST_POINT"
#define GATE_ENV  "GPUWARD_TEST_GATE"

enum point {
	AT_MAIN,    /* started, before gw_worker_run() */
	AT_PREPARE, /* starting */
	AT_IDLE,    /* ready */
	AT_TASK,    /* running a task */
	AT_CLOSE,   /* asked to stop, in a task */
	AT_BACKOFF, /* dead, and the next one is to wait */
	POINTS
};

static const char *const point_names[POINTS] = {
	[AT_MAIN] = "main", [AT_PREPARE] = "prepare", [AT_IDLE] = "idle",
	[AT_TASK] = "task", [AT_CLOSE] = "close",     [AT_BACKOFF] = "backoff",
};

/* How the host ends. */
enum host_end {
	HOST_GOOD = 0,
	HOST_OPEN_LOST = 21, /* gw_pool_open(): GW_EWARDLOST */
	HOST_TASK_LOST = 22, /* its task ended as GW_LOST */
	HOST_WRONG = 29,     /* anything else */
};

/* ---- the worker ---- */

static bool is_point(const char *name)
{
	const char *point = getenv(POINT_ENV);

	return point && strcmp(point, name) == 0;
}

static unsigned int incarnation;

static int prepare(int device)
{
	(void)device;
	if (is_point("prepare"))
		gate_wait(getenv(GATE_ENV));
	if (is_point("backoff") && incarnation == 0) {
		gate_wait(getenv(GATE_ENV));
		_exit(7);
	}
	return 0;
}

/* The input is a path of a gate, or empty. */
static int run_double(struct gw_call *call)
{
	const char *path = call->input;

	if (path[0])
		gate_wait(path);
	*(uint32_t *)call->output = 2 * call->attempt + 1;
	call->output_bytes = sizeof(uint32_t);
	return 0;
}

static int worker_main(void)
{
	static const struct gw_function functions[] = {
		{.name = "double", .run = run_double, .prepare = prepare},
		{.name = NULL},
	};

	if (sscanf(getenv(WIRE_WORKER_ENV), "%*u:%*u:%u", &incarnation) != 1)
		return 90;
	if (is_point("main"))
		gate_wait(getenv(GATE_ENV));
	return gw_worker_run(functions);
}

/* ---- the host ---- */

static void hold_idle(struct gw_pool *pool, const char *gate)
{
	struct gw_worker_info info = {0};
	struct gw_pool_stat stat = {0};

	(void)gw_pool_stat(pool, &stat);
	(void)gw_pool_worker(pool, 0, &info);
	gate_wait_as(gate, (struct gate_visit){info.pid, stat.ward_pid});
}

static enum host_end run_task(struct gw_pool *pool, enum point point, const char *gate,
			      const char *close_gate)
{
	struct gw_task_options options = GW_OPTIONS(struct gw_task_options);
	const char *input = point == AT_TASK || point == AT_CLOSE ? gate : "";
	struct gw_outcome outcome = {0};
	struct gw_task *task = NULL;
	int result;

	options.input_bytes = strlen(input) + 1;
	options.output_bytes = sizeof(uint32_t);
	options.deadline_ns = point == AT_CLOSE ? 0 : 300 * MS;
	options.max_attempts = 1000;
	result = gw_task_start(pool, "double", input, &options, &task, NULL);
	if (result < 0)
		return HOST_WRONG;
	if (point == AT_CLOSE) {
		gate_wait(close_gate);
		return HOST_GOOD;
	}
	if (gw_task_wait(task, 20000 * MS, &outcome, NULL) != 1)
		return HOST_WRONG;
	if (outcome.kind == GW_LOST)
		return HOST_TASK_LOST;
	return outcome.kind == GW_DONE && outcome.output_bytes == sizeof(uint32_t) &&
			       *(const uint32_t *)outcome.output == 2 * outcome.attempts + 1
		       ? HOST_GOOD
		       : HOST_WRONG;
}

static enum host_end host_main(enum point point, const char *gate, const char *close_gate)
{
	struct gw_pool_options options = GW_OPTIONS(struct gw_pool_options);
	struct gw_pool *pool = NULL;
	enum host_end end;
	int result;

	options.total_input_bytes = options.total_output_bytes = 1 << 20;
	options.max_input_bytes = options.max_output_bytes = 4096;
	options.start_deadline_ns = 700 * MS;
	options.stop_deadline_ns = 300 * MS;
	options.max_start_failures = 50;
	/* While a worker is to be caught in its pause, the pause is long. */
	options.restart_min_ns = options.restart_max_ns = point == AT_BACKOFF ? 400 * MS : MS;
	(void)setenv(POINT_ENV, point_names[point], 1);
	(void)setenv(GATE_ENV, gate, 1);
	result = gw_pool_open(&pool, &options, NULL);
	if (result < 0)
		return result == GW_EWARDLOST ? HOST_OPEN_LOST : HOST_WRONG;
	if (point == AT_IDLE)
		hold_idle(pool, gate);
	end = run_task(pool, point, gate, close_gate);
	gw_pool_close(pool);
	return end;
}

/* ---- the test ---- */

/* One run of a host, with its worker at the point. */
struct scene {
	enum point point;
	struct gate gate;
	struct gate close_gate;
	int32_t host;
	int32_t ward;
	int32_t worker;
};

static void send_signal(int32_t pid, int number)
{
	assert_true(pid > 1);
	assert_int_equal(kill(pid, number), 0);
}

static char state_of(int32_t pid)
{
	char path[64], text[256] = "";
	const char *end;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return '?';
	(void)!fread(text, 1, sizeof(text) - 1, file);
	(void)fclose(file);
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : '?';
}

/*
 * Stops PID, and returns when it stands still:
 *
 *	test: SIGSTOP to the ward
 *	test: SIGKILL to the host; its end finds no stopped member in the ward's group
 *	ward: stops, and nobody continues it
 */
static void stop(int32_t pid)
{
	uint64_t deadline = now_ns() + 10000 * MS;

	send_signal(pid, SIGSTOP);
	while (state_of(pid) != 'T') {
		if (now_ns() > deadline)
			fail_msg("process %d does not stop", pid);
		(void)poll(NULL, 0, 1);
	}
}

static void scene_begin(struct scene *scene, enum point point)
{
	struct gate_visit visit;

	scene->point = point;
	gate_new(&scene->gate, "point");
	gate_new(&scene->close_gate, "close");
	scene->host = fork();
	/* A session of its own: else its ward, given to this test at its death, would be no orphan. */
	if (scene->host == 0 && setsid() < 0)
		_exit(HOST_WRONG);
	if (scene->host == 0)
		_exit((int)host_main(point, scene->gate.path, scene->close_gate.path));
	assert_true(scene->host > 1);
	visit = gate_expect(&scene->gate);
	scene->worker = visit.pid;
	scene->ward = visit.parent;
	assert_true(scene->ward > 1 && scene->ward != scene->host);
	if (point == AT_CLOSE) {
		(void)gate_expect(&scene->close_gate);
		gate_open(&scene->close_gate);
	}
	if (point == AT_BACKOFF) {
		gate_open(&scene->gate);
		world_wait_gone(scene->worker);
	}
}

static bool host_has_ended(const struct scene *scene)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)scene->host, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == scene->host;
}

/* Opens the gate for everybody who still comes, until the host ends. Returns its wait status. */
static int scene_end(struct scene *scene)
{
	struct pollfd fd = {.fd = scene->gate.arrived_fd, .events = POLLIN};
	uint64_t deadline = now_ns() + 20000 * MS;
	int status = -1;

	while (!host_has_ended(scene)) {
		struct gate_visit visit;

		if (now_ns() > deadline)
			fail_msg("at %s: the host does not end", point_names[scene->point]);
		if (poll(&fd, 1, 10) != 1)
			continue;
		visit = gate_expect(&scene->gate);
		scene->worker = visit.pid;
		gate_open(&scene->gate);
	}
	assert_int_equal(waitpid(scene->host, &status, 0), scene->host);
	world_wait_gone(scene->ward);
	world_wait_gone(scene->worker);
	gate_done(&scene->gate);
	gate_done(&scene->close_gate);
	return status;
}

static void expect_end(struct scene *scene, enum host_end end)
{
	int status = scene_end(scene);

	if (status != (int)end << 8)
		fail_msg("at %s: the host's status is %#x and not %#x", point_names[scene->point],
			 (unsigned int)status, (unsigned int)end << 8);
}

/* Lets the one who is there now through. In a pause nobody is there. */
static void let_through(const struct scene *scene)
{
	if (scene->point != AT_BACKOFF)
		gate_open(&scene->gate);
}

/* ---- the worker is hit ---- */

static void a_killed_worker_is_replaced_at_every_point(void **state)
{
	(void)state;
	for (int point = 0; point < AT_BACKOFF; point++) {
		struct scene scene;
		int32_t old;

		scene_begin(&scene, (enum point)point);
		old = scene.worker;
		world_kill(old);
		/* Idle, it is the host that is held, and nobody else comes. */
		if (point == AT_IDLE)
			gate_open(&scene.gate);
		expect_end(&scene, HOST_GOOD);
		if (point != AT_IDLE && point != AT_CLOSE)
			assert_int_not_equal(scene.worker, old);
	}
}

/* It is killed when its deadline has run out: of the start, of the task or of the stop. What it would do
 * after SIGCONT nobody sees, since it is gone when its successor has finished. */
static void a_stopped_worker_is_replaced_at_every_point(void **state)
{
	(void)state;
	for (int point = 0; point < AT_BACKOFF; point++) {
		struct scene scene;
		int32_t old;

		scene_begin(&scene, (enum point)point);
		old = scene.worker;
		stop(old);
		if (point == AT_IDLE)
			gate_open(&scene.gate);
		expect_end(&scene, HOST_GOOD);
		if (point != AT_CLOSE)
			world_wait_gone(old);
	}
}

/* Stopped for less than its deadline: nobody minds. */
static void a_worker_that_goes_on_in_time_is_kept(void **state)
{
	(void)state;
	for (int point = 0; point < AT_BACKOFF; point++) {
		struct scene scene;
		int32_t old;

		scene_begin(&scene, (enum point)point);
		old = scene.worker;
		stop(old);
		send_signal(old, SIGCONT);
		let_through(&scene);
		expect_end(&scene, HOST_GOOD);
		assert_int_equal(scene.worker, old);
	}
}

/* ---- the ward is hit ---- */

static void a_killed_ward_is_an_error_at_every_point(void **state)
{
	static const enum host_end ends[POINTS] = {
		[AT_MAIN] = HOST_OPEN_LOST, [AT_PREPARE] = HOST_OPEN_LOST,
		[AT_IDLE] = HOST_TASK_LOST, [AT_TASK] = HOST_TASK_LOST,
		[AT_CLOSE] = HOST_GOOD,	    [AT_BACKOFF] = HOST_OPEN_LOST,
	};

	(void)state;
	for (int point = 0; point < POINTS; point++) {
		struct scene scene;

		scene_begin(&scene, (enum point)point);
		world_kill(scene.ward);
		/* The worker ends by itself, though it is held: it is not let through. */
		world_wait_gone(scene.worker);
		if (point == AT_IDLE)
			gate_open(&scene.gate);
		expect_end(&scene, ends[point]);
	}
}

static void a_stopped_ward_goes_on_at_every_point(void **state)
{
	(void)state;
	for (int point = 0; point < POINTS; point++) {
		struct scene scene;

		scene_begin(&scene, (enum point)point);
		stop(scene.ward);
		let_through(&scene);
		send_signal(scene.ward, SIGCONT);
		expect_end(&scene, HOST_GOOD);
	}
}

/* The worker dies while the ward sleeps: the ward finds it when it goes on. */
static void a_ward_that_slept_finds_its_worker_dead(void **state)
{
	(void)state;
	for (int point = 0; point < AT_BACKOFF; point++) {
		struct scene scene;

		scene_begin(&scene, (enum point)point);
		stop(scene.ward);
		world_kill(scene.worker);
		if (point == AT_IDLE)
			gate_open(&scene.gate);
		send_signal(scene.ward, SIGCONT);
		expect_end(&scene, HOST_GOOD);
	}
}

/* ---- the host is hit ---- */

static void a_killed_host_leaves_nobody_at_every_point(void **state)
{
	(void)state;
	for (int point = 0; point < POINTS; point++) {
		struct scene scene;

		scene_begin(&scene, (enum point)point);
		world_kill(scene.host);
		/* Held as it is, the worker ends. */
		world_wait_gone(scene.worker);
		world_wait_gone(scene.ward);
		assert_int_equal(scene_end(&scene), SIGKILL);
	}
}

static void a_stopped_host_goes_on_at_every_point(void **state)
{
	(void)state;
	for (int point = 0; point < POINTS; point++) {
		struct scene scene;

		scene_begin(&scene, (enum point)point);
		stop(scene.host);
		let_through(&scene);
		send_signal(scene.host, SIGCONT);
		expect_end(&scene, HOST_GOOD);
	}
}

/* The worker dies while the host sleeps, and its successor is there when the host goes on. */
static void a_host_that_slept_finds_a_new_worker(void **state)
{
	(void)state;
	for (int point = AT_MAIN; point <= AT_PREPARE; point++) {
		struct scene scene;
		int32_t old;

		scene_begin(&scene, (enum point)point);
		old = scene.worker;
		stop(scene.host);
		world_kill(old);
		scene.worker = gate_expect(&scene.gate).pid;
		assert_int_not_equal(scene.worker, old);
		gate_open(&scene.gate);
		send_signal(scene.host, SIGCONT);
		expect_end(&scene, HOST_GOOD);
	}
}

/* Nobody is left who could continue the ward: its group is an orphan then, and the kernel does it. */
static void a_stopped_ward_does_not_outlive_its_host(void **state)
{
	(void)state;
	for (int point = 0; point < POINTS; point++) {
		struct scene scene;

		scene_begin(&scene, (enum point)point);
		stop(scene.ward);
		world_kill(scene.host);
		world_wait_gone(scene.ward);
		world_wait_gone(scene.worker);
		assert_int_equal(scene_end(&scene), SIGKILL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(a_killed_worker_is_replaced_at_every_point),
		world_test(a_stopped_worker_is_replaced_at_every_point),
		world_test(a_worker_that_goes_on_in_time_is_kept),
		world_test(a_killed_ward_is_an_error_at_every_point),
		world_test(a_stopped_ward_goes_on_at_every_point),
		world_test(a_ward_that_slept_finds_its_worker_dead),
		world_test(a_killed_host_leaves_nobody_at_every_point),
		world_test(a_stopped_host_goes_on_at_every_point),
		world_test(a_host_that_slept_finds_a_new_worker),
		world_test(a_stopped_ward_does_not_outlive_its_host),
	};

	if (gw_is_worker())
		return worker_main();
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
