/* SPDX-License-Identifier: MIT */
/*
 * What the page of a pool says. Everything in it was written by other processes, which may be writing now, or
 * have been stopped or killed in the middle: each part is copied first, then checked, and what does not hold
 * still after some tries is said and not shown.
 */
#include "cli/pools.h"

#include <stdio.h>
#include <string.h>

#include "cli/clean.h"
#include "common/fd.h"

/* A writer is done in well under a microsecond, unless it was stopped or killed at it. */
#define TRIES 1000

static bool refuse(struct pool_view *view, const char *what)
{
	(void)snprintf(view->problem, sizeof(view->problem), "%s", what);
	return false;
}

static bool check_layout(const struct pool_page *page, uint64_t bytes, struct pool_view *view)
{
	char version[POOL_PAGE_VERSION_MAX + 1];

	if (bytes < offsetof(struct pool_page, ward_events) || page->magic != POOL_PAGE_MAGIC)
		return refuse(view, "what it shares with its host is no page of a pool");
	if (pool_page_is_known(page) && bytes >= sizeof(*page))
		return true;
	clean_text(version, sizeof(version), page->version, sizeof(page->version));
	(void)snprintf(
		view->problem, sizeof(view->problem),
		"its page is of another layout (it is gpuward %s, layout %u; this is %s, %u): "
		"use the gpuward of the same build",
		version, page->layout, GW_VERSION_TEXT, POOL_PAGE_LAYOUT);
	return false;
}

static void clean_exit(struct gw_exit *exit)
{
	char text[sizeof(exit->text)];

	clean_text(text, sizeof(text), exit->text, sizeof(exit->text));
	memcpy(exit->text, text, sizeof(text));
}

static bool read_report(const struct pool_page *page, struct pool_view *view)
{
	for (int i = 0; !pool_page_try_report(page, &view->report); i++) {
		if (i == TRIES)
			return refuse(view, "its report does not hold still: try again");
		cpu_pause();
	}
	for (size_t i = 0; i < GW_RECOVERIES_KEPT; i++)
		clean_exit(&view->report.recoveries[i].exit);
	return true;
}

static void copy_counters(const struct pool_page_host *from, struct pool_page_host *to)
{
	to->tasks_pending = atomic_load_explicit(&from->tasks_pending, memory_order_relaxed);
	to->tasks_done = atomic_load_explicit(&from->tasks_done, memory_order_relaxed);
	to->input_bytes = atomic_load_explicit(&from->input_bytes, memory_order_relaxed);
	to->output_bytes = atomic_load_explicit(&from->output_bytes, memory_order_relaxed);
	to->attempts_failed = atomic_load_explicit(&from->attempts_failed, memory_order_relaxed);
	to->tasks_poisoned = atomic_load_explicit(&from->tasks_poisoned, memory_order_relaxed);
}

static bool read_exit(const struct pool_page *page, struct pool_view *view)
{
	for (int i = 0; !pool_page_get_exit(page, &view->host.last_exit); i++) {
		if (i == TRIES) {
			/* The host died in the middle of it: the rest is as good as ever. */
			view->host.last_exit = (struct gw_exit){.end = GW_END_UNKNOWN};
			break;
		}
		cpu_pause();
	}
	clean_exit(&view->host.last_exit);
	return true;
}

static bool read_host(const struct pool_page *page, struct pool_view *view)
{
	struct pool_page_host *host = &view->host;

	memcpy(host->devices, page->host.devices, sizeof(host->devices));
	clean_text(host->state_name, sizeof(host->state_name), page->host.state_name,
		   sizeof(page->host.state_name));
	host->pid = page->host.pid;
	host->workers = page->host.workers;
	host->standbys = page->host.standbys;
	host->standby = page->host.standby;
	host->n_devices = page->host.n_devices;
	host->opened_ns = page->host.opened_ns;
	if (host->workers > GW_WORKERS_MAX || host->standbys > GW_WORKERS_MAX ||
	    host->n_devices > GW_WORKERS_MAX || host->standby > GW_STANDBY_HOT)
		return refuse(view, "its page breaks the rules: counts are out of range");
	copy_counters(&page->host, host);
	return read_exit(page, view);
}

void pools_read(const struct pool_page *page, uint64_t bytes, struct pool_view *view)
{
	if (!check_layout(page, bytes, view) || !read_host(page, view) || !read_report(page, view))
		return;
	view->state_pieces = atomic_load(&page->states.pieces);
	view->state_bytes = atomic_load(&page->states.bytes);
	view->state_kept = atomic_load(&page->states.kept);
}

static uint64_t between(uint64_t from, uint64_t to)
{
	return from == GW_UNKNOWN || to == GW_UNKNOWN || to < from ? GW_UNKNOWN : to - from;
}

uint64_t pools_fence_to_ready(const struct gw_recovery *recovery)
{
	return between(recovery->fenced_ns, recovery->ready_ns);
}

uint64_t pools_sign_to_ready(const struct gw_recovery *recovery)
{
	uint64_t first = recovery->fenced_ns;

	for (size_t i = 0; i < GW_SOURCES; i++)
		first = recovery->spoke_ns[i] < first ? recovery->spoke_ns[i] : first;
	return between(first, recovery->ready_ns);
}

size_t pools_kept(const struct pool_view *view)
{
	uint64_t count = view->report.n_recoveries;

	return count < GW_RECOVERIES_KEPT ? (size_t)count : GW_RECOVERIES_KEPT;
}

const struct gw_recovery *pools_recovery(const struct pool_view *view, size_t i)
{
	uint64_t number = view->report.n_recoveries - 1 - i;
	const struct gw_recovery *kept = &view->report.recoveries[number % GW_RECOVERIES_KEPT];

	return kept->number == number ? kept : NULL;
}
