/* SPDX-License-Identifier: MIT */
/*
 * How long to spin before sleeping, learned from whether it paid.
 *
 * Runs in: host (the leader, under the pool's lock) and worker (main thread). Spinning answers in under a
 * microsecond where the other side runs on another processor and answers soon; where both share a
 * processor, or tasks are long, it only delays. So the first waits spin, and as long as a wait ends
 * while spinning the next ones do. When a burst of them failed, waits sleep at once, until the next burst
 * much later. Both sides count the same waits, so that their bursts meet: one side alone cannot win,
 * since the other takes long to wake up.
 */
#ifndef GPUWARD_COMMON_SPIN_H
#define GPUWARD_COMMON_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_BURST 8U	 /* waits that spin in vain before it is given up */
#define SPIN_EVERY 4096U /* waits from one burst to the next */

struct spin {
	uint64_t limit_ns; /* 0: never */
	uint32_t misses;   /* waits since one that ended while spinning */
};

/* How long the next wait is to spin. */
static inline uint64_t spin_budget(const struct spin *spin)
{
	return spin->misses % SPIN_EVERY < SPIN_BURST ? spin->limit_ns : 0;
}

/* The wait is over: whether it ended before it slept. */
static inline void spin_learn(struct spin *spin, bool paid)
{
	spin->misses = paid ? 0 : spin->misses + 1;
}

#endif
