/* SPDX-License-Identifier: MIT */
/*
 * What the benchmarks share: options, series of measured values, where processes are pinned, and the
 * payload that every transport carries.
 *
 * Runs in: the benchmarks and their peers. Not part of the product. A benchmark that cannot go on says
 * why and exits with 1: there is nothing to save.
 *
 * Invariant: what is compared is measured in one run, in rounds that take turns, so that a machine that
 * is busy for a while is busy for all of them. A table shows the median of the rounds, with the least
 * and the most. Read next: transport.h, roundtrip.c.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <gpuward.h>

/* Values of one row, at the most. */
#define SERIES_MAX 2048

struct series {
	size_t n;
	double values[SERIES_MAX];
};

void series_add(struct series *series, double value);
/* 0 where there is no value. They sort the values. */
double series_median(struct series *series);
double series_min(struct series *series);
double series_max(struct series *series);

/* An option "--name VALUE". */
struct bench_option {
	const char *name; /* NULL ends the list */
	uint64_t *number; /* one of the two: where the value goes */
	const char **text;
};

/* Fills what is given; says how to use the program and exits for anything else. */
void bench_options(int argc, char **argv, const struct bench_option *options);

/* Says what went wrong, and exits with 1. */
_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The value of RESULT, or the end with WHAT and errno where it is negative. */
int bench_os(int result, const char *what);

/* Memory shared with the children that are forked later, zeroed. */
void *bench_share(size_t bytes);
void bench_unshare(void *memory, size_t bytes);

/* Forks a peer that lives no longer than this process. True in the peer, which must not return from
 * main(). The host ends it by its pid. */
bool bench_fork_peer(pid_t *ret_peer);
void bench_end_peer(pid_t peer);

/* Now on CLOCK_MONOTONIC, in nanoseconds. */
uint64_t bench_now_ns(void);

/* The two sides of a transport. */
enum bench_side {
	BENCH_HOST = 0,
	BENCH_PEER = 1,
};

/*
 * Chooses where the two sides run: "free" (as the system likes), "one" (both on one processor) or
 * "two" (each on its own). In the host, before any peer is started; peers find it in the environment.
 * Returns false where there is no second processor for "two".
 */
bool bench_place(const char *place);

/* Pins the calling thread as SIDE, if a place was chosen. */
void bench_pin(enum bench_side side);

/*
 * The payload. The host fills an input that depends on SEED, the peer reads all of it and writes all of
 * the output, the host reads all of that and ends the program if a word is wrong. BYTES is a multiple
 * of 8; 0 is fine.
 */
void payload_fill(void *input, uint64_t bytes, uint64_t seed);
void payload_work(void *output, const void *input, uint64_t bytes);
void payload_check(const void *output, uint64_t bytes, uint64_t seed);

/* A pool without a GPU, with WORKERS workers and SPIN_NS; ends the program if there is none. */
struct gw_pool *bench_pool(uint32_t workers, uint64_t spin_ns, uint32_t queue_depth);

#endif
