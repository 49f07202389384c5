/* SPDX-License-Identifier: MIT */
#include "cli/out.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_SMARTCOLS
#include <libsmartcols.h>
#endif

void out_row(struct out_table *table)
{
	if (table->lost)
		return;
	if (table->n_rows == table->room) {
		size_t room = table->room > 0 ? table->room * 2 : 16;
		struct out_line *grown = reallocarray(table->lines, room, sizeof(*grown));

		if (!grown) {
			table->lost = true;
			return;
		}
		table->lines = grown;
		table->room = room;
	}
	memset(&table->lines[table->n_rows++], 0, sizeof(table->lines[0]));
}

void out_cell(struct out_table *table, size_t column, const char *format, ...)
{
	va_list arguments;

	if (table->lost || table->n_rows == 0 || column >= table->n_columns)
		return;
	va_start(arguments, format);
	(void)vsnprintf(table->lines[table->n_rows - 1].cells[column], OUT_CELL_MAX, format,
			arguments);
	va_end(arguments);
}

void out_mark(struct out_table *table)
{
	if (!table->lost && table->n_rows > 0)
		table->lines[table->n_rows - 1].marked = true;
}

#ifdef HAVE_SMARTCOLS

static bool fill(struct libscols_table *to, const struct out_table *table)
{
	for (size_t c = 0; c < table->n_columns; c++) {
		int flags = table->columns[c].right ? SCOLS_FL_RIGHT : 0;

		if (!scols_table_new_column(to, table->columns[c].name, 0, flags))
			return false;
	}
	for (size_t r = 0; r < table->n_rows; r++) {
		struct libscols_line *line = scols_table_new_line(to, NULL);

		for (size_t c = 0; line && c < table->n_columns; c++)
			(void)scols_line_set_data(line, c, table->lines[r].cells[c]);
		if (!line || (table->lines[r].marked && scols_line_set_color(line, "red") != 0))
			return false;
	}
	return true;
}

static void print_rows(const struct out_table *table)
{
	struct libscols_table *to = scols_new_table();

	if (to && fill(to, table)) {
		/* As wide as it is, also in a pipe or a narrow terminal. */
		(void)scols_table_enable_nowrap(to, 1);
		(void)scols_table_enable_colors(to, out_has_colour());
		(void)scols_print_table(to);
	}
	scols_unref_table(to);
}

#else

static int width_of(const struct out_table *table, size_t column)
{
	size_t width = strlen(table->columns[column].name);

	for (size_t r = 0; r < table->n_rows; r++) {
		size_t length = strlen(table->lines[r].cells[column]);

		width = length > width ? length : width;
	}
	return (int)width;
}

static void print_cell(const struct out_table *table, size_t column, const char *text)
{
	int width = width_of(table, column);

	if (!table->columns[column].right && column + 1 == table->n_columns)
		width = 0;
	(void)printf("%s%*s", column ? " " : "", table->columns[column].right ? width : -width,
		     text);
}

static void print_rows(const struct out_table *table)
{
	for (size_t c = 0; c < table->n_columns; c++)
		print_cell(table, c, table->columns[c].name);
	(void)putchar('\n');
	for (size_t r = 0; r < table->n_rows; r++) {
		bool red = table->lines[r].marked && out_has_colour();

		(void)fputs(red ? "\033[31m" : "", stdout);
		for (size_t c = 0; c < table->n_columns; c++)
			print_cell(table, c, table->lines[r].cells[c]);
		(void)puts(red ? "\033[0m" : "");
	}
}

#endif

void out_print(struct out_table *table)
{
	print_rows(table);
	if (table->lost)
		(void)fputs("gpuward: no memory for more rows\n", stderr);
	free(table->lines);
	table->lines = NULL;
	table->n_rows = table->room = 0;
	table->lost = false;
}

bool out_has_colour(void)
{
	const char *no = getenv("NO_COLOR");

	return (!no || !*no) && isatty(STDOUT_FILENO);
}

bool out_has_utf8(void)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

void out_progress(const char *text)
{
	if (!isatty(STDERR_FILENO))
		return;
	(void)fprintf(stderr, "\r\033[K%s", text ? text : "");
	(void)fflush(stderr);
}
