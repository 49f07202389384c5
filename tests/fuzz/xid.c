/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the parser of Xid lines, and the join, with any bytes as the kernel log.
 *
 * Each input is a record. What comes back is checked against the promises of xid.h: no pid that is no
 * pid, terminated texts, progress, and a report from every line that is fed in. Built with libFuzzer
 * (-Dfuzz=true, clang) or with replay.c, which runs a folder of kept inputs.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/xid.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	char *copy = malloc(bytes ? bytes : 1);

	if (!copy)
		return 0;
	memcpy(copy, data, bytes);
	check_bare(copy, bytes);
	check_record(copy, bytes);
	free(copy);
	return 0;
}
