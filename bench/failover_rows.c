/* SPDX-License-Identifier: MIT */
/*
 * The results of the fail-over benchmark: sections of rows, as a table for people (Markdown, as RESULTS.md has it)
 * and as JSON with every single value.
 *
 * Runs in: the host. A file is written anew as a whole, under another name first, so that it is never half there.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failover.h"

static struct section *first;

void rows_add_section(struct section *section)
{
	struct section **end = &first;

	while (*end)
		end = &(*end)->next;
	*end = section;
}

struct row *rows_add(struct section *section, const char *format, ...)
{
	struct row **rows = realloc(section->rows, (section->n_rows + 1) * sizeof(*section->rows));
	struct row *row = calloc(1, sizeof(*row));
	va_list arguments;

	if (!rows || !row)
		bench_die("no memory for a row");
	va_start(arguments, format);
	(void)vsnprintf(row->name, sizeof(row->name), format, arguments);
	va_end(arguments);
	section->rows = rows;
	section->rows[section->n_rows++] = row;
	return row;
}

static size_t count_of(const struct section *section, const struct row *row)
{
	size_t most = 0;

	for (size_t c = 0; section->columns[c]; c++)
		most = row->columns[c].n > most ? row->columns[c].n : most;
	return most;
}

/* ---- the table ---- */

static void print_row(FILE *file, const struct section *section, struct row *row)
{
	(void)fprintf(file, "| %s | %zu |", row->name, count_of(section, row));
	for (size_t c = 0; section->columns[c]; c++) {
		struct series *series = &row->columns[c];
		double median = series_median(series);
		int digits = median < 10 ? 2 : 1;

		if (series->n == 0)
			(void)fprintf(file, " - |");
		else
			(void)fprintf(file, " %.*f (%.*f..%.*f) |", digits, median, digits,
				      series_min(series), digits, series_max(series));
	}
	(void)fprintf(file, " %s |\n", row->note);
}

static void print_table(FILE *file, const char *machine)
{
	(void)fprintf(file, "%s\n", machine);
	for (struct section *section = first; section; section = section->next) {
		(void)fprintf(file, "\n## %s (%s: median, least..most)\n\n| | n |", section->name,
			      section->unit);
		for (size_t c = 0; section->columns[c]; c++)
			(void)fprintf(file, " %s |", section->columns[c]);
		(void)fprintf(file, " |\n|---|---|");
		for (size_t c = 0; section->columns[c]; c++)
			(void)fprintf(file, "---|");
		(void)fprintf(file, "---|\n");
		for (size_t r = 0; r < section->n_rows; r++)
			print_row(file, section, section->rows[r]);
	}
}

/* ---- JSON ---- */

static void print_text(FILE *file, const char *text)
{
	(void)fputc('"', file);
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte == '"' || byte == '\\')
			(void)fprintf(file, "\\%c", byte);
		else if (byte < 0x20)
			(void)fprintf(file, "\\u%04x", byte);
		else
			(void)fputc(byte, file);
	}
	(void)fputc('"', file);
}

static void print_series(FILE *file, struct series *series)
{
	if (series->n == 0) {
		(void)fprintf(file, "null");
		return;
	}
	(void)fprintf(file, "{\"median\":%.6f,\"min\":%.6f,\"max\":%.6f,\"values\":[",
		      series_median(series), series_min(series), series_max(series));
	for (size_t i = 0; i < series->n; i++)
		(void)fprintf(file, "%s%.6f", i ? "," : "", series->values[i]);
	(void)fprintf(file, "]}");
}

static void print_json_row(FILE *file, const struct section *section, struct row *row)
{
	(void)fprintf(file, "{\"name\":");
	print_text(file, row->name);
	(void)fprintf(file, ",\"n\":%zu,\"note\":", count_of(section, row));
	print_text(file, row->note);
	(void)fprintf(file, ",\"columns\":{");
	for (size_t c = 0; section->columns[c]; c++) {
		(void)fprintf(file, "%s", c ? "," : "");
		print_text(file, section->columns[c]);
		(void)fputc(':', file);
		print_series(file, &row->columns[c]);
	}
	(void)fprintf(file, "}}");
}

static void print_json(FILE *file, const char *machine)
{
	(void)fprintf(file, "{\"machine\":");
	print_text(file, machine);
	(void)fprintf(file, ",\"sections\":[");
	for (struct section *section = first; section; section = section->next) {
		(void)fprintf(file, "%s\n{\"name\":", section == first ? "" : ",");
		print_text(file, section->name);
		(void)fprintf(file, ",\"unit\":");
		print_text(file, section->unit);
		(void)fprintf(file, ",\"rows\":[");
		for (size_t r = 0; r < section->n_rows; r++) {
			(void)fprintf(file, "%s\n", r ? "," : "");
			print_json_row(file, section, section->rows[r]);
		}
		(void)fprintf(file, "]}");
	}
	(void)fprintf(file, "]}\n");
}

static void write_file(const char *path, const char *machine,
		       void (*print)(FILE *file, const char *machine))
{
	char next[4096];
	FILE *file;

	if (!path)
		return;
	(void)snprintf(next, sizeof(next), "%s.next", path);
	file = fopen(next, "we");
	if (!file)
		bench_die("%s: %s", next, strerror(errno));
	print(file, machine);
	if (fclose(file) != 0 || rename(next, path) != 0)
		bench_die("%s: %s", path, strerror(errno));
}

void rows_print(const char *machine)
{
	print_table(stdout, machine);
}

void rows_write(const char *machine, const char *table_path, const char *json_path)
{
	write_file(table_path, machine, print_table);
	write_file(json_path, machine, print_json);
}
