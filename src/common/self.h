/* SPDX-License-Identifier: MIT */
/*
 * Finds gpuward's own helper programs (the probe, the ward) from inside a library or program.
 *
 * Runs in: host and command line. Reads the environment and the link map of this object, changes
 * neither. A program started with raised privileges ignores the environment (secure_getenv), since a
 * helper of the caller's choice would run with them.
 *
 * Invariant: the answer is an absolute path of a regular file that this process may execute.
 */
#ifndef GPUWARD_COMMON_SELF_H
#define GPUWARD_COMMON_SELF_H

#include <gpuward.h>
#include <stddef.h>

/*
 * Writes the path of the helper program NAME (such as "gpuward-probe") to BUFFER, which has BYTES
 * bytes. The places, in order:
 *
 *	1. the folder that GPUWARD_LIBEXEC names; if it is set, no other place is looked at
 *	2. the folder of the library or program that contains this code: a build folder
 *	3. the folder that was configured for installed helpers
 *
 * Returns 0; -ENOENT in no place, or -EACCES found but not executable (the message names the path);
 * -ENAMETOOLONG.
 */
int self_find_helper(const char *name, char *buffer, size_t bytes, struct gw_error *ret_error);

#endif
