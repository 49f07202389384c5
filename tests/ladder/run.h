/* SPDX-License-Identifier: MIT */
/*
 * One run of the subject: started, served, waited for, and judged.
 *
 * Runs in: the test's process, which must be a subreaper (world_begin()): whatever the subject leaves
 * behind becomes its child, so "nothing is left" means "no child is left". A run that takes too long is
 * ended, and is a failure. Invariant: after run_finish() no process of the run exists.
 * Read next: calls.c and allocations.c, which make one thing fail in each run.
 */
#ifndef TESTS_LADDER_RUN_H
#define TESTS_LADDER_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RUN_TEXT_MAX 2048

struct run {
	pid_t host;
	int output_fd; /* a file that the subject and its helpers write to */
	int signal_fd; /* SIGCHLD */
	int status;    /* of the host, valid when it is gone */
	bool host_gone;
	bool all_gone;
	bool timed_out;
	uint64_t deadline_ns;
	char text[RUN_TEXT_MAX]; /* what they wrote */
};

/* Prepares RUN. The caller then forks, sets run->host, and calls run_child() first in the child. */
void run_begin(struct run *run);

/* In the child: standard output and error go to the run's file, SIGCHLD is as in any program. */
void run_child(const struct run *run);

/*
 * Waits until the host and all that came of it are gone. SERVE is called whenever FD is readable; FD
 * may be -1. Fills in the run's text and closes its descriptors.
 */
void run_finish(struct run *run, int fd, void (*serve)(int fd, void *argument), void *argument);

/* NULL if the run ended as it may: done, or refused with words; *RET_REFUSED tells which. Otherwise
 * what is wrong with it. */
const char *run_judge(const struct run *run, bool *ret_refused);

#endif
