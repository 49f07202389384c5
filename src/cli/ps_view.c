/* SPDX-License-Identifier: MIT */
/*
 * One look: the scan first, so that the probe is not among the holders, then NVML in what is left of the time. What
 * the kernel tells is complete before NVML is asked, so a driver that hangs takes nothing away.
 *
 * Read next: ps.h.
 */
#include "cli/ps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fd.h"

/* For comparing open files there is at least so much time, also when NVML has taken all of it. */
#define COMPARE_NS UINT64_C(300000000)

int ps_view_take(struct accounting_probe *probe, uint64_t deadline_ns, struct ps_view *ret_view,
		 struct gw_error *ret_error)
{
	struct scan_options options = {.deadline_ns = deadline_ns / 5 * 4};
	struct ps_view view = {0};
	uint64_t until_ns = after_ns(deadline_ns);
	uint64_t compare_ns;
	uint64_t now;
	int code = scan_run(&options, &view.scan, ret_error);

	if (code < 0)
		return code;
	now = now_ns();
	code = accounting_ask(probe, &view.scan, now < until_ns ? until_ns - now : 1, &view.amounts,
			      ret_error);
	compare_ns = after_ns(COMPARE_NS);
	if (code == 0)
		code = accounting_join(&view.scan, &view.amounts,
				       compare_ns > until_ns ? compare_ns : until_ns,
				       &view.accounting, ret_error);
	if (code == 0)
		code = ps_find_causes(&view, ret_error);
	if (code < 0)
		ps_view_done(&view);
	else
		*ret_view = view;
	return code;
}

void ps_view_done(struct ps_view *view)
{
	causes_free(&view->verdicts);
	accounting_free(&view->accounting);
	accounting_amounts_free(&view->amounts);
	scan_free(&view->scan);
}

/* Decimal digits and nothing else; -1. */
static int32_t parse_index(const char *text)
{
	char *end;
	unsigned long number;

	if (text[0] < '0' || text[0] > '9')
		return -1;
	number = strtoul(text, &end, 10);
	return *end || number > 4095 ? -1 : (int32_t)number;
}

bool ps_find_gpu(const struct ps_view *view, const char *name, struct ps_gpu *ret_gpu)
{
	const struct amounts *amounts = &view->amounts;
	bool is_file = strncmp(name, "nvidia", strlen("nvidia")) == 0;
	int32_t number = parse_index(name + (is_file ? strlen("nvidia") : 0));

	for (uint32_t i = 0; i < amounts->gpu_count; i++) {
		const struct amounts_gpu *gpu = &amounts->gpus[i];
		bool fits = number < 0 ? strcmp(name, gpu->uuid) == 0
			    : is_file  ? gpu->minor == number
				       : gpu->index == (uint32_t)number;

		if (fits) {
			*ret_gpu = (struct ps_gpu){i, gpu->minor};
			return true;
		}
	}
	/* Where NVML did not tell, nobody can say that there is no such GPU. */
	if (number < 0 || amounts->answer == AMOUNTS_ANSWERED)
		return false;
	*ret_gpu = (struct ps_gpu){ACCOUNT_NONE, number};
	return true;
}

bool ps_holds_gpu(const struct ps_view *view, uint32_t process, const struct ps_gpu *gpu,
		  bool *ret_any)
{
	const struct scan_process *holder = &view->scan.processes[process];
	bool found = false;

	*ret_any = false;
	for (uint32_t i = 0; i < holder->reference_count; i++) {
		int32_t minor = view->scan.references[holder->first_reference + i].device.gpu_minor;

		*ret_any |= minor >= 0;
		found |= minor >= 0 && minor == gpu->minor;
	}
	return found;
}
