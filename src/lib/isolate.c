/* SPDX-License-Identifier: MIT */
/*
 * gw_isolate: a function in a forked child, and in a fresh one again while it crashes.
 *
 * Runs in: the host's calling thread, which is the only one (forkable.c), and in the child. The parent
 * never calls CUDA, never waits for a child that is not its own, and is not disturbed by a host that
 * ignores SIGCHLD or reaps every child itself.
 *
 * What the child answers is one word in a shared page of this attempt alone. It carries a number that
 * is new in each attempt, so that a child which scribbles over memory does not answer by chance, and a
 * grandchild that a dead attempt left behind cannot answer for the next one.
 *
 * Child and parent agree at the start over a socket pair, since two things can go wrong:
 *
 *	parent			child			somebody else
 *	fork -> 17
 *				ends
 *							reaps 17, forks: 17 again
 *	pidfd_open(17): a stranger
 *
 *	fork			(has not run yet)
 *	is killed
 *				asks to die with its parent, which is dead: lives for ever
 *
 * So the child first asks for the signal, then waits for the parent's byte, which comes when the pidfd
 * is there, and then looks whether the parent's end is still open. The kernel closes a dying process's
 * descriptors before it sends its children the signal: one of the two always arrives. (getppid() could
 * not tell: it says 0 in a new pid namespace, whether the parent lives or not.)
 *
 * Invariant: on every way out the child is gone, and no descriptor or mapping is left but the shared
 * region that the caller takes. Read next: forkable.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gpuward.h>

#include "common/err.h"
#include "common/fd.h"
#include "gpu/faults.h"
#include "lib/forkable.h"

#define SHARED_BYTES_DEFAULT 4096U
/* SIGKILL ends a process in milliseconds, unless it is stuck in the kernel. */
#define KILL_DEADLINE_NS 10000000000ULL

#define ATTEMPTS_DEFAULT 3U
#define NS_PER_SECOND	 1000000000U

/* How the child leaves when its function is not to blame. Nobody reads it. */
#define EXIT_ABANDONED 125

/* The child's answer: the attempt's number in the upper half, the function's value in the lower. */
struct answer {
	_Atomic uint64_t word;
};

/* One attempt, as the parent knows it. Only *answer can be written by the child. */
struct attempt {
	const struct gw_isolate_options *options;
	struct answer *answer;
	uint32_t key; /* what the upper half of the answer has to be */
	uint32_t number;
	void *shared;
	uint64_t shared_bytes;
	int socket; /* the parent's end: open as long as the parent lives */
	int pidfd;
	pid_t pid;
	struct gw_exit exit;
	bool stuck; /* SIGKILL does not end it */
};

static uint64_t shared_size(uint64_t bytes)
{
	return bytes ? bytes : SHARED_BYTES_DEFAULT;
}

/* Zeroed memory that a forked child shares. Returns NULL with errno. */
static void *map_shared(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* ---- the child ---- */

/* Waits until the parent holds the pidfd, and makes sure that this process ends with the parent. */
static void await_parent(int socket)
{
	struct pollfd parent = {.fd = socket, .events = 0};
	ssize_t got;
	char byte;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	do
		got = read(socket, &byte, 1);
	while (got < 0 && errno == EINTR);
	if (got != 1 || poll(&parent, 1, 0) != 0)
		_exit(EXIT_ABANDONED);
	(void)close(socket);
}

_Noreturn static void run_child(int (*function)(const struct gw_isolated *run),
				const struct attempt *attempt, int socket)
{
	const struct gw_isolated run = {
		.shared = attempt->shared,
		.shared_bytes = attempt->shared_bytes,
		.attempt = attempt->number,
		.argument = attempt->options->argument,
	};
	struct answer *answer = attempt->answer;
	uint64_t key = attempt->key;
	pid_t self = getpid();
	int value;

	(void)close(attempt->socket);
	await_parent(socket);
	value = function(&run);
	/* A process that the function forked may come back here too: it does not answer. */
	if (getpid() == self)
		atomic_store(&answer->word, key << 32 | (uint32_t)value);
	_exit(0);
}

/* ---- the parent ---- */

static int open_pidfd(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by definition */
}

/* Ends a child that waits for its byte: it sees the end of file and leaves. */
static void abandon_child(struct attempt *attempt)
{
	fd_closep(&attempt->socket);
	while (waitpid(attempt->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int start_failed(struct gw_error *ret_error, int number, const char *what)
{
	switch (number) {
	case EAGAIN:
		return err_os(ret_error, number,
			      "no process can be made (RLIMIT_NPROC, or the control group's "
			      "pids.max): raise the limit or end other processes");
	case EMFILE:
		return err_os(
			ret_error, number,
			"gw_isolate needs 3 free descriptors (RLIMIT_NOFILE): raise the limit "
			"or close some");
	case ENOSYS:
		return err_os(ret_error, number, "%s: gpuward needs Linux 5.10 or later", what);
	default:
		return err_os(ret_error, number, "%s", what);
	}
}

/* Forks the child, and lets it run once its pidfd is there. */
static int start_child(int (*function)(const struct gw_isolated *run), struct attempt *attempt,
		       struct gw_error *ret_error)
{
	int sockets[2];
	cleanup_fd int childs_end = -1;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
		return start_failed(ret_error, errno, "cannot make a socket");
	attempt->socket = sockets[0];
	childs_end = sockets[1];
	attempt->exit.started_ns = now_ns();
	attempt->pid = fork();
	if (attempt->pid < 0)
		return start_failed(ret_error, errno, "cannot fork");
	if (attempt->pid == 0)
		run_child(function, attempt, childs_end);
	attempt->exit.pid = attempt->pid;
	attempt->pidfd = open_pidfd(attempt->pid);
	if (attempt->pidfd < 0) {
		int number = errno;

		abandon_child(attempt);
		return start_failed(ret_error, number, "cannot open a pidfd");
	}
	/* A child that was killed meanwhile does not read it, which is no trouble: MSG_NOSIGNAL. */
	(void)send(attempt->socket, "", 1, MSG_NOSIGNAL);
	return 0;
}

/* Sleeps until the process is gone (true) or the time DEADLINE_NS has come (false). */
static bool await_end(int pidfd, uint64_t deadline_ns)
{
	struct pollfd process = {.fd = pidfd, .events = POLLIN};

	for (;;) {
		struct timespec rest;
		uint64_t now = now_ns();
		uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
		int ready;

		rest.tv_sec = (time_t)(left / NS_PER_SECOND);
		rest.tv_nsec = (long)(left % NS_PER_SECOND);
		ready = ppoll(&process, 1, deadline_ns == GW_FOREVER ? NULL : &rest, NULL);
		if (ready == 0)
			return false;
		/* An error that is no interruption (RLIMIT_NOFILE 0): the caller's waitid waits. */
		if (ready > 0 || errno != EINTR)
			return true;
	}
}

static uint64_t deadline_of(const struct attempt *attempt)
{
	uint64_t allowed = attempt->options->deadline_ns;

	if (!allowed || allowed > GW_FOREVER - attempt->exit.started_ns)
		return GW_FOREVER;
	return attempt->exit.started_ns + allowed;
}

static bool read_answer(const struct attempt *attempt, int *ret_value)
{
	uint64_t word = atomic_load(&attempt->answer->word);

	if (word >> 32 != attempt->key)
		return false;
	*ret_value = (int)(uint32_t)word;
	return true;
}

static void describe_result(struct gw_exit *exit, int value)
{
	exit->source = GW_SOURCE_RESULT;
	exit->value = value;
	if (!cuda_ends_process(value)) {
		exit->end = GW_END_RESULT;
		(void)snprintf(exit->text, sizeof(exit->text), "the function returned %d", value);
		return;
	}
	exit->end = GW_END_CUDA;
	exit->cuda = value;
	(void)snprintf(exit->text, sizeof(exit->text), "CUDA error %d %s: %s", value,
		       gw_cuda_name(value), gw_cuda_text(value));
}

static void describe_deadline(struct gw_exit *exit, uint64_t allowed_ns)
{
	exit->end = GW_END_DEADLINE;
	exit->source = GW_SOURCE_DEADLINE;
	(void)snprintf(exit->text, sizeof(exit->text),
		       "the function had not returned after %" PRIu64 ".%03" PRIu64
		       " s, so its process was killed",
		       allowed_ns / NS_PER_SECOND, allowed_ns / 1000000 % 1000);
}

static void describe_death(struct gw_exit *exit, const siginfo_t *info)
{
	const char *name;

	exit->value = info->si_status;
	if (info->si_code == CLD_EXITED) {
		exit->end = GW_END_EXIT;
		(void)snprintf(exit->text, sizeof(exit->text),
			       "the process exited with code %d before the function returned",
			       info->si_status);
		return;
	}
	exit->end = GW_END_SIGNAL;
	name = sigdescr_np(info->si_status);
	(void)snprintf(exit->text, sizeof(exit->text), "signal %d (%s) ended the process%s",
		       info->si_status, name ? name : "unknown",
		       info->si_code == CLD_DUMPED ? ", core dumped" : "");
}

/* Blocked in the driver, most likely. It stays a child of this process, and ends when the driver does. */
static void describe_stuck(struct gw_exit *exit)
{
	exit->end = GW_END_DEADLINE;
	exit->source = GW_SOURCE_DEADLINE;
	exit->gone_ns = GW_UNKNOWN;
	(void)snprintf(exit->text, sizeof(exit->text),
		       "was killed at its deadline and does not end: it is blocked in the driver "
		       "or another part of the kernel, see /proc/%d/stack",
		       exit->pid);
}

/*
 * Waits for the child's end, kills it when it is late, and reaps it. What the function returned comes
 * first: a process that dies on its way out, or is late only there, has done its work.
 */
static void finish_child(struct attempt *attempt)
{
	struct gw_exit *exit = &attempt->exit;
	siginfo_t info = {0};
	bool late = !await_end(attempt->pidfd, deadline_of(attempt));
	int value;
	int reaped;

	attempt->stuck = false;
	exit->noticed_ns = now_ns();
	exit->source = GW_SOURCE_DEATH;
	if (late) {
		(void)syscall(SYS_pidfd_send_signal, attempt->pidfd, SIGKILL, NULL, 0);
		attempt->stuck = !await_end(attempt->pidfd, now_ns() + KILL_DEADLINE_NS);
	}
	if (attempt->stuck) {
		describe_stuck(exit);
		return;
	}
	do
		reaped = waitid(P_PIDFD, (id_t)attempt->pidfd, &info, WEXITED);
	while (reaped < 0 && errno == EINTR);
	exit->gone_ns = now_ns();
	if (read_answer(attempt, &value))
		describe_result(exit, value);
	else if (late)
		describe_deadline(exit, attempt->options->deadline_ns);
	else if (reaped == 0)
		describe_death(exit, &info);
	else
		(void)snprintf(exit->text, sizeof(exit->text),
			       "the process is gone, and how it ended is not known: this program "
			       "ignores SIGCHLD, or another part of it reaped the process");
}

/* One process from its start to its end. Returns 0 and attempt->exit, or a negative code. */
static int run_attempt(int (*function)(const struct gw_isolated *run), struct attempt *attempt,
		       struct gw_error *ret_error)
{
	int result = forkable_check(ret_error);

	if (result < 0)
		return result;
	attempt->exit = (struct gw_exit){.cuda = -1, .xid = -1, .device = -1};
	attempt->socket = attempt->pidfd = -1;
	/* Not a secret: it only has to differ from what the last attempt had and from stray data. */
	attempt->key = (uint32_t)now_ns() * 2654435761U | 1U;
	attempt->answer = map_shared(sizeof(*attempt->answer));
	if (!attempt->answer)
		return err_os(ret_error, errno, "no memory to share with a child");
	result = start_child(function, attempt, ret_error);
	if (result == 0)
		finish_child(attempt);
	fd_close(attempt->socket);
	fd_close(attempt->pidfd);
	(void)munmap(attempt->answer, sizeof(*attempt->answer));
	return result;
}

static bool has_crashed(const struct gw_exit *exit)
{
	return exit->end != GW_END_RESULT;
}

/* Attempt after attempt. Returns 0 or a negative code; attempt->exit says how the last one ended. */
static int run_attempts(int (*function)(const struct gw_isolated *run), struct attempt *attempt,
			struct gw_error *ret_error)
{
	const struct gw_isolate_options *options = attempt->options;
	uint32_t most = options->max_attempts ? options->max_attempts : ATTEMPTS_DEFAULT;

	for (;;) {
		int result = run_attempt(function, attempt, ret_error);

		if (result < 0)
			return result;
		if (!has_crashed(&attempt->exit) || attempt->stuck || attempt->number + 1 == most)
			return 0;
		if (options->on_attempt)
			options->on_attempt(&attempt->exit, attempt->number, options->argument);
		attempt->number++;
	}
}

static int check_options(const struct gw_isolate_options *options, struct gw_error *ret_error)
{
	if (!options)
		return err_own(ret_error, -EINVAL, "options are missing");
	if (options->size != sizeof(*options))
		return err_own(ret_error, -EINVAL,
			       "options.size is %zu and not %zu: begin with "
			       "GW_OPTIONS(struct gw_isolate_options)",
			       options->size, sizeof(*options));
	if (options->reserved)
		return err_own(ret_error, -EINVAL, "options.reserved is not 0");
	return 0;
}

int gw_isolate(int (*function)(const struct gw_isolated *run),
	       const struct gw_isolate_options *options, void **ret_shared,
	       struct gw_exit *ret_exit, struct gw_error *ret_error)
{
	struct attempt attempt = {.options = options};
	int result;

	if (!function)
		return err_own(ret_error, -EINVAL, "the function is missing");
	result = check_options(options, ret_error);
	if (result < 0)
		return result;
	attempt.shared_bytes = shared_size(options->shared_bytes);
	attempt.shared = map_shared(attempt.shared_bytes);
	if (!attempt.shared)
		return err_os(ret_error, errno, "no shared memory of %" PRIu64 " bytes",
			      attempt.shared_bytes);
	result = run_attempts(function, &attempt, ret_error);
	if (result < 0 || !ret_shared)
		gw_isolate_free_shared(attempt.shared, attempt.shared_bytes);
	if (result < 0)
		return result;
	if (ret_shared)
		*ret_shared = attempt.shared;
	if (ret_exit)
		*ret_exit = attempt.exit;
	return attempt.exit.end == GW_END_RESULT && attempt.exit.value == 0 ? 0 : 1;
}

void gw_isolate_free_shared(void *shared, uint64_t bytes)
{
	if (shared)
		(void)munmap(shared, shared_size(bytes));
}
