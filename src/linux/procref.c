/* SPDX-License-Identifier: MIT */
#include "linux/procref.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"

/* In <sys/wait.h> only since glibc 2.36. */
#define WAIT_FOR_PIDFD ((idtype_t)3)

int procref_open(struct procref *ret_process, int32_t pid, struct gw_error *ret_error)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (pidfd < 0 && errno == ENOSYS)
		return err_os(
			ret_error, ENOSYS,
			"pidfd_open is missing: gpuward needs Linux 5.4, and a container must "
			"not filter the call");
	if (pidfd < 0)
		return err_os(ret_error, errno, "cannot refer to process %d", pid);
	*ret_process = (struct procref){.pid = pid, .pidfd = pidfd, .started_ns = GW_UNKNOWN};
	return 0;
}

void procref_done(struct procref *process)
{
	fd_close(process->pidfd);
	*process = PROCREF_NONE;
}

int procref_signal(const struct procref *process, int signal)
{
	if (process->pidfd < 0)
		return -ESRCH;
	if (syscall(SYS_pidfd_send_signal, process->pidfd, signal, NULL, 0) < 0)
		return -errno;
	return 0;
}

int procref_reap(const struct procref *process, struct procref_end *ret_end)
{
	siginfo_t info = {0};

	if (process->pidfd < 0)
		return -ECHILD;
	while (waitid(WAIT_FOR_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	if (info.si_pid == 0)
		return 0;
	*ret_end = (struct procref_end){.by_signal = info.si_code != CLD_EXITED,
					.value = info.si_status};
	return 1;
}

/* PF_EXITING of the kernel's sched.h, in field 9 of /proc/PID/stat: stable since there is /proc. */
#define FLAG_EXITING 0x4U

/* Fields are counted from the one behind the name, which can contain anything; that is number 3. */
static bool read_field(const char *from, int number, unsigned long long *ret_value)
{
	char *end;

	for (int i = 3; i < number; i++) {
		from = strchr(from, ' ');
		if (!from)
			return false;
		from++;
	}
	errno = 0;
	*ret_value = strtoull(from, &end, 10);
	return errno == 0 && end != from;
}

/* Field 52 reads 0 for one who may not look, and for a process that exits with 0: then nothing is known. */
static bool parse_end(const char *stat, struct procref_end *ret_end)
{
	const char *fields = strrchr(stat, ')');
	unsigned long long flags, code;

	if (!fields || fields[1] != ' ' || !read_field(fields + 2, 9, &flags) ||
	    !read_field(fields + 2, 52, &code) || !(flags & FLAG_EXITING) || code == 0)
		return false;
	*ret_end = (struct procref_end){.by_signal = WIFSIGNALED((int)code),
					.value = WIFSIGNALED((int)code) ? WTERMSIG((int)code)
									: WEXITSTATUS((int)code)};
	return true;
}

int procref_peek(const struct procref *process, struct procref_end *ret_end)
{
	char path[32];
	char stat[1024];
	cleanup_fd int fd = -1;
	ssize_t bytes;

	/* The number is this process's as long as it was not reaped, and only its parent reaps it. */
	(void)snprintf(path, sizeof(path), "/proc/%d/stat", process->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	bytes = read(fd, stat, sizeof(stat) - 1);
	if (bytes <= 0)
		return 0;
	stat[bytes] = '\0';
	return parse_end(stat, ret_end) ? 1 : 0;
}

/* The rest of the time until DEADLINE_NS, for ppoll(). */
static struct timespec time_left(uint64_t deadline_ns)
{
	uint64_t now = now_ns();
	uint64_t left = deadline_ns > now ? deadline_ns - now : 0;

	return (struct timespec){.tv_sec = (time_t)(left / 1000000000U),
				 .tv_nsec = (long)(left % 1000000000U)};
}

/*
 * For what no descriptor tells: there is no memory for a poll, or the host has lowered RLIMIT_NOFILE to 0;
 * or the child has ended by its pidfd and cannot be reaped yet, which happens where somebody traces it
 * (a debugger, a leak checker) and has not let go. It is looked at again then.
 */
static void sleep_a_moment(void)
{
	const struct timespec moment = {.tv_nsec = 1000000};

	(void)nanosleep(&moment, NULL);
}

/* Whether a process that its pidfd shows as ended cannot be reaped. */
static bool ended_early(const struct procref *process)
{
	siginfo_t info = {0};

	return waitid(WAIT_FOR_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) ==
		       0 &&
	       info.si_pid == 0;
}

int procref_wait(const struct procref *process, uint64_t deadline_ns, struct procref_end *ret_end)
{
	struct pollfd ended = {.fd = process->pidfd, .events = POLLIN};

	for (;;) {
		struct timespec left = time_left(deadline_ns);
		int result = procref_reap(process, ret_end);

		if (result != 0 || now_ns() >= deadline_ns)
			return result;
		result = ppoll(&ended, 1, deadline_ns == GW_FOREVER ? NULL : &left, NULL);
		if ((result < 0 && errno != EINTR) || (result > 0 && ended_early(process)))
			sleep_a_moment();
	}
}
