/* SPDX-License-Identifier: MIT */
/*
 * Pools as JSON; the schema stands in gpuward-pools(1). Runs in: command line. What is not known is null, never 0.
 */
#include "cli/pools.h"

#include <errno.h>
#include <stdio.h>

#include "cli/source.h"

#ifdef HAVE_JANSSON
#include <jansson.h>

bool pools_has_json(void)
{
	return true;
}

static json_t *number(uint64_t value)
{
	return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *text(const char *value)
{
	return value[0] ? json_string(value) : json_null();
}

static json_t *known(int32_t value)
{
	return value < 0 ? json_null() : json_integer(value);
}

static json_t *devices(const struct pool_page_host *host)
{
	json_t *array = json_array();

	for (uint32_t i = 0; i < host->n_devices; i++)
		(void)json_array_append_new(array, json_integer(host->devices[i]));
	return array;
}

static json_t *exit_object(const struct gw_exit *exit)
{
	static const char *const ends[] = {"unknown",  "result", "exit",    "signal",  "cuda",
					   "deadline", "start",	 "stopped", "protocol"};
	const char *end = exit->end < sizeof(ends) / sizeof(ends[0]) ? ends[exit->end] : ends[0];

	return json_pack("{s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o}", "end", end,
			 "noticed_by", source_id(exit->source), "value", exit->value, "cuda",
			 known(exit->cuda), "xid", known(exit->xid), "pid", known(exit->pid),
			 "device", known(exit->device), "slot", (int)exit->slot, "started_ns",
			 number(exit->started_ns), "noticed_ns", number(exit->noticed_ns),
			 "gone_ns", number(exit->gone_ns), "text", text(exit->text));
}

static json_t *spoke(const struct gw_recovery *recovery)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < GW_SOURCES; i++) {
		if (recovery->spoke_ns[i] != GW_UNKNOWN)
			(void)json_object_set_new(object, source_id(i),
						  number(recovery->spoke_ns[i]));
	}
	return object;
}

static json_t *recovery_object(const struct gw_recovery *recovery)
{
	static const char *const levels[] = {"cold", "primed", "hot"};
	const char *level =
		recovery->standby <= GW_STANDBY_HOT ? levels[recovery->standby] : "cold";

	return json_pack("{s:o, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "number",
			 number(recovery->number), "complete", recovery->complete == 1, "standby",
			 level, "new_pid", known(recovery->new_pid), "fenced_ns",
			 number(recovery->fenced_ns), "ready_ns", number(recovery->ready_ns),
			 "sign_to_ready_ns", number(pools_sign_to_ready(recovery)),
			 "fence_to_ready_ns", number(pools_fence_to_ready(recovery)), "spoke_ns",
			 spoke(recovery), "exit", exit_object(&recovery->exit));
}

/* The oldest first. */
static json_t *recoveries(const struct pool_view *view)
{
	json_t *array = json_array();

	for (size_t i = pools_kept(view); i > 0; i--) {
		const struct gw_recovery *recovery = pools_recovery(view, i - 1);

		if (recovery)
			(void)json_array_append_new(array, recovery_object(recovery));
	}
	return array;
}

static json_t *noticed_by(const struct pool_view *view)
{
	json_t *object = json_object();

	for (uint32_t i = 0; i < GW_SOURCES; i++)
		(void)json_object_set_new(object, source_id(i), number(view->report.noticed_by[i]));
	return object;
}

static json_t *sources(const struct pool_view *view)
{
	static const uint32_t listened[] = {GW_SOURCE_KERNEL_LOG, GW_SOURCE_NVML,
					    GW_SOURCE_ERROR_LOG};
	json_t *object = json_object();

	for (size_t i = 0; i < sizeof(listened) / sizeof(listened[0]); i++) {
		int32_t code = view->report.source_error[listened[i]];
		char words[SOURCE_TEXT_MAX];

		source_error(listened[i], code, words);
		(void)json_object_set_new(object, source_id(listened[i]),
					  json_pack("{s:i, s:s}", "code", code, "text", words));
	}
	return object;
}

static json_t *standbys(const struct pool_view *view)
{
	const struct pool_page_standbys *now = &view->report.standbys;

	return json_pack("{s:i, s:i, s:i, s:i, s:i}", "hot", (int)now->hot, "primed",
			 (int)now->primed, "starting", (int)now->starting, "failed",
			 (int)now->failed, "no_room", (int)now->no_room);
}

static json_t *workers(const struct pool_view *view)
{
	const struct pool_page_workers *now = &view->report.workers;

	return json_pack("{s:i, s:i, s:i, s:i}", "wanted", (int)view->host.workers, "ready",
			 (int)now->ready, "starting", (int)now->starting, "failed",
			 (int)now->failed);
}

static json_t *tasks(const struct pool_page_host *host)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "pending", number(host->tasks_pending),
			 "done", number(host->tasks_done), "attempts_failed",
			 number(host->attempts_failed), "poisoned", number(host->tasks_poisoned),
			 "input_bytes", number(host->input_bytes), "output_bytes",
			 number(host->output_bytes));
}

static void add_numbers(json_t *object, const struct pool_view *view)
{
	const struct pool_page_host *host = &view->host;
	json_t *last =
		host->last_exit.end == GW_END_UNKNOWN ? json_null() : exit_object(&host->last_exit);
	json_t *rest = json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "devices",
		devices(host), "opened_ns", number(host->opened_ns), "workers", workers(view),
		"standbys", standbys(view), "recoveries", number(view->report.n_recoveries),
		"noticed_by", noticed_by(view), "sources", sources(view), "kernel_log_lost",
		number(view->report.kernel_log_lost), "last_recoveries", recoveries(view), "tasks",
		tasks(host), "state_name", text(host->state_name), "state",
		json_pack("{s:i, s:o, s:b}", "pieces", (int)view->state_pieces, "bytes",
			  number(view->state_bytes), "kept", view->state_kept == STATE_PAGE_KEPT),
		"last_exit", last);

	(void)json_object_update(object, rest);
	json_decref(rest);
}

static json_t *pool_object(const struct pool_view *view)
{
	json_t *object = json_pack("{s:i, s:i, s:b, s:o, s:o, s:o}", "ward_pid", view->ward_pid,
				   "uid", (int)view->uid, "stopped", view->stopped, "host_pid",
				   known(view->host_pid), "program", text(view->program), "problem",
				   text(view->problem));

	if (object && view->problem[0] == '\0')
		add_numbers(object, view);
	return object;
}

int pools_json(const struct pools *pools, bool compact)
{
	json_t *array = json_array();
	json_t *root;
	int result;

	for (size_t i = 0; i < pools->count; i++)
		(void)json_array_append_new(array, pool_object(&pools->all[i]));
	root = json_pack("{s:i, s:o, s:i}", "schema", 1, "pools", array, "unreadable",
			 (int)pools->unreadable);
	result = root && json_dumpf(root, stdout, compact ? JSON_COMPACT : JSON_INDENT(2)) == 0
			 ? 0
			 : -ENOMEM;
	(void)putchar('\n');
	json_decref(root);
	return result;
}

#else

bool pools_has_json(void)
{
	return false;
}

int pools_json(const struct pools *pools, bool compact)
{
	(void)pools;
	(void)compact;
	return -ENOSYS;
}

#endif
