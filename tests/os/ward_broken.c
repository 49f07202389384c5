/* SPDX-License-Identifier: MIT */
/*
 * Description: when the system fails the ward (each of its system calls failing once, a worker that
 * SIGKILL does not end), the host gets a worker, or one clear error, or the end of the stream; closing is
 * bounded; and nothing is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
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

#include "../freezer.h"
#include "common/fd.h"
#include "ward_host.h"

static struct host host;

/* Every process that came to this one ends by itself. */
static void reap_all(void)
{
	(void)alarm(30);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	assert_int_equal(errno, ECHILD);
	(void)alarm(0);
}

/* ---- each system call failing once ---- */

/* Starts a pool whose ward is traced, and closes it whatever happens. Returns what came first. */
static int run_with(const char *call, const char *error, int when)
{
	char inject[128];
	const char *argv[] = {"strace", "-qqq", "-o", "/dev/null", "-e", inject, TEST_WARD, NULL};
	int type;

	(void)snprintf(inject, sizeof(inject), "inject=%s:error=%s:when=%d", call, error, when);
	host_init(&host, "ready");
	host.open.workers = 2;
	host.open.max_start_failures = 2;
	host.ward_argv = argv;
	assert_int_equal(host_start(&host), 0);
	type = host_receive(&host);
	while (type == WIRE_GONE)
		type = host_receive(&host);
	if (type == WIRE_FAILED) {
		assert_true(host.message.failed.error.code < 0);
		assert_true(strlen(host.message.failed.error.msg) > 10);
	}
	host_send(&host, WIRE_CLOSE);
	assert_int_not_equal(host_wait_ward(&host), -1000);
	host_done(&host);
	reap_all();
	return type;
}

static void each_system_call_may_fail_once(void **state)
{
	static const struct {
		const char *call;
		const char *error;
	} calls[] = {
		{"memfd_create", "EMFILE"},
		{"ftruncate", "ENOMEM"},
		{"fcntl", "ENOMEM"},
		{"eventfd2", "EMFILE"},
		{"socketpair", "ENFILE"},
		{"pipe2", "EMFILE"},
		{"clone", "EAGAIN"},
		{"epoll_ctl", "ENOSPC"},
		{"mmap", "ENOMEM"},
		{"epoll_create1", "EMFILE"},
		{"timerfd_create", "EMFILE"},
		{"signalfd4", "EMFILE"},
		{"set_robust_list", "ENOSYS"},
		{"timerfd_settime", "ENOMEM"},
		{"recvmsg", "ENOMEM"},
		{"sendmsg", "ENOBUFS"},
		{"waitid", "ECHILD"},
		{"pidfd_send_signal", "EPERM"},
	};
	int ready = 0, refused = 0, ended = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		for (int when = 1; when <= 4; when++) {
			int type = run_with(calls[i].call, calls[i].error, when);

			ready += type == WIRE_UP;
			refused += type == WIRE_FAILED;
			ended += type == 0;
			if (type != WIRE_UP && type != WIRE_FAILED && type != 0)
				fail_msg("%s %d: %d", calls[i].call, when, type);
		}
	}
	print_message("a worker %d times, an error %d times, no ward %d times\n", ready, refused,
		      ended);
	assert_true(ready > 20);
}

/* A failure that stays is a clear error. */
static void a_failure_that_stays_is_told(void **state)
{
	static const struct {
		const char *call;
		const char *error;
		const char *words;
	} calls[] = {
		{"eventfd2", "EMFILE", "event descriptor"},
		{"socketpair", "ENFILE", "socket"},
		{"clone", "EAGAIN", "ulimit -u"},
		{"pipe2", "EMFILE", "ulimit -n"},
		{"memfd_create", "ENOMEM", "shared memory"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		char inject[128];
		const char *argv[] = {"strace", "-qqq", "-o",	   "/dev/null",
				      "-e",	inject, TEST_WARD, NULL};

		(void)snprintf(inject, sizeof(inject), "inject=%s:error=%s", calls[i].call,
			       calls[i].error);
		host_init(&host, "ready");
		host.open.max_start_failures = 2;
		host.ward_argv = argv;
		assert_int_equal(host_start(&host), 0);
		assert_int_equal(host_receive(&host), WIRE_FAILED);
		if (!strstr(host.message.failed.error.msg, calls[i].words))
			fail_msg("%s: %s", calls[i].call, host.message.failed.error.msg);
		assert_non_null(strstr(host.message.failed.error.msg, "2 starts"));
		host_send(&host, WIRE_CLOSE);
		assert_int_equal(host_wait_ward(&host), 0);
		host_done(&host);
		reap_all();
	}
}

/* ---- a worker that SIGKILL does not end ---- */

static void send_kill(uint32_t slot)
{
	struct wire_kill kill = {.slot = slot, .reason = GW_END_STOPPED};

	wire_header_init(&kill.header, WIRE_KILL, sizeof(kill));
	assert_int_equal(wire_send(host.socket, &kill, NULL, 0), 0);
}

/* Until the ward says that recovery NUMBER's old process does not end: SIGKILL has ten seconds. */
static void wait_stuck(uint64_t number)
{
	uint64_t late = now_ns() + 20 * SECOND;
	struct pool_page_report report;

	do {
		assert_true(now_ns() < late);
		(void)poll(NULL, 0, 20);
		pool_page_report(host.page, &report);
	} while (!strstr(report.recoveries[number].exit.text, "does not end after SIGKILL"));
	assert_int_equal(report.recoveries[number].exit.gone_ns, GW_UNKNOWN);
}

static void a_worker_that_does_not_die_is_reported(void **state)
{
	struct freezer freezers[2];

	(void)state;
	if (!freezer_is_there()) {
		print_message("skipped: no freezer of control groups v1 to write to\n");
		skip();
	}
	host_init(&host, "deaf");
	host.open.workers = 2;
	assert_int_equal(host_start(&host), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(host_receive(&host), WIRE_UP);
		freezer_freeze(&freezers[host.message.up.slot], host.message.up.slot,
			       host.message.up.pid);
	}
	send_kill(0);
	send_kill(1);
	/* Each is told of at once, and its successor takes its place; in the end it is said that they stay. */
	for (int i = 0; i < 4; i++) {
		uint32_t type = (uint32_t)host_receive(&host);

		assert_true(type == WIRE_GONE || type == WIRE_UP);
		if (type == WIRE_UP)
			assert_int_equal(host.message.up.incarnation, 1);
		else
			assert_int_equal(host.message.gone.exit.gone_ns, GW_UNKNOWN);
	}
	for (int i = 0; i < 2; i++)
		wait_stuck((uint64_t)i);
	/* One ends late. The other does not, and closing does not wait for it. */
	freezer_thaw(&freezers[1]);
	host_send(&host, WIRE_CLOSE);
	assert_int_equal(host_wait_ward(&host), 0);
	host_done(&host);
	freezer_thaw(&freezers[0]);
	reap_all();
	for (int i = 0; i < 2; i++)
		freezer_done(&freezers[i]);
}

static bool has_strace(void)
{
	return access("/usr/bin/strace", X_OK) == 0;
}

/* The search for leaks needs ptrace itself, and ends a traced process. Elsewhere this is not read. */
static void no_leak_search(void)
{
	const char *before = getenv("ASAN_OPTIONS");
	char options[512];

	(void)snprintf(options, sizeof(options), "%s:detect_leaks=0", before ? before : "");
	(void)setenv("ASAN_OPTIONS", options, 1);
}

int main(void)
{
	const struct CMUnitTest with_strace[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, host_remember_world, host_check_world)
		TEST(each_system_call_may_fail_once),
		TEST(a_failure_that_stays_is_told),
	};
	const struct CMUnitTest without[] = {
		TEST(a_worker_that_does_not_die_is_reported),
	};
	int failed = cmocka_run_group_tests(without, NULL, NULL);

	no_leak_search();
	if (has_strace())
		failed += cmocka_run_group_tests(with_strace, NULL, NULL);
	else
		(void)printf(
			"skipped: system calls are made to fail by strace, which is missing\n");
	if (failed == 0 && !has_strace())
		return 77;
	return failed;
}
