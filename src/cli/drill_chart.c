/* SPDX-License-Identifier: MIT */
/*
 * The chart of one fault: a bar for each level of standbys, and one for the same without gpuward, on one scale.
 *
 *	by hand   ............................G  620 ms
 *	cold      n-----xG  217 ms
 *	hot       nG  6.9 ms
 *
 * Runs in: command line. Block characters where the locale has them, plain ASCII elsewhere.
 * Invariant: no bar is wider than WIDTH, and a mark stands in the column of its time; of several in one
 * column the last one in time shows.
 */
#include "cli/drill.h"

#include <stdio.h>

#include "cli/ms.h"
#include "cli/out.h"

#define WIDTH 60

/* What fills a bar until the fault was noticed, until the next good kernel, and by hand. */
struct look {
	const char *unnoticed;
	const char *noticed;
	const char *by_hand;
};

static const struct look ascii = {"#", "-", "."};
static const struct look blocks = {"\u2588", "\u2592", "\u2591"};

static uint64_t longest(const struct drill_crash *crash)
{
	uint64_t most = 1;

	for (int level = 0; level < DRILL_LEVELS; level++) {
		const struct drill_row *row = &crash->rows[level][0];
		uint64_t ns = row->after_ns[MARK_GOOD];

		if (row->ran && ns != GW_UNKNOWN && ns > most)
			most = ns;
	}
	return most;
}

/* The column of a time, or WIDTH for one that is unknown or off the scale. */
static int place_of(uint64_t ns, uint64_t most)
{
	return ns > most ? WIDTH : (int)(ns * (WIDTH - 1) / most);
}

/* What stands in COLUMN of the bar of ROW. */
static const char *cell(const struct drill_row *row, int column, uint64_t most,
			const struct look *look)
{
	if (place_of(row->after_ns[MARK_GOOD], most) == column)
		return "G";
	if (place_of(row->after_ns[MARK_GONE], most) == column)
		return "x";
	if (place_of(row->after_ns[MARK_SIGN], most) == column)
		return "n";
	return column < place_of(row->after_ns[MARK_SIGN], most) ? look->unnoticed : look->noticed;
}

static void print_bar(const struct drill_crash *crash, enum drill_level level, uint64_t most,
		      const struct look *look)
{
	const struct drill_row *row = &crash->rows[level][0];
	uint64_t good_ns = row->after_ns[MARK_GOOD];
	char text[MS_TEXT_MAX] = "not known";
	int end = place_of(good_ns, most);

	(void)printf("  %-17s ", drill_level_name(level));
	for (int column = 0; column <= end && column < WIDTH; column++) {
		if (level == LEVEL_BY_HAND && column < end)
			(void)fputs(look->by_hand, stdout);
		else
			(void)fputs(cell(row, column, most, look), stdout);
	}
	if (good_ns != GW_UNKNOWN)
		ms_format(good_ns, text);
	(void)printf("  %s\n", text);
}

void drill_chart(const struct drill_crash *crash)
{
	uint64_t most = longest(crash);
	const struct look *look = out_has_utf8() ? &blocks : &ascii;

	(void)printf("\n%s not noticed yet  n noticed  %s recovering  x old process gone  "
		     "G next good kernel\n%s the same without gpuward; %d columns are %.0f ms\n",
		     look->unnoticed, look->noticed, look->by_hand, WIDTH, (double)most / 1e6);
	for (int level = 0; level < DRILL_LEVELS; level++) {
		if (crash->rows[level][0].ran)
			print_bar(crash, (enum drill_level)level, most, look);
	}
}
