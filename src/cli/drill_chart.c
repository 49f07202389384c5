/* SPDX-License-Identifier: MIT */
/*
 * The chart of the recoveries: a bar for each fault, and one for the same without gpuward, on one scale.
 *
 *	null         ###########n-------------------------G
 *	   by hand   ......................................G
 *
 * Runs in: command line. Block characters where the locale has them, plain ASCII elsewhere.
 * Invariant: no bar is wider than WIDTH, and a mark stands in the column of its time; of several in one
 * column the last one shows.
 */
#include "cli/drill.h"

#include <stdio.h>

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

static uint64_t larger(uint64_t most, uint64_t ns)
{
	return ns != GW_UNKNOWN && ns > most ? ns : most;
}

static uint64_t longest(const struct drill *drill)
{
	uint64_t most = 1;

	for (size_t i = 0; i < drill->n_crash; i++) {
		most = larger(most, drill->crash[i].after_ns[MARK_GOOD]);
		most = larger(most, drill->crash[i].cold_ns);
	}
	return most;
}

/* The column of a time, or WIDTH for one that is unknown or off the scale. */
static int place_of(uint64_t ns, uint64_t most)
{
	return ns > most ? WIDTH : (int)(ns * (WIDTH - 1) / most);
}

/* What stands in COLUMN of the bar of CRASH. */
static const char *cell(const struct drill_crash *crash, int column, uint64_t most,
			const struct look *look)
{
	static const char *const letters[DRILL_MARKS] = {NULL, "n", "x", "m", "G"};

	for (int mark = DRILL_MARKS - 1; mark > MARK_LAUNCHED; mark--) {
		if (place_of(crash->after_ns[mark], most) == column)
			return letters[mark];
	}
	return column < place_of(crash->after_ns[MARK_NOTICED], most) ? look->unnoticed
								      : look->noticed;
}

static void print_bars(const struct drill_crash *crash, uint64_t most, const struct look *look)
{
	int end = place_of(crash->after_ns[MARK_GOOD], most);

	(void)printf("  %-12s ", drill_kinds[crash->kind].name);
	for (int column = 0; column <= end && column < WIDTH; column++)
		(void)fputs(cell(crash, column, most, look), stdout);
	(void)putchar('\n');
	if (crash->cold_ns == GW_UNKNOWN)
		return;
	(void)printf("  %-12s ", "   by hand");
	for (int column = 0; column < place_of(crash->cold_ns, most); column++)
		(void)fputs(look->by_hand, stdout);
	(void)puts("G");
}

void drill_chart(const struct drill *drill)
{
	uint64_t most = longest(drill);
	const struct look *look = out_has_utf8() ? &blocks : &ascii;

	(void)printf("\n%s not noticed yet  n noticed  x old process gone  m its memory back  "
		     "%s recovering  G next good kernel\n"
		     "%s the same without gpuward; %d columns are %.0f ms\n",
		     look->unnoticed, look->noticed, look->by_hand, WIDTH, (double)most / 1e6);
	for (size_t i = 0; i < drill->n_crash; i++)
		print_bars(&drill->crash[i], most, look);
}
