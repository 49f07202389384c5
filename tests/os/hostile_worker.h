/* SPDX-License-Identifier: MIT */
/*
 * A worker that attacks its host and its ward with everything that it was given: channel memory, sockets,
 * event descriptor, input memory.
 *
 * Runs in: worker, in place of gw_worker_run(). What it does follows from the seed and its incarnation.
 * Each process has a random set of acts; some serve for a while and lie only now and then, others break
 * everything at once. Never touches other processes' descriptors or sends signals: a user's own process
 * could do that to any other. Read next: hostile.c.
 */
#ifndef TESTS_OS_HOSTILE_WORKER_H
#define TESTS_OS_HOSTILE_WORKER_H

#include <stdint.h>

/* The only function that it offers. */
#define HOSTILE_FUNCTION "mix"

/* In the environment: a file to which it appends what worked and must not. */
#define HOSTILE_LOG_ENV "GPUWARD_TEST_HOSTILE_LOG"

/* Does harm for up to 200 ms, then ends in one of several ways. Returns only if it cannot start. */
int hostile_run(uint32_t incarnation);

#endif
