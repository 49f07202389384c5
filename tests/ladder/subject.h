/* SPDX-License-Identifier: MIT */
/*
 * The program that the ladder pulls the rungs from: a host that uses a pool, or gw_isolate, for a
 * moment, and its worker.
 *
 * Runs in: a process of its own, which the test started. It never judges whether a failure was to be
 * expected; it tells three ends apart: all went well, the library refused with words, or something
 * is wrong (a wrong result, a wait that ran out, a descriptor or child that was left). Its last line
 * on standard output says which. Read next: run.h.
 */
#ifndef TESTS_LADDER_SUBJECT_H
#define TESTS_LADDER_SUBJECT_H

#include <gpuward.h>

/* The subject's exit codes. */
enum subject_end {
	SUBJECT_DONE = 0,
	SUBJECT_WRONG = 1,
	SUBJECT_REFUSED = 3,
};

/* What the worker offers. */
extern const struct gw_function subject_functions[];

/* A pool from its opening to its end: 20 tasks, one of which kills its worker the first time. */
enum subject_end subject_pool(void);

/* gw_isolate with a function that crashes in its first process. */
enum subject_end subject_isolate(void);

#endif
