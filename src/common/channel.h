/* SPDX-License-Identifier: MIT */
/*
 * The memory that the host and one worker process share: a ring of tasks, their results, and room for
 * the outputs. Each incarnation of a worker gets a fresh channel, so a process that was given up
 * cannot complete anything any more: nobody reads its channel.
 *
 * Runs in: host (pushes tasks, takes results), worker (serves), ward (makes it, watches `completed`).
 * The worker serves the entries in order, one at a time. Two counters run freely and wrap: `submitted`
 * is the host's, `completed` the worker's; entry and result of number n lie at n % CHANNEL_DEPTH.
 *
 * Trust: the worker is an adversary. The host copies every word that a worker can write into a local
 * before it checks it, and keeps its own truth (which task lies in which entry, how many were taken)
 * in private memory. The file is sealed against resizing, so a worker cannot make the host read past
 * its end. Read next: channel.c, then pool_page.h for what only host and ward share.
 *
 * A wake-up must not get lost between two processes. Who is about to sleep sets a mark and sleeps on the
 * mark itself; who wakes it takes the mark away, and so wakes it once, however much is pushed before it runs:
 *
 *	worker                                   host
 *	worker_waiting = 1                       submitted = n + 1
 *	(full barrier)                           (full barrier)
 *	submitted still n?                       worker_waiting? -> 0, wake
 *	sleep while worker_waiting is 1
 *
 * Whatever the order, one side sees the other's store: either the worker sees the task, or the host
 * sees the mark. Without the barriers both could read the old values, and the worker would sleep beside
 * a task. It must be the mark that is slept on, not `submitted`:
 *
 *	worker                                   host
 *	                                         submitted = n
 *	runs n, worker_waiting = 1
 *	submitted is n: nothing to do            worker_waiting? -> 0, wakes nobody
 *	sleeps while submitted is n
 *	                                         submitted = n + 1; no mark, no wake
 *
 * The same holds with the roles changed for `completed` and `host_waiting`.
 */
#ifndef GPUWARD_COMMON_CHANNEL_H
#define GPUWARD_COMMON_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/spin.h"

#define CHANNEL_MAGIC	    0x6e686377U /* "wchn" */
#define CHANNEL_LAYOUT	    2U
#define CHANNEL_DEPTH	    256U
#define CHANNEL_MESSAGE_MAX 128U

/* State word of an entry. Host and worker both move it, by compare and exchange. */
enum channel_entry_state {
	CHANNEL_FREE = 0,
	CHANNEL_QUEUED = 1,    /* host: may still be withdrawn */
	CHANNEL_CLAIMED = 2,   /* worker: runs */
	CHANNEL_WITHDRAWN = 3, /* host: the worker passes over it */
};

/* Bits of host_waiting. The worker clears those that it acts on. */
enum channel_host_waiting {
	CHANNEL_HOST_SLEEPS = 1, /* a host thread sleeps on this word, or is about to */
	CHANNEL_HOST_POLLS = 2,	 /* the host polls the event descriptor */
};

/* A task, written by the host. */
struct channel_entry {
	_Atomic uint32_t state;
	uint32_t function; /* index in the list of names that this worker announced */
	uint64_t task;
	uint64_t input_offset; /* in the pool's input memory */
	uint64_t input_bytes;
	uint64_t output_offset; /* from the start of this channel's output room */
	uint64_t output_capacity_bytes;
	uint32_t attempt;
	uint32_t reserved;
	uint64_t padding;
};

/* How a task ended, written by the worker before it moves `completed`. */
struct channel_result {
	int32_t value;
	uint32_t message_bytes; /* 0 = no message; at most CHANNEL_MESSAGE_MAX - 1 */
	uint64_t output_bytes;
	uint64_t started_ns;
	uint64_t ended_ns;
	char message[CHANNEL_MESSAGE_MAX];
};

struct channel {
	uint32_t magic;
	uint32_t layout;
	uint64_t bytes;		/* of the whole file */
	uint64_t output_offset; /* where the output room begins */
	uint64_t output_bytes;

	/* Written by the host. */
	_Alignas(64) _Atomic uint32_t submitted;
	_Atomic uint32_t host_waiting; /* enum channel_host_waiting; the worker clears a bit */

	/* Written by the worker. */
	_Alignas(64) _Atomic uint32_t completed;
	_Atomic uint64_t running_since_ns; /* start of entry `completed`, or 0: not begun */

	/* 1 while the worker sleeps on it, or is about to. Cleared by the host, and by the worker's own
	 * control thread. */
	_Alignas(64) _Atomic uint32_t worker_waiting;

	_Alignas(64) struct channel_entry entries[CHANNEL_DEPTH];
	struct channel_result results[CHANNEL_DEPTH];
};

_Static_assert(sizeof(struct channel_entry) == 64, "an entry is one cache line");
_Static_assert(sizeof(struct channel_result) == 160, "layout of a result");
_Static_assert(offsetof(struct channel, submitted) == 64, "layout of the channel");
_Static_assert(offsetof(struct channel, completed) == 128, "layout of the channel");
_Static_assert(offsetof(struct channel, worker_waiting) == 192, "layout of the channel");
_Static_assert(offsetof(struct channel, entries) == 256, "layout of the channel");
_Static_assert(offsetof(struct channel, results) == 256 + 64 * 256, "layout of the channel");

/* A channel as one process maps it. */
struct channel_map {
	struct channel *shared;
	uint8_t *output; /* the output room */
	uint64_t output_bytes;
	uint64_t bytes;
};

/*
 * Makes the file of a channel with OUTPUT_BYTES of output room, sealed against resizing.
 * Returns a descriptor, or -errno.
 */
int channel_new(uint64_t output_bytes);

/*
 * Maps the channel in FD and checks its header against the file's size. The ward and the host pass
 * what they know of OUTPUT_BYTES; a worker passes 0 and takes it from the header.
 * Returns 0, -errno, or GW_EPROTOCOL.
 */
int channel_map(struct channel_map *ret_map, int fd, uint64_t output_bytes);
void channel_unmap(struct channel_map *map);

/* Host: puts ENTRY in as number NUMBER and wakes the worker if it sleeps. The caller keeps within
 * the depth. */
void channel_push(struct channel *channel, uint32_t number, const struct channel_entry *entry);

/* Host: takes entry NUMBER back. True when the worker will not run it. */
bool channel_withdraw(struct channel *channel, uint32_t number);

/* Worker: claims entry NUMBER and copies it. False when it was withdrawn. */
bool channel_claim(struct channel *channel, uint32_t number, struct channel_entry *ret_entry);

/*
 * Worker: makes everything up to and including NUMBER count as completed, and wakes the host.
 * EVENT_FD is written when the host polls. The result must have been filled before.
 */
void channel_complete(struct channel *channel, uint32_t number, int event_fd);

/*
 * Host, before it sleeps until more than it knows of is completed: sets the mark. Returns the value of
 * host_waiting to sleep on. Look at `completed` in between, and mark again before each sleep.
 */
uint32_t channel_announce_host(struct channel *channel);

/* Worker: sleeps until entry NUMBER is there or *STOP is true; spins first as SPIN says. */
void channel_wait_entry(struct channel *channel, uint32_t number, const atomic_bool *stop,
			struct spin *spin);

/* Gets the worker out of its sleep, if it sleeps: for the host after a push, and for the worker's control
 * thread after it has set *STOP. */
void channel_wake_worker(struct channel *channel);

#endif
