/* SPDX-License-Identifier: MIT */
/*
 * The faults that GPU work can cause, as data: result, Xid, lines in the kernel log, and when each of
 * them becomes known (measured on an H200).
 *
 * Runs in: a stream's thread. fault_raise() sleeps if delays are to be as measured.
 * Invariant: the kernel log comes before CUDA's own error, also where the hardware was measured the
 * other way round (assert): a process that ends at its error could not write the line any more, while
 * the real line is written by the kernel.
 * Read next: xid.h.
 */
#ifndef SOFTGPU_FAULT_H
#define SOFTGPU_FAULT_H

#include <stdint.h>

enum fault {
	FAULT_NONE = 0,
	FAULT_ADDRESS = 1,   /* nothing is mapped there */
	FAULT_READ_ONLY = 2, /* a write to what is mapped for reading */
	FAULT_MISALIGNED = 3,
	FAULT_ASSERT = 4,
	FAULT_TRAP = 5,
	FAULT_SHARED = 6, /* outside of shared memory */
	FAULT_STACK = 7,
	FAULT_CUT_OFF = 8, /* no fault of its own: another stream's ended it */
};

/* Without the process's lock. LAUNCHED_NS is when the faulting work was queued. */
void fault_raise(enum fault fault, uint32_t machine_device, uint64_t launched_ns);

/* With measured delays, work waits while a fault of any process stalls the device. Without the lock. */
void fault_await_stall(uint32_t machine_device);

#endif
