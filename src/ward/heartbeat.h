/* SPDX-License-Identifier: MIT */
/*
 * Notices a worker that runs no more: stopped, or on a machine that swaps. Opt-in.
 *
 * Runs in: ward. It asks every worker and hot standby, and each answers from a thread that does nothing else;
 * so an answer says that the process runs, and not that its task makes progress: deadlines are for that. One
 * that owes an answer for heartbeat_ns is replaced. Without the option the ward does not wake up.
 * Read next: slot.c.
 */
#ifndef GPUWARD_WARD_HEARTBEAT_H
#define GPUWARD_WARD_HEARTBEAT_H

#include "ward/ward.h"

void heartbeat_init(struct ward *ward);

/* The pool's options are known. */
void heartbeat_begin(struct ward *ward);

#endif
