/* SPDX-License-Identifier: MIT */
/*
 * Description: what is told about a holder is true: its command line, environment, signals, namespaces, control
 * groups, relatives; which descriptors are one open file; and what another user cannot see is counted and named.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage.h"

#define NOBODY 65534

static int set_up(void **state)
{
	(void)state;
	stage_begin(STAGE_EMULATED);
	return 0;
}

static int set_up_numbers(void **state)
{
	(void)state;
	stage_begin(STAGE_NUMBERS);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	stage_finish();
	return 0;
}

static int32_t hold_fd(void *argument)
{
	(void)argument;
	return stage_open();
}

static int32_t hold_with_signals(void *argument)
{
	sigset_t blocked;

	(void)argument;
	(void)sigemptyset(&blocked);
	(void)sigaddset(&blocked, SIGUSR1);
	if (signal(SIGUSR2, SIG_IGN) == SIG_ERR || sigprocmask(SIG_BLOCK, &blocked, NULL) < 0 ||
	    kill(getpid(), SIGUSR1) < 0)
		return -errno;
	return stage_open();
}

static void signals_are_told(void **state)
{
	struct stage_child child = stage_child(hold_with_signals, NULL);
	const struct scan_process *process;

	(void)state;
	stage_scan();
	process = scan_find(&stage.scan, child.pid);
	assert_non_null(process);
	assert_true(process->signals.pending & (1ULL << (SIGUSR1 - 1)));
	assert_true(process->signals.blocked & (1ULL << (SIGUSR1 - 1)));
	assert_true(process->signals.ignored & (1ULL << (SIGUSR2 - 1)));
	assert_true(process->rss_bytes != GW_UNKNOWN && process->rss_bytes > 0);
	assert_true(process->pinned_bytes == 0);
	assert_int_equal(process->tracer_pid, 0);
	assert_int_equal(process->nspid_count, 1);
	assert_int_equal(process->nspid[0], child.pid);
	assert_true(process->pid_namespace == stage.scan.pid_namespace);
	assert_int_equal(process->flags & (SCAN_OTHER_PID_NAMESPACE | SCAN_OTHER_MOUNT_NAMESPACE |
					   SCAN_DETAILS_LATE | SCAN_FROZEN),
			 0);
	assert_int_equal(strlen(stage.scan.boot_id), 36);
	stage_end(&child);
}

/* Becomes another program, whose words and environment are known, and which keeps the device open. */
static int32_t hold_in_another_program(void *argument)
{
	char *const words[] = {(char[]){"sleep"}, (char[]){"1000"}, NULL};
	char *const environment[] = {(char[]){"SECRET=1"}, (char[]){"SLURM_JOB_ID=4711"},
				     (char[]){"CUDA_VISIBLE_DEVICES="},
				     (char[]){"CUDA_MPS_PIPE_DIRECTORY=/tmp/mps"}, NULL};
	int fd = open(stage.device, O_RDWR);

	(void)argument;
	if (fd < 0)
		return -errno;
	execve("/bin/sleep", words, environment);
	return -errno;
}

/* Waits until PID is the program NAME. */
static void wait_for_program(pid_t pid, const char *name)
{
	for (;;) {
		const struct scan_process *process;

		stage_scan();
		process = scan_find(&stage.scan, pid);
		if (process && strcmp(process->comm, name) == 0 && process->cmdline_bytes > 0)
			return;
		sched_yield();
	}
}

static void words_and_environment_are_told(void **state)
{
	const struct scan_process *process;
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(hold_in_another_program(NULL) < 0);
	}
	wait_for_program(pid, "sleep");
	process = scan_find(&stage.scan, pid);
	assert_int_equal(process->cmdline_bytes, 11);
	assert_memory_equal(process->cmdline,
			    "sleep\0"
			    "1000",
			    11);
	assert_false(process->cmdline_cut);
	assert_non_null(process->exe);
	assert_string_equal(process->slurm_job_id, "4711");
	assert_string_equal(process->cuda_visible_devices, "");
	assert_string_equal(process->mps_pipe_directory, "/tmp/mps");
	assert_null(process->pbs_job_id);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static int32_t hold_as_session(void *argument)
{
	pid_t pid;

	(void)argument;
	if (setsid() < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		(void)stage_open();
		stage_ready(getpid());
		stage_wait_end();
		_exit(0);
	}
	stage_wait_end();
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	_exit(0);
}

static void relatives_are_told(void **state)
{
	struct stage_child child = stage_child(hold_as_session, NULL);
	const struct scan_relative *relative;
	const struct scan_process *process;

	(void)state;
	stage_scan();
	process = scan_find(&stage.scan, child.value);
	assert_non_null(process);
	assert_int_equal(process->sid, child.pid);
	relative = scan_find_relative(&stage.scan, process->sid);
	assert_non_null(relative);
	assert_int_equal(relative->ppid, getpid());
	assert_int_equal(relative->uid, getuid());
	relative = scan_find_relative(&stage.scan, getpid());
	assert_non_null(relative);
	assert_int_equal(relative->ppid, getppid());
	assert_null(scan_find_relative(&stage.scan, child.value));
	assert_null(scan_find_relative(&stage.scan, -1));
	stage_end(&child);
}

/* Opens it twice; the child of the child has both too. */
static int32_t hold_twice_and_fork(void *argument)
{
	pid_t pid;

	(void)argument;
	if (stage_open() < 0 || stage_open() < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		stage_ready(getpid());
		stage_wait_end();
		_exit(0);
	}
	stage_wait_end();
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	_exit(0);
}

static const struct scan_reference *nth(pid_t pid, uint32_t number)
{
	const struct scan_process *process = scan_find(&stage.scan, pid);

	assert_non_null(process);
	assert_true(number < process->reference_count);
	return &stage.scan.references[process->first_reference + number];
}

static void one_open_file_is_told_from_two(void **state)
{
	struct stage_child child = stage_child(hold_twice_and_fork, NULL);
	struct scan_reference mapping = {.held = SCAN_MAPPING};
	const struct scan_reference *first;
	int order, other;

	(void)state;
	stage_scan();
	assert_int_equal(stage_count_all(child.pid), 2);
	assert_int_equal(stage_count_all(child.value), 2);
	order = scan_same_file(&stage.scan, nth(child.pid, 0), nth(child.value, 0));
	if (order == -ENOSYS || order == -EPERM) {
		stage_end(&child);
		printf("kcmp is not allowed here\n");
		skip();
	}
	assert_int_equal(order, 1);
	assert_int_equal(scan_same_file(&stage.scan, nth(child.pid, 1), nth(child.value, 1)), 1);
	assert_int_equal(scan_same_file(&stage.scan, nth(child.pid, 0), nth(child.value, 1)), 0);
	assert_int_equal(
		scan_compare_files(&stage.scan, nth(child.pid, 0), nth(child.pid, 1), &order), 0);
	assert_int_equal(
		scan_compare_files(&stage.scan, nth(child.value, 1), nth(child.pid, 0), &other), 0);
	assert_true(order != 0);
	assert_int_equal(order, -other);
	assert_int_equal(scan_same_file(&stage.scan, nth(child.pid, 0), &mapping), -EINVAL);
	first = nth(child.pid, 0);
	stage_end(&child);
	assert_int_equal(scan_same_file(&stage.scan, first, first + 1), -ESRCH);
}

/* A child in a pid namespace of its own. */
static int32_t hold_in_a_namespace(void *argument)
{
	pid_t pid;

	(void)argument;
	if (unshare(CLONE_NEWPID) < 0)
		return 0; /* not allowed here */
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		(void)stage_open();
		stage_ready(1);
		stage_wait_end();
		_exit(0);
	}
	stage_wait_end();
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	_exit(0);
}

static const struct scan_process *find_child_of(pid_t parent)
{
	for (uint32_t i = 0; i < stage.scan.process_count; i++) {
		if (stage.scan.processes[i].ppid == parent)
			return &stage.scan.processes[i];
	}
	fail_msg("%d has no child that is a holder", parent);
	return stage.scan.processes;
}

static void a_holder_in_another_pid_namespace_is_told(void **state)
{
	struct stage_child child = stage_child(hold_in_a_namespace, NULL);
	const struct scan_process *process;

	(void)state;
	if (child.value == 0) {
		stage_end(&child);
		printf("pid namespaces are not allowed here\n");
		skip();
	}
	stage_scan();
	process = find_child_of(child.pid);
	assert_true(process->flags & SCAN_OTHER_PID_NAMESPACE);
	assert_int_equal(process->nspid_count, 2);
	assert_int_equal(process->nspid[0], process->pid);
	assert_int_equal(process->nspid[1], 1);
	assert_int_equal(stage_count(process->pid, SCAN_FD), 1);
	stage_end(&child);
}

/* Puts PID into a new group FOLDER and writes TEXT to FILE of it. Returns false where that is not possible. */
static bool freeze(const char *folder, pid_t pid, const char *file, const char *text)
{
	char path[256], number[16];
	bool done = false;
	int fd;

	if (mkdir(folder, 0755) < 0)
		return false;
	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	(void)snprintf(number, sizeof(number), "%d", pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, number, strlen(number)) > 0)
		done = true;
	(void)close(fd);
	(void)snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	done = done && fd >= 0 && write(fd, text, strlen(text)) > 0;
	(void)close(fd);
	return done;
}

static void thaw(const char *folder, const char *file, const char *text)
{
	char path[256];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(write(fd, text, strlen(text)) > 0);
	(void)close(fd);
}

static void wait_for_flag(pid_t pid, uint32_t flag)
{
	do {
		stage_scan();
		assert_non_null(scan_find(&stage.scan, pid));
	} while (!(scan_find(&stage.scan, pid)->flags & flag));
}

static void frozen(const char *root, const char *file, const char *on, const char *off,
		   uint32_t flags, uint32_t not_flags)
{
	struct stage_child child = stage_child(hold_fd, NULL);
	const struct scan_process *process;
	char folder[128], tail[64];

	(void)snprintf(tail, sizeof(tail), "/gpuward-stage-%d", getpid());
	(void)snprintf(folder, sizeof(folder), "%s%s", root, tail);
	if (!freeze(folder, child.pid, file, on)) {
		stage_end(&child);
		(void)rmdir(folder);
		printf("%s cannot be used here\n", root);
		skip();
	}
	wait_for_flag(child.pid, flags);
	process = scan_find(&stage.scan, child.pid);
	assert_int_equal(process->flags & (flags | not_flags), flags);
	if (flags & SCAN_FROZEN_V1)
		assert_string_equal(process->place.freezer, tail);
	else
		assert_string_equal(process->place.unified, tail);
	thaw(folder, file, off);
	stage_end(&child);
	while (rmdir(folder) < 0)
		assert_int_equal(errno, EBUSY);
}

static const char *first_folder(const char *a, const char *b)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", a);
	return access(path, F_OK) == 0 ? a : b;
}

static void a_frozen_holder_is_told(void **state)
{
	(void)state;
	frozen(first_folder("/sys/fs/cgroup/unified", "/sys/fs/cgroup"), "cgroup.freeze", "1", "0",
	       SCAN_FROZEN, SCAN_FROZEN_V1);
}

static void a_holder_that_v1_froze_is_told(void **state)
{
	(void)state;
	frozen("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED",
	       SCAN_FROZEN | SCAN_FROZEN_V1, 0);
}

/* What another user saw. */
struct seen {
	uint32_t denied;
	int32_t hidepid;
	bool found;
	bool was_denied;
	bool needs_ptrace;
	char text[512];
};

struct view {
	pid_t holder;
	const char *hidepid; /* mounts /proc anew with this option; NULL not */
	int report;
};

static _Noreturn void look_as_nobody(const struct view *view)
{
	struct seen seen = {0};
	const struct scan *scan = &stage.scan;

	if (view->hidepid &&
	    (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	     mount("proc", "/proc", "proc", 0, view->hidepid) < 0))
		_exit(77);
	if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0 ||
	    scan_run(&stage.options, &stage.scan, NULL) < 0)
		_exit(1);
	seen.denied = scan->unseen.denied;
	seen.hidepid = scan->unseen.hidepid;
	seen.found = stage_count_all(view->holder) > 0;
	seen.was_denied = scan_was_denied(scan, view->holder);
	seen.needs_ptrace = scan->unseen.needs_ptrace;
	scan_unseen_text(scan, seen.text, sizeof(seen.text));
	scan_free(&stage.scan);
	_exit(write(view->report, &seen, sizeof(seen)) != sizeof(seen));
}

static struct seen see_as_nobody(pid_t holder, const char *hidepid)
{
	struct seen seen;
	int report[2], status;
	pid_t pid;

	if (geteuid() != 0) {
		printf("another user's view needs root\n");
		skip();
	}
	assert_int_equal(pipe2(report, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		look_as_nobody(
			&(struct view){.holder = holder, .hidepid = hidepid, .report = report[1]});
	(void)close(report[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		(void)close(report[0]);
		printf("/proc cannot be mounted here\n");
		skip();
	}
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(read(report[0], &seen, sizeof(seen)), sizeof(seen));
	(void)close(report[0]);
	return seen;
}

/* A process of the user nobody, which that user can look at. */
static int32_t hold_mapping_as_nobody(void *argument)
{
	int fd = open(stage.mappable, O_RDONLY | O_CLOEXEC);

	(void)argument;
	if (fd < 0 || mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ||
	    close(fd) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0)
		return -errno;
	return 0;
}

static void a_mapping_is_found_without_privilege(void **state)
{
	struct stage_child child;
	struct seen seen;

	(void)state;
	if (geteuid() != 0) {
		printf("another user's view needs root\n");
		skip();
	}
	child = stage_child(hold_mapping_as_nobody, NULL);
	seen = see_as_nobody(child.pid, NULL);
	assert_true(seen.found);
	assert_false(seen.was_denied);
	stage_end(&child);
}

static void what_another_user_cannot_see_is_counted(void **state)
{
	struct stage_child child = stage_child(hold_fd, NULL);
	struct seen seen = see_as_nobody(child.pid, NULL);

	(void)state;
	assert_false(seen.found);
	assert_true(seen.was_denied);
	assert_true(seen.denied > 0);
	assert_true(seen.needs_ptrace);
	assert_int_equal(seen.hidepid, 0);
	assert_non_null(strstr(seen.text, "not readable: run with CAP_SYS_PTRACE (root)"));
	stage_end(&child);
}

static void hidden_processes_are_told(void **state)
{
	struct stage_child child = stage_child(hold_fd, NULL);
	struct seen seen = see_as_nobody(child.pid, "hidepid=2");

	(void)state;
	assert_false(seen.found);
	assert_false(seen.was_denied);
	assert_int_equal(seen.hidepid, 2);
	assert_non_null(strstr(seen.text, "hidden (/proc has hidepid=2)"));
	seen = see_as_nobody(child.pid, "hidepid=1");
	assert_false(seen.found);
	assert_true(seen.was_denied);
	stage_end(&child);
}

static void nothing_unseen_is_nothing_said(void **state)
{
	struct scan scan = {.pid_namespace_initial = true};
	char text[8] = "x";

	(void)state;
	scan_unseen_text(&scan, text, sizeof(text));
	assert_string_equal(text, "");
	scan.unseen.denied = 1;
	scan.unseen.late = 2;
	scan_unseen_text(&scan, text, sizeof(text));
	assert_string_equal(text, "1 proce");
	scan_free(&scan);
}

#define STAGED(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STAGED(signals_are_told),
		STAGED(words_and_environment_are_told),
		STAGED(relatives_are_told),
		STAGED(one_open_file_is_told_from_two),
		STAGED(a_holder_in_another_pid_namespace_is_told),
		STAGED(a_frozen_holder_is_told),
		STAGED(a_holder_that_v1_froze_is_told),
		cmocka_unit_test_setup_teardown(a_mapping_is_found_without_privilege,
						set_up_numbers, tear_down),
		STAGED(what_another_user_cannot_see_is_counted),
		STAGED(hidden_processes_are_told),
		cmocka_unit_test(nothing_unseen_is_nothing_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
