/* SPDX-License-Identifier: MIT */
/*
 * Pictures of timelines, as SVG: rows of bars and marks over one axis of milliseconds, with a legend.
 *
 * Runs in: command line. The picture needs nothing else: text is text, light and dark pages are both served, every bar and
 * mark tells its times when pointed at. A time that is not known (GW_UNKNOWN) is not drawn as 0: a bar with such an end
 * is open, dashed and as long as the axis, and what has no known beginning is left out.
 *
 * Invariant: everything lies inside the view box and no text lies on another one, whatever the texts and times are;
 * widths of letters are estimated, and what does not fit is cut. Read next: replace.h.
 */
#ifndef GPUWARD_CLI_SVG_H
#define GPUWARD_CLI_SVG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <gpuward.h>

/* They differ in lightness too, and each is right for light and dark pages. */
enum svg_colour {
	SVG_GREY,
	SVG_RED,
	SVG_ORANGE,
	SVG_YELLOW,
	SVG_GREEN,
	SVG_TEAL,
	SVG_BLUE,
	SVG_PURPLE,
	SVG_COLOURS,
};

enum svg_shape {
	SVG_DIAMOND,
	SVG_CIRCLE,
	SVG_TRIANGLE,
	SVG_SQUARE,
	SVG_SHAPES,
};

/* What the segments of one colour, and the marks of one shape, mean. */
struct svg_kind {
	const char *name;
	enum svg_colour colour;
};

struct svg_mark_kind {
	const char *name;
	enum svg_shape shape;
};

/* Times count from the chart's 0. A segment that ends before it begins is left out. */
struct svg_segment {
	uint64_t from_ns;
	uint64_t to_ns;
	uint32_t kind; /* index in the chart's kinds */
};

struct svg_mark {
	uint64_t at_ns;
	uint32_t kind; /* index in the chart's mark_kinds */
};

/* A row without segments and marks is a heading. Else its value stands behind it, or where it has none its largest
 * time. */
struct svg_row {
	const char *label;
	const struct svg_segment *segments;
	size_t n_segments;
	const struct svg_mark *marks;
	size_t n_marks;
	const char *value; /* NULL: none */
};

struct svg_chart {
	const char *title;
	const char *subtitle; /* the machine, the date; NULL: none */
	const char *axis;     /* what the milliseconds count from */
	const struct svg_kind *kinds;
	size_t n_kinds;
	const struct svg_mark_kind *mark_kinds;
	size_t n_mark_kinds;
	const struct svg_row *rows;
	size_t n_rows;
};

/* Draws CHART to TO, whose errors are the caller's to look at. */
void svg_draw(FILE *to, const struct svg_chart *chart);

/* Draws COUNT charts below each other, each with an axis of its own. */
void svg_draw_all(FILE *to, const struct svg_chart *charts, size_t count);

/* Draws COUNT charts into the file PATH: the whole picture, or the file as it was (replace.h). Returns 0, -ENOMEM or -errno. */
int svg_save(const char *path, const struct svg_chart *charts, size_t count,
	     struct gw_error *ret_error);

#endif
