/* SPDX-License-Identifier: MIT */
/*
 * How much memory can still be had: before a large amount is taken at once and for good.
 *
 * Runs in: any process that knows no driver. Reads /proc/meminfo and the control groups (version 2) of this
 * process; what it cannot read does not limit. It is a snapshot: others may take memory right after it.
 */
#ifndef GPUWARD_LINUX_MEMINFO_H
#define GPUWARD_LINUX_MEMINFO_H

#include <stdint.h>

/*
 * The bytes that can be taken without swapping and without the kernel's ending a process for them: the least
 * of the machine's MemAvailable and of what each control group above this process has left, where its cache
 * of files counts as free. ROOT is "", or another folder with a proc and a sys/fs/cgroup.
 * Returns 0, or -ENOENT where nothing is known.
 */
int meminfo_available(const char *root, uint64_t *ret_bytes);

#endif
