/* SPDX-License-Identifier: MIT */
/*
 * The cells of a row. What other processes chose (names, command lines, jobs) passes through text_printable() here,
 * so that no escape sequence of theirs reaches the terminal.
 *
 * Read next: ps.h.
 */
#include "cli/ps.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bytes.h"
#include "holders/text.h"

#define GPUS_MAX   64
#define USERS_KEPT 64

static void printable(char *text, const char *from, size_t bytes)
{
	(void)text_printable(text, OUT_CELL_MAX, from, bytes);
}

static void printable_word(char *text, const char *from)
{
	printable(text, from, strlen(from));
}

static const struct scan_process *process_of(const struct ps_view *view, const struct ps_row *row)
{
	return row->process == ACCOUNT_NONE ? NULL : &view->scan.processes[row->process];
}

/* A row of no line has one that says nothing. */
static const struct account_line *line_of(const struct ps_view *view, const struct ps_row *row)
{
	static const struct account_line none = {
		.pid = -1, .uid = -1, .state = '?', .start_ticks = GW_UNKNOWN};

	return row->line == ACCOUNT_NONE ? &none : &view->accounting.lines[row->line];
}

/* ---- GPU ---- */

/* Numbers of a set as "0,2-7". */
static void print_set(uint64_t set, char *text)
{
	size_t length = 0;

	for (int first = 0; first < GPUS_MAX && length < OUT_CELL_MAX - 16; first++) {
		int last = first;

		if (!(set >> first & 1))
			continue;
		while (last + 1 < GPUS_MAX && set >> (last + 1) & 1)
			last++;
		length += (size_t)snprintf(text + length, OUT_CELL_MAX - length, "%s%d",
					   length > 0 ? "," : "", first);
		if (last > first)
			length +=
				(size_t)snprintf(text + length, OUT_CELL_MAX - length, "-%d", last);
		first = last;
	}
}

void ps_text_gpu(const struct ps_view *view, const struct ps_row *row, char *text)
{
	const struct scan_process *process = process_of(view, row);
	uint64_t known = 0;
	uint64_t minors = 0;

	(void)snprintf(text, OUT_CELL_MAX, "-");
	if (row->gpu != ACCOUNT_NONE) {
		(void)snprintf(text, OUT_CELL_MAX, "%u", view->amounts.gpus[row->gpu].index);
		return;
	}
	for (uint32_t i = 0; process && i < process->reference_count; i++) {
		int32_t minor =
			view->scan.references[process->first_reference + i].device.gpu_minor;
		uint32_t gpu = accounting_find_gpu(&view->amounts, minor);

		if (minor < 0 || minor >= GPUS_MAX)
			continue;
		if (gpu != ACCOUNT_NONE && view->amounts.gpus[gpu].index < GPUS_MAX)
			known |= UINT64_C(1) << view->amounts.gpus[gpu].index;
		else
			minors |= UINT64_C(1) << minor;
	}
	if (known) {
		print_set(known, text);
	} else if (minors) {
		(void)snprintf(text, OUT_CELL_MAX, "nvidia");
		print_set(minors, text + strlen("nvidia"));
	}
}

/* ---- who ---- */

void ps_text_pid(const struct ps_view *view, const struct ps_row *row, char *text)
{
	const struct scan_process *process = process_of(view, row);

	(void)snprintf(text, OUT_CELL_MAX, "%d", process ? process->pid : line_of(view, row)->pid);
}

/* The threads that hold something of their own: "4712", "4712+2". */
void ps_text_tid(const struct ps_view *view, const struct ps_row *row, char *text)
{
	const struct scan_process *process = process_of(view, row);
	int32_t first = 0;
	int32_t last = 0;
	uint32_t more = 0;

	(void)snprintf(text, OUT_CELL_MAX, "-");
	for (uint32_t i = 0; process && i < process->reference_count; i++) {
		int32_t tid = view->scan.references[process->first_reference + i].tid;

		if (tid == 0 || tid == last)
			continue;
		last = tid;
		if (first == 0)
			first = tid;
		else if (tid != first)
			more++;
	}
	if (more > 0)
		(void)snprintf(text, OUT_CELL_MAX, "%d+%u", first, more);
	else if (first > 0)
		(void)snprintf(text, OUT_CELL_MAX, "%d", first);
}

/* Goes through /etc/passwd until FITS. Returns true with *RET_ENTRY, which is valid until the next call. */
static bool find_entry(const char *name, int32_t uid, struct passwd *ret_entry, char *buffer,
		       size_t bytes)
{
	FILE *file = fopen("/etc/passwd", "re");
	struct passwd *entry;
	bool found = false;

	while (file && !found && fgetpwent_r(file, ret_entry, buffer, bytes, &entry) == 0)
		found = name ? strcmp(ret_entry->pw_name, name) == 0
			     : (int32_t)ret_entry->pw_uid == uid;
	if (file)
		(void)fclose(file);
	return found;
}

int32_t ps_find_user(const char *name)
{
	struct passwd entry;
	char buffer[1024];

	return find_entry(name, -1, &entry, buffer, sizeof(buffer)) ? (int32_t)entry.pw_uid : -1;
}

/* The last ones are kept: a machine has few users, and sorting asks for each many times. */
void ps_text_user(int32_t uid, char *text)
{
	static struct {
		bool used;
		int32_t uid;
		char name[OUT_CELL_MAX];
	} kept[USERS_KEPT];
	static size_t next;
	struct passwd entry;
	char buffer[1024];
	size_t at = 0;

	if (uid < 0) {
		(void)snprintf(text, OUT_CELL_MAX, "-");
		return;
	}
	while (at < USERS_KEPT && !(kept[at].used && kept[at].uid == uid))
		at++;
	if (at == USERS_KEPT) {
		at = next++ % USERS_KEPT;
		kept[at].used = true;
		kept[at].uid = uid;
		if (find_entry(NULL, uid, &entry, buffer, sizeof(buffer)))
			printable_word(kept[at].name, entry.pw_name);
		else
			(void)snprintf(kept[at].name, OUT_CELL_MAX, "%d", uid);
	}
	memcpy(text, kept[at].name, OUT_CELL_MAX);
}

int32_t ps_uid(const struct ps_view *view, const struct ps_row *row)
{
	const struct scan_process *process = process_of(view, row);

	return process ? process->uid : line_of(view, row)->uid;
}

/* The job by its control group; else by what it was started with, which it may have left; else the container. */
void ps_text_place(const struct ps_view *view, const struct ps_row *row, char *text)
{
	const struct scan_process *process = process_of(view, row);
	const char *gone = process && process->place.deleted ? " (removed)" : "";
	char raw[512];

	(void)snprintf(text, OUT_CELL_MAX, "-");
	if (!process)
		return;
	if (process->place.slurm_job_id != GW_UNKNOWN)
		(void)snprintf(raw, sizeof(raw), "slurm %llu%s",
			       (unsigned long long)process->place.slurm_job_id, gone);
	else if (process->place.container_id[0])
		(void)snprintf(raw, sizeof(raw), "%s %.12s%s",
			       cgroup_runtime_name(process->place.runtime),
			       process->place.container_id, gone);
	else if (process->place.pod_uid[0])
		(void)snprintf(raw, sizeof(raw), "pod %s%s", process->place.pod_uid, gone);
	else if (process->slurm_job_id)
		(void)snprintf(raw, sizeof(raw), "slurm %.64s (by environment)",
			       process->slurm_job_id);
	else if (process->pbs_job_id)
		(void)snprintf(raw, sizeof(raw), "pbs %.64s (by environment)", process->pbs_job_id);
	else
		return;
	printable_word(text, raw);
}

/* ---- how much, since when ---- */

void ps_text_memory(const struct ps_row *row, char *text)
{
	if (row->shared)
		(void)snprintf(text, OUT_CELL_MAX, "shared");
	else
		bytes_format(row->bytes, text);
}

uint64_t ps_start(const struct ps_view *view, const struct ps_row *row)
{
	const struct scan_process *process = process_of(view, row);

	return process ? process->start_ticks : line_of(view, row)->start_ticks;
}

void ps_text_age(const struct ps_view *view, const struct ps_row *row, char *text)
{
	uint64_t start = ps_start(view, row);
	const struct scan *scan = &view->scan;
	uint64_t seconds;

	(void)snprintf(text, OUT_CELL_MAX, "-");
	if (start == GW_UNKNOWN || scan->ticks_per_second == 0)
		return;
	seconds = start < scan->now_ticks ? (scan->now_ticks - start) / scan->ticks_per_second : 0;
	if (seconds < 60)
		(void)snprintf(text, OUT_CELL_MAX, "%us", (unsigned int)seconds);
	else if (seconds < 3600)
		(void)snprintf(text, OUT_CELL_MAX, "%um%02us", (unsigned int)(seconds / 60),
			       (unsigned int)(seconds % 60));
	else if (seconds < 86400)
		(void)snprintf(text, OUT_CELL_MAX, "%uh%02um", (unsigned int)(seconds / 3600),
			       (unsigned int)(seconds / 60 % 60));
	else
		(void)snprintf(text, OUT_CELL_MAX, "%llud%02uh",
			       (unsigned long long)(seconds / 86400),
			       (unsigned int)(seconds / 3600 % 24));
}

/* ---- what it is doing ---- */

static const char *state_word(char state)
{
	static const struct {
		char state;
		const char *word;
	} words[] = {{'R', "running"}, {'S', "sleeping"}, {'D', "blocked"}, {'T', "stopped"},
		     {'t', "traced"},  {'Z', "zombie"},	  {'X', "dead"},    {'I', "idle"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (words[i].state == state)
			return words[i].word;
	}
	return "-";
}

static const char *process_state(const struct scan_process *process)
{
	if (process->flags & SCAN_ZOMBIE_LEADER)
		return "zombie leader";
	if (process->flags & (SCAN_FROZEN | SCAN_FROZEN_V1))
		return "frozen";
	if (process->flags & SCAN_PF_EXITING && process->state != 'Z')
		return "exiting";
	return state_word(process->state);
}

void ps_text_state(const struct ps_view *view, const struct ps_row *row, char *text)
{
	const struct scan_process *process = process_of(view, row);
	const struct account_line *line = line_of(view, row);
	const char *word;

	if (process)
		word = process_state(process);
	else if (line->owner == ACCOUNT_DEAD || line->owner == ACCOUNT_STRANGER)
		word = "dead";
	else
		word = state_word(line->state);
	(void)snprintf(text, OUT_CELL_MAX, "%s", word);
}

const char *ps_owner_id(enum account_owner owner)
{
	static const char *const ids[] = {
		[ACCOUNT_HOLDER] = "holder", [ACCOUNT_SHARED] = "shared",
		[ACCOUNT_DEAD] = "dead",     [ACCOUNT_UNSEEN] = "unseen",
		[ACCOUNT_HIDDEN] = "hidden", [ACCOUNT_STRANGER] = "number_taken",
		[ACCOUNT_LATER] = "later",   [ACCOUNT_ELSEWHERE] = "elsewhere",
	};

	return ids[owner];
}

static void describe_line(const struct account_line *line, char *raw, size_t bytes)
{
	const char *comm = line->comm;

	switch (line->owner) {
	case ACCOUNT_DEAD:
		(void)snprintf(raw, bytes, "(dead; who holds its memory is not known)");
		break;
	case ACCOUNT_STRANGER:
		(void)snprintf(raw, bytes, "(dead; '%.16s' has its number now)", comm);
		break;
	case ACCOUNT_UNSEEN:
		(void)snprintf(raw, bytes, "[%.16s] (could not be looked at)", comm);
		break;
	case ACCOUNT_HIDDEN:
		(void)snprintf(raw, bytes, "(lives, and /proc does not show it)");
		break;
	case ACCOUNT_LATER:
		(void)snprintf(raw, bytes, "[%.16s] (began after the look)", comm);
		break;
	case ACCOUNT_ELSEWHERE:
		(void)snprintf(raw, bytes, "(of another pid namespace)");
		break;
	case ACCOUNT_HOLDER:
	case ACCOUNT_SHARED:
		raw[0] = '\0';
		break;
	}
}

void ps_text_command(const struct ps_view *view, const struct ps_row *row, char *text)
{
	const struct scan_process *process = process_of(view, row);
	char raw[128];

	if (!process)
		describe_line(line_of(view, row), raw, sizeof(raw));
	else if (process->cmdline && process->cmdline_bytes > 0) {
		printable(text, process->cmdline, process->cmdline_bytes);
		return;
	} else
		(void)snprintf(raw, sizeof(raw), "[%.16s]", process->comm);
	printable_word(text, raw);
}
