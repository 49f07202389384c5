/* SPDX-License-Identifier: MIT */
/*
 * Description: a started program gets the descriptors that it was given and no other, default signal
 * dispositions, an empty mask and standard descriptors; whatever keeps it from running comes back as
 * one clear error; and nothing is left behind.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "linux/spawn.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define SECOND 1000000000U

static const char *const no_arguments[] = {"program", NULL};
static const char *const environment[] = {"PATH=/usr/bin:/bin", NULL};

static int count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(folder))
		count++;
	(void)closedir(folder);
	return count;
}

static int remember_fds(void **state)
{
	static int count;

	count = count_fds();
	*state = &count;
	return 0;
}

static int compare_fds(void **state)
{
	const int *before = *state;

	/* No child is left either. */
	if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
		return -1;
	return count_fds() == *before ? 0 : -1;
}

static struct procref_end wait_for_end(struct spawned *spawned)
{
	struct procref_end end = {0};

	assert_int_equal(procref_wait(&spawned->process, now_ns() + 20ULL * SECOND, &end), 1);
	return end;
}

/* Runs SCRIPT in a shell with N descriptors and reads what it prints on descriptor 3. */
static void run_shell(const char *script, const int *fds, size_t n_fds, unsigned int flags)
{
	const char *const arguments[] = {"sh", "-c", script, NULL};
	struct spawn spec = {.program = "sh",
			     .argv = arguments,
			     .envp = environment,
			     .fds = fds,
			     .n_fds = n_fds,
			     .flags = flags | SPAWN_SEARCH_PATH};
	struct spawned spawned;
	struct gw_error error;
	struct procref_end end;

	assert_int_equal(spawn(&spec, &spawned, &error), 0);
	end = wait_for_end(&spawned);
	assert_false(end.by_signal);
	assert_int_equal(end.value, 0);
	assert_int_equal(spawn_failure(&spawned, "sh", &error), 0);
	spawn_done(&spawned);
}

static void descriptors_arrive_in_order_though_they_overlap(void **state)
{
	char one[16] = {0}, two[16] = {0};
	const int crossed[2] = {4, 3};

	(void)state;
	assert_int_equal(memfd_create("a", MFD_CLOEXEC), 3);
	assert_int_equal(memfd_create("b", MFD_CLOEXEC), 4);
	/* The sources are 4 and 3, and are to become 3 and 4. */
	run_shell("printf one >&3; printf two >&4", crossed, 2, 0);
	assert_int_equal(pread(4, one, sizeof(one), 0), 3);
	assert_int_equal(pread(3, two, sizeof(two), 0), 3);
	assert_string_equal(one, "one");
	assert_string_equal(two, "two");
	(void)close(3);
	(void)close(4);
}

static void read_all(int fd, char *text, size_t bytes)
{
	ssize_t count = pread(fd, text, bytes - 1, 0);

	assert_true(count >= 0);
	text[count] = '\0';
}

static void no_other_descriptor_arrives(void **state)
{
	int out = memfd_create("out", MFD_CLOEXEC);
	int leaks[20];
	char text[64];

	(void)state;
	for (size_t i = 0; i < 20; i++)
		leaks[i] = dup(out); /* not close-on-exec, as the host's may be */
	run_shell(
		"n=0; for f in /proc/$$/fd/*; do case $(readlink $f) in *memfd*) n=$((n+1));; esac; "
		"done; echo $n >&3",
		&out, 1, 0);
	read_all(out, text, sizeof(text));
	assert_string_equal(text, "1\n");
	for (size_t i = 0; i < 20; i++)
		(void)close(leaks[i]);
	(void)close(out);
}

static void signals_are_as_at_birth(void **state)
{
	int out = memfd_create("out", MFD_CLOEXEC);
	sigset_t blocked, before;
	char text[8192];

	(void)state;
	assert_ptr_not_equal(signal(SIGCHLD, SIG_DFL), SIG_ERR);
	assert_ptr_not_equal(signal(SIGPIPE, SIG_IGN), SIG_ERR);
	assert_ptr_not_equal(signal(SIGUSR1, SIG_IGN), SIG_ERR);
	(void)sigemptyset(&blocked);
	(void)sigaddset(&blocked, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &blocked, &before);
	run_shell("grep -E '^Sig(Blk|Ign)' /proc/self/status >&3", &out, 1, 0);
	(void)sigprocmask(SIG_SETMASK, &before, &blocked);
	assert_int_equal(sigismember(&blocked, SIGTERM), 1); /* the parent's mask came back */
	(void)signal(SIGPIPE, SIG_DFL);
	(void)signal(SIGUSR1, SIG_DFL);
	read_all(out, text, sizeof(text));
	assert_string_equal(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
	(void)close(out);
}

static void closed_standard_descriptors_are_filled(void **state)
{
	int out = memfd_create("out", MFD_CLOEXEC);
	int saved = fcntl(0, F_DUPFD_CLOEXEC, 10);
	char text[256];

	(void)state;
	(void)close(0); /* the status pipe takes this number in the parent */
	run_shell("readlink /proc/self/fd/0 >&3", &out, 1, 0);
	assert_int_equal(dup2(saved, 0), 0);
	(void)close(saved);
	read_all(out, text, sizeof(text));
	assert_string_equal(text, "/dev/null\n");
	(void)close(out);
}

static void a_new_group_is_its_own(void **state)
{
	int out = memfd_create("out", MFD_CLOEXEC);
	char text[256], *group = text;
	int pid;

	(void)state;
	run_shell("read -r line </proc/$$/stat; echo $line >&3", &out, 1, SPAWN_NEW_GROUP);
	read_all(out, text, sizeof(text));
	pid = atoi(text);
	group = strrchr(text, ')');
	assert_non_null(group);
	/* ") S PPID PGRP" */
	for (int i = 0; i < 3; i++)
		group = strchr(group + 1, ' ');
	assert_int_equal(atoi(group), pid);
	(void)close(out);
}

static void a_program_can_be_a_descriptor(void **state)
{
	struct spawn spec = {.program_fd = open("/bin/true", O_PATH | O_CLOEXEC),
			     .argv = no_arguments,
			     .envp = environment};
	struct spawned spawned;
	struct gw_error error;

	(void)state;
	assert_int_equal(spawn(&spec, &spawned, &error), 0);
	assert_int_equal(wait_for_end(&spawned).value, 0);
	assert_int_equal(spawn_failure(&spawned, "true", &error), 0);
	spawn_done(&spawned);
	(void)close(spec.program_fd);
}

/* Starts PROGRAM, which cannot run, and returns the code with its text. */
static int fail_to_run(const char *program, unsigned int flags, struct gw_error *ret_error)
{
	struct spawn spec = {
		.program = program, .argv = no_arguments, .envp = environment, .flags = flags};
	struct spawned spawned;
	int result = spawn(&spec, &spawned, ret_error);

	if (result < 0)
		return result;
	assert_int_equal(wait_for_end(&spawned).value, 127);
	result = spawn_failure(&spawned, program, ret_error);
	/* Asked again, it says the same. */
	assert_int_equal(spawn_failure(&spawned, program, NULL), result);
	spawn_done(&spawned);
	return result;
}

static void what_cannot_run_has_a_clear_error(void **state)
{
	char text_file[] = "/tmp/gpuward-spawn-XXXXXX";
	struct gw_error error = {0};
	int fd = mkstemp(text_file);

	(void)state;
	assert_int_equal(write(fd, "not a program", 13), 13);
	(void)close(fd);
	assert_int_equal(fail_to_run("/nowhere/at/all", 0, &error), -ENOENT);
	assert_non_null(strstr(error.msg, "/nowhere/at/all"));
	assert_int_equal(fail_to_run("gpuward-no-such-program", SPAWN_SEARCH_PATH, &error),
			 -ENOENT);
	assert_non_null(strstr(error.msg, "PATH"));
	assert_int_equal(fail_to_run(text_file, 0, &error), -EACCES);
	assert_non_null(strstr(error.msg, "not executable"));
	assert_int_equal(chmod(text_file, 0700), 0);
	assert_int_equal(fail_to_run(text_file, 0, &error), -ENOEXEC);
	assert_non_null(strstr(error.msg, "#!"));
	(void)unlink(text_file);
}

static void no_descriptor_left_is_a_clear_error(void **state)
{
	struct rlimit before, none;
	struct gw_error error = {0};
	struct spawned spawned;
	struct spawn spec = {.program = "/bin/true", .argv = no_arguments, .envp = environment};

	(void)state;
	(void)getrlimit(RLIMIT_NOFILE, &before);
	none = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
	(void)setrlimit(RLIMIT_NOFILE, &none);
	assert_int_equal(spawn(&spec, &spawned, &error), -EMFILE);
	assert_non_null(strstr(error.msg, "ulimit -n"));
	/* Room for the pipe and the pidfd, none for the child's. */
	none.rlim_cur = 5;
	(void)setrlimit(RLIMIT_NOFILE, &none);
	if (spawn(&spec, &spawned, &error) == 0) {
		(void)setrlimit(RLIMIT_NOFILE, &before);
		assert_int_equal(wait_for_end(&spawned).value, 127);
		assert_int_equal(spawn_failure(&spawned, "true", &error), -EMFILE);
		spawn_done(&spawned);
	}
	(void)setrlimit(RLIMIT_NOFILE, &before);
	assert_non_null(strstr(error.msg, "ulimit -n"));
}

/* In a process of its own, since the limit counts per user and root is exempt. */
static void no_process_left_is_a_clear_error(void **state)
{
	struct spawn spec = {.program = "/bin/true", .argv = no_arguments, .envp = environment};
	pid_t pid = fork();
	int status = 0;

	(void)state;
	if (pid == 0) {
		const struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
		struct gw_error error = {0};
		struct spawned spawned;

		if (setuid(65534) < 0 || setrlimit(RLIMIT_NPROC, &none) < 0)
			_exit(1);
		_exit(spawn(&spec, &spawned, &error) == -EAGAIN && strstr(error.msg, "ulimit -u")
			      ? 0
			      : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) == 1) {
		print_message("skipped: needs root to become another user\n");
		skip();
	}
	assert_int_equal(status, 0);
}

/* A child that is tied to its parent's life. */
static void a_tied_child_ends_with_its_parent(void **state)
{
	int ends[2];
	char byte;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		const char *const arguments[] = {"sleep", "1000", NULL};
		struct spawn spec = {.program = "/bin/sleep",
				     .argv = arguments,
				     .envp = environment,
				     .fds = &ends[1],
				     .n_fds = 1,
				     .flags = SPAWN_PDEATHSIG};
		struct spawned spawned;

		if (spawn(&spec, &spawned, NULL) < 0)
			_exit(1);
		(void)raise(SIGKILL);
	}
	(void)close(ends[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	/* The end of the pipe comes when the last holder is gone: the sleeping one. */
	(void)alarm(20);
	assert_int_equal(read(ends[0], &byte, 1), 0);
	(void)alarm(0);
	(void)close(ends[0]);
}

static void a_child_that_somebody_else_reaped_is_a_named_case(void **state)
{
	struct spawn spec = {.program = "/bin/true", .argv = no_arguments, .envp = environment};
	struct procref_end end;
	struct spawned spawned;

	(void)state;
	assert_int_equal(spawn(&spec, &spawned, NULL), 0);
	assert_int_equal(waitpid(-1, NULL, 0), spawned.process.pid);
	assert_int_equal(procref_reap(&spawned.process, &end), -ECHILD);
	assert_int_equal(procref_signal(&spawned.process, SIGKILL), -ESRCH);
	spawn_done(&spawned);
}

/* Makes CALL fail with ENOSYS in this process, as an old kernel or a container's filter does. */
static int forbid(unsigned int call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Starts a shell that counts what it inherited; exits with 0 if that is one memory file. */
static _Noreturn void spawn_without_close_range(void)
{
	const char *const arguments[] = {
		"sh", "-c",
		"n=0; for f in /proc/$$/fd/*; do case $(readlink $f) in *memfd*) n=$((n+1));; esac; "
		"done; exit $n",
		NULL};
	int fd = memfd_create("given", 0);
	struct spawn spec = {.program = "/bin/sh",
			     .argv = arguments,
			     .envp = environment,
			     .fds = &fd,
			     .n_fds = 1};
	struct procref_end end = {0};
	struct spawned spawned;

	if (forbid(SYS_close_range) < 0)
		_exit(77);
	if (dup(fd) < 0 || dup2(fd, 200) < 0 || spawn(&spec, &spawned, NULL) < 0)
		_exit(1);
	if (procref_wait(&spawned.process, now_ns() + 20ULL * SECOND, &end) != 1)
		_exit(2);
	_exit(end.value == 1 ? 0 : 3);
}

static void without_close_range_no_other_descriptor_arrives(void **state)
{
	pid_t pid = fork();
	int status = 0;

	(void)state;
	if (pid == 0)
		spawn_without_close_range();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("skipped: no seccomp filters here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, remember_fds, compare_fds)
		TEST(descriptors_arrive_in_order_though_they_overlap),
		TEST(no_other_descriptor_arrives),
		TEST(without_close_range_no_other_descriptor_arrives),
		TEST(signals_are_as_at_birth),
		TEST(closed_standard_descriptors_are_filled),
		TEST(a_new_group_is_its_own),
		TEST(a_program_can_be_a_descriptor),
		TEST(what_cannot_run_has_a_clear_error),
		TEST(no_descriptor_left_is_a_clear_error),
		TEST(no_process_left_is_a_clear_error),
		TEST(a_tied_child_ends_with_its_parent),
		TEST(a_child_that_somebody_else_reaped_is_a_named_case),
	};

	/* The numbers in these tests count from 3. */
	for (int fd = 3; fd < 20; fd++)
		(void)close(fd);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
