/* SPDX-License-Identifier: MIT */
/*
 * Ways to send a payload to another process and get an answer: what a task of gpuward is compared with.
 *
 * Runs in: roundtrip.c; each open transport but gpuward's has a forked peer of its own, gpuward's has a
 * pool. All carry the same payload (bench.h): pipe and sockets copy it into the kernel and out of it,
 * which is their way; the futex ping-pong and gpuward leave it in shared memory.
 *
 * Invariant: one trip at a time; when trip() returns, the peer waits again.
 */
#ifndef BENCH_TRANSPORT_H
#define BENCH_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

struct transport {
	const char *name;
	uint64_t max_bytes;
	uint64_t spin_ns; /* how long a side that waits spins before it sleeps */
	/* Starts the peer for a payload of BYTES. Returns what the others take. */
	void *(*open)(const struct transport *transport, uint64_t bytes);
	void (*trip)(void *state, uint64_t seed);
	void (*close)(void *state);
};

/* The first is the reference, the second what is measured; a NULL name ends the list. The first
 * transport with spin_ns is the reference for the second with it. */
extern const struct transport transports[];

/* The functions that a pool's worker needs for them. */
extern const struct gw_function transport_functions[];

#endif
