/* SPDX-License-Identifier: MIT */
/*
 * Which namespaces this process is in.
 *
 * Runs in: ward and command line. Only reads /proc. A pid that comes from outside (the kernel log, say) names
 * a process here only where both count in the same pid namespace.
 */
#ifndef GPUWARD_LINUX_NAMESPACES_H
#define GPUWARD_LINUX_NAMESPACES_H

#include <stdbool.h>

/*
 * Whether this process is in the initial pid namespace, the one whose pids the kernel log uses and in which
 * no process is hidden. False where it cannot be known, because /proc is not mounted.
 * Source: the inode of /proc/self/ns/pid, which the kernel has fixed for the initial one.
 */
bool namespaces_pid_is_initial(void);

#endif
