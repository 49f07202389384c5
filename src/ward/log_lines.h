/* SPDX-License-Identifier: MIT */
/*
 * Puts the kernel log together again: bytes to records, records to Xid reports, the lines of one fault
 * to one report; and counts what is missing.
 *
 * Runs in: ward. Pure: no I/O, no allocation, no clock but the time that it is given. The text is not
 * trusted: of a regular file any process of this user can write any byte.
 *
 * Invariant: what comes out is what xid.h promises, with at_ns the time of arrival (of its first line)
 * on CLOCK_MONOTONIC. The kernel's own clock drifts against it and is not used.
 * Read next: kernel_log.h, which reads the log; xid.h.
 */
#ifndef GPUWARD_WARD_LOG_LINES_H
#define GPUWARD_WARD_LOG_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/xid.h"

/* The longest record that the kernel makes; /dev/kmsg refuses to be read with less room. */
#define LOG_LINE_MAX 8192U

/* All zero is its beginning, but for GIVE and OWNER. */
struct log_lines {
	void (*give)(void *owner, const struct xid_line *line);
	void *owner;
	struct xid_join join; /* .lost and .overruns */
	uint64_t uncounted;   /* times that records were overwritten before any was read */
	uint64_t broken;      /* lines that were no records, or too long for one */
	bool skipping;	      /* the rest of one that is too long */
	size_t held_bytes;
	char held[LOG_LINE_MAX]; /* the beginning of a line whose end has not come */
};

/* One whole record, as a read of /dev/kmsg gives it. */
void log_lines_record(struct log_lines *lines, const char *record, size_t bytes, uint64_t now_ns);

/* A piece of a file with one record a line, cut anywhere. */
void log_lines_bytes(struct log_lines *lines, const char *bytes, size_t count, uint64_t now_ns);

/* read() of /dev/kmsg gave EPIPE: records were overwritten before they were read. */
void log_lines_overrun(struct log_lines *lines);

/* The file begins anew (it was truncated or replaced): half a line is dropped, sequence numbers too. */
void log_lines_restart(struct log_lines *lines);

/* Gives the reports without a pid that arrived AGE_NS ago or earlier: their pid does not come any more. */
void log_lines_expire(struct log_lines *lines, uint64_t now_ns, uint64_t age_ns);

/* When the first report that still waits for its pid arrived; GW_FOREVER if none does. */
uint64_t log_lines_oldest_ns(const struct log_lines *lines);

/* Records that are known to be missing. Where nobody can say how many, they count as one. */
uint64_t log_lines_lost(const struct log_lines *lines);

#endif
