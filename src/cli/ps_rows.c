/* SPDX-License-Identifier: MIT */
/*
 * Which rows are shown, and in which order. A process has a row for each GPU where it is charged for memory; where
 * it is charged for none, one for all GPUs whose files it holds. What a dead creator has left stands once: in the
 * row of the first process of the group that holds it.
 *
 * Read next: ps.h.
 */
#include "cli/ps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "common/err.h"

struct making {
	const struct ps_view *view;
	const struct ps_options *options;
	struct ps_gpu gpu; /* where options->gpu is given */
	struct ps_rows rows;
	size_t room;
	bool lost; /* there was no memory for a row */
};

/* ---- filters ---- */

static bool is_number(const char *text, uint64_t number)
{
	char digits[24];

	(void)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
	return strcmp(text, digits) == 0;
}

static bool fits_job(const struct scan_process *process, const char *job)
{
	return (process->place.slurm_job_id != GW_UNKNOWN &&
		is_number(job, process->place.slurm_job_id)) ||
	       (process->slurm_job_id && strcmp(process->slurm_job_id, job) == 0) ||
	       (process->pbs_job_id && strcmp(process->pbs_job_id, job) == 0);
}

static bool begins_with(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

/* Its own pid, in this namespace; or the label of memory that it holds. */
static bool fits_pid(const struct making *making, const struct ps_row *row)
{
	const struct accounting *accounting = &making->view->accounting;
	int32_t pid = making->options->pid;

	if (row->line != ACCOUNT_NONE && accounting->lines[row->line].pid == pid)
		return true;
	return row->process != ACCOUNT_NONE &&
	       making->view->scan.processes[row->process].pid == pid;
}

static bool fits_gpu(const struct making *making, const struct ps_row *row)
{
	bool any = false;

	if (row->gpu != ACCOUNT_NONE)
		return row->gpu == making->gpu.gpu;
	/* Who has only files of all GPUs may hold any of them. */
	return ps_holds_gpu(making->view, row->process, &making->gpu, &any) || !any;
}

static bool fits_cause(const struct making *making, const struct ps_row *row)
{
	const struct verdicts *verdicts = &making->view->verdicts;

	for (uint32_t i = 0; i < verdicts->count; i++) {
		if (verdicts->list[i].cause == making->options->cause &&
		    ps_is_about(making->view, row, &verdicts->list[i]))
			return true;
	}
	return false;
}

static bool fits(const struct making *making, const struct ps_row *row)
{
	const struct ps_options *options = making->options;
	const struct scan_process *process =
		row->process == ACCOUNT_NONE ? NULL : &making->view->scan.processes[row->process];

	if (options->gpu && !fits_gpu(making, row))
		return false;
	if (options->uid >= 0 && ps_uid(making->view, row) != options->uid)
		return false;
	if (options->pid > 0 && !fits_pid(making, row))
		return false;
	if (options->job && !(process && fits_job(process, options->job)))
		return false;
	if (options->container &&
	    !(process && (begins_with(process->place.container_id, options->container) ||
			  begins_with(process->place.pod_uid, options->container))))
		return false;
	if (options->cause != CAUSE_NONE && !fits_cause(making, row))
		return false;
	return !options->unattributed ||
	       (process && row->bytes == GW_UNKNOWN && row->line == ACCOUNT_NONE);
}

/* ---- rows ---- */

static void add(struct making *making, const struct ps_row *row)
{
	struct ps_rows *rows = &making->rows;

	if (!fits(making, row))
		return;
	if (rows->count == making->room) {
		size_t room = making->room > 0 ? making->room * 2 : 64;
		struct ps_row *grown = reallocarray(rows->all, room, sizeof(*grown));

		if (!grown) {
			making->lost = true;
			return;
		}
		rows->all = grown;
		making->room = room;
	}
	rows->all[rows->count++] = *row;
}

static bool is_first_of_group(const struct share *share, uint32_t process)
{
	for (uint32_t i = 0; i < process; i++) {
		if (share->group[i] == share->group[process])
			return false;
	}
	return true;
}

static bool has_own_line(const struct accounting *accounting, uint32_t process)
{
	for (uint32_t i = 0; i < accounting->line_count; i++) {
		if (accounting->lines[i].owner == ACCOUNT_HOLDER &&
		    accounting->lines[i].process == process)
			return true;
	}
	return false;
}

/*
 * Does PROCESS hold the memory of LINE? *RET_SHARED: and another row has its bytes. OWN is whether it is charged for
 * some itself: then it does not hold that of others in its group.
 */
static bool holds_line(const struct share *share, uint32_t process, bool own,
		       const struct account_line *line, bool *ret_shared)
{
	*ret_shared = false;
	if (line->owner == ACCOUNT_SHARED) {
		*ret_shared = !is_first_of_group(share, process);
		return line->group == share->group[process];
	}
	if (line->owner != ACCOUNT_HOLDER)
		return false;
	*ret_shared = line->process != process;
	return line->process == process ||
	       (!own && share->group[line->process] == share->group[process]);
}

/* The rows of PROCESS where memory is charged to it, or to whoever made its group's open files, dead or alive. */
static void add_process(struct making *making, uint32_t process)
{
	const struct accounting *accounting = &making->view->accounting;
	const struct share *share = &accounting->share;
	struct ps_row row = {
		.gpu = ACCOUNT_NONE, .process = process, .line = ACCOUNT_NONE, .bytes = GW_UNKNOWN};
	struct ps_row bare = row;
	bool own = has_own_line(accounting, process);
	bool has_this_gpu = false;
	bool ignored;
	bool any = false;

	for (uint32_t i = 0; i < accounting->line_count; i++) {
		const struct account_line *line = &accounting->lines[i];

		if (!holds_line(share, process, own, line, &row.shared))
			continue;
		row.gpu = line->gpu;
		row.line = i;
		row.bytes = row.shared ? GW_UNKNOWN : line->used_bytes;
		has_this_gpu |= making->options->gpu && row.gpu == making->gpu.gpu;
		any = true;
		add(making, &row);
	}
	/* Asked for one GPU, whoever holds its file is shown, also where it is charged on others only. */
	if (!any || (making->options->gpu && !has_this_gpu &&
		     ps_holds_gpu(making->view, process, &making->gpu, &ignored)))
		add(making, &bare);
}

static void add_all(struct making *making)
{
	const struct accounting *accounting = &making->view->accounting;

	for (uint32_t i = 0; i < making->view->scan.process_count; i++)
		add_process(making, i);
	for (uint32_t i = 0; i < accounting->line_count; i++) {
		const struct account_line *line = &accounting->lines[i];
		struct ps_row row = {.gpu = line->gpu,
				     .process = ACCOUNT_NONE,
				     .line = i,
				     .bytes = line->used_bytes};

		if (line->owner != ACCOUNT_HOLDER && line->owner != ACCOUNT_SHARED)
			add(making, &row);
	}
}

/* ---- order ---- */

static int compare_numbers(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* The largest first; what is not known last. */
static int compare_memory(const struct ps_row *a, const struct ps_row *b)
{
	return compare_numbers(b->bytes + 1, a->bytes + 1);
}

static int32_t pid_of(const struct ps_view *view, const struct ps_row *row)
{
	return row->process == ACCOUNT_NONE ? view->accounting.lines[row->line].pid
					    : view->scan.processes[row->process].pid;
}

static int compare_by(const struct making *making, const struct ps_row *a, const struct ps_row *b)
{
	const struct ps_view *view = making->view;
	char texts[2][OUT_CELL_MAX];

	switch (making->options->key) {
	case PS_BY_GPU:
		return compare_numbers(a->gpu, b->gpu);
	case PS_BY_PID:
		return compare_numbers((uint64_t)pid_of(view, a), (uint64_t)pid_of(view, b));
	case PS_BY_MEMORY:
		return compare_memory(a, b);
	case PS_BY_AGE: /* the oldest first */
		return compare_numbers(ps_start(view, a), ps_start(view, b));
	case PS_BY_USER:
		ps_text_user(ps_uid(view, a), texts[0]);
		ps_text_user(ps_uid(view, b), texts[1]);
		return strcmp(texts[0], texts[1]);
	case PS_BY_COMMAND:
		ps_text_command(view, a, texts[0]);
		ps_text_command(view, b, texts[1]);
		return strcmp(texts[0], texts[1]);
	}
	return 0;
}

/* A group's processes stay below the first one, which has the memory. */
static uint32_t group_of(const struct ps_view *view, const struct ps_row *row)
{
	return row->process == ACCOUNT_NONE ? ACCOUNT_NONE
					    : view->accounting.share.group[row->process];
}

static int compare(const void *left, const void *right, void *context)
{
	const struct making *making = context;
	const struct ps_row *a = left;
	const struct ps_row *b = right;
	int order = compare_by(making, a, b);

	if (making->options->reverse)
		order = -order;
	if (order == 0)
		order = compare_numbers(a->gpu, b->gpu);
	if (order == 0 && !a->shared && !b->shared)
		order = compare_memory(a, b);
	if (order == 0)
		order = compare_numbers(group_of(making->view, a), group_of(making->view, b));
	return order != 0 ? order
			  : compare_numbers((uint64_t)pid_of(making->view, a),
					    (uint64_t)pid_of(making->view, b));
}

int ps_rows_make(const struct ps_view *view, const struct ps_options *options,
		 struct ps_rows *ret_rows, struct gw_error *ret_error)
{
	struct making making = {.view = view, .options = options};

	if (options->gpu && !ps_find_gpu(view, options->gpu, &making.gpu))
		return err_own(ret_error, -ENOENT, "--gpu: no such GPU here: '%.64s'",
			       options->gpu);
	add_all(&making);
	if (making.lost) {
		free(making.rows.all);
		return err_os(ret_error, ENOMEM, "no memory for the rows");
	}
	if (making.rows.count > 0)
		qsort_r(making.rows.all, making.rows.count, sizeof(struct ps_row), compare,
			&making);
	*ret_rows = making.rows;
	return 0;
}
