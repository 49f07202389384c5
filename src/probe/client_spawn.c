/* SPDX-License-Identifier: MIT */
/*
 * Fork and exec of the probe.
 *
 * Runs in: ward and command line; the second half in the child between fork and exec, where it must
 * not allocate, lock or log. A failure there comes back on a close-on-exec pipe: end-of-file means
 * that exec succeeded.
 *
 * PR_SET_PDEATHSIG is there for a probe that hangs in the driver and so cannot be relied on to see the
 * end of its socket. It fires when the forking *thread* ends; ward and command line have one thread.
 * A parent that died before the call is seen by getppid():
 *
 *	parent              child
 *	fork
 *	dies
 *	                    prctl(PR_SET_PDEATHSIG)   too late: the signal was for an earlier death
 *	                    getppid() is another one -> leave
 *
 * Read next: client_spawn.h.
 */
#include "probe/client_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "probe/probe_wire.h"

#define ERROR_PIPE (PROBE_SOCKET + 1)

/* Where close_range() is not there (before 5.9, or forbidden), one by one. */
static void close_rest(unsigned int first)
{
	struct rlimit limit;

	if (syscall(SYS_close_range, first, ~0U, 0U) == 0)
		return;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > 1 << 20)
		limit.rlim_cur = 1 << 20;
	for (unsigned int fd = first; fd < limit.rlim_cur; fd++)
		(void)close((int)fd);
}

static void reset_signals(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		(void)sigaction(number, &action, NULL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Both are moved out of the way first, since either may be where the other has to go. */
static int place(int socket, int pipe)
{
	int high_socket = fcntl(socket, F_DUPFD_CLOEXEC, ERROR_PIPE + 1);
	int high_pipe = fcntl(pipe, F_DUPFD_CLOEXEC, ERROR_PIPE + 1);

	if (high_socket < 0 || high_pipe < 0 || dup2(high_socket, PROBE_SOCKET) < 0 ||
	    dup3(high_pipe, ERROR_PIPE, O_CLOEXEC) < 0)
		return -errno;
	close_rest(ERROR_PIPE + 1);
	return 0;
}

static int prepare(pid_t parent)
{
	reset_signals();
	if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	return getppid() == parent ? 0 : -ESRCH;
}

static void __attribute__((noreturn))
run_child(const char *path, int socket, int pipe, pid_t parent)
{
	char *const arguments[] = {(char *)"gpuward-probe", NULL};
	int report = pipe;
	int failure = -place(socket, pipe);

	if (!failure) {
		report = ERROR_PIPE;
		failure = -prepare(parent);
	}
	if (!failure) {
		(void)execv(path, arguments);
		failure = errno;
	}
	/* Nothing can be done if this fails: the parent then takes the end of the pipe for an exec. */
	(void)!write(report, &failure, sizeof(failure));
	_exit(127);
}

static void reap(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Returns 0 at end-of-file: the exec happened. */
static int read_failure(int pipe)
{
	int failure = 0;
	ssize_t got;

	do {
		got = read(pipe, &failure, sizeof(failure));
	} while (got < 0 && errno == EINTR);
	if (got == 0)
		return 0;
	return got == (ssize_t)sizeof(failure) && failure > 0 ? failure : EPROTO;
}

int spawn_probe(const char *path, int socket, pid_t *ret_pid, int *ret_pidfd,
		struct gw_error *ret_error)
{
	cleanup_fd int pidfd = -1;
	cleanup_fd int read_end = -1;
	cleanup_fd int write_end = -1;
	pid_t parent = getpid();
	int pipes[2];
	int failure;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return err_os(ret_error, errno, "cannot start %s", path);
	read_end = pipes[0];
	write_end = pipes[1];
	pid = fork();
	if (pid < 0)
		return err_os(ret_error, errno, "cannot start %s", path);
	if (pid == 0)
		run_child(path, socket, write_end, parent);
	fd_closep(&write_end);
	/* Not reaped yet, so the pid is still this child's. */
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	failure = pidfd < 0 ? errno : read_failure(read_end);
	if (failure) {
		(void)kill(pid, SIGKILL);
		reap(pid);
		return err_os(ret_error, failure, "cannot start %s", path);
	}
	*ret_pid = pid;
	*ret_pidfd = fd_steal(&pidfd);
	return 0;
}
