/* SPDX-License-Identifier: MIT */
/*
 * What the GPU driver's kernel part says about a fault: lines in the kernel log, and NVML's events.
 *
 * Runs in: the faulting process, inside a transaction of the table (xid_log); or the process that waits
 * for NVML's events. Both files only grow, by one write() of one record, so readers need no lock.
 * Invariant: a record of `kmsg` has the form of one read from /dev/kmsg: `prio,seq,usec,-;text`.
 * Read next: fault.h.
 */
#ifndef SOFTGPU_XID_H
#define SOFTGPU_XID_H

#include <stdint.h>

#include "table.h"

/* One record of the file `events`. */
struct xid_event {
	uint64_t type; /* enum nvml_event_type */
	uint64_t data;
	uint32_t device;
	uint32_t reserved;
	uint64_t time_ns;
};

/* The place of a device on the bus. The first one is 0000:00:06.0. */
struct xid_bus {
	unsigned int bus;
	unsigned int device;
};

struct xid_bus xid_bus(uint32_t device);

/*
 * Logs TEXT, which follows "NVRM: Xid (PCI:0000:00:06): " and in which @PID, @NAME and @CHANNEL stand for
 * those of CLIENT. Returns 0 or -EIO.
 */
int xid_log(struct table *table, uint32_t client, uint32_t device, const char *text);

/* Announces an event of TYPE. Returns 0 or -errno. */
int xid_announce(const struct machine *machine, uint32_t device, uint64_t type, uint64_t data);

#endif
