/* SPDX-License-Identifier: MIT */
/*
 * The same as JSON; the schema stands in gpuward-ps(1). Runs in: command line. What is not known is null, never 0.
 * Texts of other processes are made printable first: JSON wants UTF-8, and readers print it.
 */
#include "cli/ps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "holders/text.h"

#ifdef HAVE_JANSSON
#include <jansson.h>

bool ps_has_json(void)
{
	return true;
}

static json_t *number(uint64_t value)
{
	return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *known(int32_t value)
{
	return value < 0 ? json_null() : json_integer(value);
}

static json_t *bytes_text(const char *raw, size_t bytes)
{
	char text[SCAN_CMDLINE_MAX + 1];

	(void)text_printable(text, sizeof(text), raw, bytes);
	return json_string(text);
}

/* NULL and "" are not known. */
static json_t *text(const char *raw)
{
	return raw && raw[0] ? bytes_text(raw, strlen(raw)) : json_null();
}

static const char *answer_id(enum amounts_answer answer)
{
	static const char *const ids[] = {
		[AMOUNTS_NOT_ASKED] = "not_asked",     [AMOUNTS_ANSWERED] = "answered",
		[AMOUNTS_ABSENT] = "absent",	       [AMOUNTS_HUNG] = "hung",
		[AMOUNTS_UNSUPPORTED] = "unsupported", [AMOUNTS_LOST] = "lost",
		[AMOUNTS_FAILED] = "failed",
	};

	return ids[answer];
}

static json_t *cause_object(const struct verdict *verdict)
{
	return json_pack("{s:s, s:s, s:s}", "id", cause_id(verdict->cause), "name",
			 cause_name(verdict->cause), "certainty",
			 cause_certainty_name(verdict->certainty));
}

/* ---- GPUs ---- */

/* What is told of the GPU as a whole. */
static json_t *gpu_causes(const struct ps_view *view, uint32_t gpu)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < view->verdicts.count; i++) {
		const struct verdict *verdict = &view->verdicts.list[i];

		if (ps_is_about_gpu(verdict, gpu))
			(void)json_array_append_new(array, cause_object(verdict));
	}
	return array;
}

static json_t *gpu_object(const struct amounts_gpu *gpu)
{
	return json_pack("{s:i, s:o, s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
			 "s:i}",
			 "index", (int)gpu->index, "minor", known(gpu->minor), "uuid",
			 text(gpu->uuid), "name", text(gpu->name), "pci", text(gpu->pci), "memory",
			 answer_id(gpu->memory), "processes", answer_id(gpu->listed), "error",
			 text(gpu->error.msg), "total_bytes", number(gpu->total_bytes),
			 "free_bytes", number(gpu->free_bytes), "used_bytes",
			 number(gpu->used_bytes), "reserved_bytes", number(gpu->reserved_bytes),
			 "attributed_bytes", number(gpu->attributed_bytes), "unattributed_bytes",
			 number(gpu->unattributed_bytes), "processes_left_out",
			 (int)gpu->processes_left_out);
}

static json_t *gpus(const struct ps_view *view)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < view->amounts.gpu_count; i++) {
		json_t *object = gpu_object(&view->amounts.gpus[i]);

		(void)json_object_set_new(object, "causes", gpu_causes(view, i));
		(void)json_array_append_new(array, object);
	}
	return array;
}

/* ---- rows ---- */

static json_t *reference_object(const struct scan_reference *reference)
{
	char device[40];

	scan_device_name(&reference->device, device, sizeof(device));
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:i, s:b, s:o}", "held",
			 scan_held_name(reference->held), "device", device, "gpu_minor",
			 known(reference->device.gpu_minor), "fd", known(reference->fd), "tid",
			 reference->tid ? json_integer(reference->tid) : json_null(), "count",
			 (int)reference->count, "other_node", reference->other_node, "bytes",
			 number(reference->bytes));
}

static json_t *references(const struct scan *scan, const struct scan_process *process)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < process->reference_count; i++)
		(void)json_array_append_new(
			array, reference_object(&scan->references[process->first_reference + i]));
	return array;
}

static void add_process(json_t *object, const struct ps_view *view, uint32_t index)
{
	const struct scan_process *process = &view->scan.processes[index];
	const struct cgroup_place *place = &process->place;
	json_t *rest = json_pack(
		"{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:i, s:o}",
		"ppid", process->ppid, "exe", text(process->exe), "comm",
		bytes_text(process->comm, strnlen(process->comm, sizeof(process->comm))), "command",
		process->cmdline ? bytes_text(process->cmdline, process->cmdline_bytes)
				 : json_null(),
		"slurm_job", number(place->slurm_job_id), "slurm_job_by_environment",
		text(process->slurm_job_id), "pbs_job_by_environment", text(process->pbs_job_id),
		"runtime", text(cgroup_runtime_name(place->runtime)), "container",
		text(place->container_id), "pod", text(place->pod_uid), "cgroup_removed",
		place->deleted, "unit", text(place->unit), "pinned_bytes",
		number(process->pinned_bytes), "group", (int)view->accounting.share.group[index],
		"references", references(&view->scan, process));

	(void)json_object_update(object, rest);
	json_decref(rest);
}

static const char *owner_of(const struct account_line *line)
{
	return ps_owner_id(line ? line->owner : ACCOUNT_HOLDER);
}

static json_t *causes(const struct ps_view *view, const struct ps_row *row)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < view->verdicts.count; i++) {
		if (ps_is_about(view, row, &view->verdicts.list[i]))
			(void)json_array_append_new(array, cause_object(&view->verdicts.list[i]));
	}
	return array;
}

static json_t *row_object(const struct ps_view *view, const struct ps_row *row)
{
	const struct account_line *line =
		row->line == ACCOUNT_NONE ? NULL : &view->accounting.lines[row->line];
	int32_t pid = row->process == ACCOUNT_NONE ? line ? line->pid : -1
						   : view->scan.processes[row->process].pid;
	char state[OUT_CELL_MAX];
	const struct verdict *verdict = ps_verdict(view, row);
	json_t *object;

	ps_text_state(view, row, state);
	object = json_pack(
		"{s:i, s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:s, s:o, s:o}", "pid", pid, "owner",
		owner_of(line), "gpu",
		row->gpu == ACCOUNT_NONE ? json_null()
					 : json_integer(view->amounts.gpus[row->gpu].index),
		"bytes", number(row->bytes), "shared", row->shared, "creator_pid",
		line ? json_integer(line->pid) : json_null(), "uid", known(ps_uid(view, row)),
		"start_ticks", number(ps_start(view, row)), "state", state, "cause",
		text(verdict ? cause_name(verdict->cause) : NULL), "causes", causes(view, row));
	if (object && row->process != ACCOUNT_NONE)
		add_process(object, view, row->process);
	return object;
}

static json_t *row_array(const struct ps_view *view, const struct ps_rows *rows)
{
	json_t *array = json_array();

	for (size_t i = 0; i < rows->count; i++)
		(void)json_array_append_new(array, row_object(view, &rows->all[i]));
	return array;
}

/* ---- all ---- */

static json_t *unseen(const struct scan *scan)
{
	const struct scan_unseen *what = &scan->unseen;
	char words[512];

	scan_unseen_text(scan, words, sizeof(words));
	return json_pack("{s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b}", "text", text(words),
			 "denied", (int)what->denied, "late", (int)what->late, "failed",
			 (int)what->failed, "maps_denied", (int)what->maps_denied, "sockets_denied",
			 (int)what->sockets_denied, "in_flight_hidden", (int)what->in_flight_hidden,
			 "hidepid", what->hidepid > 1, "other_namespaces",
			 !scan->pid_namespace_initial);
}

static json_t *nvml(const struct amounts *amounts)
{
	return json_pack("{s:s, s:o, s:o}", "answer", answer_id(amounts->answer), "error",
			 text(amounts->error.msg), "driver", text(amounts->driver));
}

int ps_json(const struct ps_view *view, const struct ps_rows *rows, bool compact)
{
	const struct scan *scan = &view->scan;
	json_t *root = json_pack(
		"{s:i, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o}", "schema", 1, "emulated",
		scan->emulated, "boot_id", text(scan->boot_id), "ticks_per_second",
		number(scan->ticks_per_second), "now_ticks", number(scan->now_ticks), "nvml",
		nvml(&view->amounts), "gpus", gpus(view), "rows", row_array(view, rows),
		"groups_complete", !view->accounting.share.incomplete, "processes_looked_at",
		number(scan->processes_looked_at), "unseen", unseen(scan));
	int result = root && json_dumpf(root, stdout, compact ? JSON_COMPACT : JSON_INDENT(2)) == 0
			     ? 0
			     : -ENOMEM;

	(void)putchar('\n');
	json_decref(root);
	return result;
}

#else

bool ps_has_json(void)
{
	return false;
}

int ps_json(const struct ps_view *view, const struct ps_rows *rows, bool compact)
{
	(void)view;
	(void)rows;
	(void)compact;
	return -ENOSYS;
}

#endif
