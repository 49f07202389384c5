/* SPDX-License-Identifier: MIT */
/*
 * The timelines as a picture: all levels on one axis, and below it the hot ones on an axis of their own, since
 * milliseconds cannot be seen beside most of a second.
 *
 * Runs in: command line. Each level has a row without state, one with it, and one for the bystander's longest
 * stall. Read next: svg.h.
 */
#include "cli/drill.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/ms.h"
#include "cli/svg.h"
#include "common/err.h"
#include "gpu/nodes.h"

#define SEGMENTS 4
#define MARKS	 3
#define ROWS_MAX (DRILL_KINDS * (1 + 3 * DRILL_LEVELS))

enum bar {
	BAR_UNNOTICED,
	BAR_FENCING,
	BAR_STARTING,
	BAR_FIRST,
	BAR_BY_HAND,
	BAR_STALL,
};

static const struct svg_kind bars[] = {
	[BAR_UNNOTICED] = {"not noticed yet", SVG_RED},
	[BAR_FENCING] = {"noticed, not fenced", SVG_ORANGE},
	[BAR_STARTING] = {"successor gets ready", SVG_YELLOW},
	[BAR_FIRST] = {"its first kernel", SVG_GREEN},
	[BAR_BY_HAND] = {"without gpuward, after CUDA told", SVG_PURPLE},
	[BAR_STALL] = {"bystander's longest stall", SVG_GREY},
};

enum dot {
	DOT_GOOD,
	DOT_GONE,
	DOT_CHECKED,
};

static const struct svg_mark_kind dots[] = {
	[DOT_GOOD] = {"next good kernel", SVG_CIRCLE},
	[DOT_GONE] = {"old process gone", SVG_DIAMOND},
	[DOT_CHECKED] = {"all state looked at", SVG_SQUARE},
};

/* One row, and what it points to. */
struct line {
	char label[64];
	char value[2 * MS_TEXT_MAX + 8];
	struct svg_segment segments[SEGMENTS];
	struct svg_mark marks[MARKS];
};

struct picture {
	struct line lines[ROWS_MAX];
	struct svg_row rows[ROWS_MAX];
	size_t n;
};

static struct line *add_line(struct picture *picture, size_t n_segments, size_t n_marks)
{
	struct line *line = &picture->lines[picture->n];

	picture->rows[picture->n++] = (struct svg_row){.label = line->label,
						       .segments = line->segments,
						       .n_segments = n_segments,
						       .marks = line->marks,
						       .n_marks = n_marks,
						       .value = line->value};
	return line;
}

static void set_value(struct line *line, uint64_t ns)
{
	if (ns == GW_UNKNOWN)
		(void)snprintf(line->value, sizeof(line->value), "not known");
	else
		ms_format(ns, line->value);
}

/* The value stands behind the row's last mark, which can be that of the old process's end. */
static void add_gone(struct line *line, const uint64_t *at)
{
	size_t used = strlen(line->value);
	char gone[MS_TEXT_MAX];

	if (at[MARK_GONE] == GW_UNKNOWN || at[MARK_GOOD] == GW_UNKNOWN ||
	    at[MARK_GONE] <= at[MARK_GOOD])
		return;
	ms_format(at[MARK_GONE], gone);
	(void)snprintf(line->value + used, sizeof(line->value) - used, ", gone %s", gone);
}

/* What counts is the next good kernel; the old process can end long after it. */
static void add_recovery(struct picture *picture, enum drill_level level,
			 const struct drill_row *row, bool state)
{
	const uint64_t *at = row->after_ns;
	bool by_hand = level == LEVEL_BY_HAND;
	struct line *line = add_line(picture, by_hand ? 2 : SEGMENTS, state ? MARKS : MARKS - 1);

	(void)snprintf(line->label, sizeof(line->label), "%s%s", drill_level_name(level),
		       state ? ", with state" : "");
	set_value(line, at[MARK_GOOD]);
	add_gone(line, at);
	line->segments[0] = (struct svg_segment){0, at[MARK_SIGN], BAR_UNNOTICED};
	if (by_hand) {
		line->segments[1] = (struct svg_segment){at[MARK_SIGN], at[MARK_GOOD], BAR_BY_HAND};
	} else {
		line->segments[1] =
			(struct svg_segment){at[MARK_SIGN], at[MARK_FENCED], BAR_FENCING};
		line->segments[2] =
			(struct svg_segment){at[MARK_FENCED], at[MARK_READY], BAR_STARTING};
		line->segments[3] = (struct svg_segment){at[MARK_READY], at[MARK_GOOD], BAR_FIRST};
	}
	line->marks[0] = (struct svg_mark){at[MARK_GONE], DOT_GONE};
	line->marks[1] = (struct svg_mark){at[MARK_GOOD], DOT_GOOD};
	line->marks[2] = (struct svg_mark){at[MARK_CHECKED], DOT_CHECKED};
}

static void add_stall(struct picture *picture, const struct drill_row *row)
{
	struct line *line;

	if (row->stall_ns == GW_UNKNOWN || row->stall_from_ns == GW_UNKNOWN)
		return;
	line = add_line(picture, 1, 0);
	(void)snprintf(line->label, sizeof(line->label), "   bystander");
	set_value(line, row->stall_ns);
	line->segments[0] = (struct svg_segment){row->stall_from_ns,
						 row->stall_from_ns + row->stall_ns, BAR_STALL};
}

static void add_kind(struct picture *picture, const struct drill_crash *crash, int first_level)
{
	const struct drill_kind *kind = &drill_kinds[crash->kind];
	struct line *heading = add_line(picture, 0, 0);

	(void)snprintf(heading->label, sizeof(heading->label), "%s (CUDA %d)", kind->text,
		       kind->cuda);
	for (int level = first_level; level < DRILL_LEVELS; level++) {
		for (int state = 0; state < 2; state++) {
			if (crash->rows[level][state].ran)
				add_recovery(picture, (enum drill_level)level,
					     &crash->rows[level][state], state);
		}
		if (crash->rows[level][0].ran)
			add_stall(picture, &crash->rows[level][0]);
	}
}

static void add_kinds(struct picture *picture, const struct drill *drill, int first_level)
{
	for (size_t i = 0; i < drill->n_crash; i++)
		add_kind(picture, &drill->crash[i], first_level);
}

static struct svg_chart chart_of(const struct picture *picture, const char *title,
				 const char *subtitle)
{
	return (struct svg_chart){
		.title = title,
		.subtitle = subtitle,
		.axis = "milliseconds after the launch of the bad kernel",
		.kinds = bars,
		.n_kinds = sizeof(bars) / sizeof(bars[0]),
		.mark_kinds = dots,
		.n_mark_kinds = sizeof(dots) / sizeof(dots[0]),
		.rows = picture->rows,
		.n_rows = picture->n,
	};
}

int drill_svg(const struct drill *drill, struct gw_error *ret_error)
{
	static struct picture all, hot;
	const bool *levels = drill->options.levels;
	bool has_hot = levels[LEVEL_HOT] || levels[LEVEL_HOT_1];
	bool has_others = levels[LEVEL_BY_HAND] || levels[LEVEL_COLD] || levels[LEVEL_PRIMED];
	struct svg_chart charts[2];
	char subtitle[240];

	(void)snprintf(subtitle, sizeof(subtitle), "%s%s, driver %s, median of %u",
		       drill->device.name[0] ? drill->device.name : "unknown GPU",
		       nodes_emulated() ? ", emulated" : "",
		       drill->driver.driver[0] ? drill->driver.driver : "unknown",
		       drill->options.repeat);
	add_kinds(&all, drill, LEVEL_BY_HAND);
	add_kinds(&hot, drill, LEVEL_HOT);
	charts[0] = chart_of(&all, "From a GPU fault to the next good kernel", subtitle);
	charts[1] = chart_of(&hot, "The same, hot standbys alone", subtitle);
	return svg_save(drill->options.svg_path, charts, has_hot && has_others ? 2 : 1, ret_error);
}
