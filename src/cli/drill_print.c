/* SPDX-License-Identifier: MIT */
/*
 * The drill's results for people: tables, a chart of the recoveries on one scale of time, and what the
 * figures mean in words. Runs in: command line.
 */
#include "cli/drill.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/out.h"
#include "cli/soft.h"
#include "cli/source.h"
#include "gpu/nodes.h"

const char *drill_way_name(enum drill_way way)
{
	switch (way) {
	case WAY_SIGKILL:
		return "SIGKILL";
	case WAY_SIGTERM:
		return "SIGTERM, frees first";
	case WAY_EXIT:
		return "exit";
	case WAY_FAULT:
		return "a fault, then _exit";
	case WAY_EXPORTED:
		return "ghost: exported memory";
	case WAY_FORKED:
		return "ghost: forked child";
	case DRILL_WAYS:
		break;
	}
	return "?";
}

const char *drill_level_id(enum drill_level level)
{
	static const char *const ids[DRILL_LEVELS] = {
		[LEVEL_BY_HAND] = "by-hand", [LEVEL_COLD] = "cold",   [LEVEL_PRIMED] = "primed",
		[LEVEL_HOT] = "hot",	     [LEVEL_HOT_1] = "hot-1",
	};

	return (size_t)level < DRILL_LEVELS ? ids[level] : "?";
}

const char *drill_level_name(enum drill_level level)
{
	static const char *const names[DRILL_LEVELS] = {
		[LEVEL_BY_HAND] = "by hand",	     [LEVEL_COLD] = "cold",
		[LEVEL_PRIMED] = "primed",	     [LEVEL_HOT] = "hot",
		[LEVEL_HOT_1] = "hot, 1 connection",
	};

	return (size_t)level < DRILL_LEVELS ? names[level] : "?";
}

static void cell_ms(struct out_table *table, size_t column, uint64_t ns)
{
	if (ns == GW_UNKNOWN)
		out_cell(table, column, "-");
	else
		out_cell(table, column, "%.1f", (double)ns / 1e6);
}

static void cell_ok(struct out_table *table, size_t column, bool ok)
{
	out_cell(table, column, "%s", ok ? "yes" : "NO");
	if (!ok)
		out_mark(table);
}

static void print_head(const struct drill *drill)
{
	const char *emulated = nodes_emulated() ? ", emulated" : "";

	(void)printf("GPU %d: %s%s, driver %s\n", drill->options.device,
		     drill->device.name[0] ? drill->device.name : "unknown", emulated,
		     drill->driver.driver[0] ? drill->driver.driver : "unknown");
	if (nodes_emulated())
		(void)printf("(an emulated GPU, %s)\n",
			     soft_is_measured()
				     ? "with delays as measured on an H200, but for the end of a "
				       "process:\n there it takes 20 to 110 ms more, which GONE, "
				       "MEMORY BACK and what is done by hand lack here"
				     : "without the delays of a real one");
}

/* The successor can be less than what was asked for. */
static void cell_level(struct out_table *table, enum drill_level level, const struct drill_row *row)
{
	bool less = (level == LEVEL_HOT || level == LEVEL_HOT_1) && row->ran &&
		    row->standby != GW_STANDBY_HOT;

	out_cell(table, 0, "%s%s", drill_level_name(level), less ? ": stayed primed" : "");
}

static void add_crash_row(const struct drill_crash *crash, enum drill_level level,
			  struct out_table *table)
{
	const struct drill_row *row = &crash->rows[level][0], *state = &crash->rows[level][1];
	size_t column = 8;

	out_row(table);
	cell_level(table, level, row);
	out_cell(table, 1, "%s",
		 level == LEVEL_BY_HAND ? "CUDA's result" : source_name(row->source));
	cell_ms(table, 2, row->after_ns[MARK_SIGN]);
	cell_ms(table, 3, row->after_ns[MARK_FENCED]);
	cell_ms(table, 4, row->after_ns[MARK_READY]);
	cell_ms(table, 5, row->after_ns[MARK_GOOD]);
	cell_ms(table, 6, row->after_ns[MARK_GONE]);
	cell_ms(table, 7, row->stall_ns);
	if (state->ran) {
		cell_ms(table, column++, state->after_ns[MARK_GOOD]);
		out_cell(table, column++, "%s", state->intact ? "intact" : "CHANGED");
		if (level == LEVEL_BY_HAND)
			out_cell(table, column - 1, "%s", state->intact ? "copied" : "WRONG");
	}
	cell_ok(table, column, row->ok && (!state->ran || state->ok));
}

static void print_crash_table(const struct drill *drill, const struct drill_crash *crash)
{
	static const struct out_column all[] = {
		{"STANDBY", false},   {"FIRST SIGN", false}, {"SIGN", true}, {"FENCED", true},
		{"READY", true},      {"GOOD", true},	     {"GONE", true}, {"STALL", true},
		{"WITH STATE", true}, {"STATE", false},	     {"OK", false},
	};
	struct out_column columns[OUT_COLUMNS_MAX];
	static struct out_table table;
	size_t n = sizeof(all) / sizeof(all[0]);

	memcpy(columns, all, sizeof(all));
	if (drill->options.state_bytes == 0) {
		columns[8] = columns[n - 1];
		n -= 2;
	}
	memset(&table, 0, sizeof(table));
	table.columns = columns;
	table.n_columns = n;
	for (int level = 0; level < DRILL_LEVELS; level++) {
		if (crash->rows[level][0].ran)
			add_crash_row(crash, (enum drill_level)level, &table);
	}
	out_print(&table);
}

static void print_words(const struct drill *drill)
{
	(void)printf(
		"\nAll are milliseconds after the launch of the bad kernel, medians of %u. SIGN: "
		"somebody noticed (FIRST SIGN says\nwho). FENCED: nothing of the old process "
		"counts any more. READY: its successor takes tasks. GOOD: its first good kernel\n"
		"is done. GONE: the old process is. STALL: the longest that a healthy process "
		"beside them waited for an empty kernel.\n",
		drill->options.repeat);
	if (drill->options.state_bytes > 0)
		(void)printf("WITH STATE: GOOD again, where that kernel reads %" PRIu64
			     " MiB of state that outlives workers; by hand it is copied from the\n"
			     "host's memory again. STATE: every word of it was looked at.\n",
			     drill->options.state_bytes >> 20);
	(void)printf("By hand: without gpuward, a program that waits for CUDA's error, exits, is "
		     "waited for and started again.\n");
}

/* Two moments, 40 ms apart, are as likely as each other on an H200; the emulated one does the same. */
static void print_chance(const struct drill_kind *kind)
{
	if (kind->by_chance)
		(void)printf(
			"How late this fault becomes known is a matter of chance (40 ms): compare "
			"rows with --repeat 10.\n");
}

static void print_crash(const struct drill *drill)
{
	for (size_t i = 0; i < drill->n_crash; i++) {
		const struct drill_crash *crash = &drill->crash[i];
		const struct drill_kind *kind = &drill_kinds[crash->kind];

		(void)printf("\nFault: %s (%s, CUDA %d)\n\n", kind->text, kind->name, kind->cuda);
		print_crash_table(drill, crash);
		print_chance(kind);
		drill_chart(crash);
		if (crash->reset_result >= 0)
			(void)printf("cuDevicePrimaryCtxReset in the process that faulted says %d, "
				     "the next call %d.\n",
				     crash->reset_result, crash->reset_next);
	}
	print_words(drill);
}

static void print_ghost(const struct drill_release *release, struct out_table *table)
{
	if (release->held_bytes == GW_UNKNOWN && release->listed_pid == -2) {
		out_cell(table, 4, "-");
		out_cell(table, 5, "-");
		return;
	}
	if (release->held_bytes == GW_UNKNOWN)
		out_cell(table, 4, "-");
	else
		out_cell(table, 4, "%" PRIu64, release->held_bytes >> 20);
	if (release->listed_pid == -1)
		out_cell(table, 5, "nobody");
	else if (release->listed_pid == -2)
		out_cell(table, 5, "-");
	else
		out_cell(table, 5, "pid %d%s", release->listed_pid,
			 release->listed_is_dead ? ", which is dead" : "");
}

static void print_release(const struct drill *drill)
{
	static const struct out_column columns[] = {
		{"ENDED BY", false},   {"MIB", true},	   {"PROCESS GONE", true},
		{"MEMORY BACK", true}, {"MIB KEPT", true}, {"NVML NAMES", false},
		{"OK", false},
	};
	static struct out_table table = {.columns = columns,
					 .n_columns = sizeof(columns) / sizeof(columns[0])};

	(void)printf(
		"\nReleases (milliseconds after the process was told to end, median of %u)\n\n",
		drill->options.repeat);
	for (size_t i = 0; i < drill->n_release; i++) {
		const struct drill_release *release = &drill->release[i];

		out_row(&table);
		out_cell(&table, 0, "%s", drill_way_name(release->way));
		out_cell(&table, 1, "%" PRIu64, release->bytes >> 20);
		cell_ms(&table, 2, release->gone_ns);
		cell_ms(&table, 3, release->back_ns);
		print_ghost(release, &table);
		cell_ok(&table, 6, release->ok);
	}
	out_print(&table);
	(void)printf(
		"\nA ghost is memory that stays when its process is gone (MIB KEPT): held by a "
		"descriptor in another process, or by a\nchild that never called CUDA. Its "
		"MEMORY BACK counts from when that holder let go.\n");
}

void drill_print(const struct drill *drill)
{
	print_head(drill);
	if (drill->n_crash > 0)
		print_crash(drill);
	if (drill->n_release > 0)
		print_release(drill);
	if (drill->n_notes > 0)
		(void)putchar('\n');
	for (size_t i = 0; i < drill->n_notes; i++)
		(void)printf("Note: %s\n", drill->notes[i]);
	if (drill->used_before_bytes == GW_UNKNOWN || drill->used_after_bytes == GW_UNKNOWN)
		(void)printf("\nDevice memory in use before and after: unknown\n");
	else
		(void)printf("\nDevice memory in use: %" PRIu64 " MiB before, %" PRIu64
			     " MiB after\n",
			     drill->used_before_bytes >> 20, drill->used_after_bytes >> 20);
}
