/* SPDX-License-Identifier: MIT */
/*
 * Description: a scan finds who has a GPU's device file among its descriptors, and what that process is: one that
 * opened it, one that inherited it, one that opened another node of the same device; and nobody else.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stage.h"

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
	stage_finish();
	return 0;
}

static int32_t hold_fd(void *argument)
{
	(void)argument;
	return stage_open();
}

static void an_ordinary_holder_is_found(void **state)
{
	struct stage_child child = stage_child(hold_fd, NULL);
	const struct scan_process *process;
	const struct scan_reference *reference;

	(void)state;
	stage_scan();
	process = scan_find(&stage.scan, child.pid);
	assert_non_null(process);
	assert_int_equal(stage_count_all(child.pid), 1);
	reference = stage_reference(child.pid, SCAN_FD);
	assert_non_null(reference);
	assert_int_equal(reference->device.kind, SCAN_GPU);
	assert_int_equal(reference->device.minor, 7);
	assert_int_equal(reference->device.gpu_minor, 7);
	assert_int_equal(reference->fd, child.value);
	assert_int_equal(reference->tid, 0);
	assert_int_equal(reference->count, 1);
	assert_false(reference->other_node);
	assert_int_equal(process->ppid, getpid());
	assert_int_equal(process->sid, getsid(0));
	assert_int_equal(process->uid, getuid());
	assert_true(process->start_ticks <= stage.scan.now_ticks);
	assert_int_equal(stage.scan.unseen.late, 0);
	stage_end(&child);
	stage_scan();
	assert_int_equal(stage_count_all(child.pid), 0);
}

static int32_t hold_nothing(void *argument)
{
	int fd = stage_open();

	(void)argument;
	if (fd < 0)
		return -errno;
	return close(fd);
}

static void one_that_closed_it_is_no_holder(void **state)
{
	struct stage_child child = stage_child(hold_nothing, NULL);

	(void)state;
	stage_scan();
	assert_int_equal(stage_count_all(child.pid), 0);
	assert_int_equal(stage_count_all(getpid()), 0);
	stage_end(&child);
}

/* Opens it, forks, and leaves: the child of the child never opened anything. */
static int32_t hold_and_fork(void *argument)
{
	int fd = stage_open();
	pid_t pid;

	(void)argument;
	if (fd < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0)
		_exit(0);
	return getpid();
}

static void a_forked_holder_is_found_when_its_parent_is_gone(void **state)
{
	struct stage_child child;
	int status;

	(void)state;
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	child = stage_child(hold_and_fork, NULL);
	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	child.pid = child.value;
	stage_scan();
	assert_int_equal(stage_count(child.pid, SCAN_FD), 1);
	assert_int_equal(scan_find(&stage.scan, child.pid)->ppid, getpid());
	stage_end(&child);
}

static int32_t hold_foreign(void *argument)
{
	return open(argument, O_RDWR | O_CLOEXEC);
}

static void another_node_of_the_device_is_found(void **state)
{
	char path[96];
	struct stage_child first, second;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/any name", stage.folder);
	assert_int_equal(mknod(path, S_IFCHR | 0600, makedev(1, 7)), 0);
	first = stage_child(hold_foreign, path);
	second = stage_child(hold_foreign, (void *)(uintptr_t)stage.foreign);
	stage_scan();
	assert_int_equal(stage_count(first.pid, SCAN_FD), 1);
	assert_int_equal(stage_count(second.pid, SCAN_FD), 1);
	assert_true(stage_reference(first.pid, SCAN_FD)->other_node);
	assert_true(stage_reference(second.pid, SCAN_FD)->other_node);
	stage_end(&first);
	stage_end(&second);
}

static int32_t hold_imitation(void *argument)
{
	char path[96];

	(void)argument;
	(void)snprintf(path, sizeof(path), "%s/nvidia7", stage.folder);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static void a_file_with_a_devices_name_is_none(void **state)
{
	struct stage_child child = stage_child(hold_imitation, NULL);

	(void)state;
	stage_scan();
	assert_int_equal(stage_count_all(child.pid), 0);
	stage_end(&child);
}

static int32_t hold_with_a_bad_name(void *argument)
{
	(void)argument;
	if (prctl(PR_SET_NAME, "a) R 1\n\033[2Jb") < 0)
		return -errno;
	return stage_open();
}

static void a_name_with_control_characters_breaks_nothing(void **state)
{
	struct stage_child child = stage_child(hold_with_a_bad_name, NULL);
	const struct scan_process *process;

	(void)state;
	stage_scan();
	process = scan_find(&stage.scan, child.pid);
	assert_non_null(process);
	assert_string_equal(process->comm, "a) R 1\n\033[2Jb");
	assert_int_equal(process->ppid, getpid());
	stage_end(&child);
}

static void a_stopped_holder_is_found(void **state)
{
	struct stage_child child = stage_child(hold_fd, NULL);
	int status;

	(void)state;
	assert_int_equal(kill(child.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(child.pid, &status, WUNTRACED), child.pid);
	stage_scan();
	assert_int_equal(stage_count(child.pid, SCAN_FD), 1);
	assert_int_equal(scan_find(&stage.scan, child.pid)->state, 'T');
	stage_kill(&child);
}

static void no_proc_is_said(void **state)
{
	struct gw_error error = {0};
	struct scan scan;

	(void)state;
	stage.options.proc = "/nowhere";
	assert_int_equal(scan_run(&stage.options, &scan, &error), -ENOENT);
	assert_non_null(strstr(error.msg, "/nowhere"));
}

#define EMULATED(name) cmocka_unit_test_setup_teardown(name, set_up_emulated, tear_down)
#define NUMBERS(name)                                                                              \
	{                                                                                          \
#name " (device numbers)", name, set_up_numbers, tear_down, NULL                   \
	}

int main(void)
{
	const struct CMUnitTest emulated[] = {
		EMULATED(an_ordinary_holder_is_found),
		EMULATED(one_that_closed_it_is_no_holder),
		EMULATED(a_forked_holder_is_found_when_its_parent_is_gone),
		EMULATED(a_file_with_a_devices_name_is_none),
		EMULATED(a_name_with_control_characters_breaks_nothing),
		EMULATED(a_stopped_holder_is_found),
		EMULATED(no_proc_is_said),
	};
	const struct CMUnitTest numbers[] = {
		NUMBERS(an_ordinary_holder_is_found),
		NUMBERS(one_that_closed_it_is_no_holder),
		NUMBERS(a_forked_holder_is_found_when_its_parent_is_gone),
		NUMBERS(another_node_of_the_device_is_found),
		NUMBERS(a_file_with_a_devices_name_is_none),
	};

	return cmocka_run_group_tests(emulated, NULL, NULL) |
	       cmocka_run_group_tests(numbers, NULL, NULL);
}
