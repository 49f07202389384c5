/* SPDX-License-Identifier: MIT */
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../world.h"
#include "common/fd.h"
#include "subject.h"

#define MS	       UINT64_C(1000000)
#define RUN_NS	       (15000 * MS)
#define LEFT_BEHIND_NS (2000 * MS)

static sigset_t child_signal(void)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	return set;
}

void run_begin(struct run *run)
{
	sigset_t set = child_signal();

	*run = (struct run){.host = -1};
	run->output_fd = memfd_create("ladder-output", MFD_CLOEXEC);
	assert_true(run->output_fd >= 0);
	assert_int_equal(sigprocmask(SIG_BLOCK, &set, NULL), 0);
	run->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	assert_true(run->signal_fd >= 0);
	run->deadline_ns = now_ns() + RUN_NS;
}

void run_child(const struct run *run)
{
	sigset_t set = child_signal();

	(void)dup2(run->output_fd, STDOUT_FILENO);
	(void)dup2(run->output_fd, STDERR_FILENO);
	(void)close(run->signal_fd);
	(void)close(run->output_fd);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void reap(struct run *run)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	while (read(run->signal_fd, &info, sizeof(info)) > 0)
		continue;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != run->host)
			continue;
		run->host_gone = true;
		run->status = status;
		/* From here on the rest has only a moment. */
		run->deadline_ns = now_ns() + LEFT_BEHIND_NS;
	}
	run->all_gone = pid < 0 && errno == ECHILD;
}

static void read_text(struct run *run)
{
	ssize_t bytes = pread(run->output_fd, run->text, sizeof(run->text) - 1, 0);

	run->text[bytes > 0 ? bytes : 0] = '\0';
	(void)close(run->output_fd);
	(void)close(run->signal_fd);
}

/* Ends what should have ended by itself. Without a host its ward and workers end too. */
static void time_out(struct run *run)
{
	if (run->timed_out)
		fail_msg("processes of a run are left, and cannot be ended");
	run->timed_out = true;
	run->deadline_ns = now_ns() + RUN_NS;
	if (!run->host_gone)
		world_kill(run->host);
}

void run_finish(struct run *run, int fd, void (*serve)(int fd, void *argument), void *argument)
{
	struct pollfd fds[] = {{.fd = run->signal_fd, .events = POLLIN},
			       {.fd = fd, .events = POLLIN}};

	while (!run->all_gone) {
		uint64_t now = now_ns();

		if (now >= run->deadline_ns)
			time_out(run);
		else
			(void)poll(fds, 2, (int)((run->deadline_ns - now) / MS) + 1);
		if (fds[1].revents & POLLIN)
			serve(fd, argument);
		/* The last process that the filter holds for is gone. */
		if (fds[1].revents & POLLHUP)
			fds[1].fd = -1;
		reap(run);
	}
	read_text(run);
}

const char *run_judge(const struct run *run, bool *ret_refused)
{
	*ret_refused = false;
	if (run->timed_out)
		return WIFEXITED(run->status) ? "processes were left" : "it did not end";
	if (WIFSIGNALED(run->status))
		return "it crashed";
	*ret_refused = WEXITSTATUS(run->status) == SUBJECT_REFUSED;
	return WEXITSTATUS(run->status) == SUBJECT_DONE || *ret_refused ? NULL : "it is wrong";
}
