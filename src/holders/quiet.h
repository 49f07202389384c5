/* SPDX-License-Identifier: MIT */
/*
 * What need not be looked at closely: sockets that certainly have nothing in flight, and the inode that all small
 * kernel files (events, polls, timers) share.
 *
 * Runs in: scan_run(), once per scan; the threads only read it. It saves time and nothing else: where it knows
 * nothing, everything is looked at.
 *
 * Invariant: a socket counts as quiet only if its kind cannot carry descriptors without data and it had no data.
 * Read next: sockets.c, fds.c.
 */
#ifndef GPUWARD_HOLDERS_QUIET_H
#define GPUWARD_HOLDERS_QUIET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct quiet {
	uint32_t *sockets; /* inodes, ascending */
	uint32_t count;
	bool has_anonymous; /* the inode is known, and no io_uring has it */
	struct statx anonymous;
};

/* Asks the kernel about the unix sockets of this network namespace. */
void quiet_read(struct quiet *quiet);
void quiet_done(struct quiet *quiet);

/* Has the socket with this inode certainly nothing in flight? */
bool quiet_has_socket(const struct quiet *quiet, uint64_t inode);

/* Is FILE the shared one? It needs stx_ino and the number of its file system. */
bool quiet_is_anonymous(const struct quiet *quiet, const struct statx *file);

/* Is the running kernel at least of this version? */
bool quiet_kernel_is_from(long major, long minor);

#endif
