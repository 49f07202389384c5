/* SPDX-License-Identifier: MIT */
#include "cli/svg.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ms.h"
#include "cli/replace.h"
#include "cli/xml.h"
#include "common/err.h"
#include "common/fd.h"

/* In the picture's units, which are pixels at first. */
#define WIDTH	   960
#define MARGIN	   24
#define GAP	   12
#define ROW_HEIGHT 24
#define BAR_HEIGHT 14
#define LETTER	   8 /* a wide letter in 12; most have less */
#define TITLE	   11
#define VALUE_MAX  24 /* letters of the longest value, "213503.98 ms, gone 99999" and the like */
#define LABEL_MAX  40
#define HEAD	   76
#define TICK_LEAST 64 /* between two ticks */

/* Where things are. */
struct layout {
	FILE *to;
	const struct svg_chart *chart;
	int left; /* of the plot: 0 on the axis */
	int right;
	int bottom; /* of the rows */
	uint64_t most_ns;
};

/* Letters have a rim in the colour of the page, since lines of the grid pass behind them. */
static const char style[] =
	"text{font:12px system-ui,-apple-system,\"Segoe UI\",sans-serif;fill:#1f2328;paint-order:stroke;"
	"stroke:#fff;stroke-width:3px}"
	".title{font-size:17px;font-weight:600}.heading{font-weight:600}"
	".soft{fill:#59636e}.page{fill:#fff}.grid{stroke:#d1d9e0;fill:none}"
	".bar{stroke:#fff;stroke-width:1}.open{fill-opacity:.4;stroke-dasharray:4 3;stroke:#59636e}"
	".mark{fill:#1f2328;stroke:#fff;stroke-width:1}"
	".c0{fill:#818b98}.c1{fill:#d1242f}.c2{fill:#e16f24}.c3{fill:#bf8700}"
	".c4{fill:#1a7f37}.c5{fill:#1b9aaa}.c6{fill:#0969da}.c7{fill:#8250df}"
	"@media(prefers-color-scheme:dark){"
	"text{fill:#f0f6fc;stroke:#0d1117}.soft{fill:#9198a1}.page{fill:#0d1117}.grid{stroke:#3d444d}"
	".bar{stroke:#0d1117}.open{stroke:#9198a1}.mark{fill:#f0f6fc;stroke:#0d1117}"
	".c0{fill:#767e89}.c1{fill:#f85149}.c2{fill:#f0883e}.c3{fill:#d29922}"
	".c4{fill:#3fb950}.c5{fill:#39c5cf}.c6{fill:#4493f8}.c7{fill:#ab7df8}}";

/* ---- numbers: whole ones, since the locale has a say in printf's decimal point ---- */

/* Hundredths of the picture's units. */
static int64_t place(const struct layout *layout, uint64_t ns)
{
	double width = (layout->right - layout->left) * 100;

	return layout->left * INT64_C(100) +
	       (int64_t)(width * (double)ns / (double)layout->most_ns);
}

static void put_number(const struct layout *layout, const char *name, int64_t hundredths)
{
	(void)fprintf(layout->to, " %s=\"%lld.%02lld\"", name, (long long)(hundredths / 100),
		      (long long)(hundredths % 100));
}

/* ---- texts ---- */

static void put_text(const struct layout *layout, const char *class, const char *anchor,
		     int64_t hundredths, int y, const char *text, size_t max)
{
	(void)fprintf(layout->to, "<text class=\"%s\" text-anchor=\"%s\" y=\"%d\"", class, anchor,
		      y);
	put_number(layout, "x", hundredths);
	(void)putc('>', layout->to);
	xml_put(layout->to, text, max);
	(void)fputs("</text>\n", layout->to);
}

/* What a pointer over the shape shows. */
static void put_hint(const struct layout *layout, const char *name, uint64_t from_ns,
		     uint64_t to_ns)
{
	char from[MS_TEXT_MAX], to[MS_TEXT_MAX] = "not known";

	ms_format(from_ns, from);
	if (to_ns != GW_UNKNOWN)
		ms_format(to_ns, to);
	(void)fputs("<title>", layout->to);
	xml_put(layout->to, name, 200);
	if (from_ns == to_ns)
		(void)fprintf(layout->to, ": %s</title>", from);
	else
		(void)fprintf(layout->to, ": %s to %s</title>", from, to);
}

/* ---- what there is ---- */

static bool is_drawn(const struct svg_chart *chart, const struct svg_segment *segment)
{
	return segment->from_ns != GW_UNKNOWN && segment->from_ns <= segment->to_ns &&
	       segment->kind < chart->n_kinds;
}

static bool is_marked(const struct svg_chart *chart, const struct svg_mark *mark)
{
	return mark->at_ns != GW_UNKNOWN && mark->kind < chart->n_mark_kinds;
}

static uint64_t later(uint64_t most, uint64_t ns)
{
	return ns != GW_UNKNOWN && ns > most ? ns : most;
}

/* The largest known time of ROW; *RET_OPEN where a bar has no known end. */
static uint64_t end_of_row(const struct svg_chart *chart, const struct svg_row *row, bool *ret_open)
{
	uint64_t most = 0;

	*ret_open = false;
	for (size_t i = 0; i < row->n_segments; i++) {
		if (!is_drawn(chart, &row->segments[i]))
			continue;
		most = later(later(most, row->segments[i].from_ns), row->segments[i].to_ns);
		*ret_open |= row->segments[i].to_ns == GW_UNKNOWN;
	}
	for (size_t i = 0; i < row->n_marks; i++) {
		if (is_marked(chart, &row->marks[i]))
			most = later(most, row->marks[i].at_ns);
	}
	return most;
}

static struct layout lay_out(FILE *to, const struct svg_chart *chart)
{
	struct layout layout = {.to = to, .chart = chart, .most_ns = 0};
	size_t widest = 0;

	for (size_t i = 0; i < chart->n_rows; i++) {
		const struct svg_row *row = &chart->rows[i];
		size_t width = xml_width(row->label);
		bool open;

		layout.most_ns = later(layout.most_ns, end_of_row(chart, row, &open));
		/* A heading has all the width. */
		if (row->n_segments + row->n_marks > 0 && width > widest)
			widest = width < LABEL_MAX ? width : LABEL_MAX;
	}
	if (layout.most_ns == 0)
		layout.most_ns = 1000000;
	layout.left = MARGIN + (int)widest * LETTER + GAP;
	layout.right = WIDTH - MARGIN - GAP - VALUE_MAX * LETTER;
	layout.bottom = HEAD + (int)chart->n_rows * ROW_HEIGHT;
	return layout;
}

/* ---- the axis ---- */

/* The least of 1, 2, 5, 10 ... nanoseconds whose ticks leave room for their numbers. */
static uint64_t find_step(const struct layout *layout)
{
	static const uint64_t factors[] = {1, 2, 5};
	char text[MS_TEXT_MAX];
	size_t letters = ms_format_exact(layout->most_ns, text);

	for (uint64_t power = 1; power <= UINT64_MAX / 5; power *= 10) {
		for (int i = 0; i < 3; i++) {
			uint64_t step = power * factors[i];
			size_t of_step = ms_format_exact(step, text);
			int64_t apart = place(layout, step) - layout->left * INT64_C(100);
			int width = (int)(of_step > letters ? of_step : letters) * LETTER + GAP;

			if (apart >= (width > TICK_LEAST ? width : TICK_LEAST) * INT64_C(100))
				return step;
		}
	}
	return UINT64_MAX;
}

static void draw_axis(const struct layout *layout)
{
	uint64_t step = find_step(layout);
	char text[MS_TEXT_MAX];

	for (uint64_t ns = 0; ns <= layout->most_ns; ns += step) {
		int64_t x = place(layout, ns);

		(void)fputs("<line class=\"grid\"", layout->to);
		put_number(layout, "x1", x);
		put_number(layout, "x2", x);
		(void)fprintf(layout->to, " y1=\"%d\" y2=\"%d\"/>\n", HEAD, layout->bottom + 4);
		(void)ms_format_exact(ns, text);
		put_text(layout, "tick soft", "middle", x, layout->bottom + 18, text,
			 VALUE_MAX * 2);
		if (ns > UINT64_MAX - step)
			break;
	}
	put_text(layout, "axis soft", "start", layout->left * INT64_C(100), layout->bottom + 38,
		 layout->chart->axis, (size_t)((WIDTH - MARGIN - layout->left) / LETTER));
}

/* ---- rows ---- */

static void draw_segment(const struct layout *layout, const struct svg_segment *segment, int y)
{
	const struct svg_kind *kind = &layout->chart->kinds[segment->kind];
	bool open = segment->to_ns == GW_UNKNOWN;
	int64_t from = place(layout, segment->from_ns);
	int64_t to = open ? layout->right * INT64_C(100) : place(layout, segment->to_ns);

	/* What is shorter than the picture can show is there all the same. */
	if (to - from < 100)
		to = from + 100;
	if (to > layout->right * INT64_C(100))
		to = layout->right * INT64_C(100);
	if (to - from < 100)
		from = to - 100;
	(void)fprintf(layout->to, "<rect class=\"bar c%d%s\" y=\"%d\" height=\"%d\"",
		      (int)kind->colour % SVG_COLOURS, open ? " open" : "", y, BAR_HEIGHT);
	put_number(layout, "x", from);
	put_number(layout, "width", to - from);
	(void)putc('>', layout->to);
	put_hint(layout, kind->name, segment->from_ns, segment->to_ns);
	(void)fputs("</rect>\n", layout->to);
}

/* Around the middle of the place where it stands. */
static void draw_shape(const struct layout *layout, enum svg_shape shape, int64_t x, int y)
{
	static const char *const paths[SVG_SHAPES] = {
		[SVG_DIAMOND] = "M0-5L5 0L0 5L-5 0Z",
		[SVG_CIRCLE] = "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z",
		[SVG_TRIANGLE] = "M0 5L-5-4L5-4Z",
		[SVG_SQUARE] = "M-4-4L4-4L4 4L-4 4Z",
	};

	(void)fprintf(layout->to,
		      "<path class=\"mark\" d=\"%s\" transform=\"translate(%lld.%02lld %d)\">",
		      paths[(unsigned int)shape % SVG_SHAPES], (long long)(x / 100),
		      (long long)(x % 100), y);
}

static void draw_bars(const struct layout *layout, const struct svg_row *row, int y)
{
	const struct svg_chart *chart = layout->chart;

	for (size_t i = 0; i < row->n_segments; i++) {
		if (is_drawn(chart, &row->segments[i]))
			draw_segment(layout, &row->segments[i], y);
	}
	for (size_t i = 0; i < row->n_marks; i++) {
		const struct svg_mark *mark = &row->marks[i];

		if (!is_marked(chart, mark))
			continue;
		draw_shape(layout, chart->mark_kinds[mark->kind].shape, place(layout, mark->at_ns),
			   y + BAR_HEIGHT / 2);
		put_hint(layout, chart->mark_kinds[mark->kind].name, mark->at_ns, mark->at_ns);
		(void)fputs("</path>\n", layout->to);
	}
}

static void draw_row(const struct layout *layout, size_t number)
{
	const struct svg_row *row = &layout->chart->rows[number];
	int y = HEAD + (int)number * ROW_HEIGHT + (ROW_HEIGHT - BAR_HEIGHT) / 2;
	int64_t margin = MARGIN * INT64_C(100);
	char text[MS_TEXT_MAX] = "not known";
	uint64_t most;
	bool open;

	if (row->n_segments + row->n_marks == 0) {
		put_text(layout, "heading", "start", margin, y + 11, row->label,
			 (WIDTH - 2 * MARGIN) / LETTER);
		return;
	}
	put_text(layout, "label", "start", margin, y + 11, row->label, LABEL_MAX);
	draw_bars(layout, row, y);
	most = end_of_row(layout->chart, row, &open);
	if (most > 0 && !open)
		ms_format(most, text);
	put_text(layout, "value soft", "start",
		 (open ? layout->right * INT64_C(100) : place(layout, most)) + 100 * GAP, y + 11,
		 row->value ? row->value : text, VALUE_MAX);
}

/* ---- the rest ---- */

/* The place of the legend's next entry of WIDTH letters; it goes on in the next line where this one is full. */
static void next_entry(int *x, int *y, size_t width)
{
	int needed = 3 * GAP + (int)width * LETTER;

	if (*x > MARGIN && *x + needed > WIDTH - MARGIN) {
		*x = MARGIN;
		*y += ROW_HEIGHT - 4;
	}
}

#define LEGEND_MAX ((WIDTH - 2 * MARGIN) / LETTER / 2)

/* One entry, drawn where TO is given. */
static void put_entry(const struct layout *layout, const char *name, int *x, int *y, int shape,
		      int colour)
{
	size_t width = xml_width(name);

	width = width < LEGEND_MAX ? width : LEGEND_MAX;
	next_entry(x, y, width);
	if (layout->to && colour >= 0)
		(void)fprintf(
			layout->to,
			"<rect class=\"key c%d\" x=\"%d\" y=\"%d\" width=\"12\" height=\"12\"/>\n",
			colour % SVG_COLOURS, *x, *y - 10);
	if (layout->to && colour < 0) {
		draw_shape(layout, (enum svg_shape)shape, (*x + 6) * INT64_C(100), *y - 4);
		(void)fputs("</path>\n", layout->to);
	}
	if (layout->to)
		put_text(layout, "legend", "start", (*x + 18) * INT64_C(100), *y, name, LEGEND_MAX);
	*x += 3 * GAP + (int)width * LETTER;
}

/* Draws the legend, or with no file in LAYOUT only finds its end. Returns the y of its last line. */
static int draw_legend(const struct layout *layout)
{
	const struct svg_chart *chart = layout->chart;
	int y = layout->bottom + 64;
	int x = MARGIN;

	for (size_t i = 0; i < chart->n_kinds; i++)
		put_entry(layout, chart->kinds[i].name, &x, &y, 0, (int)chart->kinds[i].colour);
	for (size_t i = 0; i < chart->n_mark_kinds; i++)
		put_entry(layout, chart->mark_kinds[i].name, &x, &y,
			  (int)chart->mark_kinds[i].shape, -1);
	return y;
}

static void draw_head(const struct layout *layout, int y, int height)
{
	const struct svg_chart *chart = layout->chart;

	(void)fprintf(
		layout->to,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" y=\"%d\" width=\"%d\" "
		"height=\"%d\" viewBox=\"0 0 %d %d\">\n<title>",
		y, WIDTH, height, WIDTH, height);
	xml_put(layout->to, chart->title, 200);
	(void)fprintf(
		layout->to,
		"</title>\n<style>%s</style>\n<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n",
		style, WIDTH, height);
	put_text(layout, "title", "start", MARGIN * INT64_C(100), 34, chart->title,
		 (WIDTH - 2 * MARGIN) / TITLE);
	if (chart->subtitle)
		put_text(layout, "subtitle soft", "start", MARGIN * INT64_C(100), 56,
			 chart->subtitle, (WIDTH - 2 * MARGIN) / LETTER);
}

/* Draws it Y below the top, or with no file only finds its height, which is returned. */
static int draw_at(FILE *to, const struct svg_chart *chart, int y)
{
	struct layout layout = lay_out(NULL, chart);
	int height = draw_legend(&layout) + MARGIN;

	layout.to = to;
	if (!to)
		return height;
	draw_head(&layout, y, height);
	draw_axis(&layout);
	for (size_t i = 0; i < chart->n_rows; i++)
		draw_row(&layout, i);
	(void)draw_legend(&layout);
	(void)fputs("</svg>\n", to);
	return height;
}

void svg_draw(FILE *to, const struct svg_chart *chart)
{
	(void)draw_at(to, chart, 0);
}

void svg_draw_all(FILE *to, const struct svg_chart *charts, size_t count)
{
	int height = 0, y = 0;

	for (size_t i = 0; i < count; i++)
		height += draw_at(NULL, &charts[i], 0);
	(void)fprintf(to,
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		      "viewBox=\"0 0 %d %d\">\n",
		      WIDTH, height, WIDTH, height);
	for (size_t i = 0; i < count; i++)
		y += draw_at(to, &charts[i], y);
	(void)fputs("</svg>\n", to);
}

int svg_save(const char *path, const struct svg_chart *charts, size_t count,
	     struct gw_error *ret_error)
{
	cleanup_free char *text = NULL;
	size_t bytes = 0;
	FILE *memory = open_memstream(&text, &bytes);
	bool failed;

	if (memory && count == 1)
		svg_draw(memory, charts);
	else if (memory)
		svg_draw_all(memory, charts, count);
	failed = !memory || ferror(memory);
	if ((memory && fclose(memory) != 0) || failed)
		return err_os(ret_error, ENOMEM, "no memory for the picture '%.100s'", path);
	return replace_write(path, text, bytes, ret_error);
}
