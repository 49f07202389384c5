/* SPDX-License-Identifier: MIT */
/*
 * Ranges of device addresses that the program has reserved (cuMemAddressReserve).
 *
 * Runs in: a process that uses CUDA, with the process's lock held.
 * Invariant: reservations do not overlap each other, nor the addresses that plain allocations get.
 * Read next: handle.c, which maps memory into them.
 */
#ifndef SOFTGPU_RESERVE_H
#define SOFTGPU_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether one reservation has all of ADDRESS to ADDRESS + BYTES. */
bool reserve_covers(uint64_t address, uint64_t bytes);

#endif
