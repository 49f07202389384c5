/* SPDX-License-Identifier: MIT */
/*
 * This process as a user of the emulated GPUs: its entry in the shared table, and the descriptors whose
 * locks keep that entry, and so all its device memory, alive.
 *
 * Runs in: a process that called cuInit. The descriptors are close-on-exec, and a forked child inherits
 * them: as with the real driver, the child then keeps the parent's memory.
 * Invariant: device memory is mapped through `data_fd`, whose open file description holds no lock,
 * because mappings alone do not keep memory with the real driver either.
 * Read next: table.h.
 */
#ifndef SOFTGPU_CLIENT_H
#define SOFTGPU_CLIENT_H

#include <stdint.h>

#include "table.h"

struct client {
	uint32_t index;
	int control_fd;
	int uvm_fd;
	int data_fd;
	int device_fds[SOFT_DEVICES_MAX];
};

/* Joins, and takes the memory that cuInit costs. Returns 0 or -errno; the reason was said. */
int client_join(struct client *client, struct table *table);

/*
 * A new open file description of the device memory at OFFSET, that keeps it alive by itself. Its file
 * position says which memory it is. Returns a descriptor or -errno.
 */
int client_export(const struct machine *machine, uint64_t offset, uint64_t bytes);

/* Maps the memory at OFFSET for this process. Returns MAP_FAILED with errno set on failure. */
void *client_map(const struct client *client, uint64_t offset, uint64_t bytes);

#endif
