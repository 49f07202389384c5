/* SPDX-License-Identifier: MIT */
/*
 * Description: on the emulated GPU memory that stays is explained: by the forked child of a dead client, a living thread
 * of a zombie, exported memory in a descriptor or in flight, a driver that hangs, a lost GPU; and a client that merely
 * works is left alone.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/fd.h"
#include "holders/accounting.h"
#include "holders/facts.h"
#include "softgpu.h"
#include "softgpu_calls.h"

#define MS  1000000ULL
#define MIB (UINT64_C(1) << 20)

static struct accounting_probe probe;
static struct scan scan;
static struct amounts amounts;
static struct facts facts;
static struct verdicts verdicts;
static struct gw_error error;
static struct signal_pipe up;
static struct signal_pipe life;
static int sockets[2];

static int set_up(void **state)
{
	(void)state;
	soft_dir_new("devices=2\n");
	probe = ACCOUNTING_PROBE_NONE;
	pipe_open(&up);
	pipe_open(&life);
	/* Orphans come here, so that their end can be waited for. */
	return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static void forget(void)
{
	causes_free(&verdicts);
	facts_free(&facts);
	accounting_amounts_free(&amounts);
	scan_free(&scan);
}

static int tear_down(void **state)
{
	(void)state;
	forget();
	accounting_probe_close(&probe);
	pipe_close(&up);
	pipe_close(&life);
	while (waitpid(-1, NULL, 0) > 0)
		;
	soft_dir_free();
	return 0;
}

/* Fit for a child, too. Returns 0 or what failed. */
static int look(uint64_t deadline_ns)
{
	struct scan_options options = {0};
	struct causes_input input = {.scan = &scan, .amounts = &amounts, .facts = &facts.facts};
	int code;

	forget();
	code = scan_run(&options, &scan, &error);
	if (code == 0)
		code = accounting_ask(&probe, &scan, deadline_ns, &amounts, &error);
	if (code == 0)
		code = facts_gather(&scan, &amounts, NULL, after_ns(2000 * MS), &facts, &error);
	return code ? code : causes_find(&input, &verdicts, &error);
}

static void judge(uint64_t deadline_ns)
{
	assert_int_equal(look(deadline_ns), 0);
}

/* The first one of CAUSE, or one of none. */
static const struct verdict *verdict_of(enum cause cause)
{
	static const struct verdict none;

	for (uint32_t i = 0; i < verdicts.count; i++) {
		if (verdicts.list[i].cause == cause)
			return &verdicts.list[i];
	}
	return &none;
}

static bool is_told(enum cause cause)
{
	return verdict_of(cause)->cause == cause;
}

static enum cause main_of(pid_t pid)
{
	const struct scan_process *process = scan_find(&scan, pid);
	const struct verdict *verdict;

	assert_non_null(process);
	verdict = causes_main(&verdicts, (uint32_t)(process - scan.processes));
	return verdict ? verdict->cause : CAUSE_NONE;
}

/* In a child: 64 MiB on the first device. The end of a pipe that it must not keep is closed. */
static void use_device(void)
{
	uint64_t address;

	fd_closep(&life.fds[1]);
	child_context(0);
	OK(cuMemAlloc_v2(&address, 64 * MIB));
}

static int use_and_wait(void *argument)
{
	(void)argument;
	use_device();
	pipe_send(&up);
	(void)pipe_wait(&life);
	return 0;
}

static void a_client_that_works_is_left_alone(void **state)
{
	pid_t pid = child_start(use_and_wait, NULL);
	const struct verdict *verdict;

	(void)state;
	assert_int_equal(pipe_wait(&up), 1);
	judge(0);
	assert_int_equal(main_of(pid), CAUSE_LIVE_OWNER);
	verdict = verdict_of(CAUSE_LIVE_OWNER);
	assert_int_equal(verdict->certainty, CAUSE_CERTAIN);
	assert_int_equal(verdict->policy, CAUSE_LEAVE);
	assert_true(verdict->bytes >= 64 * MIB);
	assert_false(is_told(CAUSE_ORPHAN));
	assert_false(is_told(CAUSE_INHERITED));
	assert_false(is_told(CAUSE_DRIVER_LEAK));
	pipe_send(&life);
	assert_int_equal(child_end(pid), 0);
	judge(0);
	assert_false(is_told(CAUSE_LIVE_OWNER));
	assert_false(is_told(CAUSE_DRIVER_LEAK));
}

#define HEIRS 3

/* Forks children that have everything and use nothing; leads a group, so that they are known by it. */
static int use_and_fork(void *argument)
{
	if (argument)
		(void)setpgid(0, 0);
	use_device();
	for (int i = 0; i < HEIRS; i++) {
		if (fork() == 0) {
			pipe_send(&up);
			(void)pipe_wait(&life);
			_exit(0);
		}
	}
	(void)pause();
	return 0;
}

static void inherited(void *argument, enum cause_certainty certainty)
{
	pid_t pid = child_start(use_and_fork, argument);
	const struct verdict *verdict;

	for (int i = 0; i < HEIRS; i++)
		assert_int_equal(pipe_wait(&up), 1);
	judge(0);
	assert_false(is_told(CAUSE_INHERITED));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	judge(0);
	verdict = verdict_of(CAUSE_INHERITED);
	assert_int_not_equal(verdict->cause, CAUSE_NONE);
	assert_null(scan_find(&scan, pid));
	assert_int_equal(verdict->member_count, HEIRS);
	assert_int_equal(verdict->certainty, certainty);
	assert_true(verdict->bytes >= 64 * MIB);
	assert_int_equal(facts.labels[0].pid, pid);
	assert_int_equal(facts.labels[0].exists, AMOUNTS_NO);
	for (uint32_t i = 0; i < HEIRS; i++)
		assert_ptr_equal(causes_main(&verdicts, verdict->members[i]), verdict);
	assert_false(is_told(CAUSE_DRIVER_LEAK));
	assert_false(is_told(CAUSE_EXPORTED));
	for (int i = 0; i < HEIRS; i++)
		pipe_send(&life);
}

static void children_of_a_dead_client_are_one_finding(void **state)
{
	(void)state;
	inherited(&life, CAUSE_CERTAIN);
}

static void a_guess_by_elimination_is_told_as_likely(void **state)
{
	(void)state;
	inherited(NULL, CAUSE_LIKELY);
}

static void *report_and_wait(void *argument)
{
	pipe_send(&up);
	(void)pipe_wait(&life);
	(void)argument;
	_exit(0);
}

static int use_and_leave_a_thread(void *argument)
{
	pthread_t thread;

	(void)argument;
	use_device();
	if (pthread_create(&thread, NULL, report_and_wait, NULL) != 0)
		return CHILD_BAD_CALL;
	syscall(SYS_exit, 0);
	return 0;
}

static void a_zombie_whose_thread_lives_is_told(void **state)
{
	pid_t pid = child_start(use_and_leave_a_thread, NULL);

	(void)state;
	assert_int_equal(pipe_wait(&up), 1);
	for (judge(0); !is_told(CAUSE_ZOMBIE_LEADER); judge(0))
		sched_yield();
	assert_int_equal(main_of(pid), CAUSE_ZOMBIE_LEADER);
	assert_true(verdict_of(CAUSE_ZOMBIE_LEADER)->bytes >= 64 * MIB);
	assert_false(is_told(CAUSE_DRIVER_LEAK));
	pipe_send(&life);
	assert_int_equal(child_end(pid), 0);
}

/* Exports memory, sends its descriptor away, and ends. */
static int export_and_end(void *argument)
{
	static const struct cuda_allocation shareable = {
		.type = CUDA_MEMORY_PINNED,
		.handle_types = CUDA_HANDLE_POSIX_FD,
		.location = {.type = CUDA_LOCATION_DEVICE}};
	uint64_t handle;
	int fd;

	(void)argument;
	child_context(0);
	OK(cuMemCreate(&handle, 512 * MIB, &shareable, 0));
	OK(cuMemExportToShareableHandle(&fd, handle, CUDA_HANDLE_POSIX_FD, 0));
	socket_send_fd(sockets[1], fd);
	return 0;
}

static void exported_memory_is_told_in_a_descriptor_and_in_flight(void **state)
{
	const struct verdict *verdict;
	int fd;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	assert_int_equal(child_run(export_and_end, NULL), 0);
	judge(0);
	verdict = verdict_of(CAUSE_IN_FLIGHT);
	assert_int_not_equal(verdict->cause, CAUSE_NONE);
	assert_int_equal(verdict->pid, getpid());
	assert_false(is_told(CAUSE_DRIVER_LEAK));
	fd = socket_receive_fd(sockets[0]);
	assert_true(fd >= 0);
	judge(0);
	assert_false(is_told(CAUSE_IN_FLIGHT));
	verdict = verdict_of(CAUSE_EXPORTED);
	assert_int_not_equal(verdict->cause, CAUSE_NONE);
	assert_int_equal(verdict->pid, getpid());
	assert_int_equal(verdict->certainty, CAUSE_LIKELY);
	assert_false(is_told(CAUSE_DRIVER_LEAK));
	assert_int_equal(close(fd), 0);
	judge(0);
	assert_false(is_told(CAUSE_EXPORTED));
	(void)close(sockets[0]);
	(void)close(sockets[1]);
}

/* Looks from inside a pid namespace of its own, where the client outside has no number. */
static int look_inside(void *argument)
{
	(void)argument;
	NEED(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	NEED(mount("proc", "/proc", "proc", 0, NULL), 0);
	NEED(look(0), 0);
	NEED(is_told(CAUSE_OTHER_NAMESPACE), 1);
	NEED(verdict_of(CAUSE_OTHER_NAMESPACE)->bytes > 64 * MIB, 1);
	NEED(is_told(CAUSE_LIVE_OWNER), 0);
	/* It may be a leak, for all that can be seen from here. */
	NEED(verdict_of(CAUSE_DRIVER_LEAK)->other, CAUSE_OTHER_NAMESPACE);
	forget();
	accounting_probe_close(&probe);
	return 0;
}

static int enter_and_look(void *argument)
{
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0)
		return 77;
	return child_run(look_inside, argument);
}

static void what_is_outside_a_namespace_is_told(void **state)
{
	pid_t pid = child_start(use_and_wait, NULL);
	int result;

	(void)state;
	assert_int_equal(pipe_wait(&up), 1);
	result = child_run(enter_and_look, NULL);
	pipe_send(&life);
	assert_int_equal(child_end(pid), 0);
	if (result == 77)
		skip();
	assert_int_equal(result, 0);
}

static void a_driver_that_hangs_is_told(void **state)
{
	pid_t pid = child_start(use_and_wait, NULL);

	(void)state;
	assert_int_equal(pipe_wait(&up), 1);
	soft_setting("devices=2\nnvml_hang=1\n");
	judge(300 * MS);
	assert_true(is_told(CAUSE_NVML_HUNG));
	assert_int_equal(main_of(pid), CAUSE_LIVE_OWNER);
	assert_int_equal(verdict_of(CAUSE_LIVE_OWNER)->certainty, CAUSE_LIKELY);
	soft_setting("devices=2\n");
	pipe_send(&life);
	assert_int_equal(child_end(pid), 0);
}

static void a_lost_gpu_is_told(void **state)
{
	(void)state;
	soft_setting("devices=2\nlost=1\n");
	judge(0);
	assert_true(is_told(CAUSE_GPU_LOST));
	assert_int_equal(verdict_of(CAUSE_GPU_LOST)->gpu, 1);
	assert_int_equal(verdict_of(CAUSE_GPU_LOST)->certainty, CAUSE_CERTAIN);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_client_that_works_is_left_alone),
		TEST(children_of_a_dead_client_are_one_finding),
		TEST(a_guess_by_elimination_is_told_as_likely),
		TEST(a_zombie_whose_thread_lives_is_told),
		TEST(exported_memory_is_told_in_a_descriptor_and_in_flight),
		TEST(what_is_outside_a_namespace_is_told),
		TEST(a_driver_that_hangs_is_told),
		TEST(a_lost_gpu_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
