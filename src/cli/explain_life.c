/* SPDX-License-Identifier: MIT */
/* Where in its life one process is. Read next: explain.h. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/bytes.h"
#include "cli/explain.h"
#include "holders/text.h"

static const char *state_text(const struct scan_process *process)
{
	if (process->flags & SCAN_ZOMBIE_LEADER)
		return "its first thread has ended, and others live";
	if (process->flags & SCAN_PF_EXITING)
		return "it is ending: the kernel takes it down";
	switch (process->state) {
	case 'R':
		return "it runs";
	case 'S':
		return "it sleeps, and a signal wakes it up";
	case 'D':
		return "it waits in the kernel, and no signal wakes it up";
	case 'T':
		return "it is stopped";
	case 't':
		return "a debugger has stopped it";
	default:
		return "its state is not known";
	}
}

static bool has(uint64_t set, int number)
{
	return set != GW_UNKNOWN && (set & (1ULL << (number - 1)));
}

static const char *answer_to(const struct scan_signals *signals, int number)
{
	if (signals->caught == GW_UNKNOWN)
		return "not known";
	if (has(signals->blocked, number))
		return "blocked";
	if (has(signals->ignored, number))
		return "ignored";
	return has(signals->caught, number) ? "handled" : "ends it";
}

static void print_signals(const struct scan_signals *signals)
{
	static const struct {
		int number;
		const char *name;
	} known[] = {{SIGHUP, "SIGHUP"}, {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}};
	uint64_t pending = signals->pending;

	(void)printf("  signals:");
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		(void)printf("%s %s: %s", i ? "," : "", known[i].name,
			     answer_to(signals, known[i].number));
	if (pending != GW_UNKNOWN && signals->pending_thread != GW_UNKNOWN)
		pending |= signals->pending_thread;
	(void)printf("; waiting to be delivered:");
	if (pending == GW_UNKNOWN)
		(void)printf(" not known");
	for (int number = 1; pending != GW_UNKNOWN && number <= 64; number++) {
		if (has(pending, number))
			(void)printf(" %s",
				     sigabbrev_np(number) ? sigabbrev_np(number) : "real-time");
	}
	(void)printf("%s\n", pending ? "" : " none");
}

static void print_holder(const struct scan_process *process)
{
	char name[64], wchan[128], rss[BYTES_TEXT_MAX], pinned[BYTES_TEXT_MAX];

	(void)text_printable(name, sizeof(name), process->comm,
			     strnlen(process->comm, sizeof(process->comm)));
	(void)text_printable(wchan, sizeof(wchan), process->wchan, strlen(process->wchan));
	bytes_format(process->rss_bytes, rss);
	bytes_format(process->pinned_bytes, pinned);
	(void)printf("process %d, %s: %s", process->pid, name, state_text(process));
	if (wchan[0])
		(void)printf(", in %s", wchan);
	(void)printf("\n  threads: %d, resident %s, pinned %s\n", process->threads, rss, pinned);
	print_signals(&process->signals);
}

void explain_life(const struct explain *explain)
{
	const struct scan_process *process = scan_find(&explain->scan, explain->pid);
	struct fact_label label;

	if (process) {
		print_holder(process);
		return;
	}
	facts_look_at_label("/proc", explain->pid, &label);
	if (label.exists == AMOUNTS_NO)
		(void)printf("process %d: there is none, and no zombie of that number\n",
			     explain->pid);
	else if (scan_was_denied(&explain->scan, explain->pid))
		(void)printf("process %d: it lives, and what it holds may not be looked at; run "
			     "this as root\n",
			     explain->pid);
	else if (label.exists == AMOUNTS_YES && label.state == 'Z')
		(void)printf("process %d: a zombie; it has ended, holds nothing, and its parent "
			     "%d has not asked for its end\n",
			     explain->pid, label.ppid);
	else
		(void)printf("process %d: it lives, and holds no GPU that can be seen\n",
			     explain->pid);
}
