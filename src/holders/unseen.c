/* SPDX-License-Identifier: MIT */
/*
 * What a scan could not see, in words: an incomplete answer must not look like a complete one.
 *
 * Read next: scan.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "holders/scan.h"

struct line {
	char *text;
	size_t bytes;
	size_t length;
};

static void __attribute__((format(printf, 2, 3))) add(struct line *line, const char *format, ...)
{
	va_list arguments;
	int length;

	if (line->length > 0 && line->length + 3 < line->bytes) {
		memcpy(line->text + line->length, "; ", 3);
		line->length += 2;
	}
	va_start(arguments, format);
	length =
		vsnprintf(line->text + line->length, line->bytes - line->length, format, arguments);
	va_end(arguments);
	line->length += length > 0 ? (size_t)length : 0;
	if (line->length >= line->bytes)
		line->length = line->bytes - 1;
}

/* COUNT and the right one of two words. */
static void add_count(struct line *line, uint32_t count, const char *one, const char *many,
		      const char *rest)
{
	if (count > 0)
		add(line, "%u %s%s", count, count == 1 ? one : many, rest);
}

static void add_places(const struct scan_unseen *unseen, struct line *line)
{
	add_count(line, unseen->maps_denied, "process's mappings are", "processes' mappings are",
		  " not readable");
	add_count(
		line, unseen->maps_unsure, "mapped file", "mapped files",
		" with a device's name could not be identified: run with CAP_CHECKPOINT_RESTORE (root)");
	add_count(line, unseen->sockets_denied, "socket", "sockets",
		  " with descriptors in flight could not be looked into");
	add_count(line, unseen->in_flight_hidden, "descriptor", "descriptors",
		  " in flight behind others cannot be seen");
	add_count(line, unseen->rings_busy, "io_uring", "io_urings", " could not be read");
	add_count(line, unseen->rings_unreachable, "process has an io_uring",
		  "processes have io_urings", " without a descriptor");
	add_count(line, unseen->exiting_unknown, "process is", "processes are",
		  " ending, and where in the kernel is not known");
	add_count(line, unseen->references_dropped, "reference", "references", " were too many");
}

void scan_unseen_text(const struct scan *scan, char *text, size_t bytes)
{
	const struct scan_unseen *unseen = &scan->unseen;
	struct line line = {.text = text, .bytes = bytes};

	text[0] = '\0';
	add_count(&line, unseen->denied, "process of another user is",
		  "processes of other users are", " not readable: run with CAP_SYS_PTRACE (root)");
	if (unseen->hidepid > 1)
		add(&line,
		    "processes of other users are hidden (/proc has hidepid=%d): run as root",
		    unseen->hidepid);
	if (!scan->pid_namespace_initial)
		add(&line, "processes outside this pid namespace cannot be seen: run on the host");
	add_count(&line, unseen->late, "process", "processes",
		  " could not be looked at in time: the kernel holds the look up");
	if (unseen->failed)
		add(&line, "%u processes could not be looked at: %s", unseen->failed,
		    strerrordesc_np(unseen->failed_errno));
	add_places(unseen, &line);
	if (unseen->foreign_proc && (unseen->sockets_denied || scan->processes_looked_at == 0))
		add(&line, "/proc is of another pid namespace");
}
