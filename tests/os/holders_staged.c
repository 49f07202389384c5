/* SPDX-License-Identifier: MIT */
/*
 * Description: processes that end inside nvidia's driver are holders though nothing of them is open any more; those
 * that end elsewhere are none; and where it cannot be known, that is counted. All in a /proc of the test's own, with
 * what the kernel writes in it; files that no kernel would write do no harm.
 */
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "holders/scan.h"

#define DRIVER_STACK                                                                               \
	"[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n"                                       \
	"[<0>] rm_cleanup_file_private+0x50/0x1a0 [nvidia]\n[<0>] __fput+0xe3/0x2a0\n"
#define OTHER_STACK "[<0>] request_wait_answer+0x1/0x2 [fuse]\n[<0>] __fput+0xe3/0x2a0\n"

static char root[64];
static struct scan_options options;
static struct scan scan;

static int set_up(void **state)
{
	static char proc[80];

	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/gpuward-proc-XXXXXX");
	(void)unsetenv("GPUWARD_SOFT_DIR");
	memset(&scan, 0, sizeof(scan));
	if (!mkdtemp(root))
		return -1;
	(void)snprintf(proc, sizeof(proc), "%s/proc", root);
	options = (struct scan_options){.proc = proc, .root = root};
	return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
	(void)info;
	(void)kind;
	(void)walk;
	return remove(path);
}

static int tear_down(void **state)
{
	(void)state;
	scan_free(&scan);
	return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_folders(char *path)
{
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(path, 0755) < 0)
			assert_int_equal(errno, EEXIST);
		*slash = '/';
	}
}

static void stage(int pid, const char *name, const char *text)
{
	char path[256];
	FILE *stream;

	(void)snprintf(path, sizeof(path), "%s/proc/%d/%s", root, pid, name);
	make_folders(path);
	if (path[strlen(path) - 1] == '/')
		return;
	stream = fopen(path, "we");
	assert_non_null(stream);
	assert_true(fputs(text, stream) >= 0);
	assert_int_equal(fclose(stream), 0);
}

/* A process of one thread, with no descriptors, and FLAGS of the kernel. STACK and WCHAN can be NULL. */
static void stage_process(int pid, char state, unsigned int flags, const char *stack,
			  const char *wchan)
{
	char stat[256], task[64];

	(void)snprintf(stat, sizeof(stat),
		       "%d (python3) %c 1 %d %d 0 -1 %u 0 0 0 0 0 0 0 0 20 0 1 0 1234 0\n", pid,
		       state, pid, pid, flags);
	stage(pid, "fd/", "");
	stage(pid, "stat", stat);
	stage(pid, "maps", "");
	stage(pid, "cmdline", "");
	stage(pid, "cgroup",
	      "0::/system.slice/docker-"
	      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	      ".scope (deleted)\n");
	(void)snprintf(task, sizeof(task), "task/%d/stat", pid);
	stage(pid, task, stat);
	(void)snprintf(task, sizeof(task), "task/%d/stack", pid);
	if (stack)
		stage(pid, task, stack);
	(void)snprintf(task, sizeof(task), "task/%d/wchan", pid);
	stage(pid, task, wchan ? wchan : "0");
}

static void look(void)
{
	struct gw_error error = {0};

	if (scan_run(&options, &scan, &error) < 0)
		fail_msg("%s", error.msg);
}

static void a_process_that_ends_in_the_driver_is_a_holder(void **state)
{
	const struct scan_reference *reference;
	const struct scan_process *process;

	(void)state;
	stage_process(101, 'D', 0x40010c, DRIVER_STACK, "os_acquire_rwlock_write");
	stage_process(102, 'D', 0x40010c, NULL, "uvm_va_space_destroy");
	stage_process(103, 'R', 0x40010c, DRIVER_STACK, NULL);
	look();
	assert_int_equal(scan.process_count, 3);
	assert_int_equal(scan.reference_count, 3);
	process = scan_find(&scan, 101);
	assert_non_null(process);
	reference = &scan.references[process->first_reference];
	assert_int_equal(reference->held, SCAN_EXITING);
	assert_int_equal(reference->device.kind, SCAN_DEVICE_UNKNOWN);
	assert_int_equal(reference->device.gpu_minor, -1);
	assert_int_equal(reference->fd, -1);
	assert_true(process->flags & SCAN_PF_EXITING);
	assert_int_equal(process->start_ticks, 1234);
	assert_string_equal(process->wchan, "os_acquire_rwlock_write");
	assert_string_equal(process->stack, DRIVER_STACK);
	assert_true(process->place.deleted);
	assert_int_equal(process->place.runtime, CGROUP_DOCKER);
	assert_true(process->rss_bytes == GW_UNKNOWN);
	assert_int_equal(scan.unseen.exiting_unknown, 0);
}

static void a_process_that_ends_elsewhere_is_none(void **state)
{
	(void)state;
	stage_process(101, 'D', 0x40010c, OTHER_STACK, "request_wait_answer");
	stage_process(102, 'Z', 0x40010c, "", NULL);
	stage_process(103, 'S', 0x400000, DRIVER_STACK, "os_acquire_rwlock_write");
	stage_process(104, 'I', 0x4208060, "", "worker_thread");
	look();
	assert_int_equal(scan.process_count, 0);
	assert_int_equal(scan.unseen.exiting_unknown, 0);
	assert_int_equal(scan.processes_looked_at, 4);
}

static void an_end_without_a_trace_is_counted(void **state)
{
	char text[256];

	(void)state;
	stage_process(101, 'R', 0x40010c, NULL, NULL);
	look();
	assert_int_equal(scan.process_count, 0);
	assert_int_equal(scan.unseen.exiting_unknown, 1);
	scan_unseen_text(&scan, text, sizeof(text));
	assert_non_null(strstr(text, "1 process is ending, and where in the kernel is not known"));
}

/* Scans as a user who may do little; ends with 0 if one process was denied and is no holder. */
static _Noreturn void look_as_nobody(void)
{
	bool denied;

	if (geteuid() == 0 &&
	    (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
		_exit(2);
	if (scan_run(&options, &scan, NULL) < 0)
		_exit(3);
	denied = scan.process_count == 0 && scan.unseen.denied == 1 &&
		 scan_was_denied(&scan, 101) && scan.unseen.needs_ptrace;
	scan_free(&scan);
	_exit(denied ? 0 : 1);
}

static void descriptors_that_cannot_be_followed_are_counted(void **state)
{
	char secret[128], file[160], link[160];
	int status;
	pid_t pid;

	(void)state;
	stage_process(101, 'S', 0x400000, NULL, NULL);
	(void)snprintf(secret, sizeof(secret), "%s/secret", root);
	(void)snprintf(file, sizeof(file), "%s/file", secret);
	(void)snprintf(link, sizeof(link), "%s/proc/101/fd/7", root);
	assert_int_equal(mkdir(secret, 0000), 0);
	assert_int_equal(symlink(file, link), 0);
	assert_int_equal(chmod(root, 0755), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		look_as_nobody();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void odd_files_do_no_harm(void **state)
{
	char text[8192];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	stage(1, "stat", text);
	stage(2, "fd/", "");
	stage(2, "stat", text);
	stage(3, "fd/", "");
	stage(4, "fd/7", "");
	stage(4, "fd/not a number", "");
	stage(4, "fd/99999999999", "");
	stage(4, "maps", text);
	stage(5, "fd/", "");
	stage(5, "maps",
	      "-\n1-2\n1-2 r\n1-2 r-xp 0 1:2\n1-2 r-xp 0 1:2 3 /dev/nvidia0\n"
	      "ffffffffffffffffff-2 r-xp 0 1:2 3 /x\n");
	look();
	assert_int_equal(scan.process_count, 0);
	assert_int_equal(scan.unseen.vanished, 1);
	assert_int_equal(scan.unseen.maps_unsure, 1);
}

#define STAGED(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STAGED(a_process_that_ends_in_the_driver_is_a_holder),
		STAGED(a_process_that_ends_elsewhere_is_none),
		STAGED(an_end_without_a_trace_is_counted),
		STAGED(descriptors_that_cannot_be_followed_are_counted),
		STAGED(odd_files_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
