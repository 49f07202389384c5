/* SPDX-License-Identifier: MIT */
/*
 * The one way in which gpuward starts a program: fork, then exec.
 *
 * Runs in: host (which may have threads, CUDA and signal handlers of its own), ward, command line.
 * Everything is prepared before the fork; between fork and exec the child makes system calls only. It
 * gets the descriptors that it was given, by number, and no other; default signal dispositions; an
 * empty signal mask. Never blocks on the child: a failure to exec comes back on a pipe.
 *
 * Invariant: signals are blocked from before the fork until the child has let go of the handlers.
 *
 *	host with a handler for SIGTERM       child, without the block
 *	fork()
 *	                                      SIGTERM arrives: the host's handler runs here, and
 *	                                      writes into the pipe that it shares with the host
 *	host thinks that it was terminated    exec()
 *
 * Read next: procref.h.
 */
#ifndef GPUWARD_LINUX_SPAWN_H
#define GPUWARD_LINUX_SPAWN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <gpuward.h>

#include "linux/procref.h"

#define SPAWN_FDS_MAX 8

enum spawn_flags {
	/* The kernel kills the child when the calling *thread* ends: only for programs of one thread. */
	SPAWN_PDEATHSIG = 1,
	/* A process group of its own, so that Ctrl-C in the terminal does not reach it. */
	SPAWN_NEW_GROUP = 2,
	/* Look for the program in PATH, as a shell does, if its name has no slash. */
	SPAWN_SEARCH_PATH = 4,
	/* The child inherits every descriptor that is not close-on-exec, as from a shell: for a command
	 * that somebody else wrote on gpuward's command line. Without `fds`. */
	SPAWN_INHERIT_FDS = 8,
};

struct spawn {
	const char *program; /* path or name; NULL: program_fd */
	int program_fd;	     /* an open program, O_PATH is enough */
	const char *const *argv;
	const char *const *envp;
	const int *fds;		     /* the child gets them as 3, 4, 5 and so on */
	size_t n_fds;		     /* at most SPAWN_FDS_MAX */
	const struct rlimit *nofile; /* the child's RLIMIT_NOFILE; NULL: the caller's */
	unsigned int flags;	     /* enum spawn_flags */
};

struct spawned {
	struct procref process;
	int status_fd;	     /* the child's last words before an exec that worked */
	int32_t failed_step; /* what the child could not do, from the pipe; 0: nothing known */
	int32_t failed_errno;
};

#define SPAWNED_NONE                                                                               \
	((struct spawned){.process = {.pid = -1, .pidfd = -1, .started_ns = GW_UNKNOWN},           \
			  .status_fd = -1})

/*
 * Starts a process. Owns: the caller owns *RET_SPAWNED and ends it with spawn_done(), after it has
 * reaped the process.
 * Returns 0; -ENOENT or -EACCES nothing to run under this name in PATH; -EAGAIN RLIMIT_NPROC or pids.max;
 *   -EMFILE, -ENFILE; -ENOMEM; -ENOSYS no pidfds in this kernel; -EINVAL.
 */
int spawn(const struct spawn *spec, struct spawned *ret_spawned, struct gw_error *ret_error);

/*
 * What is known now of the exec. Never blocks. Valid any number of times until spawn_done(), and final
 * once the process has ended.
 * Returns 0 when no failure is known; or -ENOENT, -EACCES, -ENOEXEC, -EMFILE and so on with the text,
 * which names PROGRAM.
 */
int spawn_failure(struct spawned *spawned, const char *program, struct gw_error *ret_error);

/* Closes the descriptors. The process lives on. */
void spawn_done(struct spawned *spawned);

#endif
