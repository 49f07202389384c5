/* SPDX-License-Identifier: MIT */
/*
 * What GW_POOL_PINNED asks of the machine.
 *
 * Runs in: host, in gw_pool_open(), before anything is allocated. Pinned memory is taken whole and cannot be
 * given back or swapped, so that totals that are harmless as sparse memory could end every process of the
 * machine. Read next: ../worker/pin.c, which does the pinning.
 */
#ifndef GPUWARD_LIB_PINNED_H
#define GPUWARD_LIB_PINNED_H

#include <gpuward.h>

/* 0, -EINVAL where the pool has no device, or -ENOMEM where the machine has less. Without the flag 0. */
int pinned_check(const struct gw_pool_options *options, struct gw_error *ret_error);

/* start_deadline_ns, and with the flag the time to take and pin a worker's memory on top of it. */
uint64_t pinned_start_deadline_ns(const struct gw_pool_options *options);

#endif
