/* SPDX-License-Identifier: MIT */
/*
 * A gate holds a process at a point that a test chooses, without a sleep: the process says that it is
 * there and waits until the test opens the gate.
 *
 * Runs in: gate_wait() in workers, the rest in the test's process. A gate is a pair of named pipes, so
 * that it needs no inherited descriptor. Invariant: a process whose test has gone is not held.
 */
#ifndef TESTS_GATE_H
#define TESTS_GATE_H

#include <stdbool.h>

/* Makes the gate NAME in a new folder; one at a time per name. Fails the test if it cannot. */
struct gate {
	char path[200];
	int arrived_fd; /* one byte for each process that has come */
	int open_fd;	/* one byte lets one process through */
};

void gate_new(struct gate *gate, const char *name);
void gate_done(struct gate *gate);

/* Waits until a process has come to the gate; fails the test after ten seconds. */
void gate_expect(const struct gate *gate);

/* Lets one process through, who has come or will come. */
void gate_open(const struct gate *gate);

/* In the process that is to be held: comes to the gate at PATH and waits. */
void gate_wait(const char *path);

#endif
