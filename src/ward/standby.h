/* SPDX-License-Identifier: MIT */
/*
 * Processes that wait to take a worker's place.
 *
 * Runs in: ward. A standby's slot lives by the same table as a worker's, but the host does not hear of it.
 * When a worker's slot needs a process, it takes the best one of its device, in whatever state that is, and
 * the standby's slot starts another one later, when no worker is being started: what is needed now comes
 * first. One standby serves all workers of its device.
 *
 *	cold	no standby			a fault costs a whole start
 *	primed	its driver is initialised	a fault costs a context
 *	hot	all is done but the promotion	a fault costs two messages
 *
 * Read next: turn.h, slot.c.
 */
#ifndef GPUWARD_WARD_STANDBY_H
#define GPUWARD_WARD_STANDBY_H

#include "common/pool_page.h"
#include "ward/slot.h"

/* Moves the best standby's process of the device into SLOT, which is empty. Returns the state that it is
 * in, SLOT_EMPTY if there is none. */
enum slot_state standby_take(struct slot *slot);

/* Whether STANDBY's slot may start a process now. */
bool standby_may_start(const struct slot *standby);

/* Starts those that are missing, and ends those whose workers are all given up. */
void standby_refill(struct ward *ward);

/* Counts them for the pool's statistics. Returns whether anything is new. */
bool standby_count(const struct ward *ward, struct pool_page_report *report);

#endif
