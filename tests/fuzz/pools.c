/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: what `gpuward pools` reads from the page of a process that calls itself a ward.
 *
 * The input is a list of changes to a good page: part (1 byte), offset in it (2), how many bytes (1), the bytes.
 * Whatever they are, either something is said to be wrong, or all texts end and are printable, and all counts can
 * be used as such. Built with libFuzzer (-Dfuzz=true, clang) or with replay.c.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/pools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct pool_page page;

static void change(const uint8_t *data, size_t bytes)
{
	struct {
		void *start;
		size_t bytes;
	} const parts[] = {{&page, 64},
			   {&page.host, sizeof(page.host)},
			   {(void *)&page.report_number, sizeof(page.report_number)},
			   {&page.reports[0], sizeof(page.reports[0])},
			   {(void *)&page.states, offsetof(struct state_page, entries)}};

	while (bytes >= 4) {
		size_t part = data[0] % (sizeof(parts) / sizeof(parts[0]));
		size_t at = (size_t)(data[1] | data[2] << 8) % parts[part].bytes;
		size_t length = data[3];

		data += 4;
		bytes -= 4;
		length = length < bytes ? length : bytes;
		length = length < parts[part].bytes - at ? length : parts[part].bytes - at;
		memcpy((uint8_t *)parts[part].start + at, data, length);
		data += length;
		bytes -= length;
	}
}

static void check_text(const char *text, size_t bytes)
{
	const char *end = memchr(text, '\0', bytes);

	if (!end)
		abort();
	for (; text < end; text++) {
		if (*text < ' ' || *text > '~')
			abort();
	}
}

static void check_view(const struct pool_view *view)
{
	if (view->host.n_devices > GW_WORKERS_MAX || view->host.workers > GW_WORKERS_MAX)
		abort();
	check_text(view->host.state_name, sizeof(view->host.state_name));
	check_text(view->host.last_exit.text, sizeof(view->host.last_exit.text));
	for (size_t i = 0; i < pools_kept(view); i++) {
		const struct gw_recovery *recovery = pools_recovery(view, i);

		if (!recovery)
			continue;
		check_text(recovery->exit.text, sizeof(recovery->exit.text));
		if (pools_sign_to_ready(recovery) < pools_fence_to_ready(recovery) &&
		    pools_fence_to_ready(recovery) != GW_UNKNOWN)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static struct pool_view view;

	memset(&page, 0, offsetof(struct pool_page, states.entries));
	memset(&view, 0, sizeof(view));
	pool_page_init(&page);
	change(data, bytes);
	pools_read(&page, sizeof(page), &view);
	check_text(view.problem, sizeof(view.problem));
	if (view.problem[0] == '\0')
		check_view(&view);
	return 0;
}
