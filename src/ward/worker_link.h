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

#include "ward/process.h"

/* Takes one message. Returns false when there is none, or the stream has ended. */
bool worker_link_read(struct process *process);

/* Takes what a worker that has ended left behind. */
void worker_link_drain(struct process *process);

/*
 * Sends WIRE_STOP, WIRE_WARM or WIRE_PROMOTE, which say all by their TYPE. Never blocks: what the kernel has no
 * memory for is sent a moment later, since a process that never hears it waits for ever.
 */
void worker_link_send(struct process *process, enum wire_type type);
/* What could not be sent yet. */
void worker_link_send_again(struct ward *ward);

/* The same for what can get lost. Returns whether it was sent. */
bool worker_link_try(struct process *process, enum wire_type type);

#endif
