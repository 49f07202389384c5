/* SPDX-License-Identifier: MIT */
/*
 * Why a row is there: the cause that says most about it. `gpuward explain` tells all of them, with evidence and remedy.
 *
 * Runs in: command line. Read next: ps.h, ../holders/cause.h.
 */
#include "cli/ps.h"

#include <stdio.h>

#include "holders/facts.h"

int ps_find_causes(struct ps_view *view, struct gw_error *ret_error)
{
	struct causes_input input = {.scan = &view->scan, .amounts = &view->amounts};
	struct facts facts = {0};
	/* Open files were compared already: no time for that here. */
	int code = facts_gather(&view->scan, &view->amounts, NULL, 0, &facts, ret_error);

	if (code < 0)
		return code;
	facts.facts.groups = view->accounting.share.group;
	input.facts = &facts.facts;
	code = causes_find(&input, &view->verdicts, ret_error);
	facts_free(&facts);
	return code;
}

/* Is it about the pid of a row that holds nothing? */
static bool is_about_line(const struct ps_view *view, const struct ps_row *row,
			  const struct verdict *verdict)
{
	const struct account_line *line = &view->accounting.lines[row->line];

	return verdict->process == CAUSE_NOBODY && verdict->pid > 0 && verdict->pid == line->pid &&
	       (verdict->gpu == CAUSE_NOBODY || verdict->gpu == line->gpu);
}

bool ps_is_about(const struct ps_view *view, const struct ps_row *row,
		 const struct verdict *verdict)
{
	return row->process == ACCOUNT_NONE ? is_about_line(view, row, verdict)
					    : verdict_is_about(verdict, row->process);
}

const struct verdict *ps_verdict(const struct ps_view *view, const struct ps_row *row)
{
	if (row->process != ACCOUNT_NONE)
		return causes_main(&view->verdicts, row->process);
	for (uint32_t i = 0; i < view->verdicts.count; i++) {
		if (is_about_line(view, row, &view->verdicts.list[i]))
			return &view->verdicts.list[i];
	}
	return NULL;
}

void ps_text_cause(const struct ps_view *view, const struct ps_row *row, char *text)
{
	const struct verdict *verdict = ps_verdict(view, row);

	if (!verdict)
		(void)snprintf(text, OUT_CELL_MAX, "-");
	else if (verdict->certainty == CAUSE_ONE_OF && verdict->other != CAUSE_NONE)
		(void)snprintf(text, OUT_CELL_MAX, "%s or %s", cause_name(verdict->cause),
			       cause_name(verdict->other));
	else
		(void)snprintf(text, OUT_CELL_MAX, "%s%s", cause_name(verdict->cause),
			       verdict->certainty == CAUSE_CERTAIN ? "" : "?");
}

bool ps_is_about_gpu(const struct verdict *verdict, uint32_t gpu)
{
	return verdict->process == CAUSE_NOBODY && verdict->pid == 0 && verdict->gpu == gpu;
}

void ps_print_gpu_causes(const struct ps_view *view, uint32_t gpu)
{
	for (uint32_t i = 0; i < view->verdicts.count; i++) {
		const struct verdict *verdict = &view->verdicts.list[i];

		if (ps_is_about_gpu(verdict, gpu) && verdict->policy != CAUSE_LEAVE)
			(void)printf("  %s %s: %s%s\n", cause_id(verdict->cause),
				     cause_name(verdict->cause), cause_title(verdict->cause),
				     verdict->certainty == CAUSE_CERTAIN ? "" : " (perhaps)");
	}
}
