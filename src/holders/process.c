/* SPDX-License-Identifier: MIT */
/*
 * What a process is, from its files in /proc. Texts of the kernel, so their form is known; but the name in the
 * middle of `stat` is the process's own choice and may contain anything, parentheses and line breaks included.
 *
 * Read next: look.h, scan.h for the meaning of each field.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "holders/folder.h"
#include "holders/look.h"

/* Of the kernel's sched.h; they show in field 9 of stat and have never changed. */
#define KERNEL_PF_EXITING 0x4U
#define KERNEL_PF_KTHREAD 0x200000U

#define FIELD_LAST 22

void process_init(struct scan_process *process)
{
	memset(process, 0, sizeof(*process));
	process->pid = process->ppid = process->pgid = process->sid = -1;
	process->uid = process->effective_uid = -1;
	process->tracer_pid = process->threads = process->tty = -1;
	process->state = '?';
	process->start_ticks = GW_UNKNOWN;
	process->pid_namespace = process->mount_namespace = GW_UNKNOWN;
	memset(&process->signals, 0xff, sizeof(process->signals));
	process->rss_bytes = process->pinned_bytes = process->locked_bytes = GW_UNKNOWN;
	process->place = CGROUP_PLACE_NONE;
}

/* Fields 3 to FIELD_LAST, which are numbers but for the first one. */
static bool parse_fields(const char *from, unsigned long long fields[FIELD_LAST + 1])
{
	for (int i = 4; i <= FIELD_LAST; i++) {
		char *end;

		errno = 0;
		fields[i] = strtoull(from, &end, 10);
		if (end == from || errno)
			return false;
		from = end;
	}
	return true;
}

bool process_parse_stat(const char *text, size_t bytes, struct scan_process *process)
{
	const char *name = memchr(text, '(', bytes);
	const char *end = memrchr(text, ')', bytes);
	unsigned long long fields[FIELD_LAST + 1];
	size_t length;

	if (!name || !end || end < name || end + 3 >= text + bytes || end[1] != ' ' ||
	    !parse_fields(end + 3, fields))
		return false;
	length = (size_t)(end - name - 1);
	if (length >= sizeof(process->comm))
		length = sizeof(process->comm) - 1;
	memset(process->comm, 0, sizeof(process->comm));
	memcpy(process->comm, name + 1, length);
	process->state = end[2];
	process->ppid = (int32_t)fields[4];
	process->pgid = (int32_t)fields[5];
	process->sid = (int32_t)fields[6];
	process->tty = (int32_t)fields[7];
	if (fields[9] & KERNEL_PF_EXITING)
		process->flags |= SCAN_PF_EXITING;
	if (fields[9] & KERNEL_PF_KTHREAD)
		process->flags |= SCAN_PF_KTHREAD;
	process->threads = (int32_t)fields[20];
	process->start_ticks = fields[22];
	if (process->state == 'Z' && process->threads > 1)
		process->flags |= SCAN_ZOMBIE_LEADER;
	return true;
}

int process_read_stat(struct look *look, struct scan_process *process)
{
	ssize_t got = folder_read_once(look->folder, "stat", look->text, sizeof(look->text));

	if (got < 0)
		return (int)got;
	process->pid = look->pid;
	return process_parse_stat(look->text, (size_t)got, process) ? 0 : -EPROTO;
}

static uint64_t parse_kib(const char *text)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	return errno || end == text || value > UINT64_MAX / 1024 ? GW_UNKNOWN : value * 1024;
}

static uint64_t parse_mask(const char *text)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 16);
	return errno || end == text ? GW_UNKNOWN : value;
}

static void parse_nspid(const char *text, struct scan_process *process)
{
	process->nspid_count = 0;
	while (process->nspid_count < SCAN_NSPID_MAX) {
		char *end;
		long value = strtol(text, &end, 10);

		/* strtol() goes on over line breaks: the next line begins with letters, which ends it. */
		if (end == text || memchr(text, '\n', (size_t)(end - text)))
			return;
		process->nspid[process->nspid_count++] = (int32_t)value;
		text = end;
	}
}

static void parse_uid(const char *text, struct scan_process *process)
{
	char *end;

	process->uid = (int32_t)strtol(text, &end, 10);
	process->effective_uid = (int32_t)strtol(end, &end, 10);
}

/* Lines whose value is a size or a set of signals. */
struct number_line {
	const char *key;
	size_t offset; /* of struct scan_process */
	bool mask;
};

/* The one that LINE is, or NULL. */
static const struct number_line *find_number_line(const char *line)
{
	static const struct number_line known[] = {
		{"VmRSS:", offsetof(struct scan_process, rss_bytes), false},
		{"VmPin:", offsetof(struct scan_process, pinned_bytes), false},
		{"VmLck:", offsetof(struct scan_process, locked_bytes), false},
		{"SigPnd:", offsetof(struct scan_process, signals.pending_thread), true},
		{"ShdPnd:", offsetof(struct scan_process, signals.pending), true},
		{"SigBlk:", offsetof(struct scan_process, signals.blocked), true},
		{"SigIgn:", offsetof(struct scan_process, signals.ignored), true},
		{"SigCgt:", offsetof(struct scan_process, signals.caught), true},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strncmp(line, known[i].key, strlen(known[i].key)) == 0)
			return &known[i];
	}
	return NULL;
}

static void parse_line(const char *line, const char *value, struct scan_process *process)
{
	const struct number_line *number = find_number_line(line);
	uint64_t result;

	if (number) {
		result = number->mask ? parse_mask(value) : parse_kib(value);
		memcpy((char *)process + number->offset, &result, sizeof(result));
	} else if (strncmp(line, "Uid:", 4) == 0)
		parse_uid(value, process);
	else if (strncmp(line, "TracerPid:", 10) == 0)
		process->tracer_pid = (int32_t)strtol(value, NULL, 10);
	else if (strncmp(line, "NSpid:", 6) == 0)
		parse_nspid(value, process);
}

void process_parse_status(const char *text, struct scan_process *process)
{
	while (*text) {
		size_t length = strcspn(text, "\n");
		const char *colon = memchr(text, ':', length);

		if (colon)
			parse_line(text, colon + 1, process);
		text += length;
		text += *text == '\n';
	}
}

void process_read_details(struct look *look, struct finding *finding)
{
	if (folder_read_once(look->folder, "status", look->text, sizeof(look->text)) > 0)
		process_parse_status(look->text, &finding->process);
}
