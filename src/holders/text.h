/* SPDX-License-Identifier: MIT */
/*
 * Text that another process chose (a name, a command line, a path), made fit for a terminal and for JSON.
 *
 * Runs in: command line; pure. This is the only way for such text to an output.
 */
#ifndef GPUWARD_HOLDERS_TEXT_H
#define GPUWARD_HOLDERS_TEXT_H

#include <stddef.h>

/*
 * Copies FROM (FROM_BYTES bytes of anything) to TO, which has room for BYTES, at least 1, and ends it. The result is
 * one line of valid UTF-8: words of a command line (they end with NUL) have a space between them, and control
 * characters, bytes that are no UTF-8, and characters that have no shape of their own or turn the direction of
 * writing, are '?'. What does not fit is cut between characters. Returns the length of the result.
 */
size_t text_printable(char *to, size_t bytes, const char *from, size_t from_bytes);

#endif
