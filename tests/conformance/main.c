/* SPDX-License-Identifier: MIT */
/*
 * Runs conformance cases on whichever driver the dynamic linker finds, and prints what they saw.
 *
 *	conformance --all | --list | CASE ...
 *
 * Runs in: the runner, which loads no driver, so that each case starts from nothing. It adopts what a
 * case leaves behind, ends all of it, and goes on only when all of it is gone: a case that hangs or
 * crashes is a fact like any other ("ended"), and does not disturb the next one.
 * Read next: suite.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "suite.h"

#define CASE_MS 20000

static const struct suite_case *const groups[] = {
	cases_device,  cases_context, cases_limit,    cases_module, cases_memory,
	cases_pinned,  cases_stream,  cases_fault,    cases_fork,   cases_handle,
	cases_reserve, cases_ipc,     cases_lifetime, cases_nvml,   cases_xid,
};

#define GROUPS (sizeof(groups) / sizeof(groups[0]))

/* Copies what the case wrote to standard output. */
static void print_facts(int fd)
{
	char text[4096];
	ssize_t got;
	off_t at = 0;

	while ((got = pread(fd, text, sizeof(text), at)) > 0) {
		(void)fwrite(text, 1, (size_t)got, stdout);
		at += got;
	}
}

static void print_end(const struct suite_case *one, bool late, int status)
{
	if (late)
		(void)printf("%s.ended = deadline\n", one->name);
	else if (WIFSIGNALED(status))
		(void)printf("%s.ended = signal %d\n", one->name, WTERMSIG(status));
	else if (WEXITSTATUS(status))
		(void)printf("%s.ended = exit %d\n", one->name, WEXITSTATUS(status));
	(void)fflush(stdout);
}

/* Waits until the last process that the case left behind is gone. */
static void clear_up(void)
{
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

static void run_case(const struct suite_case *one)
{
	int facts = memfd_create("facts", MFD_CLOEXEC);
	struct pollfd end = {.events = POLLIN};
	siginfo_t info = {0};
	int status = 0;
	pid_t pid;
	bool late;

	(void)fflush(NULL);
	/* Roles write at the same time, and a memfd has no lock on its position: append instead. */
	(void)fcntl(facts, F_SETFL, O_APPEND);
	pid = facts < 0 ? -1 : fork();
	if (pid < 0) {
		perror("conformance");
		exit(1);
	}
	if (pid == 0) {
		(void)setpgid(0, 0);
		suite_begin(one->name, facts);
		one->run(one->argument);
		_exit(0);
	}
	(void)setpgid(pid, pid);
	end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	late = poll(&end, 1, CASE_MS) == 0;
	if (late)
		(void)kill(-pid, SIGKILL);
	/* Keeps the zombie, and so the number of its group, until the group has been ended. */
	(void)waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	(void)kill(-pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	(void)close(end.fd);
	clear_up();
	print_facts(facts);
	(void)close(facts);
	print_end(one, late, status);
}

/* Runs the case NAME, or all if it is NULL, or lists them. Returns how many there were. */
static int each_case(const char *name, bool list)
{
	int count = 0;

	for (size_t i = 0; i < GROUPS; i++) {
		for (const struct suite_case *one = groups[i]; one->name; one++) {
			if (name && strcmp(name, one->name) != 0)
				continue;
			count++;
			if (list)
				(void)puts(one->name);
			else
				run_case(one);
		}
	}
	return count;
}

int main(int argc, char **argv)
{
	const struct rlimit no_core = {0, 0};

	if (argc < 2) {
		(void)fputs("usage: conformance --all | --list | CASE ...\n", stderr);
		return 2;
	}
	(void)setrlimit(RLIMIT_CORE, &no_core);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (strcmp(argv[1], "--list") == 0)
		return each_case(NULL, true) ? 0 : 1;
	if (strcmp(argv[1], "--all") == 0)
		return each_case(NULL, false) ? 0 : 1;
	for (int i = 1; i < argc; i++) {
		if (each_case(argv[i], false))
			continue;
		(void)fprintf(stderr, "conformance: no such case: %s (--list)\n", argv[i]);
		return 2;
	}
	return 0;
}
