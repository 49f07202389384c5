/* SPDX-License-Identifier: MIT */
/*
 * How a verdict is written: list, texts, evidence.
 *
 * Invariant: every text goes through text_printable(), so nothing that a process chose reaches a terminal raw. Where
 * there is no memory the verdict is written to a spare one, and the whole is reported as failed.
 * Read next: cause_run.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "holders/arena.h"
#include "holders/cause_run.h"
#include "holders/text.h"

#define TEXT_MAX 512U

static const char *keep(struct cause_run *run, const char *text)
{
	char printable[TEXT_MAX];
	size_t length = text_printable(printable, sizeof(printable), text, strlen(text));
	const char *copy = arena_copy(&run->out->texts, printable, length);

	if (!copy)
		run->out->no_memory = true;
	return copy ? copy : "";
}

__attribute__((format(printf, 2, 0))) static const char *
keep_format(struct cause_run *run, const char *format, va_list arguments)
{
	char text[TEXT_MAX];

	(void)vsnprintf(text, sizeof(text), format, arguments);
	return keep(run, text);
}

static struct verdict *take(struct cause_run *run)
{
	struct verdicts *out = run->out;
	uint32_t room = out->room ? out->room * 2 : 32;
	struct verdict *list;

	if (out->count == out->room) {
		list = realloc(out->list, room * sizeof(*list));
		if (!list) {
			out->no_memory = true;
			free(run->spare.members);
			return &run->spare;
		}
		out->list = list;
		out->room = room;
	}
	return &out->list[out->count++];
}

struct verdict *tell_all(struct cause_run *run, enum cause cause, enum cause_certainty certainty,
			 enum cause_policy policy)
{
	struct verdict *verdict = take(run);

	*verdict = (struct verdict){.cause = cause,
				    .certainty = certainty,
				    .policy = policy,
				    .process = CAUSE_NOBODY,
				    .gpu = CAUSE_NOBODY,
				    .bytes = GW_UNKNOWN,
				    .remedy = ""};
	return verdict;
}

struct verdict *tell_gpu(struct cause_run *run, enum cause cause, enum cause_certainty certainty,
			 enum cause_policy policy, uint32_t gpu)
{
	struct verdict *verdict = tell_all(run, cause, certainty, policy);

	verdict->gpu = gpu;
	return verdict;
}

struct verdict *tell_process(struct cause_run *run, enum cause cause,
			     enum cause_certainty certainty, enum cause_policy policy,
			     const struct scan_process *process)
{
	struct verdict *verdict = tell_all(run, cause, certainty, policy);

	verdict->pid = process->pid;
	verdict->gpu = gpu_of(run, process);
	tell_member(run, verdict, process);
	return verdict;
}

static void add(struct cause_run *run, struct verdict *verdict, const char *what,
		const char *source, const char *value)
{
	if (verdict->evidence_count == CAUSE_EVIDENCE_MAX)
		return;
	verdict->evidence[verdict->evidence_count++] =
		(struct cause_evidence){what, keep(run, source), value};
}

void tell(struct cause_run *run, struct verdict *verdict, const char *what, const char *source,
	  const char *format, ...)
{
	va_list arguments;
	const char *value;

	va_start(arguments, format);
	value = keep_format(run, format, arguments);
	va_end(arguments);
	add(run, verdict, what, source, value);
}

void tell_of(struct cause_run *run, struct verdict *verdict, const char *what, int32_t pid,
	     const char *file, const char *format, ...)
{
	char source[64];
	va_list arguments;
	const char *value;

	(void)snprintf(source, sizeof(source), "/proc/%d/%s", pid, file);
	va_start(arguments, format);
	value = keep_format(run, format, arguments);
	va_end(arguments);
	add(run, verdict, what, source, value);
}

void tell_bytes(struct cause_run *run, struct verdict *verdict, const char *what,
		const char *source, uint64_t bytes)
{
	if (bytes == GW_UNKNOWN)
		tell(run, verdict, what, source, "unknown");
	else
		tell(run, verdict, what, source, "%.1f MiB", (double)bytes / 1048576.0);
}

void tell_references(struct cause_run *run, struct verdict *verdict,
		     const struct scan_process *process)
{
	uint32_t counts[SCAN_HELD_KINDS] = {0};
	char text[160] = "";
	size_t length = 0;

	for (uint32_t i = 0; i < process->reference_count; i++) {
		const struct scan_reference *reference =
			&run->scan->references[process->first_reference + i];

		if (reference->held < SCAN_HELD_KINDS)
			counts[reference->held] += reference->count;
	}
	for (enum scan_held held = SCAN_FD; held < SCAN_HELD_KINDS && length < sizeof(text);
	     held++) {
		if (counts[held])
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%u %s",
						   length ? ", " : "", counts[held],
						   scan_held_name(held));
	}
	tell_of(run, verdict, "references", process->pid, "fd, task, maps, fdinfo", "%s", text);
}

void tell_wchan(struct cause_run *run, struct verdict *verdict, const struct scan_process *process)
{
	char file[48];

	if (!process->wchan[0])
		return;
	(void)snprintf(file, sizeof(file), "task/%d/wchan",
		       process->wchan_tid ? process->wchan_tid : process->pid);
	tell_of(run, verdict, "sleeps in", process->pid, file, "%s", process->wchan);
}

void tell_remedy(struct cause_run *run, struct verdict *verdict, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	verdict->remedy = keep_format(run, format, arguments);
	va_end(arguments);
}

void tell_escalation(struct cause_run *run, struct verdict *verdict, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	verdict->escalation = keep_format(run, format, arguments);
	va_end(arguments);
}

void tell_or(struct verdict *verdict, enum cause other, const char *decide)
{
	if (other != CAUSE_NONE)
		verdict->certainty = CAUSE_ONE_OF;
	verdict->other = other;
	verdict->decide = decide;
}

void tell_end_members(struct cause_run *run, struct verdict *verdict)
{
	char pids[256] = "";
	size_t length = 0;

	for (uint32_t i = 0; i < verdict->member_count && length < sizeof(pids) - 16; i++)
		length += (size_t)snprintf(pids + length, sizeof(pids) - length, " %d",
					   run->scan->processes[verdict->members[i]].pid);
	if (length >= sizeof(pids) - 16)
		(void)snprintf(pids + length, sizeof(pids) - length, " ...");
	tell_remedy(run, verdict, "kill -TERM%s; if they stay: kill -KILL%s", pids, pids);
}
