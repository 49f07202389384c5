/* SPDX-License-Identifier: MIT */
/*
 * Writes a file that is there whole or not at all: into a new file beside it, which then takes its place.
 *
 * Runs in: command line. A link is followed; what is no regular file (/dev/stdout, a pipe) is written to directly. A file
 * that was there keeps its permissions. Whatever fails, the old file is as it was, and nothing else lies there.
 */
#ifndef GPUWARD_CLI_REPLACE_H
#define GPUWARD_CLI_REPLACE_H

#include <stddef.h>

#include <gpuward.h>

/* Whether PATH can be written, as far as that can be told now: before work that takes long. Returns 0 or -errno, with a
 * message for people that names the path. */
int replace_check(const char *path, struct gw_error *ret_error);

/* Returns 0 or -errno, with such a message. */
int replace_write(const char *path, const void *data, size_t bytes, struct gw_error *ret_error);

#endif
