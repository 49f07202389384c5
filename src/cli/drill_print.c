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

const char *drill_source_name(uint32_t source)
{
	static const char *const names[] = {
		[GW_SOURCE_UNKNOWN] = "unknown",    [GW_SOURCE_RESULT] = "its result",
		[GW_SOURCE_DEATH] = "its death",    [GW_SOURCE_DEADLINE] = "a deadline",
		[GW_SOURCE_REQUEST] = "a request",  [GW_SOURCE_KERNEL_LOG] = "the kernel log",
		[GW_SOURCE_NVML] = "an NVML event", [GW_SOURCE_PROTOCOL] = "the ward's checks",
	};

	return source < sizeof(names) / sizeof(names[0]) ? names[source] : "unknown";
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
				       "process:\n there it takes 60 to 110 ms more, which GONE, "
				       "MEMORY BACK and BY HAND lack here"
				     : "without the delays of a real one");
}

static void print_crash_table(const struct drill *drill)
{
	static const struct out_column columns[] = {
		{"FAULT", false}, {"CUDA", true},	 {"NOTICED BY", false}, {"NOTICED", true},
		{"GONE", true},	  {"MEMORY BACK", true}, {"NEXT GOOD", true},	{"BY HAND", true},
		{"RESET", false}, {"OK", false},
	};
	static struct out_table table = {.columns = columns,
					 .n_columns = sizeof(columns) / sizeof(columns[0])};

	for (size_t i = 0; i < drill->n_crash; i++) {
		const struct drill_crash *crash = &drill->crash[i];

		out_row(&table);
		out_cell(&table, 0, "%s", drill_kinds[crash->kind].text);
		out_cell(&table, 1, "%d", crash->cuda);
		out_cell(&table, 2, "%s", drill_source_name(crash->source));
		cell_ms(&table, 3, crash->after_ns[MARK_NOTICED]);
		cell_ms(&table, 4, crash->after_ns[MARK_GONE]);
		cell_ms(&table, 5, crash->after_ns[MARK_BACK]);
		cell_ms(&table, 6, crash->after_ns[MARK_GOOD]);
		cell_ms(&table, 7, crash->cold_ns);
		out_cell(&table, 8, "says %d, then %d", crash->reset_result, crash->reset_next);
		cell_ok(&table, 9, crash->ok);
	}
	out_print(&table);
}

static void print_crash(const struct drill *drill)
{
	(void)printf("\nFaults (milliseconds after the launch, median of %u)\n\n",
		     drill->options.repeat);
	print_crash_table(drill);
	drill_chart(drill);
	(void)printf(
		"\nBY HAND: without gpuward, a program alone on the GPU that waits for CUDA's error, exits, is "
		"waited for and started again.\nRESET: what cuDevicePrimaryCtxReset says in "
		"the process that faulted, and what its next call says.\n");
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
	if (drill->used_before_bytes == GW_UNKNOWN || drill->used_after_bytes == GW_UNKNOWN)
		(void)printf("\nDevice memory in use before and after: unknown\n");
	else
		(void)printf("\nDevice memory in use: %" PRIu64 " MiB before, %" PRIu64
			     " MiB after\n",
			     drill->used_before_bytes >> 20, drill->used_after_bytes >> 20);
}
