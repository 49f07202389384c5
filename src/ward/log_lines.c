/* SPDX-License-Identifier: MIT */
#include "ward/log_lines.h"

#include <gpuward.h>
#include <string.h>

void log_lines_record(struct log_lines *lines, const char *record, size_t bytes, uint64_t now_ns)
{
	struct kmsg_record parsed;
	struct xid_line line;
	struct xid_line event;
	size_t offset = 0;

	if (kmsg_parse(record, bytes, &parsed) < 0) {
		lines->broken++;
		return;
	}
	xid_join_saw(&lines->join, parsed.sequence);
	/* Another facility is a program that wrote to /dev/kmsg: it can write whatever it likes. */
	while (parsed.facility == 0 && xid_parse_record(&parsed, &offset, &line)) {
		line.at_ns = now_ns;
		if (xid_join_feed(&lines->join, &line, &event))
			lines->give(lines->owner, &event);
	}
}

/* A line that begins with a space says more about the record before it, which nobody here asks for. */
static void take_line(struct log_lines *lines, const char *line, size_t bytes, uint64_t now_ns)
{
	if (bytes > 0 && line[0] != ' ')
		log_lines_record(lines, line, bytes, now_ns);
}

/* Keeps the beginning of a line. What is too long is thrown away up to its end. */
static void hold(struct log_lines *lines, const char *bytes, size_t count)
{
	if (lines->skipping)
		return;
	if (count > sizeof(lines->held) - lines->held_bytes) {
		lines->broken++;
		lines->skipping = true;
		lines->held_bytes = 0;
		return;
	}
	memcpy(lines->held + lines->held_bytes, bytes, count);
	lines->held_bytes += count;
}

void log_lines_bytes(struct log_lines *lines, const char *bytes, size_t count, uint64_t now_ns)
{
	while (count > 0) {
		const char *newline = memchr(bytes, '\n', count);
		size_t piece = newline ? (size_t)(newline - bytes) : count;

		if (newline && lines->held_bytes == 0 && !lines->skipping) {
			take_line(lines, bytes, piece, now_ns);
		} else {
			hold(lines, bytes, piece);
			if (newline && !lines->skipping)
				take_line(lines, lines->held, lines->held_bytes, now_ns);
			if (newline) {
				lines->held_bytes = 0;
				lines->skipping = false;
			}
		}
		piece += newline ? 1 : 0;
		bytes += piece;
		count -= piece;
	}
}

/* The next record shows by its number how many are missing, if one was read before. */
void log_lines_overrun(struct log_lines *lines)
{
	xid_join_overrun(&lines->join);
	if (!lines->join.started)
		lines->uncounted++;
}

void log_lines_restart(struct log_lines *lines)
{
	lines->held_bytes = 0;
	lines->skipping = false;
	lines->join.started = false;
}

void log_lines_expire(struct log_lines *lines, uint64_t now_ns, uint64_t age_ns)
{
	struct xid_line event;

	while (xid_join_expire(&lines->join, now_ns, age_ns, &event))
		lines->give(lines->owner, &event);
}

uint64_t log_lines_oldest_ns(const struct log_lines *lines)
{
	uint64_t oldest = GW_FOREVER;

	for (size_t i = 0; i < XID_JOIN_MAX; i++) {
		const struct xid_line *held = &lines->join.held[i];

		if (held->have && held->at_ns < oldest)
			oldest = held->at_ns;
	}
	return oldest;
}

uint64_t log_lines_lost(const struct log_lines *lines)
{
	return lines->join.lost + lines->uncounted;
}
