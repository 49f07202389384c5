/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the parser of Xid lines, the join, and the assembling of lines, with any bytes as the
 * kernel log.
 *
 * Each input is a record, then a file. What comes back is checked against the promises of xid.h: no pid that
 * is no pid, terminated texts, progress, and a report from every line that is fed in; and the reports of a
 * file do not depend on where it is cut. Built with libFuzzer (-Dfuzz=true, clang) or with replay.c, which
 * runs a folder of kept inputs.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/xid.h"
#include "ward/log_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_line(const struct xid_line *line)
{
	require(memchr(line->name, 0, sizeof(line->name)) != NULL);
	require(memchr(line->rest, 0, sizeof(line->rest)) != NULL);
	if (line->have & XID_HAVE_PID)
		require(line->pid > 0 && line->pid <= 4194304);
	else
		require(line->pid == 0);
	if (line->have & XID_HAVE_PCI)
		require(line->pci.device < 32);
	require(!(line->have & XID_HAVE_PID) || (line->have & XID_HAVE_NUMBER));
	(void)xid_recovery(line->rest);
}

static void check_bare(const char *text, size_t bytes)
{
	struct xid_line line;
	size_t used;

	while ((used = xid_parse(text, bytes, &line)) > 0) {
		require(used <= bytes);
		check_line(&line);
		text += used;
		bytes -= used;
	}
}

static void check_record(const char *text, size_t bytes)
{
	struct xid_join join = {0};
	struct kmsg_record record;
	struct xid_line line;
	struct xid_line event;
	size_t offset = 0;
	unsigned int fed = 0;
	unsigned int given = 0;

	if (kmsg_parse(text, bytes, &record) < 0)
		return;
	require(record.text >= text && record.text + record.text_bytes <= text + bytes);
	xid_join_saw(&join, record.sequence);
	while (xid_parse_record(&record, &offset, &line)) {
		require(offset <= record.text_bytes);
		check_line(&line);
		fed++;
		given += xid_join_feed(&join, &line, &event);
	}
	while (xid_join_expire(&join, UINT64_MAX, 0, &event))
		given++;
	require(given <= fed && (fed == 0 || given > 0));
}

/* What came out of a file, as one number: the reports in their order. */
struct digest {
	uint64_t value;
	unsigned int reports;
};

static void digest_line(void *owner, const struct xid_line *line)
{
	struct digest *digest = owner;

	check_line(line);
	digest->reports++;
	digest->value = digest->value * 1000003 + line->number;
	digest->value = digest->value * 1000003 + (uint64_t)line->pid + line->channel;
	for (const char *at = line->rest; *at; at++)
		digest->value = digest->value * 1000003 + (unsigned char)*at;
}

static struct log_lines read_file(const char *text, size_t bytes, size_t piece,
				  struct digest *digest)
{
	static struct log_lines lines;

	lines = (struct log_lines){.give = digest_line, .owner = digest};
	for (size_t at = 0; at < bytes; at += piece)
		log_lines_bytes(&lines, text + at, bytes - at < piece ? bytes - at : piece, at);
	log_lines_expire(&lines, UINT64_MAX, 0);
	require(log_lines_oldest_ns(&lines) == UINT64_MAX);
	return lines;
}

static void check_file(const char *text, size_t bytes)
{
	struct digest whole = {0};
	struct digest cut = {0};
	struct log_lines first = read_file(text, bytes, bytes ? bytes : 1, &whole);
	struct log_lines second = read_file(text, bytes, bytes % 13 + 1, &cut);

	require(whole.value == cut.value && whole.reports == cut.reports);
	require(first.broken == second.broken && first.held_bytes == second.held_bytes);
	require(log_lines_lost(&first) == log_lines_lost(&second));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char *copy = malloc(bytes ? bytes : 1);

	if (!copy)
		return 0;
	memcpy(copy, data, bytes);
	check_bare(copy, bytes);
	check_record(copy, bytes);
	check_file(copy, bytes);
	free(copy);
	return 0;
}
