/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "world.h"

#define FDS_MAX 1024

static bool open_before[FDS_MAX];

static void read_open(bool open[FDS_MAX])
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;

	memset(open, 0, FDS_MAX * sizeof(*open));
	if (!folder)
		return;
	while ((entry = readdir(folder))) {
		int fd = atoi(entry->d_name);

		if (fd > 2 && fd < FDS_MAX && fd != dirfd(folder))
			open[fd] = true;
	}
	(void)closedir(folder);
}

static void check_descriptors(void)
{
	static bool open_now[FDS_MAX];
	char path[64], target[256];

	read_open(open_now);
	for (int fd = 0; fd < FDS_MAX; fd++) {
		ssize_t length;

		if (!open_now[fd] || open_before[fd])
			continue;
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, target, sizeof(target) - 1);
		target[length > 0 ? length : 0] = '\0';
		fail_msg("descriptor %d was left open: %s", fd, target);
	}
}

/* A test that fails leaves where it is, and whoever it has started would live on: a keeper for ever. What a child has
 * started falls to this process. */
static void end_children(void)
{
	pid_t pid = 1;

	while (pid > 0) {
		FILE *list = fopen("/proc/thread-self/children", "re");

		pid = 0;
		if (list && fscanf(list, "%d", &pid) == 1 && pid > 1) {
			(void)kill(pid, SIGKILL);
			(void)waitpid(pid, NULL, 0);
		}
		if (list)
			(void)fclose(list);
	}
}

/* Whether there is a child: -1 there is none, 0 one that lives, or the pid of a dead one. */
static pid_t find_child(void)
{
	siginfo_t info = {0};

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 ? info.si_pid : -1;
}

static void check_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[1024];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (strstr(line, "libcuda.so"))
			fail_msg("a CUDA driver is mapped in the host: %s", line);
	}
	(void)fclose(maps);
}

void world_begin(void)
{
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

int world_setup(void **state)
{
	(void)state;
	read_open(open_before);
	return 0;
}

int world_teardown(void **state)
{
	pid_t child = find_child();

	(void)state;
	end_children();
	check_descriptors();
	if (child >= 0)
		fail_msg("a child was left behind (pid %d, 0 = alive)", child);
	check_maps();
	return 0;
}

void world_kill(int32_t pid)
{
	assert_true(pid > 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
}

void world_wait_gone(int32_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd fd = {.fd = pidfd, .events = POLLIN};

	if (pidfd < 0)
		return;
	if (poll(&fd, 1, 10000) != 1)
		fail_msg("process %d lives on", pid);
	/* It is ours if its parent is gone; otherwise its parent has reaped it. */
	(void)waitpid(pid, NULL, 0);
	(void)close(pidfd);
}

int world_reap(int32_t pid)
{
	return waitpid(pid, NULL, WNOHANG) == pid;
}
