/* SPDX-License-Identifier: MIT */
/*
 * Text that another process wrote, for a terminal. Runs in: command line; pure. An escape sequence in it must not
 * reach the terminal, and JSON must be valid.
 */
#ifndef GPUWARD_CLI_CLEAN_H
#define GPUWARD_CLI_CLEAN_H

#include <stddef.h>

/* Copies at most BYTES - 1 characters of FROM (FROM_BYTES bytes, which may lack a zero byte) to TO and ends it;
 * what is not printable ASCII becomes '?'. */
void clean_text(char *to, size_t bytes, const char *from, size_t from_bytes);

#endif
