/* SPDX-License-Identifier: MIT */
/*
 * Whose turn it is to make a context: on each device one process after the other.
 *
 * Runs in: ward. The driver makes contexts one after the other anyway, and four at once take as long as four in
 * turn, but then the first is as late as the last. A process that waits is PRIMED. Workers come before
 * standbys; a standby that does not fit into the device's memory waits there until something changed, or for
 * a while, and tries again. Read next: standby.h.
 */
#ifndef GPUWARD_WARD_TURN_H
#define GPUWARD_WARD_TURN_H

#include "ward/slot.h"

/* Others than this pool use the device too, and nobody tells when they let go. */
#define TURN_AGAIN_NS 2000000000ULL

/* Gives the turns that can be given now. */
void turn_give(struct ward *ward);

/* The process says that its device had no memory left for a context. */
void turn_no_room(struct slot *slot);

/* The slot's wait for room is over. */
void turn_try_again(struct slot *slot);

/* A process of the pool is gone: those that had no room try again. */
void turn_device_changed(struct ward *ward);

#endif
