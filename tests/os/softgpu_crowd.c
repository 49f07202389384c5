/* SPDX-License-Identifier: MIT */
/*
 * Description: many processes begin to use an empty directory at once, and are killed at any moment; the
 * shared table stays good, and no byte of device memory is left.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../softgpu_calls.h"

#define CROWD 12

static struct signal_pipe ready;
static struct signal_pipe go;
static struct cuda_context *context;

static int set_up(void **state)
{
	(void)state;
	soft_dir_new("devices=2\n");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	soft_dir_free();
	return 0;
}

static const struct cuda_allocation shareable = {.type = CUDA_MEMORY_PINNED,
						 .handle_types = CUDA_HANDLE_POSIX_FD,
						 .location = {.type = CUDA_LOCATION_DEVICE}};

static void one_round(uint32_t seed)
{
	uint64_t handle;
	uint64_t memory;
	int fd;

	OK(cuMemAlloc_v2(&memory, 16384));
	child_fill(memory, 4096, seed);
	NEED((long)child_check(memory, 4096, seed), 0);
	OK(cuMemCreate(&handle, 2 << 20, &shareable, 0));
	OK(cuMemExportToShareableHandle(&fd, handle, CUDA_HANDLE_POSIX_FD, 0));
	OK(cuMemRelease(handle));
	NEED(close(fd), 0);
	OK(cuMemFree_v2(memory));
}

static int some_rounds(void *argument)
{
	uint32_t seed = (uint32_t)(uintptr_t)argument;

	child_context((int)seed % 2);
	for (uint32_t i = 0; i < 10; i++)
		one_round(seed * 100 + i);
	return 0;
}

static void everybody_begins_at_once(void **state)
{
	pid_t pids[CROWD];

	(void)state;
	for (uintptr_t i = 0; i < CROWD; i++)
		pids[i] = child_start(some_rounds, (void *)i);
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(child_end(pids[i]), 0);
	assert_int_equal(soft_clients(), 0);
}

static int endless_rounds(void *argument)
{
	uint32_t seed = (uint32_t)(uintptr_t)argument;

	child_context((int)seed % 2);
	for (;;)
		one_round(seed++);
	return 0;
}

/* A process may die at any system call; the moments are spread by a fixed series of pauses. */
static void anybody_may_be_killed_anywhere(void **state)
{
	uint64_t next = 12345;
	pid_t pids[4];

	(void)state;
	for (uintptr_t i = 0; i < 4; i++)
		pids[i] = child_start(endless_rounds, (void *)i);
	for (uintptr_t i = 0; i < 120; i++) {
		struct timespec pause = {0};

		next = next * 6364136223846793005U + 1442695040888963407U;
		pause.tv_nsec = (long)(next >> 33) % 6000000;
		(void)nanosleep(&pause, NULL);
		assert_int_equal(kill(pids[i % 4], SIGKILL), 0);
		assert_int_equal(child_end(pids[i % 4]), -SIGKILL);
		pids[i % 4] = child_start(endless_rounds, (void *)i);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(kill(pids[i], SIGKILL), 0);
		assert_int_equal(child_end(pids[i]), -SIGKILL);
	}
	assert_int_equal(soft_clients(), 0);
	assert_int_equal(child_run(some_rounds, NULL), 0);
}

static void *use_table(void *argument)
{
	(void)argument;
	OK(cuCtxSetCurrent(context));
	for (;;)
		one_round(1);
	return NULL;
}

/* While one thread is in and out of the table, another forks children that never call CUDA. */
static int fork_in_use(void *argument)
{
	pthread_t thread;

	(void)argument;
	child_context(0);
	(void)child_kernel("nop");
	OK(cuCtxGetCurrent(&context));
	NEED(pthread_create(&thread, NULL, use_table, NULL), 0);
	for (int i = 0; i < 40; i++) {
		if (fork() == 0) {
			(void)close(go.fds[1]);
			(void)pipe_wait(&go);
			_exit(0);
		}
	}
	pipe_send(&ready);
	for (;;)
		one_round(2);
	return 0;
}

/* No child may have kept the table's lock when its parent was killed: others would wait for ever. */
static void forks_do_not_keep_the_table(void **state)
{
	pid_t pid;

	(void)state;
	pipe_open(&ready);
	pipe_open(&go);
	pid = child_start(fork_in_use, NULL);
	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	assert_int_equal(soft_clients(), 1);
	assert_int_equal(child_run(some_rounds, NULL), 0);
	pipe_close(&ready);
	pipe_close(&go);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(everybody_begins_at_once),
		TEST(anybody_may_be_killed_anywhere),
		TEST(forks_do_not_keep_the_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
