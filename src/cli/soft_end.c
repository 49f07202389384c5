/* SPDX-License-Identifier: MIT */
#include "cli/soft_end.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/soft.h"
#include "common/fd.h"

#define ORPHANS_NS 3000000000ULL

/* The children that are left. */
struct left {
	uint32_t own_keepers; /* of a machine that ends now */
	uint32_t keepers;     /* the other ones */
	uint32_t others;
};

static bool is_keeper(pid_t pid)
{
	char path[64], name[32] = "";
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(name, sizeof(name), file))
		name[0] = '\0';
	(void)fclose(file);
	return strcmp(name, "gpuward-keeper\n") == 0;
}

/* Whether PID was started on the machine in FOLDER. */
static bool is_on_machine(pid_t pid, const char *folder)
{
	char path[64], wanted[PATH_MAX + sizeof(SOFT_DIR_ENV)];
	char *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	(void)snprintf(wanted, sizeof(wanted), SOFT_DIR_ENV "=%s", folder);
	file = folder[0] ? fopen(path, "re") : NULL;
	while (file && !found && getdelim(&line, &room, '\0', file) > 0)
		found = strcmp(line, wanted) == 0;
	if (file)
		(void)fclose(file);
	free(line);
	return found;
}

/* Looks at the children, and with END ends keepers of the machine in FOLDER: nobody else reaps a child, so its pid is
 * its own. A kernel without a list of them (CONFIG_PROC_CHILDREN) leaves one other. */
static struct left look_at_children(const char *folder, pid_t helper, bool end)
{
	FILE *list = fopen("/proc/thread-self/children", "re");
	struct left left = {.others = !list};
	pid_t pid;

	while (list && fscanf(list, "%d", &pid) == 1) {
		if (pid == helper)
			continue;
		if (!is_keeper(pid)) {
			left.others++;
		} else if (!is_on_machine(pid, folder)) {
			left.keepers++;
		} else {
			left.own_keepers++;
			if (end)
				(void)kill(pid, SIGKILL);
		}
	}
	if (list)
		(void)fclose(list);
	return left;
}

/* Returns whether there is something to wait for. */
static bool end_keepers(const char *folder, pid_t helper, bool *said)
{
	struct left left = look_at_children(folder, helper, false);

	if (left.others > 0 || left.own_keepers == 0)
		return left.others > 0;
	(void)look_at_children(folder, helper, true);
	if (!*said)
		(void)fprintf(stderr,
			      "gpuward: state that was kept beyond its pool has ended with the "
			      "emulated machine; " SOFT_DIR_ENV "=FOLDER chooses one that stays\n");
	*said = true;
	return true;
}

void soft_wait_for_orphans(int signal_fd, const char *folder, pid_t helper)
{
	uint64_t deadline = now_ns() + ORPHANS_NS;
	struct pollfd fd = {.fd = signal_fd, .events = POLLIN};
	struct signalfd_siginfo info;
	bool said = false;

	for (;;) {
		siginfo_t end = {.si_pid = 0};
		uint64_t now = now_ns();

		if (waitid(P_ALL, 0, &end, WEXITED | WNOHANG) < 0 || now >= deadline)
			return;
		if (end.si_pid != 0)
			continue;
		if (!end_keepers(folder, helper, &said))
			return;
		if (poll(&fd, 1, (int)((deadline - now) / 1000000U) + 1) == 1)
			(void)!read(signal_fd, &info, sizeof(info));
	}
}
