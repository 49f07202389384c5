/* SPDX-License-Identifier: MIT */
/*
 * The drill's results as JSON; the schema stands in gpuward-drill(1). Runs in: command line. What is not
 * known is null, never 0.
 */
#include "cli/drill.h"

#include <errno.h>
#include <stdio.h>

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
static const char *const source_ids[] = {
	[GW_SOURCE_UNKNOWN] = "unknown", [GW_SOURCE_RESULT] = "result",
	[GW_SOURCE_DEATH] = "death",	 [GW_SOURCE_DEADLINE] = "deadline",
	[GW_SOURCE_REQUEST] = "request", [GW_SOURCE_KERNEL_LOG] = "kernel_log",
	[GW_SOURCE_NVML] = "nvml_event", [GW_SOURCE_PROTOCOL] = "protocol",
};

static const char *const way_ids[DRILL_WAYS] = {
	[WAY_SIGKILL] = "sigkill", [WAY_SIGTERM] = "sigterm",	[WAY_EXIT] = "exit",
	[WAY_FAULT] = "fault",	   [WAY_EXPORTED] = "exported", [WAY_FORKED] = "forked",
};

static const char *source_id(uint32_t source)
{
	return source < sizeof(source_ids) / sizeof(source_ids[0]) ? source_ids[source]
								   : source_ids[0];
}

static json_t *crash_object(const struct drill_crash *crash)
{
	const struct drill_kind *kind = &drill_kinds[crash->kind];

	return json_pack(
		"{s:s, s:s, s:b, s:i, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:i, s:i}", "kind",
		kind->name, "text", kind->text, "ok", crash->ok, "expected_cuda", kind->cuda,
		"cuda", result_of(crash->cuda), "noticed_by", source_id(crash->source),
		"noticed_ns", number(crash->after_ns[MARK_NOTICED]), "gone_ns",
		number(crash->after_ns[MARK_GONE]), "memory_back_ns",
		number(crash->after_ns[MARK_BACK]), "next_good_ns",
		number(crash->after_ns[MARK_GOOD]), "by_hand_ns", number(crash->cold_ns),
		"reset_result", crash->reset_result, "after_reset_result", crash->reset_next);
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
		(void)json_array_append_new(array, crash_object(&drill->crash[i]));
	return array;
}

static json_t *release_array(const struct drill *drill)
{
	json_t *array = json_array();

	for (size_t i = 0; i < drill->n_release; i++)
		(void)json_array_append_new(array, release_object(&drill->release[i]));
	return array;
}

int drill_json(const struct drill *drill)
{
	json_t *gpu = json_pack("{s:i, s:o, s:o, s:o}", "device", drill->options.device, "name",
				text(drill->device.name), "uuid", text(drill->device.uuid),
				"driver", text(drill->driver.driver));
	json_t *root =
		json_pack("{s:i, s:b, s:o, s:i, s:o, s:o, s:o, s:o}", "schema", 1, "emulated",
			  nodes_emulated(), "gpu", gpu, "repeat", (int)drill->options.repeat,
			  "crash", crash_array(drill), "release", release_array(drill),
			  "used_before_bytes", number(drill->used_before_bytes), "used_after_bytes",
			  number(drill->used_after_bytes));
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
