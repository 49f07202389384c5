/* SPDX-License-Identifier: MIT */
/*
 * Messages to the host, which may not be reading for hours: none is lost, none makes the ward wait, and
 * their number is bounded.
 *
 * Runs in: ward. Each slot has room for one message of each kind. That is enough, since a slot is not
 * started again before the end of its last process was handed to the socket:
 *
 *	UP 0  GONE 0  |  UP 1  GONE 1  FAILED
 *	              ^ the host's socket took GONE 0: only now may incarnation 1 start
 *
 * Invariant: the messages of one slot keep this order. Read next: ../lib/news.c for who reads them.
 */
#ifndef GPUWARD_WARD_OUTBOX_H
#define GPUWARD_WARD_OUTBOX_H

#include "ward/ward.h"

void outbox_init(struct ward *ward);

/* SLOT's process is ready: process->up goes to the host. */
void outbox_up(struct slot *slot);
/* PROCESS, which was in SLOT, has come to its end, or is fenced. */
void outbox_gone(struct slot *slot, const struct process *process, const struct gw_exit *exit);
/* SLOT is given up. Nothing of a standby's slot is sent. */
void outbox_failed(struct slot *slot, const struct gw_error *error);

/* Sends what the socket takes. */
void outbox_flush(struct ward *ward);

/* In a moment what could not be sent is sent again, to the host and to workers. */
void outbox_retry_later(struct ward *ward);

#endif
