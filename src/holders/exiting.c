/* SPDX-License-Identifier: MIT */
/*
 * Where in the kernel a process is, and one kind of holder that only this shows.
 *
 * A process that ends lets go of its memory and its table first, and only then do the files themselves close, all
 * in its own exit: while nvidia's driver frees the memory, /proc/PID/fd and maps are empty already. So a process
 * that is ending (a flag of `stat`), has no descriptor, and stands in the driver by its kernel stack (root may
 * read it) or by the function in which it sleeps, is still a holder.
 *
 * Read next: parts.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/parts.h"

#define THREADS_MAX 256 /* that are asked, of one process */

/* A module's name stands behind each of its functions: "[<0>] os_acquire_mutex+0x39/0x50 [nvidia]". */
bool exiting_is_driver_stack(const char *stack)
{
	return strstr(stack, " [nvidia") != NULL;
}

/* Without a module's name only the prefixes of nvidia's own functions tell. */
bool exiting_is_driver_function(const char *name)
{
	static const char *const prefixes[] = {"nv_",	 "nvidia_", "_nv",   "nvkms",
					       "nvUvm",	 "uvm_",    "rm_",   "os_acq",
					       "os_del", "rmapi",   "nvswi", "nvlink"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	}
	return false;
}

/* "0" is what the kernel says for one that runs, or to whom it does not tell. */
static bool read_wchan(int folder, struct scan_process *process)
{
	ssize_t got = folder_read_once(folder, "wchan", process->wchan, sizeof(process->wchan));

	if (got <= 0 || strcmp(process->wchan, "0") == 0)
		process->wchan[0] = '\0';
	return process->wchan[0] != '\0';
}

/* Reads wchan and stack of a thread into the process. Returns whether anything is known. */
static bool read_place(struct look *look, int folder, int32_t tid, struct finding *finding)
{
	bool known = read_wchan(folder, &finding->process);
	ssize_t got = folder_read_once(folder, "stack", look->text, sizeof(look->text));

	finding->process.wchan_tid = tid;
	finding->process.stack = NULL;
	if (got > 0)
		finding->process.stack = arena_copy(&finding->chunks, look->text, (size_t)got);
	return known || got > 0;
}

static bool is_in_driver(const struct scan_process *process)
{
	if (process->stack && exiting_is_driver_stack(process->stack))
		return true;
	return exiting_is_driver_function(process->wchan);
}

/* The state of a thread, or 0. */
static char read_state(int folder, char *text, size_t bytes)
{
	const char *end;

	if (folder_read_once(folder, "stat", text, bytes) <= 0)
		return 0;
	end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 0;
}

/* What is asked of each thread. Returns true to end. */
typedef bool visit_thread(struct look *look, int folder, int32_t tid, void *argument);

static void for_each_thread(struct look *look, visit_thread *visit, void *argument)
{
	cleanup_fd int task = openat(look->folder, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct folder entries = {
		.fd = task, .buffer = look->thread_entries, .room = sizeof(look->thread_entries)};
	const char *name;
	int32_t tid;

	for (int i = 0; task >= 0 && i < THREADS_MAX && folder_next(&entries, &tid, &name) > 0;
	     i++) {
		cleanup_fd int folder = openat(task, name, O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (folder >= 0 && visit(look, folder, tid, argument))
			return;
	}
}

struct search {
	struct finding *finding;
	bool in_driver;
	bool unknown;
};

static bool is_thread_in_driver(struct look *look, int folder, int32_t tid, void *argument)
{
	struct search *search = argument;
	char state = read_state(folder, look->text, sizeof(look->text));

	if (state == 0 || state == 'Z' || state == 'X')
		return false; /* its files are closed */
	if (!read_place(look, folder, tid, search->finding))
		search->unknown = true;
	search->in_driver = is_in_driver(&search->finding->process);
	return search->in_driver;
}

void exiting_look(struct look *look, struct finding *finding)
{
	struct scan_reference reference = {
		.held = SCAN_EXITING,
		.fd = -1,
		.device = {.kind = SCAN_DEVICE_UNKNOWN, .minor = -1, .gpu_minor = -1},
		.count = 1,
		.bytes = GW_UNKNOWN};
	struct search search = {.finding = finding};

	if (process_read_stat(look, &finding->process) < 0 ||
	    !(finding->process.flags & SCAN_PF_EXITING))
		return;
	for_each_thread(look, is_thread_in_driver, &search);
	if (search.in_driver)
		(void)finding_add(look, finding, &reference);
	else if (search.unknown)
		look->unseen.exiting_unknown++;
}

/* A thread that waits without a way out is more telling than the first one. */
static bool is_stuck(struct look *look, int folder, int32_t tid, void *argument)
{
	if (read_state(folder, look->text, sizeof(look->text)) != 'D')
		return false;
	return read_place(look, folder, tid, argument);
}

static bool is_alive(struct look *look, int folder, int32_t tid, void *argument)
{
	char state = read_state(folder, look->text, sizeof(look->text));

	if (state == 0 || state == 'Z' || state == 'X')
		return false;
	(void)read_place(look, folder, tid, argument);
	return true;
}

void exiting_read_kernel_place(struct look *look, struct finding *finding)
{
	if (finding->process.wchan_tid != 0)
		return; /* known already */
	if (finding->process.threads > 1 && finding->process.threads <= THREADS_MAX &&
	    finding->process.state != 'D') {
		for_each_thread(look, is_stuck, finding);
		if (finding->process.wchan_tid != 0)
			return;
	}
	if (finding->process.flags & SCAN_ZOMBIE_LEADER)
		for_each_thread(look, is_alive, finding);
	else
		(void)read_place(look, look->folder, look->pid, finding);
}
