/* SPDX-License-Identifier: MIT */
/*
 * Tasks that take too long: the ward kills their worker.
 *
 * Runs in: ward. What is trusted is the host's page: how many entries it has handed over and how long
 * each may take. What the worker writes (how many it completed, when it began) is a hint that is bounded
 * on both sides by what the ward has seen itself, so that a worker can neither postpone its deadline for
 * ever nor make the ward read out of range.
 *
 * While no task with a deadline is under way there is no timer at all. While there is one, the ward
 * looks at its end, and at short intervals, since the host says only once that deadlines have begun.
 * Read next: ../common/pool_page.h.
 */
#ifndef GPUWARD_WARD_DEADLINE_H
#define GPUWARD_WARD_DEADLINE_H

#include "ward/ward.h"

void deadline_init(struct ward *ward);

/* The host says that tasks with deadlines are under way. */
void deadline_kick(struct ward *ward);

/* How many entries the slot's worker has completed, or 0 where it says what cannot be. */
uint32_t deadline_completed(const struct slot *slot);

#endif
