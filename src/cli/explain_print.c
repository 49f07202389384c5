/* SPDX-License-Identifier: MIT */
/* Verdicts for people: first what is not normal, then what is. Read next: explain.h. */
#include <stdio.h>
#include <string.h>

#include "cli/bytes.h"
#include "cli/explain.h"
#include "holders/text.h"

static bool is_normal(const struct verdict *verdict)
{
	return verdict->policy == CAUSE_LEAVE && verdict->certainty != CAUSE_ONE_OF &&
	       verdict->cause != CAUSE_RECYCLED && verdict->cause != CAUSE_ZOMBIE;
}

static bool is_asked_for(const struct explain *explain, const struct verdict *verdict)
{
	const struct scan_process *process = scan_find(&explain->scan, explain->pid);

	if (explain->pid)
		return verdict->pid == explain->pid || verdict->creator == explain->pid ||
		       (process &&
			verdict_is_about(verdict, (uint32_t)(process - explain->scan.processes)));
	return explain->gpu == CAUSE_NOBODY || verdict->gpu == CAUSE_NOBODY ||
	       verdict->gpu == explain->gpu;
}

static void print_who(const struct explain *explain, const struct verdict *verdict)
{
	char name[64];

	if (verdict->process != CAUSE_NOBODY) {
		const struct scan_process *process = &explain->scan.processes[verdict->process];

		(void)text_printable(name, sizeof(name), process->comm,
				     strnlen(process->comm, sizeof(process->comm)));
		(void)printf("%d %s", process->pid, name);
		if (verdict->member_count > 1)
			(void)printf(" and %u more", verdict->member_count - 1);
		if (verdict->tid)
			(void)printf(", thread %d", verdict->tid);
	} else if (verdict->pid) {
		(void)printf("NVML's pid %d", verdict->pid);
	} else if (verdict->gpu != CAUSE_NOBODY) {
		(void)printf("GPU %u", explain->amounts.gpus[verdict->gpu].index);
	} else {
		(void)printf("this system");
	}
}

static void print_title(const struct explain *explain, const struct verdict *verdict)
{
	char bytes[BYTES_TEXT_MAX];

	print_who(explain, verdict);
	(void)printf(": %s (%s %s, %s", cause_title(verdict->cause), cause_id(verdict->cause),
		     cause_name(verdict->cause), cause_certainty_name(verdict->certainty));
	if (verdict->other != CAUSE_NONE)
		(void)printf(" two, the other is %s %s", cause_id(verdict->other),
			     cause_name(verdict->other));
	(void)printf(")");
	if (verdict->bytes != GW_UNKNOWN) {
		bytes_format(verdict->bytes, bytes);
		(void)printf(", %s", bytes);
	}
	(void)putchar('\n');
}

static void print_all(const struct explain *explain, const struct verdict *verdict)
{
	print_title(explain, verdict);
	for (uint32_t i = 0; i < verdict->evidence_count; i++)
		(void)printf("    %s: %s (%s)\n", verdict->evidence[i].what,
			     verdict->evidence[i].value, verdict->evidence[i].source);
	if (verdict->decide)
		(void)printf("    would decide: %s\n", verdict->decide);
	(void)printf("  to do: %s\n", verdict->remedy);
	if (verdict->escalation)
		(void)printf("  then: %s\n", verdict->escalation);
	(void)putchar('\n');
}

static void print_sum(const struct amounts_gpu *gpu)
{
	char used[BYTES_TEXT_MAX], attributed[BYTES_TEXT_MAX], unattributed[BYTES_TEXT_MAX];
	char reserved[BYTES_TEXT_MAX];

	bytes_format(gpu->used_bytes, used);
	bytes_format(gpu->attributed_bytes, attributed);
	bytes_format(gpu->unattributed_bytes, unattributed);
	bytes_format(gpu->reserved_bytes, reserved);
	(void)printf("GPU %u: %s used, of it %s by processes as NVML lists them, %s of nobody on "
		     "its list; %s reserved by the driver beside it\n",
		     gpu->index, used, attributed, unattributed, reserved);
}

static uint32_t print_verdicts(const struct explain *explain, bool normal)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < explain->verdicts.count; i++) {
		const struct verdict *verdict = &explain->verdicts.list[i];

		if (is_normal(verdict) != normal || !is_asked_for(explain, verdict))
			continue;
		if (normal && !count)
			(void)printf("normal, and nothing to do:\n");
		if (normal)
			(void)printf("  ");
		if (normal && !explain->pid)
			print_title(explain, verdict);
		else
			print_all(explain, verdict);
		count++;
	}
	return count;
}

void explain_print(const struct explain *explain)
{
	char unseen[512];
	uint32_t count;

	if (explain->scan.emulated)
		(void)printf("emulated GPUs\n");
	for (uint32_t i = 0; !explain->pid && i < explain->amounts.gpu_count; i++) {
		if (explain->gpu == CAUSE_NOBODY || explain->gpu == i)
			print_sum(&explain->amounts.gpus[i]);
	}
	if (explain->pid)
		explain_life(explain);
	(void)putchar('\n');
	count = print_verdicts(explain, false);
	if (!count)
		(void)printf("nothing out of the ordinary was found\n\n");
	(void)print_verdicts(explain, true);
	if (explain->amounts.answer != AMOUNTS_ANSWERED)
		(void)printf("amounts are not known: %s\n", explain->amounts.error.msg);
	scan_unseen_text(&explain->scan, unseen, sizeof(unseen));
	if (unseen[0])
		(void)printf("not seen: %s\n", unseen);
}
