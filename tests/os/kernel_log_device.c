/* SPDX-License-Identifier: MIT */
/*
 * Description: /dev/kmsg, as far as only the kernel's own device behaves: one read is one record, EPIPE
 * says that some were overwritten, an error ends it and is said once.
 *
 * A socket stands in for the device, since a test cannot make the kernel log overflow: open() of one name
 * is wrapped at link time and gives the socket, and read() of it can fail as the device's does.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "linux/namespaces.h"
#include "ward/kernel_log.h"

/* A character device that is always there. */
#define NAME "/dev/zero"

int __wrap_open64(const char *path, int flags, ...);
int __real_open64(const char *path, int flags, ...);
ssize_t __wrap_read(int fd, void *buffer, size_t bytes);
ssize_t __real_read(int fd, void *buffer, size_t bytes);

static int device = -1; /* the log reads it */
static int kernel = -1; /* the test writes it */
static int fail_with;	/* the next read does */

int __wrap_open64(const char *path, int flags, ...)
{
	if (strcmp(path, NAME) != 0)
		return __real_open64(path, flags, 0);
	errno = fail_with;
	return fail_with ? -1 : device;
}

ssize_t __wrap_read(int fd, void *buffer, size_t bytes)
{
	if (fd != device || fail_with == 0)
		return __real_read(fd, buffer, bytes);
	errno = fail_with;
	fail_with = 0;
	return -1;
}

static struct loop loop;
static struct loop_timer guard;
static struct kernel_log log_;
static unsigned int count, wanted, failures;
static struct kernel_log_xid last;

static void heard(struct kernel_log *log, const struct kernel_log_xid *xid)
{
	(void)log;
	last = *xid;
	if (++count == wanted)
		loop_end(&loop);
}

static void broke(struct kernel_log *log, const struct gw_error *error)
{
	(void)log;
	assert_int_equal(error->code, -EIO);
	failures++;
	loop_end(&loop);
}

static void too_late(struct loop_timer *timer)
{
	(void)timer;
	loop_end(&loop);
}

static int set_up(void **state)
{
	int sockets[2];

	(void)state;
	memset(&log_, 0, sizeof(log_));
	log_.xid = heard;
	log_.failed = broke;
	count = failures = 0;
	guard = (struct loop_timer){.due = too_late};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) < 0 ||
	    loop_init(&loop) < 0)
		return -1;
	device = sockets[0];
	kernel = sockets[1];
	loop_add_timer(&loop, &guard);
	return setenv(KERNEL_LOG_ENV, NAME, 1);
}

static int tear_down(void **state)
{
	(void)state;
	kernel_log_close(&log_);
	loop_done(&loop);
	fd_closep(&kernel);
	unsetenv(KERNEL_LOG_ENV);
	fail_with = 0;
	return 0;
}

static void write_record(const char *text)
{
	assert_int_equal(send(kernel, text, strlen(text), 0), strlen(text));
}

static void run(unsigned int reports)
{
	wanted = reports;
	loop.ended = false;
	loop_set_timer(&guard, now_ns() + 10000000000ULL);
	assert_int_equal(loop_run(&loop), 0);
	loop_set_timer(&guard, GW_FOREVER);
}

#define STOPPED "NVRM: Xid (PCI:0000:00:06): 43, pid=648, name=c, channel 0x0000000a\n"

static void pids_count_where_they_mean_the_same(void **state)
{
	bool initial = namespaces_pid_is_initial();

	(void)state;
	assert_int_equal(kernel_log_open(&log_, &loop, NULL), 0);
	assert_int_equal(kernel_log_pids_match(&log_), initial);
	write_record("6,1,1,-;usb 1-1: new device\n SUBSYSTEM=usb\n");
	write_record("12,2,1,-;" STOPPED);
	write_record("3,3,1,-;" STOPPED " DEVICE=+pci:0000:00:06.0\n");
	run(1);
	assert_int_equal(count, 1);
	assert_int_equal(last.pid, initial ? 648 : -1);
	assert_int_equal(last.xid, 43);
	assert_int_equal(kernel_log_lost(&log_), 0);
}

static void overwritten_records_are_counted(void **state)
{
	(void)state;
	assert_int_equal(kernel_log_open(&log_, &loop, NULL), 0);
	write_record("3,10,1,-;" STOPPED);
	run(1);
	fail_with = EPIPE;
	write_record("3,20,1,-;" STOPPED);
	run(2);
	assert_int_equal(count, 2);
	assert_int_equal(kernel_log_lost(&log_), 9);
	assert_int_equal(failures, 0);
}

static void an_interrupted_read_is_repeated(void **state)
{
	(void)state;
	assert_int_equal(kernel_log_open(&log_, &loop, NULL), 0);
	fail_with = EINTR;
	write_record("3,10,1,-;" STOPPED);
	run(1);
	assert_int_equal(count, 1);
}

static void a_log_that_fails_is_said_once(void **state)
{
	(void)state;
	assert_int_equal(kernel_log_open(&log_, &loop, NULL), 0);
	fail_with = EIO;
	/* This report waits for its pid, which cannot come any more. */
	log_lines_record(&log_.lines, "3,1,1,-;NVRM: Xid (PCI:0000:00:06): 13, Graphics", 48, 1);
	write_record("3,10,1,-;" STOPPED);
	run(5);
	assert_int_equal(failures, 1);
	assert_int_equal(count, 1);
	assert_int_equal(last.xid, 13);
	assert_false(kernel_log_pids_match(&log_));
}

static void a_log_that_may_not_be_read_says_what_is_needed(void **state)
{
	struct gw_error error = {0};

	(void)state;
	fail_with = EPERM;
	assert_int_equal(kernel_log_open(&log_, &loop, &error), -EPERM);
	assert_non_null(strstr(error.msg, "CAP_SYSLOG"));
	kernel_log_close(&log_);
	fd_closep(&device);
}

/* The real one, where this process may read it: what it has said before is no news. */
static void the_real_one_opens_or_says_why(void **state)
{
	struct gw_error error = {0};
	int result;

	(void)state;
	assert_int_equal(unsetenv(KERNEL_LOG_ENV), 0);
	result = kernel_log_open(&log_, &loop, &error);
	if (result < 0) {
		assert_non_null(strstr(error.msg, KERNEL_LOG_PATH));
	} else {
		wanted = 1;
		loop.ended = false;
		loop_set_timer(&guard, now_ns() + 20000000);
		assert_int_equal(loop_run(&loop), 0);
		assert_int_equal(failures, 0);
	}
	assert_int_equal(count, 0);
	kernel_log_close(&log_);
	fd_closep(&device);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(pids_count_where_they_mean_the_same),
		CASE(overwritten_records_are_counted),
		CASE(an_interrupted_read_is_repeated),
		CASE(a_log_that_fails_is_said_once),
		CASE(a_log_that_may_not_be_read_says_what_is_needed),
		CASE(the_real_one_opens_or_says_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
