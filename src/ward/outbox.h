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

/* Takes UP, which is from malloc(). */
void outbox_up_take(struct slot *slot, struct wire_up *up);
void outbox_gone(struct slot *slot, const struct gw_exit *exit);
/* Queues the end of a process that was leaving: it goes out before what its successor has to say. */
void outbox_left(struct slot *slot, uint32_t incarnation, const struct gw_exit *exit);

void outbox_failed(struct slot *slot, const struct gw_error *error);

/* Sends what the socket takes. */
void outbox_flush(struct ward *ward);

#endif
