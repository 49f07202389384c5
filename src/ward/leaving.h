/* SPDX-License-Identifier: MIT */
/*
 * A process that is on its way out while its successor already starts.
 *
 * Runs in: ward. The end of a process with a CUDA context takes 60 to 110 ms, a start 170 to 230 ms. The
 * two go on at the same time:
 *
 *	fault ─┬─ SIGKILL ── old process goes ── gone: told to the host, tasks go back
 *	       └─ start ──── cuInit ── context ── ready: told to the host, after the line above
 *
 * (The start is even faster beside the old process than after it, since the driver stays up: cuInit
 * takes 33 ms instead of 100.) The order of the two messages is kept, whichever process is faster, so
 * that the host never has two incarnations of one worker. One process can be leaving at a time; a
 * successor that is to go as well waits for its end in the slot.
 *
 * A process that SIGKILL does not end is told of after a while, as one that is still there; then the
 * successor takes its place, and the old one is reaped if it ever ends. Read next: slot.c.
 */
#ifndef GPUWARD_WARD_LEAVING_H
#define GPUWARD_WARD_LEAVING_H

#include <stdbool.h>
#include <stdint.h>

#include "linux/loop.h"
#include "linux/spawn.h"
#include "ward/report.h"

struct slot;

struct leaving {
	struct loop_source exit_source;
	struct loop_timer timer;
	struct spawned spawned; /* pidfd -1: nobody is leaving */
	struct report_facts facts;
	uint32_t incarnation;
	bool killed;
	bool told; /* the host knows of its end, though it is still there */
};

void leaving_init(struct slot *slot);
void leaving_done(struct slot *slot);

/* Whether a process can leave now: nobody else is leaving, and the host has all messages before. */
bool leaving_is_free(const struct slot *slot);

/* Takes the process out of SLOT, which is empty then. KILL: with SIGKILL now; otherwise after a grace. */
void leaving_take(struct slot *slot, bool kill);

/* Whether the host still has to be told of the end of a process that is leaving. */
bool leaving_is_untold(const struct slot *slot);

#endif
