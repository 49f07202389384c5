/* SPDX-License-Identifier: MIT */
/*
 * The ward's socket to one worker: what it says becomes events of its slot.
 *
 * Runs in: ward; never blocks. The worker is an adversary: wire_receive() checks each message as a
 * whole, a kind that no worker sends breaks the rules, and descriptors are closed unseen.
 * Read next: slot.c, ../common/wire.h.
 */
#ifndef GPUWARD_WARD_WORKER_LINK_H
#define GPUWARD_WARD_WORKER_LINK_H

#include "ward/slot.h"

/* Takes one message. Returns false when there is none, or the stream has ended. */
bool worker_link_read(struct slot *slot);

/* Takes what a worker that has ended left behind. */
void worker_link_drain(struct slot *slot);

/* Asks the worker to stop. */
void worker_link_send_stop(struct slot *slot);

#endif
