/* SPDX-License-Identifier: MIT */
#include "ward/signs.h"

#include <errno.h>
#include <string.h>

#include "common/fd.h"
#include "gpu/xid.h"
#include "gpu/xid_result.h"
#include "linux/namespaces.h"
#include "ward/attribution.h"
#include "ward/leaving.h"
#include "ward/recovery.h"
#include "ward/ward.h"

/* All processes of the pool on one device, and those that lately were. */
#define CANDIDATES_MAX (2 * GW_WORKERS_MAX + SIGNS_ENDED_MAX + GW_WORKERS_MAX)

struct candidates {
	struct attribution_process list[CANDIDATES_MAX];
	size_t count;
};

static struct process *find_in(struct slot *slots, uint32_t count, int32_t pid)
{
	for (uint32_t i = 0; i < count; i++) {
		struct process *process = slots[i].process;

		if (process && process->spawned.process.pid == pid)
			return process;
	}
	return NULL;
}

static struct process *find(const struct ward *ward, int32_t pid)
{
	struct process *process = find_in(ward->slots, ward->n_slots, pid);

	if (!process)
		process = find_in(ward->standbys, ward->n_standbys, pid);
	return process ? process : leaving_find(ward, pid);
}

/* A pid that is nobody's here was another pool's, or a foreign program's. */
static void blame(struct ward *ward, int32_t pid, const struct cause *cause)
{
	struct process *process = find(ward, pid);

	if (!process)
		return;
	if (!process->is_leaving) {
		slot_happens(process->slot, EVENT_FAULT, cause);
		return;
	}
	process_note(process, cause->source, NULL);
	recovery_spoke(process, cause->xid);
}

static void on_kernel_log(struct kernel_log *log, const struct kernel_log_xid *xid)
{
	struct ward *ward = log->owner;
	const struct cause cause = {.end = GW_END_CUDA,
				    .source = GW_SOURCE_KERNEL_LOG,
				    .cuda = xid->cuda,
				    .xid = xid->xid};

	if (xid->pid > 0 && xid->ends_process)
		blame(ward, xid->pid, &cause);
	if (ward->report.kernel_log_lost != kernel_log_lost(log)) {
		ward->report.kernel_log_lost = kernel_log_lost(log);
		recovery_publish(ward);
	}
}

static void set_error(struct ward *ward, enum gw_source source, int code)
{
	ward->report.source_error[source] = code;
	recovery_publish(ward);
}

/* ---- NVML ---- */

static bool is_on(const char *pci, const struct xid_pci *wanted)
{
	struct xid_pci own;

	return xid_pci_parse(pci, strlen(pci), &own) > 0 && xid_pci_equal(&own, wanted);
}

static uint64_t work_from(const struct process *process)
{
	if (process->promoted_ns > 0)
		return process->promoted_ns;
	/* A hot standby does nothing; what it did in `prepare` is over. */
	if (process->standby && process->ready_ns > 0)
		return GW_FOREVER;
	return process->spawned.process.started_ns;
}

static void add(struct candidates *candidates, const struct process *process,
		const struct xid_pci *device)
{
	if (process && is_on(process->pci, device) && candidates->count < CANDIDATES_MAX)
		candidates->list[candidates->count++] =
			(struct attribution_process){.pid = process->spawned.process.pid,
						     .work_from_ns = work_from(process),
						     .gone_ns = GW_FOREVER};
}

static void collect(const struct ward *ward, const struct xid_pci *device,
		    struct candidates *ret_candidates)
{
	ret_candidates->count = 0;
	for (uint32_t i = 0; i < ward->n_slots; i++)
		add(ret_candidates, ward->slots[i].process, device);
	for (uint32_t i = 0; i < ward->n_standbys; i++)
		add(ret_candidates, ward->standbys[i].process, device);
	for (const struct process *process = ward->leaving; process; process = process->next)
		add(ret_candidates, process, device);
	for (uint32_t i = 0; i < SIGNS_ENDED_MAX; i++) {
		const struct signs_ended *ended = &ward->signs.ended[i];

		if (ended->pid > 0 && is_on(ended->pci, device) &&
		    ret_candidates->count < CANDIDATES_MAX)
			ret_candidates->list[ret_candidates->count++] =
				(struct attribution_process){.pid = ended->pid,
							     .work_from_ns = ended->work_from_ns,
							     .gone_ns = ended->gone_ns};
	}
}

static void on_gpu_event(struct gpu_events *events, const struct gpu_event *event)
{
	struct ward *ward = events->owner;
	const struct attribution_view view = {.processes = event->processes,
					      .memory = event->memory,
					      .sees_all = ward->signs.sees_all};
	const struct cause cause = {.end = GW_END_CUDA,
				    .source = GW_SOURCE_NVML,
				    .cuda = xid_result((uint32_t)event->xid, ""),
				    .xid = event->xid};
	struct candidates candidates;
	struct xid_pci device;
	int found;

	if (!event->ends_process || xid_pci_parse(event->pci, strlen(event->pci), &device) == 0)
		return;
	collect(ward, &device, &candidates);
	found = attribution_find(candidates.list, candidates.count, &view, event->at_ns);
	if (found >= 0)
		blame(ward, candidates.list[found].pid, &cause);
}

static void on_gpu_events_changed(struct gpu_events *events, const struct gw_error *error)
{
	set_error(events->owner, GW_SOURCE_NVML, error->code);
}

static void watch_nvml(struct ward *ward)
{
	struct signs *signs = &ward->signs;
	struct gw_error error = {0};
	int result;

	signs->sees_all = namespaces_pid_is_initial();
	signs->gpu_events.event = on_gpu_event;
	signs->gpu_events.changed = on_gpu_events_changed;
	signs->gpu_events.owner = ward;
	signs->gpu_events.needs_memory = !signs->sees_all;
	result = gpu_events_open(&signs->gpu_events, &ward->loop, &error);
	signs->watches_nvml = result == 0;
	if (result < 0)
		set_error(ward, GW_SOURCE_NVML, result);
}

/* ---- the whole ---- */

static void use_next_source(struct ward *ward)
{
	if (!(ward->open.detect & GW_DETECT_NVML))
		set_error(ward, GW_SOURCE_NVML, GW_ENOTUSED);
	else if (!ward->signs.watches_nvml && !ward->closing)
		watch_nvml(ward);
}

static void on_kernel_log_failed(struct kernel_log *log, const struct gw_error *error)
{
	struct ward *ward = log->owner;

	set_error(ward, GW_SOURCE_KERNEL_LOG, error->code);
	use_next_source(ward);
}

/* Returns whether the log tells which process faulted. */
static bool watch_kernel_log(struct ward *ward)
{
	struct kernel_log *log = &ward->signs.kernel_log;
	struct gw_error error = {0};
	int result = GW_ENOTUSED;

	log->xid = on_kernel_log;
	log->failed = on_kernel_log_failed;
	log->owner = ward;
	if (ward->open.detect & GW_DETECT_KERNEL_LOG)
		result = kernel_log_open(log, &ward->loop, &error);
	if (result == 0 && !kernel_log_pids_match(log)) {
		kernel_log_close(log);
		result = -EXDEV;
	}
	set_error(ward, GW_SOURCE_KERNEL_LOG, result);
	return result == 0;
}

void signs_begin(struct ward *ward)
{
	int error_log = ward->open.detect & GW_DETECT_ERROR_LOG ? 0 : GW_ENOTUSED;

	set_error(ward, GW_SOURCE_ERROR_LOG, ward->open.n_devices > 0 ? error_log : GW_ENOTUSED);
	if (ward->open.n_devices == 0) {
		set_error(ward, GW_SOURCE_KERNEL_LOG, GW_ENOTUSED);
		set_error(ward, GW_SOURCE_NVML, GW_ENOTUSED);
	} else if (watch_kernel_log(ward)) {
		set_error(ward, GW_SOURCE_NVML, GW_ENOTUSED);
	} else {
		use_next_source(ward);
	}
}

void signs_gone(const struct process *process)
{
	struct signs *signs = &process->ward->signs;
	struct signs_ended *ended = &signs->ended[signs->n_ended++ % SIGNS_ENDED_MAX];

	*ended = (struct signs_ended){.pid = process->spawned.process.pid,
				      .work_from_ns = work_from(process),
				      .gone_ns = now_ns()};
	memcpy(ended->pci, process->pci, sizeof(ended->pci));
}

void signs_error_log(struct ward *ward, int32_t code)
{
	if (code != 0 && ward->report.source_error[GW_SOURCE_ERROR_LOG] == 0)
		set_error(ward, GW_SOURCE_ERROR_LOG, code < 0 ? code : GW_EPROTOCOL);
}

void signs_stop(struct ward *ward)
{
	if (ward->signs.watches_nvml)
		gpu_events_stop(&ward->signs.gpu_events);
	kernel_log_close(&ward->signs.kernel_log);
}

void signs_done(struct ward *ward)
{
	if (ward->signs.watches_nvml)
		gpu_events_close(&ward->signs.gpu_events);
	kernel_log_close(&ward->signs.kernel_log);
}
