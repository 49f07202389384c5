/* SPDX-License-Identifier: MIT */
#include "holders/relatives.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/look.h"

#define DEPTH_MAX                                                                                  \
	64 /* of ancestors: nobody's tree is deeper, and a loop would need a pid that passed on */

/* Pids, ascending, each once: those that were asked for. */
struct wanted {
	int32_t *pids;
	uint32_t count;
	uint32_t room;
	bool failed;
};

/* The place of PID, or where it belongs. */
static uint32_t place_of(const struct wanted *wanted, int32_t pid)
{
	uint32_t low = 0, high = wanted->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (wanted->pids[middle] < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Adds PID. Returns false where it is known already, or is none. */
static bool want(struct wanted *wanted, int32_t pid)
{
	uint32_t at = place_of(wanted, pid);

	if (pid <= 0 || wanted->failed || (at < wanted->count && wanted->pids[at] == pid))
		return false;
	if (wanted->count == wanted->room) {
		uint32_t room = wanted->room ? wanted->room * 2 : 256;
		int32_t *grown = reallocarray(wanted->pids, room, sizeof(*grown));

		if (!grown) {
			wanted->failed = true;
			return false;
		}
		wanted->pids = grown;
		wanted->room = room;
	}
	memmove(wanted->pids + at + 1, wanted->pids + at, (wanted->count - at) * sizeof(int32_t));
	wanted->pids[at] = pid;
	wanted->count++;
	return true;
}

static bool read_one(int proc, int32_t pid, struct scan_relative *relative)
{
	struct scan_process process;
	struct stat owner;
	char path[32], text[1024];
	ssize_t got;

	(void)snprintf(path, sizeof(path), "%d/stat", pid);
	got = folder_read_once(proc, path, text, sizeof(text));
	process_init(&process);
	if (got <= 0 || !process_parse_stat(text, (size_t)got, &process))
		return false;
	(void)snprintf(path, sizeof(path), "%d", pid);
	*relative = (struct scan_relative){
		.pid = pid,
		.ppid = process.ppid,
		.sid = process.sid,
		.uid = fstatat(proc, path, &owner, 0) == 0 ? (int32_t)owner.st_uid : -1,
		.start_ticks = process.start_ticks,
		.state = process.state,
	};
	memcpy(relative->comm, process.comm, sizeof(relative->comm));
	return true;
}

static int add(struct scan *scan, uint32_t *room, const struct scan_relative *relative)
{
	if (scan->relative_count == *room) {
		uint32_t wider = *room ? *room * 2 : 64;
		struct scan_relative *grown = reallocarray(scan->relatives, wider, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		scan->relatives = grown;
		*room = wider;
	}
	scan->relatives[scan->relative_count++] = *relative;
	return 0;
}

/* PID and its ancestors, until one that is known. */
static int follow(int proc, int32_t pid, struct wanted *wanted, struct scan *scan, uint32_t *room)
{
	for (int depth = 0; depth < DEPTH_MAX && want(wanted, pid); depth++) {
		const struct scan_process *holder = scan_find(scan, pid);
		struct scan_relative relative;

		if (holder) {
			pid = holder->ppid;
			continue;
		}
		if (!read_one(proc, pid, &relative))
			return 0;
		if (add(scan, room, &relative) < 0)
			return -ENOMEM;
		pid = relative.ppid;
	}
	return wanted->failed ? -ENOMEM : 0;
}

static int by_pid(const void *a, const void *b)
{
	const struct scan_relative *left = a, *right = b;

	return (left->pid > right->pid) - (left->pid < right->pid);
}

int relatives_read(int proc, struct scan *scan)
{
	struct wanted wanted = {0};
	uint32_t room = 0;
	int code = 0;

	for (uint32_t i = 0; i < scan->process_count && code == 0; i++) {
		const struct scan_process *process = &scan->processes[i];
		const int32_t pids[] = {process->ppid, process->sid, process->pgid,
					process->tracer_pid};

		for (size_t j = 0; j < sizeof(pids) / sizeof(pids[0]) && code == 0; j++)
			code = follow(proc, pids[j], &wanted, scan, &room);
	}
	free(wanted.pids);
	if (scan->relative_count > 0)
		qsort(scan->relatives, scan->relative_count, sizeof(*scan->relatives), by_pid);
	return code;
}
