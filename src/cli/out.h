/* SPDX-License-Identifier: MIT */
/*
 * Tables for people. Runs in: command line. By libsmartcols, as lsblk does it; where that was not there at
 * build time, columns are aligned in the plainest way. Results go to standard output, words to standard
 * error; colour only on a terminal, and never where NO_COLOR is set.
 */
#ifndef GPUWARD_CLI_OUT_H
#define GPUWARD_CLI_OUT_H

#include <stdbool.h>
#include <stddef.h>

#define OUT_COLUMNS_MAX 12
#define OUT_CELL_MAX	96

struct out_column {
	const char *name;
	bool right; /* numbers */
};

struct out_line {
	bool marked;
	char cells[OUT_COLUMNS_MAX][OUT_CELL_MAX];
};

/* Its rows are freed by out_print(). */
struct out_table {
	const struct out_column *columns;
	size_t n_columns;
	size_t n_rows;
	size_t room;
	struct out_line *lines;
	bool lost; /* there was no memory for a row */
};

/* Writes text to the cell in the last row; one that is too long is cut. */
void out_row(struct out_table *table);
void out_cell(struct out_table *table, size_t column, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Marks the last row as bad: red, where colour may be used. */
void out_mark(struct out_table *table);

/* Prints it to standard output, and takes its rows out: it can be filled again. */
void out_print(struct out_table *table);

/* True where colour may be used on standard output. */
bool out_has_colour(void);

/* True where standard output can show line-drawing characters. */
bool out_has_utf8(void);

/* A line of progress on standard error, if that is a terminal; NULL wipes it. */
void out_progress(const char *text);

#endif
