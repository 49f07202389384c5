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

#include <stdint.h>

struct gate {
	char path[200];
	int arrived_fd; /* a struct gate_visit for each process that has come */
	int open_fd;	/* one byte lets one process through */
};

/* Who has come. */
struct gate_visit {
	int32_t pid;
	int32_t parent;
};

/* Makes a gate in a new folder, whose name begins with NAME. Fails the test if it cannot. */
void gate_new(struct gate *gate, const char *name);
void gate_done(struct gate *gate);

/* Waits until a process has come to the gate; fails the test after ten seconds. */
struct gate_visit gate_expect(const struct gate *gate);

/* Lets one process through, who has come or will come. */
void gate_open(const struct gate *gate);

/* In the process that is to be held: comes to the gate at PATH and waits. */
void gate_wait(const char *path);

/* The same, in the name of another process that is where the test wants it. */
void gate_wait_as(const char *path, struct gate_visit visit);

#endif
