/* SPDX-License-Identifier: MIT */
/*
 * Processes that are fenced, were sent SIGKILL, and are not gone yet, while their successors work.
 *
 * Runs in: ward. The end of a process with a CUDA context takes 60 to 110 ms. The host hears of it at its
 * beginning, since nothing that the process does counts any more:
 *
 *	fault ─┬─ fence ── told to the host, its tasks go back ── a standby takes its place
 *	       └─ SIGKILL ── the process ends ── reaped: its mutable state passes on
 *
 * One that has ended and cannot be reaped, since a debugger or a leak checker traces it, is here too: nobody
 * else would reap it. A process that SIGKILL does not end is given up after a while: its slot is told, the pool goes on, and it is
 * reaped if it ever ends. Read next: slot.c.
 */
#ifndef GPUWARD_WARD_LEAVING_H
#define GPUWARD_WARD_LEAVING_H

#include <stdbool.h>

#include "ward/process.h"

/* Takes PROCESS, which is fenced and in no slot any more. */
void leaving_take(struct process *process);

/* Kills it. */
void leaving_kill(struct process *process);

/* PROCESS has ended, was told of, and is in no slot any more: it is freed, or as soon as it can be reaped. */
void leaving_bury(struct process *process);

/* Whether all have ended, or were given up. */
bool leaving_is_over(const struct ward *ward);

/* One that was in SLOT, or NULL. */
struct process *leaving_of(const struct slot *slot);

/* The one with this pid, or NULL. */
struct process *leaving_find(const struct ward *ward, int32_t pid);

/* At the ward's end: says who is still there, and lets go. */
void leaving_done(struct ward *ward);

#endif
