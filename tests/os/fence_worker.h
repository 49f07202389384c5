/* SPDX-License-Identifier: MIT */
/*
 * The worker of the test of fences. Its function "count" can be held at any step on the way of a task; and there
 * it leaves a *ghost*: a copy of the process, made by a bare system call of which nobody is told, with the
 * channel mapped and all sockets open. The worker then stops itself, until the ward ends it. The ghost comes to a
 * gate, and when the test opens that, it goes on in the library's own code as the worker would have: it runs the
 * function, writes output and result, publishes, and serves what comes next. Then it says to the ward whatever a
 * worker can say, spoils the channel, comes to the gate again, and ends.
 *
 * Runs in: worker, and ghosts. Read next: fence.c.
 */
#ifndef TESTS_OS_FENCE_WORKER_H
#define TESTS_OS_FENCE_WORKER_H

#include <stdint.h>

/* On the way of a task. */
enum fence_step {
	FENCE_NEVER = 0,
	FENCE_BEFORE_CLAIM,
	FENCE_AFTER_CLAIM,   /* the function begins */
	FENCE_AFTER_OUTPUT,  /* the output is written */
	FENCE_BEFORE_COMMIT, /* of state, which is written */
	FENCE_AFTER_COMMIT,
	FENCE_AFTER_RESULT, /* the result is written, and `completed` not moved */
	FENCE_AFTER_COMPLETED,
	FENCE_STEPS,
};

/* In the folder of the emulated machine: "STEP GATE", for the first process of a pool's only worker. */
#define FENCE_FILE "fence"
/* There too: what the ward answered the ghost about state, "COMMIT RESERVE", and 0 for no answer. */
#define FENCE_ANSWERS "answers"

struct fence_job {
	uint32_t seed;
	uint32_t state; /* 1: count in the piece "counter" too */
};

struct fence_answer {
	uint64_t number; /* fence_number(seed) */
	uint64_t count;	 /* of commits, this one included */
	int32_t pid;
	int32_t reserved;
};

static inline uint64_t fence_number(uint32_t seed)
{
	return (seed + UINT64_C(3)) * UINT64_C(0xff51afd7ed558ccd);
}

/* main() of such a worker. */
int fence_worker_run(void);

#endif
