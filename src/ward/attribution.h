/* SPDX-License-Identifier: MIT */
/*
 * Decides which process caused an Xid that names none, from who can have caused it. NVML's events are such,
 * and kernel log lines whose pid is missing or of another namespace.
 *
 * Runs in: ward. Pure. It names a process only if no other one can have been it, since a wrong name costs
 * a healthy worker and its tasks:
 *
 *	only one process of the pool can have had work on the device about then, and
 *	NVML lists it, lists nobody from outside of the pool, and its list is whole.
 *
 * A successor is never blamed for its predecessor's fault, though the word of it comes late:
 *
 *	A traps    A's own error, A dies, B takes over    NVML's event, then its list: only B
 *	           |<------- A counts for ATTRIBUTION_LATE_NS more: two candidates, no verdict
 *
 * Known gaps: NVML's list of compute processes has no program that only draws; and in a pid namespace it
 * leaves out the processes outside. There, memory that nobody listed has is taken as a sign of somebody.
 */
#ifndef GPUWARD_WARD_ATTRIBUTION_H
#define GPUWARD_WARD_ATTRIBUTION_H

#include <gpuward.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "probe/probe_wire.h"

/* So much later than the fault the word of it may come. Measured: 150 ms at most. */
#define ATTRIBUTION_LATE_NS 1000000000ULL

/* A context takes more than this (measured: 329 MiB with all limits lowered); rounding takes less. */
#define ATTRIBUTION_SLACK_BYTES (64ULL << 20)

/* A process of the pool that has, or lately had, a context on the device. */
struct attribution_process {
	int32_t pid;
	uint64_t
		work_from_ns; /* since when it may have work; GW_FOREVER: a standby, never promoted */
	uint64_t gone_ns;     /* when it ended, or GW_FOREVER while it lives */
};

/* What is known of the device, after the fault. */
struct attribution_view {
	const struct probe_processes *processes; /* NULL: not known */
	const struct probe_memory *memory;	 /* NULL: not known; needed unless sees_all */
	/* Device memory that the ward itself keeps alive and that no listed process is charged for. Where that
	 * is not certain, 0: too much would hide a stranger. */
	uint64_t kept_bytes;
	bool sees_all; /* namespaces_pid_is_initial() */
};

/* Why nobody is named. */
enum attribution_doubt {
	ATTRIBUTION_UNKNOWN = -1, /* the list is missing or cut */
	ATTRIBUTION_FOREIGN =
		-2, /* a process from outside of the pool is on the device, or may be */
	ATTRIBUTION_NOBODY =
		-3, /* no process of the pool had work, or NVML does not list the one */
	ATTRIBUTION_SEVERAL = -4, /* more than one had */
};

/* Returns the index in OURS of the process that caused what was reported at AT_NS, or an enum
 * attribution_doubt. The one that is named can have ended meanwhile. */
int attribution_find(const struct attribution_process *ours, size_t count,
		     const struct attribution_view *view, uint64_t at_ns);

/* The doubt in a few words, for people. Static. */
const char *attribution_text(int doubt);

#endif
