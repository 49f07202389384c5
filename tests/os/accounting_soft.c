/* SPDX-License-Identifier: MIT */
/*
 * Description: NVML's processes are joined with the kernel's side, on the emulated GPU: a living client, a dead one
 * whose forked child holds all, exported memory of nobody, another pid namespace; a driver that hangs costs the
 * deadline and no more, and no second probe is started while it does; without NVML that is said.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/fd.h"
#include "holders/accounting.h"
#include "softgpu.h"
#include "softgpu_calls.h"

#define MS  1000000ULL
#define MIB (UINT64_C(1) << 20)

static struct accounting_probe probe;
static struct scan scan;
static struct amounts amounts;
static struct accounting accounting;
static struct gw_error error;
static struct signal_pipe up;
static struct signal_pipe life;

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
	accounting_free(&accounting);
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

static void look(uint64_t deadline_ns)
{
	struct scan_options options = {0};

	forget();
	assert_int_equal(scan_run(&options, &scan, &error), 0);
	assert_int_equal(accounting_ask(&probe, &scan, deadline_ns, &amounts, &error), 0);
	assert_int_equal(accounting_join(&scan, &amounts, after_ns(2000 * MS), &accounting, &error),
			 0);
}

/* The line of PID, or one of the pid 0. */
static const struct account_line *line_of(int32_t pid)
{
	static const struct account_line none;

	for (uint32_t i = 0; i < accounting.line_count; i++) {
		if (accounting.lines[i].pid == pid)
			return &accounting.lines[i];
	}
	return &none;
}

/* In a child: 64 MiB on a device, then what comes. The ends of pipes that it must not keep are closed. */
static void use_device(int device)
{
	uint64_t address;

	fd_closep(&life.fds[1]);
	child_context(device);
	OK(cuMemAlloc_v2(&address, 64 * MIB));
}

static int use_and_wait(void *argument)
{
	use_device(*(int *)argument);
	pipe_send(&up);
	(void)pipe_wait(&life);
	return 0;
}

/* Forks a child that has everything and uses nothing, and is killed when that is up. */
static int use_and_fork(void *argument)
{
	use_device(*(int *)argument);
	if (fork() == 0) {
		pipe_send(&up);
		(void)pipe_wait(&life);
		_exit(0);
	}
	(void)pause();
	return 0;
}

static void a_client_is_joined_with_its_process(void **state)
{
	int device = 1;
	pid_t pid = child_start(use_and_wait, &device);
	const struct account_line *line;
	const struct amounts_gpu *gpu;

	(void)state;
	assert_int_equal(pipe_wait(&up), 1);
	look(0);
	assert_int_equal(amounts.answer, AMOUNTS_ANSWERED);
	assert_int_equal(amounts.gpu_count, 2);
	line = line_of(pid);
	assert_int_equal(line->pid, pid);
	assert_int_equal(line->owner, ACCOUNT_HOLDER);
	assert_int_equal(scan.processes[line->process].pid, pid);
	assert_int_equal(line->gpu, 1);
	gpu = &amounts.gpus[1];
	assert_int_equal(gpu->minor, 1);
	assert_true(gpu->attributed_bytes >= 64 * MIB);
	assert_int_equal(gpu->attributed_bytes, line->used_bytes);
	assert_int_equal(gpu->attributed_bytes + gpu->unattributed_bytes, gpu->used_bytes);
	assert_int_equal(gpu->used_bytes + gpu->free_bytes + gpu->reserved_bytes, gpu->total_bytes);
	assert_int_equal(amounts.gpus[0].attributed_bytes, 0);
	pipe_send(&life);
	assert_int_equal(child_end(pid), 0);
	look(0);
	assert_int_equal(line_of(pid)->pid, 0);
	/* The probe of the look before holds nothing any more. */
	assert_int_equal(scan.process_count, 0);
	assert_false(probe.open);
}

static void what_a_dead_client_left_goes_to_its_child(void **state)
{
	int device = 0;
	pid_t pid = child_start(use_and_fork, &device);
	const struct account_line *line;
	char unseen[512];

	(void)state;
	assert_int_equal(pipe_wait(&up), 1);
	look(0);
	line = line_of(pid);
	assert_int_equal(line->pid, pid);
	assert_int_equal(line->owner, ACCOUNT_HOLDER);
	assert_int_equal(
		share_size(&scan, &accounting.share, accounting.share.group[line->process]), 2);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	look(0);
	line = line_of(pid);
	assert_int_equal(line->pid, pid);
	/* Whether nobody else can hold it depends on what else runs on this machine. */
	if (line->owner == ACCOUNT_DEAD) {
		scan_unseen_text(&scan, unseen, sizeof(unseen));
		assert_string_not_equal(unseen, "");
		pipe_send(&life);
		return;
	}
	assert_int_equal(line->owner, ACCOUNT_SHARED);
	assert_int_equal(line->proof, ACCOUNT_ONLY_ONE);
	assert_int_equal(share_size(&scan, &accounting.share, line->group), 1);
	assert_int_equal(scan_find(&scan, scan.processes[0].pid)->ppid, getpid());
	assert_true(line->used_bytes >= 64 * MIB);
	assert_int_equal(amounts.gpus[0].attributed_bytes, line->used_bytes);
	pipe_send(&life);
}

static int lead_a_group(void *argument)
{
	(void)setpgid(0, 0);
	return use_and_fork(argument);
}

static void the_dead_leader_of_a_process_group_is_proof(void **state)
{
	int device = 0;
	pid_t pid = child_start(lead_a_group, &device);
	const struct account_line *line;

	(void)state;
	assert_int_equal(pipe_wait(&up), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	look(0);
	line = line_of(pid);
	assert_int_equal(line->pid, pid);
	assert_int_equal(line->owner, ACCOUNT_SHARED);
	assert_int_equal(line->proof, ACCOUNT_LINEAGE);
	pipe_send(&life);
}

static int sockets[2];

/* Holds what it is sent, by another number than the sender's. */
static int receive_and_wait(void *argument)
{
	int received = socket_receive_fd(sockets[1]);
	int other = fcntl(received, F_DUPFD_CLOEXEC, 200);

	(void)argument;
	fd_closep(&life.fds[1]);
	fd_close(received);
	NEED(other >= 200, 1);
	pipe_send(&up);
	(void)pipe_wait(&life);
	return 0;
}

static int open_and_wait(void *argument)
{
	fd_closep(&life.fds[1]);
	NEED(open(argument, O_RDWR | O_CLOEXEC) >= 0, 1);
	pipe_send(&up);
	(void)pipe_wait(&life);
	return 0;
}

static uint32_t group_of(pid_t pid)
{
	for (uint32_t i = 0; i < scan.process_count; i++) {
		if (scan.processes[i].pid == pid)
			return accounting.share.group[i];
	}
	return ACCOUNT_NONE;
}

static void who_received_a_descriptor_shares_it(void **state)
{
	char path[128];
	pid_t receiver, other;
	int device;

	(void)state;
	look(0); /* the machine's files are made at the first use */
	(void)snprintf(path, sizeof(path), "%s/dev/nvidia1", soft_dir());
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	receiver = child_start(receive_and_wait, NULL);
	other = child_start(open_and_wait, path);
	device = open(path, O_RDWR | O_CLOEXEC);
	assert_true(device >= 0);
	socket_send_fd(sockets[0], device);
	assert_int_equal(pipe_wait(&up), 1);
	assert_int_equal(pipe_wait(&up), 1);
	look(0);
	assert_int_not_equal(group_of(getpid()), ACCOUNT_NONE);
	assert_int_equal(group_of(receiver), group_of(getpid()));
	assert_int_not_equal(group_of(other), ACCOUNT_NONE);
	assert_int_not_equal(group_of(other), group_of(getpid()));
	assert_false(accounting.share.incomplete);
	fd_close(device);
	fd_close(sockets[0]);
	fd_close(sockets[1]);
}

static void who_has_ended_since_the_scan_shares_with_nobody(void **state)
{
	struct scan_options options = {0};
	int device = 0;
	pid_t pid = child_start(use_and_fork, &device);

	(void)state;
	assert_int_equal(pipe_wait(&up), 1);
	look(0);
	assert_int_equal(scan.process_count, 2);
	assert_int_equal(accounting.share.group_count, 1);
	forget();
	assert_int_equal(scan_run(&options, &scan, &error), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	assert_int_equal(share_find(&scan, GW_FOREVER, &accounting.share, &error), 0);
	assert_int_equal(accounting.share.group_count, 2);
	assert_false(accounting.share.incomplete);
	share_free(&accounting.share);
	/* Without time nothing is said. */
	assert_int_equal(share_find(&scan, 0, &accounting.share, &error), 0);
	assert_int_equal(accounting.share.group_count, 2);
	pipe_send(&life);
}

static void a_driver_that_hangs_costs_the_deadline(void **state)
{
	int device = 0;
	pid_t pid = child_start(use_and_wait, &device);
	uint64_t start;
	pid_t first;

	(void)state;
	assert_int_equal(pipe_wait(&up), 1);
	soft_setting("devices=2\nnvml_hang=1\n");
	start = now_ns();
	look(300 * MS);
	assert_int_equal(amounts.answer, AMOUNTS_HUNG);
	assert_string_equal(amounts.error.msg, "driver does not answer (0.300 s)");
	assert_true(now_ns() - start >= 300 * MS);
	assert_int_equal(accounting.line_count, 0);
	/* What the kernel knows is there all the same. */
	assert_non_null(scan_find(&scan, pid));
	first = probe.probe.child.process.pid;
	soft_setting("devices=2\n");
	for (look(0); amounts.answer == AMOUNTS_HUNG; look(0))
		assert_int_equal(probe.probe.child.process.pid, first);
	assert_int_equal(amounts.answer, AMOUNTS_ANSWERED);
	assert_int_equal(line_of(pid)->pid, pid);
	pipe_send(&life);
}

static void no_probe_joins_one_that_hangs(void **state)
{
	struct scan_process hung = {.pid = 4711,
				    .comm = "gpuward-probe",
				    .state = 'D',
				    .uid = (int32_t)getuid(),
				    .signals = {.pending = 0x100}};
	struct scan stuck = {.processes = &hung, .process_count = 1};

	(void)state;
	assert_int_equal(accounting_ask(&probe, &stuck, 0, &amounts, &error), 0);
	assert_int_equal(amounts.answer, AMOUNTS_HUNG);
	assert_non_null(strstr(amounts.error.msg, "pid 4711"));
	assert_false(probe.open);
	/* One that merely has the name is nobody. */
	hung.signals.pending = 0;
	accounting_amounts_free(&amounts);
	assert_int_equal(accounting_ask(&probe, &stuck, 0, &amounts, &error), 0);
	assert_int_equal(amounts.answer, AMOUNTS_ANSWERED);
}

static void without_nvml_it_is_said(void **state)
{
	char *libraries = strdup(getenv("LD_LIBRARY_PATH"));

	(void)state;
	assert_non_null(libraries);
	assert_int_equal(setenv("LD_LIBRARY_PATH", "/nowhere", 1), 0);
	look(0);
	assert_int_equal(amounts.answer, AMOUNTS_ABSENT);
	assert_non_null(strstr(amounts.error.msg, "libnvidia-ml.so.1"));
	assert_int_equal(amounts.gpu_count, 0);
	assert_int_equal(setenv("LD_LIBRARY_PATH", libraries, 1), 0);
	free(libraries);
}

static void a_lost_gpu_is_said(void **state)
{
	(void)state;
	soft_setting("devices=2\nlost=1\n");
	look(0);
	assert_int_equal(amounts.answer, AMOUNTS_ANSWERED);
	assert_int_equal(amounts.gpus[0].memory, AMOUNTS_ANSWERED);
	assert_int_equal(amounts.gpus[1].memory, AMOUNTS_LOST);
	assert_true(amounts.gpus[1].used_bytes == GW_UNKNOWN);
	assert_true(amounts.gpus[1].unattributed_bytes == GW_UNKNOWN);
	assert_int_not_equal(amounts.gpus[1].error.code, 0);
}

/* Looks from inside a pid namespace of its own, where the client outside has no number. */
static int look_inside(void *argument)
{
	struct scan_options options = {0};

	(void)argument;
	NEED(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	NEED(mount("proc", "/proc", "proc", 0, NULL), 0);
	NEED(scan_run(&options, &scan, &error), 0);
	NEED(accounting_ask(&probe, &scan, 0, &amounts, &error), 0);
	NEED(accounting_join(&scan, &amounts, after_ns(2000 * MS), &accounting, &error), 0);
	NEED(accounting.line_count, 0);
	NEED(amounts.gpus[0].attributed_bytes, 0);
	NEED(amounts.gpus[0].unattributed_bytes > 64 * MIB, 1);
	NEED(scan.pid_namespace_initial, 0);
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

static void what_is_outside_a_namespace_is_nobodys(void **state)
{
	int device = 0;
	pid_t pid = child_start(use_and_wait, &device);
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

static void where_a_driver_lists_the_hosts_pids_they_name_nobody_here(void **state)
{
	struct amounts_process process = {1, AMOUNTS_COMPUTE, MIB};
	struct amounts_gpu gpu = AMOUNTS_GPU_NONE;
	struct amounts old = {.driver = "535.104.05", .gpus = &gpu, .gpu_count = 1};
	struct scan_options options = {0};

	(void)state;
	gpu.processes = &process;
	gpu.process_count = 1;
	assert_int_equal(scan_run(&options, &scan, &error), 0);
	scan.pid_namespace_initial = false;
	assert_int_equal(accounting_join(&scan, &old, 0, &accounting, &error), 0);
	assert_int_equal(accounting.lines[0].owner, ACCOUNT_ELSEWHERE);
	accounting_free(&accounting);
	(void)strcpy(old.driver, "535.113.01");
	assert_int_equal(accounting_join(&scan, &old, 0, &accounting, &error), 0);
	assert_int_not_equal(accounting.lines[0].owner, ACCOUNT_ELSEWHERE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_client_is_joined_with_its_process, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(what_a_dead_client_left_goes_to_its_child, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(the_dead_leader_of_a_process_group_is_proof, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(who_received_a_descriptor_shares_it, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(who_has_ended_since_the_scan_shares_with_nobody,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_driver_that_hangs_costs_the_deadline, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(no_probe_joins_one_that_hangs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(without_nvml_it_is_said, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_lost_gpu_is_said, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_outside_a_namespace_is_nobodys, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			where_a_driver_lists_the_hosts_pids_they_name_nobody_here, set_up,
			tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
