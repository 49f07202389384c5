/* SPDX-License-Identifier: MIT */
/*
 * Draws pictures for svg.py, which looks at them.
 *
 *	svg-cases save CASE PATH	draws CASE, a name of the table below or a number for a random one
 *	svg-cases check PATH		whether PATH can be written
 *
 * Runs in: command line; ends as a command does: one line on standard error and 2 where the file cannot be written.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/replace.h"
#include "cli/svg.h"

#define MS UINT64_C(1000000)

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct svg_kind kinds[] = {
	{"not noticed", SVG_RED},
	{"old process ends", SVG_ORANGE},
	{"next one starts", SVG_BLUE},
	{"by hand", SVG_GREY},
};

static const struct svg_mark_kind mark_kinds[] = {
	{"noticed", SVG_DIAMOND},
	{"memory back", SVG_CIRCLE},
	{"bystander goes on", SVG_TRIANGLE},
	{"next good kernel", SVG_SQUARE},
};

static const struct svg_segment cold[] = {
	{0, 147 * MS, 0}, {147 * MS, 225 * MS, 1}, {225 * MS, 316 * MS, 2}};
static const struct svg_segment hot[] = {{0, 6800000, 0}, {6800000, 7100000, 2}};
static const struct svg_segment by_hand[] = {{0, 870 * MS, 3}};
static const struct svg_mark cold_marks[] = {{147 * MS, 0}, {230 * MS, 1}, {316 * MS, 3}};
static const struct svg_mark hot_marks[] = {{6800000, 0}, {4000000, 2}, {7100000, 3}};

static const struct svg_row typical_rows[] = {
	{"write to NULL", NULL, 0, NULL, 0},
	{"cold", cold, COUNT(cold), cold_marks, COUNT(cold_marks)},
	{"by hand", by_hand, COUNT(by_hand), NULL, 0},
	{"trap", NULL, 0, NULL, 0},
	{"hot, 100 GiB of state", hot, COUNT(hot), hot_marks, COUNT(hot_marks)},
};

static const struct svg_segment open_end[] = {{0, 5 * MS, 0}, {5 * MS, GW_UNKNOWN, 1}};
static const struct svg_segment no_begin[] = {{GW_UNKNOWN, 5 * MS, 0}, {GW_UNKNOWN, GW_UNKNOWN, 1}};
static const struct svg_segment backwards[] = {{9 * MS, 5 * MS, 0}, {1 * MS, 2 * MS, 99}};
static const struct svg_mark lost_marks[] = {{GW_UNKNOWN, 0}, {3 * MS, 99}};
static const struct svg_row unknown_rows[] = {
	{"open end", open_end, COUNT(open_end), NULL, 0},
	{"no beginning", no_begin, COUNT(no_begin), lost_marks, COUNT(lost_marks)},
	{"not drawn", backwards, COUNT(backwards), NULL, 0},
	{"a mark", NULL, 0, &cold_marks[0], 1},
};

static const struct svg_segment tiny[] = {{0, 1, 0}, {1, 2, 1}, {2, 1000, 2}};
static const struct svg_segment huge[] = {{0, GW_UNKNOWN - 1, 0},
					  {GW_UNKNOWN - 2, GW_UNKNOWN - 1, 1}};
static const struct svg_row tiny_rows[] = {{"tiny", tiny, COUNT(tiny), NULL, 0}};
static const struct svg_row huge_rows[] = {{"huge", huge, COUNT(huge), NULL, 0},
					   {"tiny", tiny, COUNT(tiny), NULL, 0}};
static const struct svg_segment nothing[] = {{0, 0, 0}};
static const struct svg_row zero_rows[] = {{"nothing", nothing, COUNT(nothing), NULL, 0}};

#define LONG_TEXT                                                                                                        \
	"a text that is much longer than there is room for in any of the places in which a picture has texts, and that " \
	"goes on all the same, until nobody reads it any more, WITH CAPITALS AND 0123456789 FOR THEIR WIDTH"

static const struct svg_kind long_kinds[] = {
	{LONG_TEXT, SVG_RED}, {LONG_TEXT, SVG_BLUE}, {"short", SVG_GREEN}};
static const struct svg_mark_kind long_marks[] = {{LONG_TEXT, SVG_CIRCLE}};
static const struct svg_row long_rows[] = {{LONG_TEXT, cold, 2, NULL, 0},
					   {LONG_TEXT, NULL, 0, NULL, 0}};

/* Markup, bytes that are no UTF-8 (too short, too long, a half pair, beyond the last), controls, wide letters. */
#define HOSTILE                                                                                    \
	"</text><script>&\"'\x01\x1b[31m\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82 \xef\xbf\xbf\n\t]]>\xf0\x9f\x94\xa5\xe6\xbc\xa2"

static const struct svg_kind hostile_kinds[] = {
	{HOSTILE, SVG_PURPLE}, {"", SVG_TEAL}, {"c", (enum svg_colour)77}};
static const struct svg_mark_kind hostile_marks[] = {{HOSTILE, SVG_CIRCLE},
						     {"s", (enum svg_shape)77}};
static const struct svg_mark two_marks[] = {{MS, 0}, {2 * MS, 1}};
static const struct svg_row hostile_rows[] = {{HOSTILE, cold, COUNT(cold), two_marks, 2},
					      {"", cold, 1, NULL, 0}};

static const struct {
	const char *name;
	struct svg_chart chart;
} cases[] = {
	{"typical",
	 {"What a fault costs", "NVIDIA H200, driver 580.159.04, medians of 20",
	  "ms after the bad kernel was launched", kinds, COUNT(kinds), mark_kinds,
	  COUNT(mark_kinds), typical_rows, COUNT(typical_rows)}},
	{"empty", {"Nothing", NULL, "ms", NULL, 0, NULL, 0, NULL, 0}},
	{"unknown",
	 {"Unknown", NULL, "ms", kinds, COUNT(kinds), mark_kinds, COUNT(mark_kinds), unknown_rows,
	  COUNT(unknown_rows)}},
	{"tiny", {"Tiny", NULL, "ms", kinds, COUNT(kinds), NULL, 0, tiny_rows, COUNT(tiny_rows)}},
	{"huge", {"Huge", NULL, "ms", kinds, COUNT(kinds), NULL, 0, huge_rows, COUNT(huge_rows)}},
	{"zero", {"Zero", NULL, "ms", kinds, COUNT(kinds), NULL, 0, zero_rows, COUNT(zero_rows)}},
	{"long",
	 {LONG_TEXT, LONG_TEXT, LONG_TEXT, long_kinds, COUNT(long_kinds), long_marks,
	  COUNT(long_marks), long_rows, COUNT(long_rows)}},
	{"hostile",
	 {HOSTILE, HOSTILE, HOSTILE, hostile_kinds, COUNT(hostile_kinds), hostile_marks,
	  COUNT(hostile_marks), hostile_rows, COUNT(hostile_rows)}},
};

/* ---- random ones ---- */

#define RANDOM_ROWS 40
#define RANDOM_EACH 6

static char texts[RANDOM_ROWS + 4][64];
static struct svg_segment segments[RANDOM_ROWS][RANDOM_EACH];
static struct svg_mark marks[RANDOM_ROWS][RANDOM_EACH];
static struct svg_row rows[RANDOM_ROWS];

static uint64_t random_below(uint64_t limit)
{
	return ((uint64_t)(unsigned int)random() << 31 | (unsigned int)random()) % limit;
}

/* Any bytes half the time, else letters. */
static const char *random_text(size_t number)
{
	size_t length = random_below(sizeof(texts[0]));
	bool bytes = random_below(2);

	for (size_t i = 0; i < length; i++)
		texts[number][i] = (char)(bytes ? 1 + random_below(255) : 'a' + random_below(26));
	texts[number][length] = '\0';
	return texts[number];
}

static void random_row(size_t number, uint64_t most)
{
	struct svg_row *row = &rows[number];
	uint64_t at = 0;

	*row = (struct svg_row){random_text(number), segments[number], random_below(RANDOM_EACH),
				marks[number], random_below(RANDOM_EACH)};
	for (size_t i = 0; i < row->n_segments; i++) {
		uint64_t to = at + random_below(most);

		segments[number][i] = (struct svg_segment){at, to, (uint32_t)random_below(4)};
		at = to;
	}
	for (size_t i = 0; i < row->n_marks; i++)
		marks[number][i] = (struct svg_mark){random_below(most), (uint32_t)random_below(4)};
}

static struct svg_chart random_chart(unsigned int seed)
{
	struct svg_chart chart = {.axis = "ms",
				  .kinds = kinds,
				  .n_kinds = COUNT(kinds),
				  .mark_kinds = mark_kinds,
				  .n_mark_kinds = COUNT(mark_kinds),
				  .rows = rows};
	uint64_t most = 1;

	srandom(seed);
	chart.title = random_text(RANDOM_ROWS);
	chart.subtitle = random_below(2) ? random_text(RANDOM_ROWS + 1) : NULL;
	chart.n_rows = random_below(RANDOM_ROWS);
	for (uint64_t power = random_below(14); power > 0; power--)
		most *= 10;
	for (size_t i = 0; i < chart.n_rows; i++)
		random_row(i, most);
	return chart;
}

static struct svg_chart find_case(const char *name)
{
	for (size_t i = 0; i < COUNT(cases); i++) {
		if (strcmp(cases[i].name, name) == 0)
			return cases[i].chart;
	}
	return random_chart((unsigned int)strtoul(name, NULL, 10));
}

int main(int argc, char **argv)
{
	struct gw_error error = {0};
	struct svg_chart chart;
	int result = -1;

	if (argc == 3 && strcmp(argv[1], "check") == 0) {
		result = replace_check(argv[2], &error);
	} else if (argc == 4 && strcmp(argv[1], "save") == 0) {
		chart = find_case(argv[2]);
		result = svg_save(argv[3], &chart, 1, &error);
	}
	if (result < 0)
		(void)fprintf(stderr, "svg-cases: %s\n", error.msg);
	return result < 0 ? 2 : 0;
}
