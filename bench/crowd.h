/* SPDX-License-Identifier: MIT */
/*
 * A crowd of processes, some of which hold a device in every way that the kernel knows, and the truth about it.
 *
 * Runs in: benchmarks and tests. The processes are children of the caller and live until crowd_close(), or until
 * the caller dies. The same seed makes the same crowd.
 *
 * Invariant: what crowd_open() tells is in place when it returns, and stays so: holders[] is the whole truth.
 */
#ifndef BENCH_CROWD_H
#define BENCH_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How a process holds the device; each has a look-alike that does not. */
enum crowd_kind {
	CROWD_NOT = 0,	     /* descriptors of anything else */
	CROWD_FD,	     /* an ordinary descriptor */
	CROWD_ZOMBIE_LEADER, /* the first thread has ended, another lives */
	CROWD_OWN_TABLE,     /* a thread with a table of its own */
	CROWD_IN_FLIGHT,     /* sent through a socket and not received */
	CROWD_IO_URING,	     /* registered with an io_uring, closed */
	CROWD_OTHER_NODE,    /* another device file with the same number */
	CROWD_MAPPING,	     /* mapped, closed */
	CROWD_KINDS,
};

struct crowd_holder {
	pid_t pid;
	enum crowd_kind kind;
	int32_t tid;   /* that of the thread with the table; 0 */
	int32_t fd;    /* the descriptor, the socket, the ring; -1 for a mapping */
	int32_t count; /* in flight, registered, mapped; 1 */
};

struct crowd_options {
	uint32_t processes;
	uint32_t descriptors; /* of each: pipes, files, sockets, events */
	uint32_t holders;     /* among the processes */
	uint32_t churners;    /* that start and end processes all the while */
	uint64_t seed;
	const char *device;
	const char *other_node; /* NULL: nobody is CROWD_OTHER_NODE */
	const char *mappable;	/* NULL: nobody is CROWD_MAPPING */
};

struct crowd {
	struct crowd_holder *holders; /* ascending pid */
	uint32_t holder_count;
	pid_t *pids;
	uint32_t pid_count;
	int life;
};

/* Makes the crowd. Returns 0, or -errno, with nothing left. */
int crowd_open(const struct crowd_options *options, struct crowd *ret_crowd);

/* Ends and reaps all of it. */
void crowd_close(struct crowd *crowd);

/* The holder PID, or NULL. */
const struct crowd_holder *crowd_find(const struct crowd *crowd, pid_t pid);

const char *crowd_kind_name(enum crowd_kind kind);

#endif
