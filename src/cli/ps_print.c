/* SPDX-License-Identifier: MIT */
/*
 * For people: a table of rows; then the memory of each GPU, as sums that can be checked, and what is not known. Runs
 * in: command line. Read next: ps.h.
 */
#include "cli/ps.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/bytes.h"
#include "holders/text.h"

#define NAMED_MAX 8 /* pids of a group in a sentence */

struct cell {
	struct out_column column;
	void (*text)(const struct ps_view *view, const struct ps_row *row, char *text);
};

static void memory(const struct ps_view *view, const struct ps_row *row, char *text)
{
	(void)view;
	ps_text_memory(row, text);
}

static void user(const struct ps_view *view, const struct ps_row *row, char *text)
{
	ps_text_user(ps_uid(view, row), text);
}

static bool has_threads(const struct ps_view *view, const struct ps_rows *rows)
{
	char text[OUT_CELL_MAX];

	for (size_t i = 0; i < rows->count; i++) {
		ps_text_tid(view, &rows->all[i], text);
		if (text[0] != '-')
			return true;
	}
	return false;
}

void ps_print_table(const struct ps_view *view, const struct ps_rows *rows)
{
	static const struct cell cells[] = {
		{{"GPU", false}, ps_text_gpu},
		{{"PID", true}, ps_text_pid},
		{{"TID", true}, ps_text_tid}, /* only where somebody has one */
		{{"CAUSE", false}, ps_text_cause},
		{{"MEMORY", true}, memory},
		{{"USER", false}, user},
		{{"JOB/CONTAINER", false}, ps_text_place},
		{{"AGE", true}, ps_text_age},
		{{"STATE", false}, ps_text_state},
		{{"COMMAND", false}, ps_text_command},
	};
	struct out_column columns[sizeof(cells) / sizeof(cells[0])];
	const struct cell *shown[sizeof(cells) / sizeof(cells[0])];
	struct out_table table = {.columns = columns};
	bool threads = has_threads(view, rows);
	char text[OUT_CELL_MAX];

	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
		if (cells[i].text == ps_text_tid && !threads)
			continue;
		columns[table.n_columns] = cells[i].column;
		shown[table.n_columns++] = &cells[i];
	}
	for (size_t i = 0; i < rows->count; i++) {
		out_row(&table);
		for (size_t c = 0; c < table.n_columns; c++) {
			shown[c]->text(view, &rows->all[i], text);
			out_cell(&table, c, "%s", text);
		}
		if (rows->all[i].process == ACCOUNT_NONE)
			out_mark(&table);
	}
	if (rows->count > 0)
		out_print(&table);
	else
		(void)puts("no holder");
}

/* ---- memory of a GPU ---- */

/* "123 B by processes", "? by processes". */
static void print_part(const char *lead, uint64_t bytes, const char *what)
{
	if (bytes == GW_UNKNOWN)
		(void)printf("%s? %s", lead, what);
	else
		(void)printf("%s%" PRIu64 " B %s", lead, bytes, what);
}

static uint64_t used_with_reserved(const struct amounts_gpu *gpu)
{
	return gpu->used_bytes == GW_UNKNOWN || gpu->reserved_bytes == GW_UNKNOWN
		       ? gpu->used_bytes
		       : gpu->used_bytes + gpu->reserved_bytes;
}

/* What is charged more than once (memory that processes share) counts once in the sum. */
static void print_sum(const struct amounts_gpu *gpu)
{
	uint64_t used = used_with_reserved(gpu);
	uint64_t attributed = gpu->attributed_bytes;
	bool overlap =
		used != GW_UNKNOWN && attributed != GW_UNKNOWN && attributed > gpu->used_bytes;

	print_part("  ", used, "used");
	print_part(" = ", overlap ? gpu->used_bytes : attributed, "by processes");
	if (gpu->reserved_bytes != GW_UNKNOWN)
		print_part(" + ", gpu->reserved_bytes, "reserved by the driver");
	print_part(" + ", gpu->unattributed_bytes, "unattributed");
	(void)putchar('\n');
	if (overlap)
		(void)printf("  processes share memory: together they are charged for %" PRIu64
			     " B\n",
			     attributed);
	if (gpu->reserved_bytes == GW_UNKNOWN && used != GW_UNKNOWN)
		(void)puts("  what the driver reserves is not known, and in the unattributed");
	if (gpu->processes_left_out > 0)
		(void)printf("  %u more processes use it, and NVML does not say which\n",
			     gpu->processes_left_out);
}

static void print_gpu(const struct ps_view *view, const struct amounts_gpu *gpu)
{
	char name[OUT_CELL_MAX], used[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX],
		outside[BYTES_TEXT_MAX];

	(void)text_printable(name, sizeof(name), gpu->name, strlen(gpu->name));
	bytes_format(used_with_reserved(gpu), used);
	bytes_format(gpu->total_bytes, total);
	(void)printf("\nGPU %u%s%s: %s of %s used\n", gpu->index, name[0] ? ", " : "", name, used,
		     total);
	if (gpu->error.code < 0)
		(void)printf("  %s\n", gpu->error.msg);
	if (gpu->memory == AMOUNTS_ANSWERED || gpu->listed == AMOUNTS_ANSWERED)
		print_sum(gpu);
	ps_print_gpu_causes(view, (uint32_t)(gpu - view->amounts.gpus));
	if (view->scan.pid_namespace_initial || gpu->unattributed_bytes == GW_UNKNOWN ||
	    gpu->unattributed_bytes == 0)
		return;
	bytes_format(gpu->unattributed_bytes, outside);
	(void)printf("  %s belong to processes outside this pid namespace, or to nobody\n",
		     outside);
}

/* ---- sentences ---- */

static void print_left(const struct ps_view *view, const struct account_line *line)
{
	const struct share *share = &view->accounting.share;
	uint32_t size = share_size(&view->scan, share, line->group);
	uint32_t named = 0;
	char bytes[BYTES_TEXT_MAX];

	bytes_format(line->used_bytes, bytes);
	(void)printf("pid %d is dead%s; its %s on GPU %u are held by %u process%s with its open "
		     "files:",
		     line->pid, line->number_taken ? " (the number is another's now)" : "", bytes,
		     view->amounts.gpus[line->gpu].index, size, size == 1 ? "" : "es");
	for (uint32_t i = 0; i < view->scan.process_count && named < NAMED_MAX; i++) {
		if (share->group[i] == line->group)
			(void)printf("%s %d", named++ > 0 ? "," : "", view->scan.processes[i].pid);
	}
	(void)printf("%s (%s)\n", size > named ? " ..." : "",
		     line->proof == ACCOUNT_LINEAGE ? "they are of its process group or session"
						    : "nobody else can hold them");
}

static void print_unknown(const struct ps_view *view)
{
	char text[512];

	if (view->amounts.answer != AMOUNTS_ANSWERED)
		(void)printf("amounts of memory are not known: %s\n", view->amounts.error.msg);
	if (view->accounting.share.incomplete)
		(void)puts("who shares open files with whom is not fully known");
	scan_unseen_text(&view->scan, text, sizeof(text));
	if (text[0])
		(void)printf("%s\n", text);
}

void ps_print_sums(const struct ps_view *view, const struct ps_gpu *gpu)
{
	for (uint32_t i = 0; i < view->amounts.gpu_count; i++) {
		if (!gpu || gpu->gpu == i)
			print_gpu(view, &view->amounts.gpus[i]);
	}
	for (uint32_t i = 0; i < view->accounting.line_count; i++) {
		const struct account_line *line = &view->accounting.lines[i];

		if (line->owner == ACCOUNT_SHARED && (!gpu || gpu->gpu == line->gpu))
			print_left(view, line);
	}
	print_unknown(view);
}
