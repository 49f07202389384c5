/* SPDX-License-Identifier: MIT */
/*
 * State that is kept, for people: a table of names, and one of pieces. Runs in: command line.
 */
#include "cli/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "cli/bytes.h"
#include "cli/out.h"
#include "common/state_wire.h"

#define SECOND_NS UINT64_C(1000000000)

static void cell_time(struct out_table *table, size_t column, int64_t seconds)
{
	time_t when = (time_t)seconds;
	struct tm local;
	char text[32];

	if (localtime_r(&when, &local) && strftime(text, sizeof(text), "%F %H:%M", &local) > 0)
		out_cell(table, column, "%s", text);
	else
		out_cell(table, column, "-");
}

static void cell_bytes(struct out_table *table, size_t column, uint64_t bytes)
{
	char text[BYTES_TEXT_MAX];

	bytes_format(bytes, text);
	out_cell(table, column, "%s", text);
}

/* The two largest units, cut. */
static void cell_for(struct out_table *table, size_t column, const struct keep_welcome *welcome)
{
	uint64_t s =
		(welcome->left_ns == GW_UNKNOWN ? welcome->for_ns : welcome->left_ns) / SECOND_NS;

	if (welcome->for_ns == GW_FOREVER)
		out_cell(table, column, "until rm");
	else if (s >= 86400)
		out_cell(table, column, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s % 86400 / 3600);
	else if (s >= 3600)
		out_cell(table, column, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
	else if (s >= 60)
		out_cell(table, column, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else
		out_cell(table, column, "%" PRIu64 " s", s);
}

static void print_names(const struct state_list *list)
{
	static const struct out_column columns[] = {
		{"STATE", false}, {"PIECES", true},	      {"MEMORY", true}, {"USED BY", false},
		{"SINCE", false}, {"UNUSED KEPT FOR", false}, {"KEEPER", true}};
	struct out_table table = {.columns = columns,
				  .n_columns = sizeof(columns) / sizeof(columns[0])};

	for (size_t i = 0; i < list->count; i++) {
		const struct state_kept *kept = &list->all[i];
		const struct keep_welcome *welcome = &kept->welcome;

		if (kept->problem.code < 0)
			continue;
		out_row(&table);
		out_cell(&table, 0, "%s", kept->name);
		out_cell(&table, 1, "%u", welcome->pieces);
		cell_bytes(&table, 2, welcome->bytes);
		if (welcome->ward_pid > 0)
			out_cell(&table, 3, "ward %d", welcome->ward_pid);
		else
			out_cell(&table, 3, "nobody");
		cell_time(&table, 4, welcome->used_since_s);
		cell_for(&table, 5, welcome);
		out_cell(&table, 6, "%d", welcome->keeper_pid);
	}
	if (table.n_rows > 0)
		out_print(&table);
}

static void fill_piece(struct out_table *table, const char *name, const struct keep_piece *piece)
{
	bool mutable = piece->kind == GW_STATE_MUTABLE;

	out_row(table);
	out_cell(table, 0, "%s", name);
	out_cell(table, 1, "%s", piece->name);
	out_cell(table, 2, "%s", mutable ? "mutable" : "sealed");
	cell_bytes(table, 3, STATE_HELD_BYTES(piece->kind, piece->copy_bytes));
	if (mutable)
		out_cell(table, 4, "%" PRIu64, piece->epoch);
	else
		out_cell(table, 4, "-");
	if (piece->owner_pid > 0)
		out_cell(table, 5, "pid %d", piece->owner_pid);
	else
		out_cell(table, 5, "-");
	cell_time(table, 6, piece->made_s);
	out_cell(table, 7, "%s", piece->device);
}

static void print_pieces(const struct state_list *list)
{
	static const struct out_column columns[] = {
		{"STATE", false}, {"PIECE", false},  {"KIND", false}, {"MEMORY", true},
		{"EPOCH", true},  {"WRITER", false}, {"MADE", false}, {"DEVICE", false}};
	struct out_table table = {.columns = columns,
				  .n_columns = sizeof(columns) / sizeof(columns[0])};

	for (size_t i = 0; i < list->count; i++) {
		const struct state_kept *kept = &list->all[i];

		for (size_t j = 0; kept->problem.code == 0 && j < kept->n_pieces; j++)
			fill_piece(&table, kept->name, &kept->pieces[j]);
	}
	if (table.n_rows > 0) {
		(void)putchar('\n');
		out_print(&table);
	}
}

void state_print(const struct state_list *list)
{
	print_names(list);
	print_pieces(list);
	for (size_t i = 0; i < list->count; i++) {
		if (list->all[i].problem.code < 0)
			(void)printf("state '%s': %s\n", list->all[i].name,
				     list->all[i].problem.msg);
	}
	if (list->count == 0)
		(void)puts("no state is kept");
}
