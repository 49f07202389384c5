/* SPDX-License-Identifier: MIT */
/*
 * Counts the threads of this process, and asks the dynamic linker for a CUDA driver.
 *
 * Runs in: the host, in the thread that wants to fork. Never loads a driver to find out.
 * Read next: forkable.h for the reasons, ../gpu/dl.c for how a driver is recognised.
 */
#include "lib/forkable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "gpu/dl.h"

#define TASK_EXITING 0x4UL /* PF_EXITING: in do_exit(), past all code of the program */

static void close_folder(DIR **folder)
{
	if (*folder)
		(void)closedir(*folder);
}

/*
 * Is the thread NAME (a number) on its way out, or gone already? In /proc/.../stat the name of the
 * program stands in parentheses and may hold any byte, so the fields are counted from the last one:
 * state ppid pgrp session tty_nr tpgid flags.
 */
static bool is_leaving(int folder, const char *name)
{
	char path[32];
	char text[512];
	cleanup_fd int fd = -1;
	const char *fields;
	unsigned long flags = 0;
	ssize_t length;

	(void)snprintf(path, sizeof(path), "%.20s/stat", name);
	fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	length = read(fd, text, sizeof(text) - 1);
	if (length <= 0)
		return length < 0 && errno == ESRCH;
	text[length] = '\0';
	fields = strrchr(text, ')');
	if (!fields || sscanf(fields, ") %*c %*d %*d %*d %*d %*d %lu", &flags) != 1)
		return false;
	return (flags & TASK_EXITING) != 0;
}

static int check_threads(struct gw_error *ret_error)
{
	__attribute__((cleanup(close_folder))) DIR *folder = opendir("/proc/self/task");
	const struct dirent *entry;
	unsigned int others = 0;

	if (!folder && errno == ENOENT)
		return err_os(ret_error, ENOSYS,
			      "cannot see this process's threads: /proc is not mounted");
	if (!folder)
		return err_os(ret_error, errno, "cannot read /proc/self/task");
	while (errno = 0, (entry = readdir(folder))) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == gettid())
			continue;
		if (!is_leaving(dirfd(folder), entry->d_name))
			others++;
	}
	if (errno)
		return err_os(ret_error, errno, "cannot read /proc/self/task");
	if (others)
		return err_own(ret_error, GW_ETHREADS,
			       "this process has %u other thread%s, which a fork would cut off in "
			       "the middle: call gw_isolate before threads start, or use a pool",
			       others, others == 1 ? "" : "s");
	return 0;
}

int forkable_check(struct gw_error *ret_error)
{
	if (dl_cuda_is_loaded())
		return err_own(ret_error, GW_ECUDALOADED,
			       "a CUDA driver is loaded in this process and does not survive a "
			       "fork: call gw_isolate before it is, or use a pool");
	return check_threads(ret_error);
}
