/* SPDX-License-Identifier: MIT */
#include "ward/report.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "gpu/faults.h"
#include "gpu/xid_table.h"

/* Adds to the text of EXIT; what does not fit is cut. */
static void say(struct gw_exit *exit, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct gw_exit *exit, const char *format, ...)
{
	size_t used = strlen(exit->text);
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(exit->text + used, sizeof(exit->text) - used, format, arguments);
	va_end(arguments);
}

static void say_who(struct gw_exit *exit)
{
	say(exit, "worker %u (pid %d", exit->slot, exit->pid);
	if (exit->device >= 0)
		say(exit, ", device %d", exit->device);
	say(exit, ") ");
}

static void say_signal(struct gw_exit *exit, int number)
{
	const char *name = sigabbrev_np(number);

	say(exit, "was killed by signal %d", number);
	if (name)
		say(exit, " (SIG%s)", name);
}

/* Nothing was known before: the process itself tells. */
static void tell_by_death(struct gw_exit *exit, const struct report_facts *facts)
{
	exit->source = GW_SOURCE_DEATH;
	if (!facts->reaped) {
		exit->end = GW_END_UNKNOWN;
		say(exit, "ended; how is not known, since somebody else reaped it");
		return;
	}
	exit->value = facts->ended.value;
	if (facts->ended.by_signal) {
		exit->end = GW_END_SIGNAL;
		say_signal(exit, exit->value);
	} else {
		exit->end = GW_END_EXIT;
		say(exit, "exited with code %d", exit->value);
	}
	if (!facts->was_ready) {
		exit->end = GW_END_START;
		exit->value = facts->ended.by_signal ? 0 : exit->value;
		say(exit, " before it was ready");
	}
}

/* Of "what happened: only a new process works" the first half: the pool does the second by itself, and
 * all of it does not fit into the text of an exit. */
static int bytes_of_text(const char *text, int result)
{
	const char *advice = strstr(text, ": ");

	return (int)(gw_cuda_class(result) == GW_FAULT_POISONED && advice
			     ? advice - text
			     : (ptrdiff_t)strlen(text));
}

static void tell_xid(struct gw_exit *exit, int32_t xid)
{
	const struct xid_info *info = xid_find((uint32_t)xid);

	say(exit, "died of a GPU fault, Xid %d%s%s", xid, info ? ": " : "", info ? info->text : "");
}

static void tell_cuda(struct gw_exit *exit, const struct cause *cause)
{
	const char *name = gw_cuda_name(cause->cuda);
	const char *text = gw_cuda_text(cause->cuda);

	exit->cuda = cause->cuda;
	exit->value = cause->cuda;
	exit->xid = cause->xid > 0 ? cause->xid : -1;
	if (cause->cuda < 0) {
		tell_xid(exit, cause->xid);
		return;
	}
	say(exit, "died of CUDA error %d%s%s", cause->cuda, name ? " " : "", name ? name : "");
	if (cause->task > 0)
		say(exit, " in task %llu", (unsigned long long)cause->task);
	say(exit, ": %.*s", bytes_of_text(text, cause->cuda), text);
}

static void tell_by_cause(struct gw_exit *exit, const struct report_facts *facts)
{
	const struct cause *cause = &facts->cause;

	exit->end = cause->end;
	exit->source = cause->source;
	switch ((enum gw_end)cause->end) {
	case GW_END_CUDA:
		tell_cuda(exit, cause);
		break;
	case GW_END_DEADLINE:
		say(exit, "was killed: %s",
		    cause->what ? cause->what : "the deadline of its task ran out");
		break;
	case GW_END_START:
		if (facts->reaped && !facts->ended.by_signal)
			exit->value = facts->ended.value;
		say(exit, "did not start: %s", cause->what ? cause->what : "no reason is known");
		break;
	case GW_END_STOPPED:
		say(exit, "was ended on request");
		break;
	case GW_END_PROTOCOL:
		say(exit, "was killed: %s", cause->what ? cause->what : "it broke the rules");
		break;
	case GW_END_UNKNOWN:
	case GW_END_RESULT:
	case GW_END_EXIT:
	case GW_END_SIGNAL:
		break;
	}
}

void report_fill(struct gw_exit *ret_exit, const struct report_facts *facts)
{
	struct gw_exit exit = {
		.cuda = -1,
		.xid = -1,
		.pid = facts->pid,
		.device = facts->device,
		.slot = facts->slot,
		.started_ns = facts->started_ns,
		.noticed_ns = facts->noticed_ns,
		.gone_ns = facts->gone_ns,
	};

	say_who(&exit);
	if (facts->cause.end == GW_END_UNKNOWN)
		tell_by_death(&exit, facts);
	else
		tell_by_cause(&exit, facts);
	if (facts->stuck)
		say(&exit, "; it does not end after SIGKILL, see /proc/%d/stack", exit.pid);
	*ret_exit = exit;
}
