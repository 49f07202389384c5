/* SPDX-License-Identifier: MIT */
/*
 * Random numbers that can be had again: a test prints its seed when it begins, and GPUWARD_TEST_SEED
 * in the environment repeats the same numbers.
 *
 * Runs in: a test's process and its workers. One struct seed belongs to one thread. The default seed is
 * fixed, so that every run of the suite does the same. Not for secrets.
 */
#ifndef TESTS_SEED_H
#define TESTS_SEED_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SEED_DEFAULT UINT64_C(20260101)

struct seed {
	uint64_t state;
};

/* The next number: a step of splitmix64. */
static inline uint64_t seed_next(struct seed *seed)
{
	uint64_t x = seed->state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* A number from 0 to LIMIT - 1; 0 where LIMIT is 0. */
static inline uint64_t seed_below(struct seed *seed, uint64_t limit)
{
	return limit ? seed_next(seed) % limit : 0;
}

static inline uint64_t seed_value(void)
{
	const char *text = getenv("GPUWARD_TEST_SEED");

	return text ? strtoull(text, NULL, 0) : SEED_DEFAULT;
}

/* A row of numbers of its own for the test WHAT; says how to have it again. */
static inline struct seed seed_new(const char *what)
{
	struct seed seed = {seed_value()};

	(void)fprintf(stderr, "%s: GPUWARD_TEST_SEED=%" PRIu64 "\n", what, seed.state);
	return seed;
}

#endif
