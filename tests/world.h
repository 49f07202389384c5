/* SPDX-License-Identifier: MIT */
/*
 * What a test may leave behind: nothing. world_test() compares the process's descriptors and children
 * before and after a test, and fails it for every one that is new; it also fails if a CUDA driver was
 * mapped into the test's process, which plays the host.
 *
 * Runs in: a test's process, which becomes a subreaper: orphans of a killed host or ward are its
 * children then, and their end is waited for, never assumed.
 */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Call once in main(). */
void world_begin(void);

int world_setup(void **state);
int world_teardown(void **state);

/* Sends SIGKILL to PID, which must be one process: kill() takes -1 for every process there is. */
void world_kill(int32_t pid);

/* Waits until PID is gone and reaped, ten seconds at most; fails the test otherwise. */
void world_wait_gone(int32_t pid);

/* Reaps the orphan PID without waiting: 1, or 0 if it has not ended. */
int world_reap(int32_t pid);

#define world_test(function) cmocka_unit_test_setup_teardown(function, world_setup, world_teardown)

#endif
