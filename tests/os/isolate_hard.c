/* SPDX-License-Identifier: MIT */
/*
 * Description: gw_isolate where the system does not help: system calls that a filter refuses, no /proc,
 * a pid namespace of its own, a parent that is killed at any moment, a child that fills memory with
 * garbage or leaves processes behind. No child survives and nothing is believed that was not said.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpuward.h>

/* As assert_true(), in a forked process: a failure shows as exit code 1. */
#define expect(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition);    \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* Exit code of a check that this user may not make. */
#define NOT_ALLOWED 77

static void in_own_process(void (*check)(void))
{
	int status = 0;
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		check();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_ALLOWED)
		skip();
	assert_int_equal(status, 0);
}

static int succeed(const struct gw_isolated *run)
{
	(void)run;
	return 0;
}

static int crash(const struct gw_isolated *run)
{
	(void)run;
	_exit(9);
}

static void no_child_is_left(void)
{
	expect(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* From here on the system call NUMBER fails with ERROR. */
static void refuse(unsigned int number, unsigned int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	expect(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	expect(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void without_pidfd(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error = {0};

	refuse(SYS_pidfd_open, ENOSYS);
	expect(gw_isolate(succeed, &options, NULL, NULL, &error) == -ENOSYS);
	expect(strstr(error.msg, "Linux 5.10"));
	no_child_is_left();
}

static void a_kernel_without_pidfd_is_named(void **state)
{
	(void)state;
	in_own_process(without_pidfd);
}

static void without_sockets(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error = {0};

	refuse(SYS_socketpair, EACCES);
	expect(gw_isolate(succeed, &options, NULL, NULL, &error) == -EACCES);
	expect(strlen(error.msg) > 10);
	no_child_is_left();
}

static void without_waitid(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_exit end;

	refuse(SYS_waitid, ECHILD);
	options.max_attempts = 2;
	expect(gw_isolate(crash, &options, NULL, &end, NULL) == 1);
	expect(end.end == GW_END_UNKNOWN);
	expect(gw_isolate(succeed, &options, NULL, &end, NULL) == 0);
}

static void refused_calls_are_errors_of_their_own(void **state)
{
	(void)state;
	in_own_process(without_sockets);
	in_own_process(without_waitid);
}

static void without_proc(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_error error = {0};

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", "/proc", "tmpfs", 0, NULL) < 0)
		_exit(NOT_ALLOWED);
	expect(gw_isolate(succeed, &options, NULL, NULL, &error) == -ENOSYS);
	expect(strstr(error.msg, "/proc is not mounted"));
}

static void a_missing_proc_is_named(void **state)
{
	(void)state;
	in_own_process(without_proc);
}

static int be_first(const struct gw_isolated *run)
{
	(void)run;
	return getpid() == 1 && getppid() == 0 ? 0 : 1;
}

static void for_a_new_namespace(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);

	if (unshare(CLONE_NEWPID) < 0)
		_exit(NOT_ALLOWED);
	expect(gw_isolate(be_first, &options, NULL, NULL, NULL) == 0);
}

static void a_child_in_a_new_pid_namespace_runs(void **state)
{
	(void)state;
	in_own_process(for_a_new_namespace);
}

static int wait_for_ever(const struct gw_isolated *run)
{
	(void)run;
	for (;;)
		if (pause() == 0)
			return 0;
}

/* Kills a process somewhere in gw_isolate(), WAIT_NS after it began. Its child must end too: the pipe,
 * which all of them hold, comes to its end. */
static void kill_after(long wait_ns)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	const struct timespec wait = {.tv_nsec = wait_ns};
	struct pollfd end = {.events = POLLIN};
	int pipes[2];
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		(void)gw_isolate(wait_for_ever, &options, NULL, NULL, NULL);
		_exit(0);
	}
	(void)close(pipes[1]);
	(void)nanosleep(&wait, NULL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	end.fd = pipes[0];
	assert_int_equal(poll(&end, 1, 10000), 1);
	assert_int_equal(end.revents, POLLHUP);
	(void)close(pipes[0]);
	while (waitpid(-1, NULL, 0) > 0)
		; /* the orphan, which this process adopted */
}

static void no_child_outlives_a_parent_that_is_killed_at_any_moment(void **state)
{
	(void)state;
	for (long wait_ns = 0; wait_ns < 3000000; wait_ns += 20000)
		kill_after(wait_ns);
}

static void fill_with_garbage(unsigned char *bytes, uint64_t count, uint32_t word)
{
	for (uint64_t i = 0; i < count; i++) {
		word = word * 1664525 + 1013904223;
		bytes[i] = (unsigned char)(word >> 24);
	}
}

/* Not only the function's own region: all memory that is shared with the parent, the answer's too. */
static int write_garbage(const struct gw_isolated *run)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int regions = 0;

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long start;
		unsigned long end;

		if (!strstr(line, "rw-s") || sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		fill_with_garbage((unsigned char *)start, end - start, run->attempt + 1);
		regions++;
	}
	if (regions >= 2)
		(void)raise(SIGKILL);
	return 0;
}

static void garbage_in_shared_memory_is_no_answer(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_exit end;

	(void)state;
	options.shared_bytes = 65536;
	options.max_attempts = 20;
	assert_int_equal(gw_isolate(write_garbage, &options, NULL, &end, NULL), 1);
	assert_int_equal(end.end, GW_END_SIGNAL);
	assert_int_equal(end.value, SIGKILL);
}

/* The first attempt leaves a process behind that returns from the function during the second. */
static int leave_somebody(const struct gw_isolated *run)
{
	int *pipes = run->argument;
	char byte;

	if (run->attempt == 0) {
		if (fork() != 0)
			abort();
		(void)!read(pipes[0], &byte, 1);
		return 0;
	}
	(void)!write(pipes[1], "x", 1);
	return 42;
}

static void a_process_left_behind_does_not_answer(void **state)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct gw_exit end;
	int pipes[2];

	(void)state;
	assert_int_equal(pipe2(pipes, 0), 0);
	options.argument = pipes;
	assert_int_equal(gw_isolate(leave_somebody, &options, NULL, &end, NULL), 1);
	assert_int_equal(end.end, GW_END_RESULT);
	assert_int_equal(end.value, 42);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
}

/* ---- limits of the system ---- */

static void without_descriptors(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	int highest = dup(0);

	expect(highest > 0);
	(void)close(highest);
	/* One descriptor short, two short, and so on, until there is none. */
	for (int room = 3; room >= 0; room--) {
		struct rlimit limit;
		struct gw_error error = {0};
		int result;

		(void)getrlimit(RLIMIT_NOFILE, &limit);
		limit.rlim_cur = (rlim_t)highest + (rlim_t)room;
		expect(setrlimit(RLIMIT_NOFILE, &limit) == 0);
		result = gw_isolate(succeed, &options, NULL, NULL, &error);
		expect(room >= 3 ? result == 0 : result == -EMFILE);
		expect(result == 0 || (error.native == EMFILE && strlen(error.msg) > 20));
	}
	expect(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void no_descriptor_is_one_clear_error(void **state)
{
	(void)state;
	in_own_process(without_descriptors);
}

static void without_processes(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct rlimit none = {0, 0};
	struct gw_error error = {0};

	/* Root is not limited: become somebody else, of whom there is no other process. */
	if (geteuid() == 0)
		expect(setresgid(64321, 64321, 64321) == 0 && setresuid(64321, 64321, 64321) == 0);
	expect(setrlimit(RLIMIT_NPROC, &none) == 0);
	expect(prctl(PR_SET_DUMPABLE, 1) ==
	       0); /* lost by setuid; /proc/self belongs to root else */
	expect(gw_isolate(succeed, &options, NULL, NULL, &error) == -EAGAIN);
	expect(error.domain == GW_DOMAIN_OS && error.native == EAGAIN);
	expect(strstr(error.msg, "RLIMIT_NPROC"));
	expect(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void no_process_is_one_clear_error(void **state)
{
	(void)state;
	in_own_process(without_processes);
}

static void without_memory(void)
{
	struct gw_isolate_options options = GW_OPTIONS(struct gw_isolate_options);
	struct rlimit limit = {0, 0};
	struct gw_error error = {0};

	options.shared_bytes = 1ULL << 40;
	expect(setrlimit(RLIMIT_AS, &limit) == 0);
	expect(gw_isolate(succeed, &options, NULL, NULL, &error) == -ENOMEM);
	expect(error.native == ENOMEM);
}

static void no_memory_is_one_clear_error(void **state)
{
	(void)state;
	in_own_process(without_memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_kernel_without_pidfd_is_named),
		cmocka_unit_test(refused_calls_are_errors_of_their_own),
		cmocka_unit_test(a_missing_proc_is_named),
		cmocka_unit_test(a_child_in_a_new_pid_namespace_runs),
		cmocka_unit_test(no_child_outlives_a_parent_that_is_killed_at_any_moment),
		cmocka_unit_test(garbage_in_shared_memory_is_no_answer),
		cmocka_unit_test(a_process_left_behind_does_not_answer),
		cmocka_unit_test(no_descriptor_is_one_clear_error),
		cmocka_unit_test(no_process_is_one_clear_error),
		cmocka_unit_test(no_memory_is_one_clear_error),
	};

	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);

	return cmocka_run_group_tests(tests, NULL, NULL);
}
