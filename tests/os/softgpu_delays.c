/* SPDX-License-Identifier: MIT */
/*
 * Description: with delays=measured the emulated GPU takes as long as the real one for what it does: a
 * start, a context, and a fault beside other contexts. Lower bounds hold always; an upper one is tried for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../softgpu_calls.h"
#include "common/fd.h"

static int set_up(void **state)
{
	(void)state;
	soft_dir_new("delays=measured\n");
	/* Of whoever runs the test: it would count. */
	return unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

static int tear_down(void **state)
{
	(void)state;
	soft_dir_free();
	return 0;
}

static int measured_trap(void *argument)
{
	uint64_t start = now_ns();
	uint64_t ready;

	(void)argument;
	child_context(0);
	ready = now_ns();
	NEED(ready - start >= 210000000, 1);
	OK(child_launch(child_kernel("fault_trap"), NULL));
	NEED(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	NEED(now_ns() - ready >= 340000000, 1);
	return 0;
}

static void measured_delays_are_kept(void **state)
{
	(void)state;
	assert_int_equal(child_run(measured_trap, NULL), 0);
}

static int time_init(void *argument)
{
	const uint64_t *bounds_ms = argument;
	uint64_t start = now_ns();
	uint64_t ms;

	OK(cuInit(0));
	ms = (now_ns() - start) / 1000000;
	return ms >= bounds_ms[0] && ms < bounds_ms[1] ? 0 : 1;
}

static int stay_initialised(void *argument)
{
	struct signal_pipe *pipes = argument;

	(void)close(pipes[1].fds[1]);
	OK(cuInit(0));
	pipe_send(&pipes[0]);
	return pipe_wait(&pipes[1]);
}

/* The upper bounds of the second are wide, for a busy machine; the first must not be passed by it. */
static void init_is_quicker_beside_others(void **state)
{
	static const uint64_t alone[] = {100, UINT64_MAX};
	static const uint64_t beside[] = {12, 95};
	struct signal_pipe pipes[2]; /* it is up; its end */
	pid_t pid;
	int result = 1;

	(void)state;
	assert_int_equal(child_run(time_init, (void *)(uintptr_t)alone), 0);
	pipe_open(&pipes[0]);
	pipe_open(&pipes[1]);
	pid = child_start(stay_initialised, pipes);
	assert_int_equal(pipe_wait(&pipes[0]), 1);
	for (int i = 0; i < 5 && result; i++)
		result = child_run(time_init, (void *)(uintptr_t)beside);
	assert_int_equal(result, 0);
	pipe_close(&pipes[1]);
	assert_int_equal(child_end(pid), 0);
	pipe_close(&pipes[0]);
}

static int stay_with_context(void *argument)
{
	struct signal_pipe *pipes = argument;

	(void)close(pipes[1].fds[1]);
	child_context(0);
	pipe_send(&pipes[0]);
	return pipe_wait(&pipes[1]);
}

/* From the launch to CUDA's error. */
static int time_assert(void *argument)
{
	const uint64_t *bounds_ms = argument;
	struct cuda_function *function;
	uint32_t number = 1;
	void *parameters[] = {&number};
	uint64_t start;
	uint64_t ms;

	child_context(0);
	function = child_kernel("fault_assert");
	start = now_ns();
	OK(child_launch(function, parameters));
	NEED(cuCtxSynchronize(), CUDA_ERROR_ASSERT);
	ms = (now_ns() - start) / 1000000;
	return ms >= bounds_ms[0] && ms < bounds_ms[1] ? 0 : 1;
}

/* Two other contexts: 7 ms and 11 or 2 for each. The upper bound is tried for on a busy machine. */
static void check_assert_beside_two(const uint64_t bounds_ms[2])
{
	struct signal_pipe pipes[2]; /* it is up; its end */
	pid_t pids[2];
	int result = 1;

	pipe_open(&pipes[0]);
	pipe_open(&pipes[1]);
	for (int i = 0; i < 2; i++)
		pids[i] = child_start(stay_with_context, pipes);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pipe_wait(&pipes[0]), 1);
	for (int i = 0; i < 8 && result; i++)
		result = child_run(time_assert, (void *)(uintptr_t)bounds_ms);
	assert_int_equal(result, 0);
	pipe_close(&pipes[1]);
	for (int i = 0; i < 2; i++)
		assert_int_equal(child_end(pids[i]), 0);
	pipe_close(&pipes[0]);
}

static void a_fault_takes_longer_beside_other_contexts(void **state)
{
	static const uint64_t usual[] = {29, UINT64_MAX};
	static const uint64_t small[] = {11, 29};

	(void)state;
	check_assert_beside_two(usual);
	assert_int_equal(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1), 0);
	check_assert_beside_two(small);
	assert_int_equal(unsetenv("CUDA_DEVICE_MAX_CONNECTIONS"), 0);
}

static int make_context(void *argument)
{
	(void)argument;
	child_context(0);
	return 0;
}

static void contexts_are_made_one_at_a_time(void **state)
{
	uint64_t start = now_ns();
	pid_t pids[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		pids[i] = child_start(make_context, NULL);
	for (int i = 0; i < 3; i++)
		assert_int_equal(child_end(pids[i]), 0);
	assert_true(now_ns() - start >= 400000000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(measured_delays_are_kept),
		TEST(init_is_quicker_beside_others),
		TEST(a_fault_takes_longer_beside_other_contexts),
		TEST(contexts_are_made_one_at_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
