/* SPDX-License-Identifier: MIT */
/*
 * Reads a file of /proc of any length, line by line, through the buffer of a look.
 *
 * Runs in: the scan's threads. Read next: look.h.
 */
#ifndef GPUWARD_HOLDERS_LINES_H
#define GPUWARD_HOLDERS_LINES_H

#include "holders/look.h"

/* Takes one LINE, which ends with NUL instead of its separator; it may be changed. Returns false to end. */
typedef bool lines_take(struct look *look, char *line, size_t length, void *argument);

/*
 * Calls TAKE for each piece of the file NAME below FOLDER that ends with SEPARATOR, and for a rest without one. A
 * piece that is longer than the buffer is left out. TAKE must not use look->text. Returns 0 or -errno.
 */
int lines_each(struct look *look, int folder, const char *name, char separator, lines_take *take,
	       void *argument);

#endif
