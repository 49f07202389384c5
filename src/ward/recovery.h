/* SPDX-License-Identifier: MIT */
/*
 * What the ward tells of each worker's replacement, and of itself, in the page that it shares with the host.
 *
 * Runs in: ward; never waits for a reader. A recovery begins when a worker is fenced, and is complete when the
 * old process is gone and the new one is ready, in either order. Whoever looks sees a whole report at any
 * time, even if the ward is stopped in the middle of writing one (pool_page.h). Read next: slot.c.
 */
#ifndef GPUWARD_WARD_RECOVERY_H
#define GPUWARD_WARD_RECOVERY_H

#include "ward/slot.h"

/* PROCESS of SLOT, which was ready, is fenced; EXIT is what is known of its end. */
void recovery_begin(struct slot *slot, struct process *process, const struct gw_exit *exit);

/* A source spoke of PROCESS, which is leaving. XID: 0 or the number. */
void recovery_spoke(const struct process *process, int32_t xid);

/* PROCESS does not end after SIGKILL. */
void recovery_stuck(const struct process *process);

/* PROCESS is gone. */
void recovery_gone(const struct process *process, const struct gw_exit *exit);

/* SLOT has its next process, which was in STATE when it took it. */
void recovery_successor(struct slot *slot, enum slot_state state);

/* SLOT's process is ready. */
void recovery_ready(struct slot *slot);

/* Shows how far workers and standbys are, if that has changed. */
void recovery_settle(struct ward *ward);

/* Shows all that has changed. */
void recovery_publish(struct ward *ward);

#endif
