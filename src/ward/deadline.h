/* SPDX-License-Identifier: MIT */
/*
 * Tasks that take too long: the ward kills their worker.
 *
 * Runs in: ward. What is trusted is the host's page: how many entries it has handed over and how long
 * each may take. What the worker writes (how many it completed, when it began) is a hint that is bounded
 * on both sides by what the ward has seen itself, so that a worker can neither postpone its deadline for
 * ever nor make the ward read out of range.
 *
 * While no task with a deadline is under way there is no timer at all. While there is one, the ward looks
 * when the first could be late: at the due time of each worker's running task, and one allowed duration
 * from now for those that wait behind it. A task that is handed over later and could be late sooner comes
 * with a kick.
 * Read next: ../common/pool_page.h.
 */
#ifndef GPUWARD_WARD_DEADLINE_H
#define GPUWARD_WARD_DEADLINE_H

#include "ward/ward.h"

void deadline_init(struct ward *ward);

/* The page is there, and no task yet: there is nothing to look at. */
void deadline_begin(struct ward *ward);

/* The host has handed over a task that could be late before the next look. */
void deadline_kick(struct ward *ward);

/* How many entries the slot's worker has completed, or 0 where it says what cannot be. */
uint32_t deadline_completed(const struct slot *slot);

/* From here on nothing that the slot's worker completes counts. */
void deadline_fence(const struct slot *slot);

#endif
