/* SPDX-License-Identifier: MIT */
#include "linux/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define FIRST_FD    3 /* where the child's own descriptors begin */
#define PATH_BYTES  4096
#define STATUS_EXIT 127 /* as a shell's for a command that cannot run */

/* What the child was doing when it failed. */
enum step {
	STEP_NONE,
	STEP_FDS,
	STEP_GROUP,
	STEP_PDEATHSIG,
	STEP_EXEC,
};

/* What the child needs, ready before the fork. */
struct child {
	const struct spawn *spec;
	const char *path; /* NULL: program_fd */
	int status_fd;
	pid_t parent;
};

struct status {
	int32_t step;
	int32_t error;
};

static _Noreturn void child_fail(const struct child *child, enum step step)
{
	struct status status = {.step = (int32_t)step, .error = errno};

	(void)!write(child->status_fd, &status, sizeof(status));
	_exit(STATUS_EXIT);
}

static void child_reset_signals(void)
{
	struct sigaction defaults = {.sa_handler = SIG_DFL};

	/* Also what was ignored: an ignored SIGCHLD would survive the exec. */
	for (int number = 1; number < NSIG; number++)
		(void)sigaction(number, &defaults, NULL);
}

/* Moves *FD to the range that nothing is put into. The old number is closed later with the rest. */
static bool child_lift(int *fd, int above)
{
	int lifted = fcntl(*fd, F_DUPFD_CLOEXEC, above);

	if (lifted < 0) {
		/* A number past RLIMIT_NOFILE. */
		if (errno == EINVAL)
			errno = EMFILE;
		return false;
	}
	*fd = lifted;
	return true;
}

/* Without this a file that the program opens could become its standard output. */
static bool child_fill_standard_fds(void)
{
	for (int fd = 0; fd < FIRST_FD; fd++) {
		int flags = fcntl(fd, F_GETFD);
		int null;

		if (flags >= 0 && !(flags & FD_CLOEXEC))
			continue;
		null = open("/dev/null", O_RDWR);
		if (null < 0)
			return false;
		if (null != fd && dup2(null, fd) < 0)
			return false;
	}
	return true;
}

/* Where close_range is missing or filtered. opendir() would allocate. */
static void child_close_one_by_one(const struct spawn *spec, unsigned int first)
{
	struct rlimit limit = {.rlim_cur = 1024};
	rlim_t end;

	if (spec->nofile)
		limit = *spec->nofile;
	else
		(void)getrlimit(RLIMIT_NOFILE, &limit);
	/* A descriptor can lie above a limit that was lowered later; none of gpuward's does, since all
	 * are close-on-exec from birth. This is for those of the host. */
	end = limit.rlim_cur < 1048576 ? limit.rlim_cur : 1048576;
	for (rlim_t fd = first; fd < end; fd++)
		(void)close((int)fd);
}

/*
 * Puts the descriptors where the program expects them. Sources and targets may overlap, so all are
 * lifted above the targets first:
 *
 *	sources 4 3, put in order: dup2(4, 3) destroys the second source
 *	sources 4 3 lifted to 7 8: dup2(7, 3), dup2(8, 4)
 */
static bool child_place_fds(struct child *child, int *program_fd)
{
	const struct spawn *spec = child->spec;
	int above = FIRST_FD + (int)spec->n_fds + 2;
	int lifted[SPAWN_FDS_MAX];
	int status_place = above - 1;
	int program_place = above - 2;

	if (spec->flags & SPAWN_INHERIT_FDS)
		return true;
	if (!child_lift(&child->status_fd, above))
		return false;
	for (size_t i = 0; i < spec->n_fds; i++) {
		lifted[i] = spec->fds[i];
		if (!child_lift(&lifted[i], above))
			return false;
	}
	if (!child->path && !child_lift(program_fd, above))
		return false;
	if (!child_fill_standard_fds())
		return false;
	for (size_t i = 0; i < spec->n_fds; i++) {
		if (dup2(lifted[i], FIRST_FD + (int)i) < 0)
			return false;
	}
	if (!child->path && dup3(*program_fd, program_place, O_CLOEXEC) < 0)
		return false;
	if (dup3(child->status_fd, status_place, O_CLOEXEC) < 0)
		return false;
	child->status_fd = status_place;
	if (child->path)
		(void)close(program_place);
	*program_fd = program_place;
	if (syscall(SYS_close_range, (unsigned int)above, ~0U, 0U) < 0)
		child_close_one_by_one(spec, (unsigned int)above);
	return true;
}

/*
 * Last before the exec, and followed by a look at the parent: if it died before the call, no signal
 * comes any more.
 */
static void child_set_pdeathsig(const struct child *child)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		child_fail(child, STEP_PDEATHSIG);
	if (getppid() != child->parent)
		_exit(STATUS_EXIT);
}

static _Noreturn void child_run(struct child *child)
{
	const struct spawn *spec = child->spec;
	int program_fd = spec->program_fd;
	sigset_t none;

	child_reset_signals();
	if (!child_place_fds(child, &program_fd))
		child_fail(child, STEP_FDS);
	/* After the descriptors were placed: the lowest free number may lie above the child's limit. */
	if (spec->nofile)
		(void)setrlimit(RLIMIT_NOFILE, spec->nofile);
	if ((spec->flags & SPAWN_NEW_GROUP) && setpgid(0, 0) < 0)
		child_fail(child, STEP_GROUP);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (spec->flags & SPAWN_PDEATHSIG)
		child_set_pdeathsig(child);
	/* By number: the prototypes predate const, the kernel does not write. */
	if (child->path)
		(void)syscall(SYS_execve, child->path, spec->argv, spec->envp);
	else
		(void)syscall(SYS_execveat, program_fd, "", spec->argv, spec->envp, AT_EMPTY_PATH);
	child_fail(child, STEP_EXEC);
}

/*
 * A fork that gives the pidfd at the same time, so that no other thread of the host can reap the child
 * before there is one. The raw call leaves out the handlers of pthread_atfork(): they belong to the
 * host, and the child does not return to its code. Returns as fork().
 */
static pid_t fork_with_pidfd(int *ret_pidfd)
{
	int pidfd = -1;
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0);

	*ret_pidfd = pidfd;
	return pid;
}

static int fork_error(int number, struct gw_error *ret_error)
{
	if (number == EAGAIN)
		return err_os(
			ret_error, EAGAIN,
			"cannot start a process: a limit is reached (ulimit -u, or pids.max of "
			"the control group)");
	if (number == EMFILE || number == ENFILE)
		return err_os(ret_error, number, "cannot start a process: no descriptor is left");
	return err_os(ret_error, number, "cannot start a process");
}

/* Tools that emulate system calls may leave the flag out: then there is one more call. */
static int refer_to_child(struct procref *ret_process, pid_t pid, int pidfd,
			  struct gw_error *ret_error)
{
	int result = 0;

	*ret_process = (struct procref){.pid = pid, .pidfd = pidfd, .started_ns = GW_UNKNOWN};
	if (pidfd < 0)
		result = procref_open(ret_process, pid, ret_error);
	if (result < 0) {
		/* Our own child, not reaped yet: the number is still its own. */
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	return result;
}

static int start(struct child *child, struct procref *ret_process, struct gw_error *ret_error)
{
	uint64_t now = now_ns();
	sigset_t all, old;
	int pidfd, number, result;
	pid_t pid;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = fork_with_pidfd(&pidfd);
	if (pid == 0)
		child_run(child);
	number = errno;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return fork_error(number, ret_error);
	result = refer_to_child(ret_process, pid, pidfd, ret_error);
	ret_process->started_ns = now;
	return result;
}

static const char *search_path(const char *const *envp)
{
	for (const char *const *entry = envp; *entry; entry++) {
		if (strncmp(*entry, "PATH=", 5) == 0)
			return *entry + 5;
	}
	return "/usr/local/bin:/usr/bin:/bin";
}

static bool is_file(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* Finds NAME in PATH of the child's environment. */
static int find_program(const char *name, const char *const *envp, char path[PATH_BYTES],
			struct gw_error *ret_error)
{
	const char *folder = search_path(envp);
	bool denied = false;

	while (true) {
		size_t bytes = strcspn(folder, ":");
		int written = snprintf(path, PATH_BYTES, "%.*s%s%s", (int)bytes, folder,
				       bytes > 0 ? "/" : "", name);

		if (written > 0 && written < PATH_BYTES && is_file(path)) {
			if (access(path, X_OK) == 0)
				return 0;
			denied = true;
		}
		if (folder[bytes] == '\0')
			break;
		folder += bytes + 1;
	}
	if (denied)
		return err_os(ret_error, EACCES,
			      "cannot run %s: found in PATH, but it is not executable", name);
	return err_os(ret_error, ENOENT, "cannot run %s: it is in no folder of PATH", name);
}

/* Sets *RET_PATH to what to execute: NULL for a descriptor. */
static int choose_program(const struct spawn *spec, char path[PATH_BYTES], const char **ret_path,
			  struct gw_error *ret_error)
{
	int result;

	*ret_path = spec->program;
	if (!spec->program || !(spec->flags & SPAWN_SEARCH_PATH) || strchr(spec->program, '/'))
		return 0;
	result = find_program(spec->program, spec->envp, path, ret_error);
	*ret_path = path;
	return result;
}

int spawn(const struct spawn *spec, struct spawned *ret_spawned, struct gw_error *ret_error)
{
	char path[PATH_BYTES];
	struct child child = {.spec = spec, .parent = getpid()};
	struct spawned spawned = SPAWNED_NONE;
	int pipe_fds[2];
	int result;

	if (spec->n_fds > SPAWN_FDS_MAX)
		return err_os(ret_error, EINVAL, "too many descriptors for one process");
	result = choose_program(spec, path, &child.path, ret_error);
	if (result < 0)
		return result;
	if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return fork_error(errno, ret_error);
	child.status_fd = pipe_fds[1];
	spawned.status_fd = pipe_fds[0];
	result = start(&child, &spawned.process, ret_error);
	fd_close(pipe_fds[1]);
	if (result < 0) {
		fd_close(pipe_fds[0]);
		return result;
	}
	*ret_spawned = spawned;
	return 0;
}

static int exec_error(int number, const char *program, struct gw_error *ret_error)
{
	const char *hint = "";

	if (number == ENOENT)
		hint = " (it, or the interpreter that it names, is missing)";
	else if (number == EACCES)
		hint = " (not executable, or on a file system mounted noexec)";
	else if (number == ENOEXEC)
		hint = " (no program for this machine; a script needs a first line with #!)";
	return err_os(ret_error, number, "cannot run %s%s", program, hint);
}

int spawn_failure(struct spawned *spawned, const char *program, struct gw_error *ret_error)
{
	struct status status;
	int number;

	if (spawned->failed_step == STEP_NONE && spawned->status_fd >= 0 &&
	    read(spawned->status_fd, &status, sizeof(status)) == (ssize_t)sizeof(status)) {
		spawned->failed_step = status.step;
		spawned->failed_errno = status.error;
	}
	number = spawned->failed_errno;
	switch (spawned->failed_step) {
	case STEP_NONE:
		return 0;
	case STEP_FDS:
		return err_os(ret_error, number,
			      "cannot start %s: its descriptors cannot be put in place (ulimit -n)",
			      program);
	case STEP_GROUP:
		return err_os(ret_error, number, "cannot start %s in a process group of its own",
			      program);
	case STEP_PDEATHSIG:
		return err_os(ret_error, number, "cannot tie %s to its parent's life", program);
	default:
		return exec_error(number, program, ret_error);
	}
}

void spawn_done(struct spawned *spawned)
{
	fd_close(spawned->status_fd);
	procref_done(&spawned->process);
	*spawned = SPAWNED_NONE;
}
