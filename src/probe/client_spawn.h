/* SPDX-License-Identifier: MIT */
/*
 * Starts the probe program with one socket and nothing else.
 *
 * Runs in: ward and command line. Fork, then exec at once: between the two the child makes only calls
 * that are safe after a fork of a process with threads.
 *
 * Invariant: the child has descriptors 0, 1, 2 and 3 and no other, default signal dispositions, an empty
 * mask, and a process group of its own, so that Ctrl-C at the terminal does not hit it.
 * Read next: client.c.
 */
#ifndef GPUWARD_PROBE_CLIENT_SPAWN_H
#define GPUWARD_PROBE_CLIENT_SPAWN_H

#include <gpuward.h>
#include <sys/types.h>

/*
 * Starts PATH with SOCKET as its descriptor 3. The child is killed when the calling thread ends.
 * Returns 0, *RET_PID and *RET_PIDFD (close-on-exec); or -errno, also where exec failed in the child.
 */
int spawn_probe(const char *path, int socket, pid_t *ret_pid, int *ret_pidfd,
		struct gw_error *ret_error);

#endif
