/* SPDX-License-Identifier: MIT */
/*
 * The drill's results as JSON; the schema stands in gpuward-drill(1). Runs in: command line. What is not
 * known is null, never 0.
 */
#include "cli/drill.h"

#include <errno.h>
#include <stdio.h>

#include "cli/source.h"
#include "gpu/nodes.h"

#ifdef HAVE_JANSSON
#include <jansson.h>

bool drill_has_json(void)
{
	return true;
}

static json_t *number(uint64_t value)
{
	return value == GW_UNKNOWN ? json_null() : json_integer((json_int_t)value);
}

static json_t *text(const char *value)
{
	return value[0] ? json_string(value) : json_null();
}

/* A CUresult, or null where none is known. */
static json_t *result_of(int32_t value)
{
	return value < 0 ? json_null() : json_integer(value);
}

/* Words of the schema; those of the tables are for people and may change. */
static const char *const way_ids[DRILL_WAYS] = {
	[WAY_SIGKILL] = "sigkill", [WAY_SIGTERM] = "sigterm",	[WAY_EXIT] = "exit",
	[WAY_FAULT] = "fault",	   [WAY_EXPORTED] = "exported", [WAY_FORKED] = "forked",
};

static json_t *row_object(const struct drill *drill, enum drill_level level, bool state,
			  const struct drill_row *row)
{
	static const char *const standbys[] = {[GW_STANDBY_COLD] = "cold",
					       [GW_STANDBY_PRIMED] = "primed",
					       [GW_STANDBY_HOT] = "hot"};
	json_t *standby = level == LEVEL_BY_HAND || row->standby > GW_STANDBY_HOT
				  ? json_null()
				  : json_string(standbys[row->standby]);

	return json_pack(
		"{s:s, s:o, s:o, s:b, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "level",
		drill_level_id(level), "standby", standby, "state_bytes",
		number(state ? drill->options.state_bytes : 0), "ok", row->ok, "cuda",
		result_of(row->cuda), "noticed_by", source_id(row->source), "noticed_ns",
		number(row->after_ns[MARK_SIGN]), "fenced_ns", number(row->after_ns[MARK_FENCED]),
		"ready_ns", number(row->after_ns[MARK_READY]), "next_good_ns",
		number(row->after_ns[MARK_GOOD]), "gone_ns", number(row->after_ns[MARK_GONE]),
		"bystander_stall_ns", number(row->stall_ns), "state_checked_ns",
		number(row->after_ns[MARK_CHECKED]), "state_intact",
		state ? json_boolean(row->intact) : json_null());
}

static json_t *rows_array(const struct drill *drill, const struct drill_crash *crash, bool *ret_ok)
{
	json_t *array = json_array();

	*ret_ok = true;
	for (int level = 0; level < DRILL_LEVELS; level++) {
		for (int state = 0; state < 2; state++) {
			const struct drill_row *row = &crash->rows[level][state];

			if (!row->ran)
				continue;
			*ret_ok = *ret_ok && row->ok;
			(void)json_array_append_new(
				array, row_object(drill, (enum drill_level)level, state, row));
		}
	}
	return array;
}

/* What a row knows, or null where there is none. */
static json_t *mark(const struct drill_row *row, enum drill_mark mark_of_row)
{
	return row->ran ? number(row->after_ns[mark_of_row]) : json_null();
}

/* Members from before there were levels tell of a pool without standbys. */
static json_t *crash_object(const struct drill *drill, const struct drill_crash *crash)
{
	const struct drill_kind *kind = &drill_kinds[crash->kind];
	const struct drill_row *cold = &crash->rows[LEVEL_COLD][0];
	bool ok;
	json_t *rows = rows_array(drill, crash, &ok);

	return json_pack("{s:s, s:s, s:b, s:i, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "kind", kind->name, "text", kind->text, "ok", ok, "expected_cuda",
			 kind->cuda, "cuda", result_of(cold->ran ? cold->cuda : -1), "noticed_by",
			 source_id(cold->source), "noticed_ns", mark(cold, MARK_SIGN), "gone_ns",
			 mark(cold, MARK_GONE), "memory_back_ns", mark(cold, MARK_BACK),
			 "next_good_ns", mark(cold, MARK_GOOD), "by_hand_ns",
			 mark(&crash->rows[LEVEL_BY_HAND][0], MARK_GOOD), "reset_result",
			 result_of(crash->reset_result), "after_reset_result",
			 result_of(crash->reset_next), "levels", rows);
}

static json_t *release_object(const struct drill_release *release)
{
	json_t *pid = release->listed_pid > 0 ? json_integer(release->listed_pid) : json_null();

	return json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o}", "ended_by", way_ids[release->way],
			 "ok", release->ok, "bytes", number(release->bytes), "gone_ns",
			 number(release->gone_ns), "memory_back_ns", number(release->back_ns),
			 "kept_bytes", number(release->held_bytes), "nvml_pid", pid);
}

static json_t *crash_array(const struct drill *drill)
{
	json_t *array = json_array();

	for (size_t i = 0; i < drill->n_crash; i++)
		(void)json_array_append_new(array, crash_object(drill, &drill->crash[i]));
	return array;
}

static json_t *release_array(const struct drill *drill)
{
	json_t *array = json_array();

	for (size_t i = 0; i < drill->n_release; i++)
		(void)json_array_append_new(array, release_object(&drill->release[i]));
	return array;
}

static json_t *notes_array(const struct drill *drill)
{
	json_t *array = json_array();

	for (size_t i = 0; i < drill->n_notes; i++)
		(void)json_array_append_new(array, json_string(drill->notes[i]));
	return array;
}

int drill_json(const struct drill *drill)
{
	json_t *gpu = json_pack("{s:i, s:o, s:o, s:o}", "device", drill->options.device, "name",
				text(drill->device.name), "uuid", text(drill->device.uuid),
				"driver", text(drill->driver.driver));
	json_t *root =
		json_pack("{s:i, s:b, s:o, s:i, s:o, s:o, s:o, s:o, s:o}", "schema", 1, "emulated",
			  nodes_emulated(), "gpu", gpu, "repeat", (int)drill->options.repeat,
			  "crash", crash_array(drill), "release", release_array(drill),
			  "used_before_bytes", number(drill->used_before_bytes), "used_after_bytes",
			  number(drill->used_after_bytes), "notes", notes_array(drill));
	int result = root && json_dumpf(root, stdout, JSON_INDENT(2)) == 0 ? 0 : -ENOMEM;

	(void)putchar('\n');
	json_decref(root);
	return result;
}

#else

bool drill_has_json(void)
{
	return false;
}

int drill_json(const struct drill *drill)
{
	(void)drill;
	return -ENOSYS;
}

#endif
