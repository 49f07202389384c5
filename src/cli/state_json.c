/* SPDX-License-Identifier: MIT */
/*
 * State that is kept, as JSON; the schema stands in gpuward-state(1). Runs in: command line. What is not known is
 * null, never 0.
 */
#include "cli/state.h"

#include <errno.h>
#include <stdio.h>

#include "common/state_wire.h"

#ifdef HAVE_JANSSON
#include <jansson.h>

bool state_has_json(void)
{
	return true;
}

static json_t *number(uint64_t value)
{
	return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *pid(int32_t value)
{
	return value < 0 ? json_null() : json_integer(value);
}

static json_t *piece_object(const struct keep_piece *piece)
{
	bool mutable = piece->kind == GW_STATE_MUTABLE;
	const char *status = piece->status == GW_STATE_COPYING ? "copying" : "ready";

	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "name",
			 piece->name, "kind", mutable ? "mutable" : "sealed", "status", status,
			 "device", piece->device, "address", number(piece->address), "bytes",
			 number(piece->bytes), "held_bytes",
			 number(STATE_HELD_BYTES(piece->kind, piece->copy_bytes)), "epoch",
			 mutable ? number(piece->epoch) : json_null(), "task",
			 mutable ? number(piece->task) : json_null(), "writer_pid",
			 pid(piece->owner_pid), "made_s", (json_int_t)piece->made_s);
}

static json_t *kept_object(const struct state_kept *kept)
{
	const struct keep_welcome *welcome = &kept->welcome;
	json_t *pieces;

	if (kept->problem.code < 0)
		return json_pack("{s:s, s:s}", "name", kept->name, "problem", kept->problem.msg);
	pieces = json_array();
	for (size_t i = 0; i < kept->n_pieces; i++)
		(void)json_array_append_new(pieces, piece_object(&kept->pieces[i]));
	return json_pack("{s:s, s:n, s:i, s:o, s:I, s:o, s:o, s:o, s:o}", "name", kept->name,
			 "problem", "keeper_pid", welcome->keeper_pid, "ward_pid",
			 pid(welcome->ward_pid), "since_s", (json_int_t)welcome->used_since_s,
			 "bytes", number(welcome->bytes), "unused_kept_ns", number(welcome->for_ns),
			 "left_ns", number(welcome->left_ns), "pieces", pieces);
}

int state_json(const struct state_list *list)
{
	json_t *array = json_array();
	json_t *root;
	int result;

	for (size_t i = 0; i < list->count; i++)
		(void)json_array_append_new(array, kept_object(&list->all[i]));
	root = json_pack("{s:i, s:o}", "schema", 1, "states", array);
	result = root && json_dumpf(root, stdout, JSON_INDENT(2)) == 0 ? 0 : -ENOMEM;
	(void)putchar('\n');
	json_decref(root);
	return result;
}

#else

bool state_has_json(void)
{
	return false;
}

int state_json(const struct state_list *list)
{
	(void)list;
	return -ENOSYS;
}

#endif
