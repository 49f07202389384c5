/* SPDX-License-Identifier: MIT */
/*
 * Description: the kernel log as a regular file, in a loop: only new lines count; the file may come later,
 * be truncated, be replaced; a flood does not keep others from their turn; a log that cannot be read
 * says why and costs no turn of the loop; a fault of a process on the emulated GPU comes with its pid.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "softgpu.h"
#include "softgpu_calls.h"
#include "ward/kernel_log.h"

#define SECOND 1000000000ULL
/* The first number of a record is counted up, so that none is missing. */
#define STOPPED "NVRM: Xid (PCI:0000:00:06): 43, pid=%d, name=c, channel 0x0000000a"
#define WARP                                                                                       \
	"NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 1): Misaligned Address"

static char folder[64];
static char path[96];
static char other[96];
static struct loop loop;
static struct kernel_log log_;
static struct loop_timer guard;
static struct kernel_log_xid last;
static unsigned int count, wanted, failures;
static struct gw_error failure;
static int sequence;

static void heard(struct kernel_log *log, const struct kernel_log_xid *xid)
{
	assert_ptr_equal(log, &log_);
	last = *xid;
	if (++count == wanted)
		loop_end(&loop);
}

static void broke(struct kernel_log *log, const struct gw_error *error)
{
	assert_ptr_equal(log, &log_);
	failures++;
	failure = *error;
	loop_end(&loop);
}

static void too_late(struct loop_timer *timer)
{
	(void)timer;
	loop_end(&loop);
}

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/gpuward-log-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/kmsg", folder);
	(void)snprintf(other, sizeof(other), "%s/other", folder);
	memset(&log_, 0, sizeof(log_));
	log_.xid = heard;
	log_.failed = broke;
	count = failures = 0;
	sequence = 0;
	guard = (struct loop_timer){.due = too_late};
	if (loop_init(&loop) < 0)
		return -1;
	loop_add_timer(&loop, &guard);
	return setenv(KERNEL_LOG_ENV, path, 1);
}

static int tear_down(void **state)
{
	(void)state;
	kernel_log_close(&log_);
	loop_done(&loop);
	(void)unlink(path);
	(void)unlink(other);
	unsetenv(KERNEL_LOG_ENV);
	return rmdir(folder);
}

static void write_text(const char *name, int flags, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	fd_close(fd);
}

static void add_line(const char *name, int flags, int pid)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "3,%d,1,-;" STOPPED "\n", ++sequence, pid);
	write_text(name, flags, text);
}

static void open_log(void)
{
	struct gw_error error = {0};

	if (kernel_log_open(&log_, &loop, &error) < 0)
		fail_msg("%s", error.msg);
}

/* Runs the loop until there are WANTED reports in all. */
static void await(unsigned int reports)
{
	wanted = reports;
	loop.ended = count >= wanted;
	loop_set_timer(&guard, now_ns() + 10 * SECOND);
	assert_int_equal(loop_run(&loop), 0);
	loop_set_timer(&guard, GW_FOREVER);
	assert_int_equal(count, reports);
}

static void only_new_lines_count(void **state)
{
	uint64_t before;

	(void)state;
	add_line(path, 0, 1);
	open_log();
	assert_true(kernel_log_pids_match(&log_));
	before = now_ns();
	add_line(path, O_APPEND, 2);
	await(1);
	assert_int_equal(last.pid, 2);
	assert_int_equal(last.xid, 43);
	assert_int_equal(last.cuda, -1);
	assert_true(last.ends_process);
	assert_string_equal(last.pci, "0000:00:06");
	assert_true(last.at_ns >= before && last.at_ns <= now_ns());
}

static void the_file_may_come_later(void **state)
{
	(void)state;
	open_log();
	add_line(path, 0, 3);
	await(1);
	assert_int_equal(last.pid, 3);
	add_line(path, O_APPEND, 4);
	await(2);
	assert_int_equal(last.pid, 4);
}

static void a_truncated_file_begins_anew(void **state)
{
	(void)state;
	add_line(path, 0, 1);
	add_line(path, O_APPEND, 1);
	open_log();
	sequence = 0;
	add_line(path, O_TRUNC, 5);
	await(1);
	assert_int_equal(last.pid, 5);
	assert_int_equal(kernel_log_lost(&log_), 0);
}

static void a_replaced_file_is_followed(void **state)
{
	int old;

	(void)state;
	add_line(path, 0, 1);
	open_log();
	old = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_true(old >= 0);
	add_line(other, 0, 6);
	assert_int_equal(rename(other, path), 0);
	await(1);
	assert_int_equal(last.pid, 6);
	/* What is written to the old one does not come any more; to the new one it does. */
	assert_int_equal(write(old, "x\n", 2), 2);
	fd_close(old);
	add_line(path, O_APPEND, 7);
	await(2);
	assert_int_equal(last.pid, 7);
	assert_int_equal(unlink(path), 0);
	add_line(path, 0, 8);
	await(3);
	assert_int_equal(last.pid, 8);
}

static void gaps_in_the_numbers_are_counted(void **state)
{
	(void)state;
	open_log();
	add_line(path, 0, 1);
	sequence += 5;
	add_line(path, O_APPEND, 2);
	await(2);
	assert_int_equal(kernel_log_lost(&log_), 5);
}

static void a_report_without_a_pid_comes_in_the_end(void **state)
{
	(void)state;
	open_log();
	write_text(path, 0, "3,1,1,-;" WARP "\n");
	await(1);
	assert_int_equal(last.pid, -1);
	assert_int_equal(last.xid, 13);
	assert_int_equal(last.cuda, 716);
	assert_true(now_ns() - last.at_ns >= KERNEL_LOG_JOIN_NS);
}

static struct loop_source bystander;
static unsigned int heard_before_bystander;

static void bystander_ready(struct loop_source *source, uint32_t events)
{
	(void)events;
	heard_before_bystander = count;
	loop_remove(&loop, source);
}

/* The bystander becomes ready with the flood's first report, and must not wait for its last. */
static void heard_in_flood(struct kernel_log *log, const struct kernel_log_xid *xid)
{
	if (count == 0)
		assert_int_equal(eventfd_write(bystander.fd, 1), 0);
	heard(log, xid);
}

static void a_flood_starves_nobody(void **state)
{
	const unsigned int lines = 20000;
	int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	FILE *file;

	(void)state;
	log_.xid = heard_in_flood;
	open_log();
	bystander = (struct loop_source){.fd = -1, .ready = bystander_ready};
	assert_int_equal(loop_add(&loop, &bystander, event, EPOLLIN), 0);
	file = fopen(path, "we");
	assert_non_null(file);
	for (unsigned int i = 1; i <= lines; i++)
		assert_true(fprintf(file, "3,%u,1,-;" STOPPED "\n", i, 100) > 0);
	assert_int_equal(fclose(file), 0);
	await(lines);
	assert_true(heard_before_bystander > 0);
	assert_true(heard_before_bystander < lines / 10);
	assert_int_equal(kernel_log_lost(&log_), 0);
	fd_close(event);
}

static void close_at_first(struct kernel_log *log, const struct kernel_log_xid *xid)
{
	(void)xid;
	count++;
	kernel_log_close(log);
	loop_end(&loop);
}

static void a_callback_may_close_it(void **state)
{
	(void)state;
	log_.xid = close_at_first;
	open_log();
	add_line(path, 0, 1);
	add_line(path, O_APPEND, 2);
	await(1);
	assert_false(kernel_log_pids_match(&log_));
}

static void refused(int code, const char *words)
{
	struct gw_error error = {0};

	assert_int_equal(kernel_log_open(&log_, &loop, &error), code);
	if (!strstr(error.msg, words))
		fail_msg("'%s' is not in '%s'", words, error.msg);
	kernel_log_close(&log_);
}

static void what_is_no_log_is_said(void **state)
{
	(void)state;
	assert_int_equal(setenv(KERNEL_LOG_ENV, folder, 1), 0);
	refused(-EINVAL, "neither a log device nor a regular file");
	assert_int_equal(mkfifo(other, 0600), 0);
	assert_int_equal(setenv(KERNEL_LOG_ENV, other, 1), 0);
	refused(-EINVAL, other);
	assert_int_equal(setenv(KERNEL_LOG_ENV, "/nowhere/at/all/kmsg", 1), 0);
	refused(-ENOENT, "/nowhere/at/all/kmsg");
	/* A device that cannot be waited for. */
	assert_int_equal(setenv(KERNEL_LOG_ENV, "/dev/null", 1), 0);
	refused(-EPERM, "/dev/null");
}

/* Root may read everything. */
static int as_another(void *argument)
{
	struct gw_error error = {0};

	(void)argument;
	if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
		return 1;
	if (kernel_log_open(&log_, &loop, &error) != -EACCES)
		return 2;
	return strstr(error.msg, "CAP_SYSLOG") ? 0 : 3;
}

static void an_unreadable_log_says_what_is_needed(void **state)
{
	(void)state;
	add_line(path, 0, 1);
	assert_int_equal(chmod(folder, 0711), 0);
	assert_int_equal(chmod(path, 0), 0);
	assert_int_equal(child_run(as_another, NULL), 0);
}

/* Its successor is a folder: said once, then no more. */
static void a_log_that_goes_bad_is_said_once(void **state)
{
	(void)state;
	add_line(path, 0, 1);
	open_log();
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(rename(other, path), 0);
	loop_set_timer(&guard, now_ns() + 10 * SECOND);
	assert_int_equal(loop_run(&loop), 0);
	assert_int_equal(failures, 1);
	assert_int_equal(failure.code, -EINVAL);
	assert_false(kernel_log_pids_match(&log_));
	assert_int_equal(rmdir(path), 0);
	/* Nothing of it is in the loop any more: only the guard ends this. */
	loop.ended = false;
	loop_set_timer(&guard, now_ns() + SECOND / 20);
	assert_int_equal(loop_run(&loop), 0);
	assert_int_equal(failures, 1);
}

static int fault(void *argument)
{
	uint64_t memory;
	void *parameters[] = {&memory}; /* those without parameters do not look at it */

	child_context(0);
	OK(cuMemAlloc_v2(&memory, 64));
	OK(child_launch(child_kernel(argument), parameters));
	(void)cuCtxSynchronize();
	return 0;
}

static void a_fault_comes_with_its_pid(const char *kernel, int xid, int cuda)
{
	char log_path[256];
	pid_t pid;

	soft_dir_new(NULL);
	(void)snprintf(log_path, sizeof(log_path), "%s/kmsg", soft_dir());
	assert_int_equal(setenv(KERNEL_LOG_ENV, log_path, 1), 0);
	open_log();
	pid = child_start(fault, (void *)(uintptr_t)kernel);
	await(1);
	assert_int_equal(last.pid, pid);
	assert_int_equal(last.xid, xid);
	assert_int_equal(last.cuda, cuda);
	assert_string_equal(last.pci, "0000:00:06");
	assert_int_equal(child_end(pid), 0);
	kernel_log_close(&log_);
	soft_dir_free();
}

static void a_trap_of_a_gpu_process_is_heard(void **state)
{
	(void)state;
	a_fault_comes_with_its_pid("fault_trap", 43, -1);
}

static void a_misaligned_access_is_heard(void **state)
{
	(void)state;
	a_fault_comes_with_its_pid("fault_misaligned", 13, 716);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(only_new_lines_count),
		CASE(the_file_may_come_later),
		CASE(a_truncated_file_begins_anew),
		CASE(a_replaced_file_is_followed),
		CASE(gaps_in_the_numbers_are_counted),
		CASE(a_report_without_a_pid_comes_in_the_end),
		CASE(a_flood_starves_nobody),
		CASE(a_callback_may_close_it),
		CASE(what_is_no_log_is_said),
		CASE(an_unreadable_log_says_what_is_needed),
		CASE(a_log_that_goes_bad_is_said_once),
		CASE(a_trap_of_a_gpu_process_is_heard),
		CASE(a_misaligned_access_is_heard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
