/* SPDX-License-Identifier: MIT */
/*
 * Pools for people: one row for each, and below it what a row has no room for. Runs in: command line.
 */
#include "cli/pools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/bytes.h"
#include "cli/ms.h"
#include "cli/out.h"
#include "cli/source.h"

enum column {
	COLUMN_WARD,
	COLUMN_HOST,
	COLUMN_PROGRAM,
	COLUMN_DEVICES,
	COLUMN_READY,
	COLUMN_STANDBYS,
	COLUMN_RECOVERIES,
	COLUMN_LATENCY,
	COLUMN_PENDING,
	COLUMN_DONE,
	COLUMN_STATE,
	COLUMNS,
};

static void cell_devices(struct out_table *table, const struct pool_page_host *host)
{
	char text[OUT_CELL_MAX] = "-";
	size_t used = 0;

	for (uint32_t i = 0; i < host->n_devices && used < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d", i ? "," : "",
					 host->devices[i]);
	out_cell(table, COLUMN_DEVICES, "%s", text);
}

static void cell_standbys(struct out_table *table, const struct pool_view *view)
{
	const struct pool_page_standbys *standbys = &view->report.standbys;
	const struct {
		uint32_t count;
		const char *level;
	} parts[] = {{standbys->hot, "hot"},
		     {standbys->primed, "primed"},
		     {standbys->starting, "starting"},
		     {standbys->failed, "failed"}};
	char text[OUT_CELL_MAX] = "-";
	size_t used = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (parts[i].count > 0 && used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u %s",
						 used ? ", " : "", parts[i].count, parts[i].level);
	}
	out_cell(table, COLUMN_STANDBYS, "%s", text);
}

static void cell_time(struct out_table *table, size_t column, uint64_t ns)
{
	char text[MS_TEXT_MAX] = "-";

	if (ns != GW_UNKNOWN)
		ms_format(ns, text);
	out_cell(table, column, "%s", text);
}

static const struct gw_recovery *last_ready(const struct pool_view *view)
{
	for (size_t i = 0; i < pools_kept(view); i++) {
		const struct gw_recovery *recovery = pools_recovery(view, i);

		if (recovery && pools_sign_to_ready(recovery) != GW_UNKNOWN)
			return recovery;
	}
	return NULL;
}

static void fill_row(struct out_table *table, const struct pool_view *view)
{
	const struct gw_recovery *last = last_ready(view);
	char bytes[BYTES_TEXT_MAX];

	cell_devices(table, &view->host);
	out_cell(table, COLUMN_READY, "%u/%u", view->report.workers.ready, view->host.workers);
	cell_standbys(table, view);
	out_cell(table, COLUMN_RECOVERIES, "%" PRIu64, view->report.n_recoveries);
	cell_time(table, COLUMN_LATENCY, last ? pools_sign_to_ready(last) : GW_UNKNOWN);
	out_cell(table, COLUMN_PENDING, "%" PRIu64, view->host.tasks_pending);
	out_cell(table, COLUMN_DONE, "%" PRIu64, view->host.tasks_done);
	if (view->state_pieces == 0) {
		out_cell(table, COLUMN_STATE, "-");
	} else {
		bytes_format(view->state_bytes, bytes);
		out_cell(table, COLUMN_STATE, "%s", bytes);
	}
	if (view->report.workers.failed > 0)
		out_mark(table);
}

static void print_table(const struct pools *pools)
{
	static const struct out_column columns[COLUMNS] = {
		[COLUMN_WARD] = {"WARD", true},
		[COLUMN_HOST] = {"HOST", true},
		[COLUMN_PROGRAM] = {"PROGRAM", false},
		[COLUMN_DEVICES] = {"DEVICES", false},
		[COLUMN_READY] = {"READY", true},
		[COLUMN_STANDBYS] = {"STANDBYS", false},
		[COLUMN_RECOVERIES] = {"RECOVERIES", true},
		[COLUMN_LATENCY] = {"LAST TOOK", true},
		[COLUMN_PENDING] = {"PENDING", true},
		[COLUMN_DONE] = {"DONE", true},
		[COLUMN_STATE] = {"STATE", true},
	};
	struct out_table table = {.columns = columns, .n_columns = COLUMNS};

	for (size_t i = 0; i < pools->count; i++) {
		const struct pool_view *view = &pools->all[i];

		if (view->problem[0])
			continue;
		out_row(&table);
		out_cell(&table, COLUMN_WARD, "%d", view->ward_pid);
		if (view->host_pid < 0)
			out_cell(&table, COLUMN_HOST, "-");
		else
			out_cell(&table, COLUMN_HOST, "%d", view->host_pid);
		out_cell(&table, COLUMN_PROGRAM, "%s", view->program[0] ? view->program : "-");
		fill_row(&table, view);
	}
	if (table.n_rows > 0)
		out_print(&table);
}

static void print_sources(const struct pool_view *view)
{
	static const uint32_t listened[] = {GW_SOURCE_KERNEL_LOG, GW_SOURCE_NVML,
					    GW_SOURCE_ERROR_LOG};
	const char *lead = "  noticed by:  ";

	for (uint32_t i = 0; i < GW_SOURCES; i++) {
		if (view->report.noticed_by[i] == 0)
			continue;
		(void)printf("%s%s %" PRIu64, lead, source_name(i), view->report.noticed_by[i]);
		lead = ", ";
	}
	if (lead[0] == ',')
		(void)putchar('\n');
	for (size_t i = 0; view->host.n_devices > 0 && i < sizeof(listened) / sizeof(listened[0]);
	     i++) {
		char text[SOURCE_TEXT_MAX];

		source_error(listened[i], view->report.source_error[listened[i]], text);
		(void)printf("  %-22s  %s\n", source_name(listened[i]), text);
	}
	if (view->report.kernel_log_lost > 0)
		(void)printf("  %" PRIu64 " lines of the kernel log were lost\n",
			     view->report.kernel_log_lost);
}

/* The last of the recoveries that are kept, and the slowest. */
static void print_latency(const struct pool_view *view, const char *what,
			  uint64_t (*latency)(const struct gw_recovery *recovery))
{
	uint64_t last = GW_UNKNOWN;
	uint64_t slowest = 0;
	uint64_t count = 0;
	char text[2][MS_TEXT_MAX];

	for (size_t i = 0; i < pools_kept(view); i++) {
		const struct gw_recovery *recovery = pools_recovery(view, i);
		uint64_t ns = recovery ? latency(recovery) : GW_UNKNOWN;

		if (ns == GW_UNKNOWN)
			continue;
		last = count++ == 0 ? ns : last;
		slowest = ns > slowest ? ns : slowest;
	}
	if (count == 0)
		return;
	ms_format(last, text[0]);
	ms_format(slowest, text[1]);
	(void)printf("  %s:  %s; slowest of the last %" PRIu64 ": %s\n", what, text[0], count,
		     text[1]);
}

static void print_details(const struct pool_view *view)
{
	const struct pool_page_host *host = &view->host;
	char bytes[2][BYTES_TEXT_MAX];

	(void)printf("\nward %d, user %u%s%s:\n", view->ward_pid, view->uid,
		     view->stopped ? ", stopped" : "",
		     view->host_pid < 0 ? ", its host is gone or not to be seen" : "");
	print_latency(view, "first sign to ready", pools_sign_to_ready);
	print_latency(view, "fence to ready", pools_fence_to_ready);
	print_sources(view);
	if (view->report.standbys.no_room > 0)
		(void)printf("  %u of the primed standbys would be hot if the device had room\n",
			     view->report.standbys.no_room);
	if (host->attempts_failed > 0)
		(void)printf("  attempts that failed:  %" PRIu64 ", poison tasks: %" PRIu64 "\n",
			     host->attempts_failed, host->tasks_poisoned);
	bytes_format(host->input_bytes, bytes[0]);
	bytes_format(host->output_bytes, bytes[1]);
	(void)printf("  live tasks hold:  %s of input, %s of output\n", bytes[0], bytes[1]);
	if (view->state_pieces > 0)
		(void)printf("  pieces of surviving state:  %u\n", view->state_pieces);
	if (view->state_kept == STATE_PAGE_KEPT)
		(void)printf("  state is kept as:  %s\n", host->state_name);
	else if (host->state_name[0])
		(void)printf("  state is NOT kept as:  %s\n", host->state_name);
	if (view->report.workers.failed > 0)
		(void)printf("  workers given up:  %u\n", view->report.workers.failed);
	if (host->last_exit.end != GW_END_UNKNOWN)
		(void)printf("  last end:  %s\n", host->last_exit.text);
}

void pools_print(const struct pools *pools)
{
	print_table(pools);
	for (size_t i = 0; i < pools->count; i++) {
		if (pools->all[i].problem[0])
			(void)printf("ward %d, user %u: %s\n", pools->all[i].ward_pid,
				     pools->all[i].uid, pools->all[i].problem);
		else
			print_details(&pools->all[i]);
	}
	if (pools->count == 0)
		(void)puts("no pool is open");
	if (pools->unreadable > 0)
		(void)printf("%zu pool%s of other users cannot be looked at\n", pools->unreadable,
			     pools->unreadable == 1 ? "" : "s");
}
