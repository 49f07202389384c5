/* SPDX-License-Identifier: MIT */
/*
 * Description: each system call that gpuward makes fails once, at its first, second, third ... place in
 * host, ward and worker. Every run ends in a success or in one clear refusal; nothing crashes, hangs or
 * is left behind.
 *
 * The kernel asks this process about one call of a whole process tree (seccomp's user notification):
 * the filter is inherited by fork and exec, and the answer is "go on" or an errno. So nothing in the
 * product knows of the test, and the linker and libc of its programs are covered too.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "../world.h"
#include "common/fd.h"
#include "run.h"
#include "subject.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* Rungs of one ladder, at the most: a process that waits makes the same call again and again. */
#define PLACES_MAX 40

#define HOST_NAME "ladder-host"

enum role {
	ROLE_HOST, /* and its children before their exec */
	ROLE_WARD,
	ROLE_WORKER,
	ROLES
};

static const char *const role_names[ROLES] = {"host", "ward", "worker"};

static const struct call {
	const char *name;
	long number;
	int error;
} calls[] = {
	{"clone", SYS_clone, EAGAIN},
	{"clone3", SYS_clone3, EAGAIN},
	{"close_range", SYS_close_range, ENOSYS},
	{"close_range", SYS_close_range, EPERM},
	{"dup3", SYS_dup3, EBUSY},
	{"epoll_create1", SYS_epoll_create1, EMFILE},
	{"epoll_ctl", SYS_epoll_ctl, ENOSPC},
	{"eventfd2", SYS_eventfd2, ENFILE},
	{"execve", SYS_execve, ENOMEM},
	{"execveat", SYS_execveat, ENOMEM},
	{"fcntl", SYS_fcntl, EMFILE},
	{"ftruncate", SYS_ftruncate, ENOSPC},
	{"futex", SYS_futex, EINTR},
	{"futex_waitv", SYS_futex_waitv, ENOSYS},
	{"futex_waitv", SYS_futex_waitv, EPERM},
	{"futex_waitv", SYS_futex_waitv, ENOMEM},
	{"madvise", SYS_madvise, EINVAL},
	{"memfd_create", SYS_memfd_create, EMFILE},
	{"mmap", SYS_mmap, ENOMEM},
	{"openat", SYS_openat, EMFILE},
	{"pidfd_open", SYS_pidfd_open, EMFILE},
	{"pidfd_send_signal", SYS_pidfd_send_signal, EPERM},
	{"pipe2", SYS_pipe2, EMFILE},
	{"ppoll", SYS_ppoll, ENOMEM},
	{"prctl", SYS_prctl, EPERM},
	{"recvmsg", SYS_recvmsg, ENOMEM},
	{"sendmsg", SYS_sendmsg, ENOBUFS},
	{"set_robust_list", SYS_set_robust_list, ENOSYS},
	{"setpgid", SYS_setpgid, EPERM},
	{"signalfd4", SYS_signalfd4, EMFILE},
	{"socketpair", SYS_socketpair, EMFILE},
	{"timerfd_create", SYS_timerfd_create, EMFILE},
	{"timerfd_settime", SYS_timerfd_settime, EINVAL},
	{"waitid", SYS_waitid, EINTR},
#ifdef SYS_dup2
	{"dup2", SYS_dup2, EBUSY},
#endif
#ifdef SYS_epoll_wait
	{"epoll_wait", SYS_epoll_wait, EINTR},
#endif
#ifdef SYS_poll
	{"poll", SYS_poll, ENOMEM},
#endif
#ifdef SYS_vfork
	{"vfork", SYS_vfork, EAGAIN},
#endif
};

/* One rung: which call fails, where, and the how manieth. */
struct rung {
	const struct call *call;
	enum role role;
	unsigned int place;
	unsigned int seen; /* calls in that role so far */
};

/* ---- the filter ---- */

/* Asks about one call, and allows every other. Returns the descriptor to be asked at, or -1. */
static int install_filter(long number)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]),
					  .filter = program};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			    &filter);
}

/* Says the listener's number, and waits until it was fetched. Uses read, write and close alone, which
 * no filter here asks about. */
static void hand_over_listener(int listener, int say_fd, int go_fd)
{
	char go;

	if (write(say_fd, &listener, sizeof(listener)) != (ssize_t)sizeof(listener) ||
	    listener < 0 || read(go_fd, &go, 1) != 1)
		_exit(SUBJECT_WRONG);
	(void)close(listener);
	(void)close(say_fd);
	(void)close(go_fd);
}

/* Takes the listener out of the child. -1 where the kernel has no such filters. */
static int fetch_listener(pid_t host, int said_fd, int go_fd)
{
	int pidfd = (int)syscall(SYS_pidfd_open, host, 0);
	int number = -1;
	int listener = -1;

	assert_true(pidfd >= 0);
	if (read(said_fd, &number, sizeof(number)) == (ssize_t)sizeof(number) && number >= 0)
		listener = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
	if (listener >= 0)
		assert_int_equal(write(go_fd, "", 1), 1);
	(void)close(pidfd);
	return listener;
}

/* ---- the answers ---- */

static enum role role_of(uint32_t thread)
{
	char path[64], name[32] = "";
	ssize_t bytes = 0;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%u/comm", thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		bytes = read(fd, name, sizeof(name) - 1);
	fd_close(fd);
	name[bytes > 0 ? bytes : 0] = '\0';
	if (strncmp(name, HOST_NAME, strlen(HOST_NAME)) == 0)
		return ROLE_HOST;
	return strncmp(name, "gpuward-ward", 12) == 0 ? ROLE_WARD : ROLE_WORKER;
}

/* Some cannot fail in a kernel that works: a wake-up (libc gives up the process if one does), and a
 * change of what an epoll descriptor has already, which needs no memory. */
static bool may_fail(const struct seccomp_notif *question)
{
	if (question->data.nr == SYS_futex)
		return (question->data.args[1] & FUTEX_CMD_MASK) != FUTEX_WAKE;
	if (question->data.nr == SYS_epoll_ctl)
		return question->data.args[1] == EPOLL_CTL_ADD;
	return true;
}

static void answer(int listener, void *argument)
{
	struct rung *rung = argument;
	struct seccomp_notif question = {0};
	struct seccomp_notif_resp reply = {0};

	/* A process can be gone before its question was read, or answered. */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &question) < 0)
		return;
	reply.id = question.id;
	reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	if (may_fail(&question) && role_of(question.pid) == rung->role &&
	    ++rung->seen == rung->place) {
		reply.flags = 0;
		reply.error = -rung->call->error;
	}
	(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply);
}

/* ---- the ladder ---- */

static _Noreturn void be_host(const struct run *run, const struct rung *rung, const int pipes[4],
			      enum subject_end (*subject)(void))
{
	run_child(run);
	(void)close(pipes[0]);
	(void)close(pipes[3]);
	(void)prctl(PR_SET_NAME, HOST_NAME);
	hand_over_listener(install_filter(rung->call->number), pipes[1], pipes[2]);
	_exit((int)subject());
}

/* Runs the subject with RUNG pulled out. Returns whether the rung was reached. */
static bool climb(struct rung *rung, enum subject_end (*subject)(void), unsigned int *refusals)
{
	int pipes[4]; /* listener's number: [0] <- [1]; go: [2] <- [3] */
	struct run run;
	bool refused = false;
	const char *fault;
	int listener;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(pipe2(pipes + 2, O_CLOEXEC), 0);
	run_begin(&run);
	run.host = fork();
	if (run.host == 0)
		be_host(&run, rung, pipes, subject);
	assert_true(run.host > 0);
	(void)close(pipes[1]);
	(void)close(pipes[2]);
	listener = fetch_listener(run.host, pipes[0], pipes[3]);
	(void)close(pipes[0]);
	(void)close(pipes[3]);
	run_finish(&run, listener, answer, rung);
	fd_close(listener);
	fault = listener < 0 ? "no listener" : run_judge(&run, &refused);
	if (fault)
		fail_msg("%s %u of the %s fails with %s: %s (status %x)\n%s", rung->call->name,
			 rung->place, role_names[rung->role], strerrorname_np(rung->call->error),
			 fault, (unsigned int)run.status, run.text);
	if (getenv("LADDER_VERBOSE"))
		print_message("%-6s %-17s %2u %-7s %s%s", role_names[rung->role], rung->call->name,
			      rung->place, strerrorname_np(rung->call->error), run.text,
			      run.text[0] ? "" : "done\n");
	*refusals += refused;
	return rung->seen >= rung->place;
}

static void climb_all(enum subject_end (*subject)(void), enum role last_role)
{
	unsigned int runs = 0, refusals = 0;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		for (enum role role = ROLE_HOST; role <= last_role; role++) {
			struct rung rung = {.call = &calls[i], .role = role};
			bool reached = true;

			while (reached && rung.place < PLACES_MAX) {
				rung.place++;
				rung.seen = 0;
				reached = climb(&rung, subject, &refusals);
				runs++;
			}
		}
	}
	print_message("%u runs, %u of them refused in clear words\n", runs, refusals);
}

static void a_pool_survives_each_call_that_fails(void **state)
{
	(void)state;
	climb_all(subject_pool, ROLE_WORKER);
}

static void gw_isolate_survives_each_call_that_fails(void **state)
{
	(void)state;
	climb_all(subject_isolate, ROLE_HOST);
}

/* Nested filters with a listener are refused (EBUSY), as are all where seccomp is switched off. */
static bool filters_work(void)
{
	int status = 1;
	pid_t child = fork();

	if (child == 0)
		_exit(install_filter(SYS_pidfd_open) < 0);
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(a_pool_survives_each_call_that_fails),
		world_test(gw_isolate_survives_each_call_that_fails),
	};

	if (gw_is_worker())
		return gw_worker_run(subject_functions);
	if (!filters_work()) {
		(void)puts("skipped: this kernel or container has no seccomp user notification");
		return 77;
	}
	world_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
