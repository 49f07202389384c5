/* SPDX-License-Identifier: MIT */
/*
 * Threads whose table of descriptors is not the one that /proc/PID/fd shows: after unshare(CLONE_FILES), or where
 * the first thread has ended and others live on (the process is shown as a zombie then, without any descriptor).
 *
 * Nearly all threads of nearly all processes share one table, and there can be 100,000 of them, so each costs one
 * question only: kcmp() says whether two threads have the same table. Without kcmp each table is read, and what is
 * known already is left out.
 *
 * Read next: parts.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/parts.h"

#define TABLES_MAX 16
#define BEAT_EVERY 256

/* Threads that stand for the tables that were looked at. */
struct tables {
	int32_t tids[TABLES_MAX];
	int count;
	bool comparable; /* kcmp works */
};

/* A folder of /proc has two links and one for each folder in it. */
static bool has_more_threads(struct look *look)
{
	struct statx task;

	return statx(look->folder, "task", AT_STATX_DONT_SYNC, STATX_NLINK, &task) == 0 &&
	       task.stx_nlink > 3;
}

/* Was the table of TID looked at? A thread that has ended has none. */
static bool is_known(struct look *look, struct tables *tables, int32_t tid)
{
	for (int i = 0; tables->comparable && i < tables->count; i++) {
		long order = syscall(SYS_kcmp, tables->tids[i], tid, KCMP_FILES, 0, 0);

		if (order == 0)
			return true;
		if (order < 0 && errno == ESRCH) {
			/* One of the two has ended. If it is the one that was known, nobody is like it. */
			if (faccessat(look->folder, "task", F_OK, 0) < 0)
				return true;
		} else if (order < 0) {
			tables->comparable = false;
		}
	}
	return false;
}

/* Drops those of FINDING from FIRST on whose descriptor another table of the process has for the same device. */
static void drop_known(struct finding *finding, uint32_t first)
{
	uint32_t kept = first;

	for (uint32_t i = first; i < finding->count; i++) {
		const struct scan_reference *one = &finding->references[i];
		bool known = false;

		for (uint32_t j = 0; j < first && !known; j++) {
			const struct scan_reference *other = &finding->references[j];

			known = other->fd == one->fd && other->device.kind == one->device.kind &&
				other->device.minor == one->device.minor;
		}
		if (!known)
			finding->references[kept++] = *one;
	}
	finding->count = kept;
}

static void look_at_thread(struct look *look, int task, const char *name, int32_t tid,
			   struct tables *tables, struct finding *finding)
{
	cleanup_fd int folder = openat(task, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	uint32_t before = finding->count;

	if (folder < 0 || fds_look(look, folder, tid, finding) < 0)
		return;
	if (!tables->comparable)
		drop_known(finding, before);
	else if (tables->count < TABLES_MAX)
		tables->tids[tables->count++] = tid;
}

void threads_look(struct look *look, struct finding *finding)
{
	struct tables tables = {.tids = {look->pid}, .count = 1, .comparable = look->own_proc};
	cleanup_fd int task = -1;
	struct folder entries = {.buffer = look->thread_entries,
				 .room = sizeof(look->thread_entries)};
	unsigned int count = 0;
	const char *name;
	int32_t tid;

	if (!has_more_threads(look))
		return;
	task = openat(look->folder, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (task < 0)
		return;
	entries.fd = task;
	while (folder_next(&entries, &tid, &name) > 0) {
		if (++count % BEAT_EVERY == 0)
			look_beat(look);
		if (tid != look->pid && !is_known(look, &tables, tid))
			look_at_thread(look, task, name, tid, &tables, finding);
	}
}
