/* SPDX-License-Identifier: MIT */
/*
 * Description: causes are told of processes that really are in that condition: a zombie leader, a thread's own table, a
 * descriptor in flight, a stopped, a traced and a frozen process, a survivor of its container, an orphan of its
 * session, another pid namespace, a pid that was given again; and a thread's number is no process.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "holders/facts.h"
#include "stage.h"

static struct verdicts verdicts;
static struct facts facts;
static struct amounts_process listed;
static struct amounts_gpu gpu;
static struct amounts amounts;

static int set_up_emulated(void **state)
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
	causes_free(&verdicts);
	facts_free(&facts);
	amounts = (struct amounts){0};
	stage_finish();
	return 0;
}

/* NVML's answer for the staged GPU: it lists PID alone. */
static void list(pid_t pid)
{
	listed = (struct amounts_process){.pid = pid, .used_bytes = 1 << 20};
	gpu = AMOUNTS_GPU_NONE;
	gpu.minor = 7;
	gpu.memory = gpu.listed = AMOUNTS_ANSWERED;
	gpu.unattributed_bytes = 0;
	gpu.processes = &listed;
	gpu.process_count = 1;
	amounts = (struct amounts){.answer = AMOUNTS_ANSWERED, .gpus = &gpu, .gpu_count = 1};
}

static void judge(void)
{
	struct causes_input input = {.scan = &stage.scan, .facts = &facts.facts};

	if (amounts.gpu_count)
		input.amounts = &amounts;
	stage_scan();
	facts_free(&facts);
	causes_free(&verdicts);
	assert_int_equal(facts_gather(&stage.scan, input.amounts, NULL, UINT64_MAX, &facts, NULL),
			 0);
	assert_int_equal(causes_find(&input, &verdicts, NULL), 0);
}

/* The verdict CAUSE about PID, or NULL. */
static const struct verdict *verdict_of(pid_t pid, enum cause cause)
{
	for (uint32_t i = 0; i < verdicts.count; i++) {
		const struct verdict *verdict = &verdicts.list[i];

		if (verdict->cause != cause)
			continue;
		if (verdict->pid == pid)
			return verdict;
		for (uint32_t j = 0; j < verdict->member_count; j++) {
			if (stage.scan.processes[verdict->members[j]].pid == pid)
				return verdict;
		}
	}
	return NULL;
}

static bool says(const struct verdict *verdict, const char *what, const char *value)
{
	for (uint32_t i = 0; i < verdict->evidence_count; i++) {
		if (!strcmp(verdict->evidence[i].what, what) &&
		    strstr(verdict->evidence[i].value, value))
			return true;
	}
	return false;
}

/* Judges until CAUSE is told of PID: what the kernel does to a process takes its time. */
static const struct verdict *await(pid_t pid, enum cause cause)
{
	const struct verdict *verdict;

	for (judge(); !(verdict = verdict_of(pid, cause)); judge())
		sched_yield();
	return verdict;
}

static enum cause main_of(pid_t pid)
{
	const struct scan_process *process = scan_find(&stage.scan, pid);
	const struct verdict *verdict;

	assert_non_null(process);
	verdict = causes_main(&verdicts, (uint32_t)(process - stage.scan.processes));
	return verdict ? verdict->cause : CAUSE_NONE;
}

static int32_t hold(void *argument)
{
	(void)argument;
	return stage_open();
}

static void *report_and_wait(void *argument)
{
	(void)argument;
	stage_ready((int32_t)syscall(SYS_gettid));
	stage_wait_end();
	_exit(0);
}

static int32_t leave_a_thread(void *argument)
{
	pthread_t thread;

	(void)argument;
	if (stage_open() < 0 || pthread_create(&thread, NULL, report_and_wait, NULL))
		return -EAGAIN;
	syscall(SYS_exit, 0);
	return 0;
}

static void a_zombie_leader_is_told(void **state)
{
	struct stage_child child = stage_child(leave_a_thread, NULL);
	const struct verdict *verdict;

	(void)state;
	verdict = await(child.pid, CAUSE_ZOMBIE_LEADER);
	assert_int_equal(verdict->tid, child.value);
	assert_true(says(verdict, "state", "Z"));
	assert_int_equal(main_of(child.pid), CAUSE_ZOMBIE_LEADER);
	stage_end(&child);
}

static void *open_in_own_table(void *argument)
{
	if (unshare(CLONE_FILES) < 0 || stage_open() < 0)
		return argument;
	return report_and_wait(NULL);
}

static int32_t hold_in_a_thread(void *argument)
{
	pthread_t thread;

	(void)argument;
	if (pthread_create(&thread, NULL, open_in_own_table, NULL))
		return -EAGAIN;
	(void)pthread_join(thread, NULL);
	return -EAGAIN;
}

static void a_threads_own_table_is_told(void **state)
{
	struct stage_child child = stage_child(hold_in_a_thread, NULL);

	(void)state;
	judge();
	assert_non_null(verdict_of(child.pid, CAUSE_THREAD_TABLE));
	assert_int_equal(verdict_of(child.pid, CAUSE_THREAD_TABLE)->tid, child.value);
	stage_end(&child);
}

static int32_t hold_in_flight(void *argument)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	char byte = 'x';
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control.bytes)};
	int fd = stage_open();
	int pair[2];

	(void)argument;
	if (fd < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	if (sendmsg(pair[0], &message, 0) != 1)
		return -errno;
	(void)close(fd);
	(void)close(pair[0]);
	return pair[1];
}

static void a_descriptor_in_flight_is_told(void **state)
{
	struct stage_child child = stage_child(hold_in_flight, NULL);
	const struct verdict *verdict;

	(void)state;
	judge();
	verdict = verdict_of(child.pid, CAUSE_IN_FLIGHT);
	assert_non_null(verdict);
	assert_true(says(verdict, "waiting in a socket", "1 descriptor"));
	stage_end(&child);
}

/* One file in two slots of a ring, and no descriptor of it. Returns 0 where no ring can be made. */
static int32_t hold_in_a_ring(void *argument)
{
	struct io_uring_params parameters = {0};
	int ring = (int)syscall(SYS_io_uring_setup, 4, &parameters);
	int fds[2];

	(void)argument;
	if (ring < 0)
		return 0;
	fds[0] = fds[1] = stage_open();
	if (fds[0] < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, fds, 2) < 0)
		return -errno;
	(void)close(fds[0]);
	return ring;
}

static void a_file_of_an_io_uring_is_told(void **state)
{
	struct stage_child child = stage_child(hold_in_a_ring, NULL);
	const struct verdict *verdict;

	(void)state;
	if (child.value == 0) {
		stage_end(&child);
		printf("an io_uring is not allowed here\n");
		skip();
	}
	judge();
	verdict = verdict_of(child.pid, CAUSE_IO_URING);
	assert_non_null(verdict);
	assert_true(says(verdict, "registered files", "2"));
	assert_int_equal(main_of(child.pid), CAUSE_IO_URING);
	stage_end(&child);
}

static int32_t hold_a_mapping(void *argument)
{
	int fd = open(stage.mappable, O_RDWR | O_CLOEXEC);
	void *at;

	(void)argument;
	if (fd < 0)
		return -errno;
	at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	(void)close(fd);
	return at == MAP_FAILED ? -errno : 0;
}

static void a_mapping_without_a_descriptor_is_told(void **state)
{
	struct stage_child child = stage_child(hold_a_mapping, NULL);
	const struct verdict *verdict;

	(void)state;
	judge();
	verdict = verdict_of(child.pid, CAUSE_MAPPING);
	assert_non_null(verdict);
	assert_int_equal(verdict->certainty, CAUSE_LIKELY);
	stage_end(&child);
}

static void a_stopped_holder_is_told(void **state)
{
	struct stage_child child = stage_child(hold, NULL);

	(void)state;
	judge();
	assert_null(verdict_of(child.pid, CAUSE_STOPPED));
	assert_int_equal(kill(child.pid, SIGSTOP), 0);
	(void)await(child.pid, CAUSE_STOPPED);
	assert_int_equal(main_of(child.pid), CAUSE_STOPPED);
	assert_int_equal(kill(child.pid, SIGCONT), 0);
	stage_end(&child);
}

static void a_traced_holder_is_told(void **state)
{
	struct stage_child child = stage_child(hold, NULL);
	const struct verdict *verdict;
	char tracer[16];

	(void)state;
	if (ptrace(PTRACE_SEIZE, child.pid, NULL, NULL) < 0) {
		stage_end(&child);
		printf("tracing is not allowed here\n");
		skip();
	}
	judge();
	verdict = verdict_of(child.pid, CAUSE_TRACED);
	assert_non_null(verdict);
	(void)snprintf(tracer, sizeof(tracer), "%d", getpid());
	assert_true(says(verdict, "tracer", tracer));
	stage_end(&child);
}

/* Puts PID into a new control group NAME below ROOT. Returns false where that is not possible. */
static bool enter_group(const char *root, const char *name, pid_t pid, char *folder, size_t bytes)
{
	char path[300], number[16];
	bool done;
	int fd;

	(void)snprintf(folder, bytes, "%s/%s", root, name);
	if (mkdir(folder, 0755) < 0)
		return false;
	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	(void)snprintf(number, sizeof(number), "%d", pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	done = fd >= 0 && write(fd, number, strlen(number)) > 0;
	if (fd >= 0)
		(void)close(fd);
	if (!done)
		(void)rmdir(folder);
	return done;
}

static const char *group_root(void)
{
	return access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0 ? "/sys/fs/cgroup/unified"
									: "/sys/fs/cgroup";
}

static void remove_group(const char *folder)
{
	while (rmdir(folder) < 0)
		assert_int_equal(errno, EBUSY);
}

static bool write_group(const char *folder, const char *file, const char *text)
{
	char path[300];
	int fd;
	bool done;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	done = fd >= 0 && write(fd, text, strlen(text)) > 0;
	if (fd >= 0)
		(void)close(fd);
	return done;
}

static void frozen(const char *root, const char *file, const char *on, const char *off,
		   const char *remedy)
{
	struct stage_child child = stage_child(hold, NULL);
	char folder[256], name[64];
	const struct verdict *verdict;

	(void)snprintf(name, sizeof(name), "gpuward-cause-%d", getpid());
	if (!enter_group(root, name, child.pid, folder, sizeof(folder)) ||
	    !write_group(folder, file, on)) {
		stage_end(&child);
		(void)rmdir(folder);
		printf("%s cannot be used here\n", root);
		skip();
	}
	verdict = await(child.pid, CAUSE_FROZEN);
	assert_true(says(verdict, "frozen", name));
	assert_non_null(strstr(verdict->remedy, remedy));
	assert_true(write_group(folder, file, off));
	stage_end(&child);
	remove_group(folder);
}

static void a_frozen_holder_is_told(void **state)
{
	(void)state;
	frozen(group_root(), "cgroup.freeze", "1", "0", "works on frozen ones");
}

static void a_holder_that_v1_froze_is_told(void **state)
{
	(void)state;
	frozen("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED", "waits until then");
}

#define CONTAINER "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void a_survivor_of_its_container_is_told(void **state)
{
	static const struct fact_container gone = {CONTAINER, AMOUNTS_NO};
	struct stage_child child = stage_child(hold, NULL);
	struct causes_input input = {.scan = &stage.scan, .facts = &facts.facts};
	char folder[256];

	(void)state;
	if (!enter_group(group_root(), "docker-" CONTAINER ".scope", child.pid, folder,
			 sizeof(folder))) {
		stage_end(&child);
		printf("control groups cannot be made here\n");
		skip();
	}
	judge();
	assert_null(verdict_of(child.pid, CAUSE_CONTAINER));
	facts.facts.containers = &gone;
	facts.facts.container_count = 1;
	causes_free(&verdicts);
	assert_int_equal(causes_find(&input, &verdicts, NULL), 0);
	assert_non_null(verdict_of(child.pid, CAUSE_CONTAINER));
	assert_true(says(verdict_of(child.pid, CAUSE_CONTAINER), "container", "docker " CONTAINER));
	stage_end(&child);
	remove_group(folder);
}

/* A session whose leader ends at once; its child holds, and its group ends with it. */
static int32_t leave_a_session(void *argument)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		if (setsid() < 0)
			_exit(1);
		pid = fork();
		if (pid != 0)
			_exit(pid < 0);
		*(int *)argument = stage_open();
		stage_ready(getpid());
		stage_wait_end();
		_exit(0);
	}
	(void)waitpid(pid, NULL, 0);
	stage_wait_end();
	_exit(0);
}

static void an_orphan_of_its_session_is_told(void **state)
{
	int ignored;
	struct stage_child child = stage_child(leave_a_session, &ignored);
	const struct verdict *verdict;

	(void)state;
	verdict = await(child.value, CAUSE_ORPHAN);
	assert_int_equal(verdict->certainty, CAUSE_LIKELY);
	assert_int_equal(verdict->policy, CAUSE_AUTO);
	assert_true(says(verdict, "session leader", "no such process"));
	stage_end(&child);
}

/* Forks a child of another number, which has everything. */
static int32_t hold_and_fork(void *argument)
{
	pid_t pid;

	(void)argument;
	if (stage_open() < 0)
		return -errno;
	pid = fork();
	if (pid != 0)
		return pid;
	stage_wait_end();
	_exit(0);
}

static void a_child_with_its_living_parents_file_is_no_orphan(void **state)
{
	struct stage_child child = stage_child(hold_and_fork, NULL);

	(void)state;
	list(child.pid);
	judge();
	assert_int_equal(main_of(child.pid), CAUSE_LIVE_OWNER);
	assert_int_equal(main_of(child.value), CAUSE_LIVE_OWNER);
	assert_null(verdict_of(child.value, CAUSE_INHERITED));
	stage_end(&child);
}

/* Somebody who holds nothing has this very pid. */
static void a_pid_that_was_given_again_is_told(void **state)
{
	pid_t pid = fork(), again;
	struct clone_args arguments = {
		.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};
	const struct verdict *verdict;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	again = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));
	if (again == 0) {
		(void)pause();
		_exit(0);
	}
	if (again < 0) {
		printf("a pid cannot be chosen here\n");
		skip();
	}
	assert_int_equal(again, pid);
	list(pid);
	judge();
	verdict = verdict_of(pid, CAUSE_RECYCLED);
	assert_non_null(verdict);
	assert_int_equal(verdict->policy, CAUSE_LEAVE);
	assert_int_equal(verdict->member_count, 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Not reaped, and on NVML's list: it holds nothing. */
static void a_zombie_is_told(void **state)
{
	siginfo_t info;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	list(pid);
	judge();
	assert_non_null(verdict_of(pid, CAUSE_ZOMBIE));
	assert_true(says(verdict_of(pid, CAUSE_ZOMBIE), "state", "Z, 1 thread"));
	assert_null(verdict_of(pid, CAUSE_RECYCLED));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	judge();
	assert_null(verdict_of(pid, CAUSE_ZOMBIE));
}

/* /proc has a folder for a thread, and does not list it; that is no process, and nobody hides it. */
static void a_threads_number_is_no_process(void **state)
{
	struct stage_child child = stage_child(hold_in_a_thread, NULL);

	(void)state;
	list(child.value);
	judge();
	assert_int_equal(facts.facts.label_count, 1);
	assert_int_equal(facts.labels[0].exists, AMOUNTS_NO);
	assert_null(verdict_of(child.value, CAUSE_HIDDEN));
	assert_null(verdict_of(child.value, CAUSE_RECYCLED));
	list(child.pid);
	judge();
	assert_int_equal(facts.labels[0].exists, AMOUNTS_YES);
	assert_int_equal(facts.labels[0].listed, AMOUNTS_YES);
	stage_end(&child);
}

#define NOBODY 65534

/* As another user, of a holder that may not be looked at: ends with 0 if that is told. */
static _Noreturn void judge_as_nobody(void)
{
	struct causes_input input = {.scan = &stage.scan};

	if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
		_exit(77);
	if (scan_run(&stage.options, &stage.scan, NULL) < 0 ||
	    causes_find(&input, &verdicts, NULL) < 0)
		_exit(1);
	for (uint32_t i = 0; i < verdicts.count; i++) {
		if (verdicts.list[i].cause == CAUSE_DENIED &&
		    strstr(verdicts.list[i].remedy, "CAP_SYS_PTRACE"))
			_exit(0);
	}
	_exit(2);
}

static void what_another_user_may_not_look_at_is_told(void **state)
{
	struct stage_child child = stage_child(hold, NULL);
	pid_t pid = fork();
	int status;

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		judge_as_nobody();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	stage_end(&child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define EMULATED(name) cmocka_unit_test_setup_teardown(name, set_up_emulated, tear_down)
#define NUMBERS(name)  cmocka_unit_test_setup_teardown(name, set_up_numbers, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EMULATED(a_zombie_leader_is_told),
		EMULATED(a_threads_own_table_is_told),
		EMULATED(a_descriptor_in_flight_is_told),
		NUMBERS(a_descriptor_in_flight_is_told),
		EMULATED(a_file_of_an_io_uring_is_told),
		NUMBERS(a_mapping_without_a_descriptor_is_told),
		EMULATED(a_stopped_holder_is_told),
		EMULATED(a_traced_holder_is_told),
		EMULATED(a_frozen_holder_is_told),
		EMULATED(a_holder_that_v1_froze_is_told),
		EMULATED(a_survivor_of_its_container_is_told),
		EMULATED(an_orphan_of_its_session_is_told),
		EMULATED(a_child_with_its_living_parents_file_is_no_orphan),
		EMULATED(a_pid_that_was_given_again_is_told),
		EMULATED(a_zombie_is_told),
		EMULATED(a_threads_number_is_no_process),
		NUMBERS(what_another_user_may_not_look_at_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
