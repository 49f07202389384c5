/* SPDX-License-Identifier: MIT */
/*
 * Description: however host or ward end (killed, stopped, hung up, never greeted, of another version), the
 * other side learns of it and no worker is left; and a host that does not read loses no message.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "common/futex.h"
#include "ward_host.h"

#define WORKERS 3

static struct host host;

/* What a host that is to be killed tells the test. */
struct told {
	_Atomic uint32_t ready; /* 1: all is up; 2: it failed */
	int32_t ward;
	int32_t workers[WORKERS];
	int32_t holder; /* a forked child of the host, with copies of its descriptors */
};

static struct told *told;

static int tell_setup(void **state)
{
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return host_remember_world(state);
}

static int tell_teardown(void **state)
{
	(void)munmap(told, sizeof(*told));
	return host_check_world(state);
}

/* Starts a pool and tells; does not return. Runs in a child: no assertions here. */
static _Noreturn void be_a_host(const char *behaviour, bool with_holder, bool with_session)
{
	bool good = true;

	if (with_session)
		(void)setsid();
	host_init(&host, behaviour);
	host.open.workers = WORKERS;
	host.open.stop_deadline_ns = 30 * SECOND; /* whoever waits for it fails the test */
	good = host_start(&host) == 0;
	told->ward = host.ward.process.pid;
	for (int i = 0; i < WORKERS && good; i++) {
		good = host_receive(&host) == WIRE_UP;
		told->workers[i] = host.message.up.pid;
	}
	if (with_holder) {
		pid_t holder = fork();

		if (holder == 0) {
			for (;;)
				(void)pause();
		}
		told->holder = holder;
	}
	atomic_store(&told->ready, good ? 1 : 2);
	futex_wake_all(&told->ready);
	for (;;)
		(void)pause();
}

static pid_t start_host(const char *behaviour, bool with_holder, bool with_session)
{
	pid_t pid = fork();

	if (pid == 0)
		be_a_host(behaviour, with_holder, with_session);
	while (atomic_load(&told->ready) == 0)
		assert_int_equal(futex_wait(&told->ready, 0, now_ns() + 15 * SECOND), 0);
	assert_int_equal(atomic_load(&told->ready), 1);
	return pid;
}

static void refer_to_all(struct procref processes[WORKERS + 1])
{
	assert_int_equal(procref_open(&processes[0], told->ward, NULL), 0);
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(procref_open(&processes[1 + i], told->workers[i], NULL), 0);
}

static void expect_all_gone(struct procref processes[WORKERS + 1])
{
	for (int i = 0; i <= WORKERS; i++) {
		struct pollfd ended = {.fd = processes[i].pidfd, .events = POLLIN};

		assert_int_equal(poll(&ended, 1, 15000), 1);
		procref_done(&processes[i]);
	}
}

/* Never a group, whatever the number. */
static void signal_one(pid_t pid, int number)
{
	assert_true(pid > 1);
	assert_int_equal(kill(pid, number), 0);
}

/* This process adopts what has lost its parent. */
static void reap(pid_t pid)
{
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_killed_host_takes_all_with_it_though_a_fork_holds_its_socket(void **state)
{
	struct procref processes[WORKERS + 1];
	pid_t pid = start_host("deaf", true, false);

	(void)state;
	refer_to_all(processes);
	signal_one(pid, SIGKILL);
	reap(pid);
	expect_all_gone(processes);
	signal_one(told->holder, SIGKILL);
	reap(told->holder);
	reap(told->ward);
}

/* The signal is taken some time after it was sent. */
static void wait_until_stopped(pid_t pid)
{
	char path[64], text[256] = {0};

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (int i = 0; i < 5000 && !strstr(text, ") T "); i++) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		(void)!read(fd, text, sizeof(text) - 1);
		(void)close(fd);
		(void)poll(NULL, 0, 1);
	}
	assert_non_null(strstr(text, ") T "));
}

static void a_stopped_ward_goes_on_when_its_host_dies(void **state)
{
	struct procref processes[WORKERS + 1];
	pid_t pid = start_host("deaf", false, true);

	(void)state;
	refer_to_all(processes);
	signal_one(told->ward, SIGSTOP);
	wait_until_stopped(told->ward);
	signal_one(pid, SIGKILL);
	reap(pid);
	expect_all_gone(processes);
	reap(told->ward);
}

static void a_killed_ward_takes_its_workers_with_it(void **state)
{
	struct procref processes[WORKERS + 1];
	pid_t pid = start_host("deaf", false, false);

	(void)state;
	refer_to_all(processes);
	signal_one(told->ward, SIGKILL);
	expect_all_gone(processes);
	for (int i = 0; i < WORKERS; i++)
		reap(told->workers[i]);
	signal_one(pid, SIGKILL);
	reap(pid);
	reap(told->ward);
}

static void start(const char *behaviour)
{
	host_init(&host, behaviour);
	assert_int_equal(host_start(&host), 0);
}

static void a_host_that_hangs_up_is_a_dead_host(void **state)
{
	(void)state;
	start("deaf");
	assert_int_equal(host_receive(&host), WIRE_UP);
	host_drop_fds(&host);
	fd_closep(&host.socket);
	assert_int_equal(host_wait_ward(&host), 0);
	host_done(&host);
}

/* Sleeps on the ward's word, as a thread of the host does. Returns 0 when it saw the ward die. */
static int sleep_until_ward_dies(struct pool_page *page)
{
	uint64_t deadline = now_ns() + 15 * SECOND;

	for (;;) {
		uint32_t seen = pool_page_announce_sleeper(page);

		if (seen & FUTEX_OWNER_DIED)
			return 0;
		if (futex_wait(&page->ward_life, seen, deadline) == -ETIMEDOUT)
			return 1;
	}
}

static void a_sleeper_wakes_when_the_ward_is_killed(void **state)
{
	int status = -1;
	char name[64], wchan[64] = {0};
	pid_t sleeper;

	(void)state;
	start("deaf");
	assert_int_equal(host_receive(&host), WIRE_UP);
	assert_int_equal(atomic_load(&host.page->ward_life), host.ward.process.pid);
	sleeper = fork();
	if (sleeper == 0)
		_exit(sleep_until_ward_dies(host.page));
	/* Really asleep, not about to look. */
	(void)snprintf(name, sizeof(name), "/proc/%d/wchan", sleeper);
	for (int i = 0; i < 3000 && !strstr(wchan, "futex"); i++) {
		int fd = open(name, O_RDONLY | O_CLOEXEC);

		(void)!read(fd, wchan, sizeof(wchan) - 1);
		(void)close(fd);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(procref_signal(&host.ward.process, SIGKILL), 0);
	assert_int_equal(waitpid(sleeper, &status, 0), sleeper);
	assert_int_equal(status, 0);
	assert_int_equal(host_wait_ward(&host), -SIGKILL);
	/* The worker, which came to this process. */
	reap(host.message.up.pid);
	host_done(&host);
}

static void the_word_of_life_tells_of_a_good_end_too(void **state)
{
	(void)state;
	start("ready");
	assert_int_equal(host_receive(&host), WIRE_UP);
	host_send(&host, WIRE_CLOSE);
	assert_int_equal(host_wait_ward(&host), 0);
	assert_true(atomic_load(&host.page->ward_life) & FUTEX_OWNER_DIED);
	host_done(&host);
}

/* ---- a host that cannot be served ---- */

static void expect_refusal(int code, const char *words)
{
	int type = host_receive(&host);

	assert_int_equal(type, WIRE_FAILED);
	assert_int_equal(host.message.failed.error.code, code);
	assert_non_null(strstr(host.message.failed.error.msg, words));
	assert_int_equal(host_wait_ward(&host), 125);
	host_done(&host);
}

static void another_version_is_refused_by_name(void **state)
{
	(void)state;
	host_init(&host, "ready");
	memcpy(host.open.header.version, "7.7.7", 6);
	assert_int_equal(host_start(&host), 0);
	expect_refusal(GW_EVERSION, "7.7.7");
}

static void a_message_that_breaks_the_rules_is_refused(void **state)
{
	(void)state;
	host_init(&host, "ready");
	host.open.workers = 65;
	assert_int_equal(host_start(&host), 0);
	expect_refusal(GW_EPROTOCOL, "breaks the rules");

	host_init(&host, "ready");
	host.open.command_count = 0; /* then a program descriptor must come */
	host.open.command_bytes = 0;
	assert_int_equal(host_start(&host), 0);
	expect_refusal(GW_EPROTOCOL, "descriptor is missing");
}

static void a_foreign_message_ends_a_running_pool(void **state)
{
	struct wire_word stop;

	(void)state;
	start("deaf");
	assert_int_equal(host_receive(&host), WIRE_UP);
	wire_header_init(&stop.header, WIRE_STOP, sizeof(stop));
	assert_int_equal(wire_send(host.socket, &stop, NULL, 0), 0);
	expect_refusal(GW_EPROTOCOL, "not the host's");
}

/* ---- a host that does not read ---- */

/* Until the ward has nothing more to do: its socket is full. */
static void wait_for_rest(int32_t pid)
{
	unsigned long before = 0, now = 1;
	char path[64], line[128];

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	for (int same = 0; same < 3; same = now == before ? same + 1 : 0) {
		FILE *file = fopen(path, "re");

		before = now;
		assert_non_null(file);
		while (fgets(line, sizeof(line), file))
			(void)sscanf(line, "voluntary_ctxt_switches: %lu", &now);
		(void)fclose(file);
		(void)poll(NULL, 0, 40);
	}
}

static void a_host_that_does_not_read_loses_nothing(void **state)
{
	(void)state;
	host_init(&host, "crashes");
	host.open.restart_min_ns = host.open.restart_max_ns = 1;
	assert_int_equal(host_start(&host), 0);
	wait_for_rest(host.ward.process.pid);
	/* Far more than what the socket held. */
	for (uint32_t i = 0; i < 100; i++) {
		assert_int_equal(host_receive(&host), WIRE_UP);
		assert_int_equal(host.message.up.incarnation, i);
		assert_int_equal(host_receive(&host), WIRE_GONE);
		assert_int_equal(host.message.gone.incarnation, i);
		assert_int_equal(host.message.gone.was_ready, 1);
	}
	wait_for_rest(host.ward.process.pid);
	/* It closes though nobody reads. */
	host_send(&host, WIRE_CLOSE);
	assert_int_equal(host_wait_ward(&host), 0);
	host_done(&host);
}

/* As long as somebody traces it, a process that has ended cannot be reaped by its parent. */
static void a_traced_worker_is_reaped_when_it_can_be(void **state)
{
	int32_t pid;

	(void)state;
	start("ready");
	assert_int_equal(host_receive(&host), WIRE_UP);
	pid = host.message.up.pid;
	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0) {
		print_message("skipped: a child's child may not be traced here\n");
		host_send(&host, WIRE_CLOSE);
		assert_int_equal(host_wait_ward(&host), 0);
		host_done(&host);
		skip();
	}
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(host_receive(&host), WIRE_GONE);
	assert_int_equal(host.message.gone.exit.end, GW_END_SIGNAL);
	assert_int_equal(host.message.gone.exit.value, SIGKILL);
	/* Its successor does not wait for that. */
	assert_int_equal(host_receive(&host), WIRE_UP);
	host_send(&host, WIRE_CLOSE);
	assert_int_equal(host_receive(&host), WIRE_GONE);
	/* Only now the tracer looks, and the ward can reap it: a zombie would be left to this test. */
	assert_int_equal(waitpid(pid, NULL, __WALL), pid);
	assert_int_equal(host_wait_ward(&host), 0);
	host_done(&host);
}

static unsigned long private_kib(int32_t pid)
{
	unsigned long sum = 0, value;
	char path[64], line[128];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Private_Dirty: %lu", &value) == 1 ||
		    sscanf(line, "Private_Clean: %lu", &value) == 1)
			sum += value;
	}
	(void)fclose(file);
	return sum;
}

static void the_ward_is_small(void **state)
{
	unsigned long kib;

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("skipped: a sanitizer has memory of its own\n");
	skip();
#endif
	host_init(&host, "ready");
	host.open.workers = 8;
	assert_int_equal(host_start(&host), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(host_receive(&host), WIRE_UP);
	kib = private_kib(host.ward.process.pid);
	print_message("private memory of a ward with 8 workers: %lu KiB\n", kib);
	assert_in_range(kib, 1, 2048);
	host_send(&host, WIRE_CLOSE);
	assert_int_equal(host_wait_ward(&host), 0);
	host_done(&host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, tell_setup, tell_teardown)
		TEST(a_killed_host_takes_all_with_it_though_a_fork_holds_its_socket),
		TEST(a_stopped_ward_goes_on_when_its_host_dies),
		TEST(a_killed_ward_takes_its_workers_with_it),
		TEST(a_host_that_hangs_up_is_a_dead_host),
		TEST(a_sleeper_wakes_when_the_ward_is_killed),
		TEST(the_word_of_life_tells_of_a_good_end_too),
		TEST(another_version_is_refused_by_name),
		TEST(a_message_that_breaks_the_rules_is_refused),
		TEST(a_foreign_message_ends_a_running_pool),
		TEST(a_host_that_does_not_read_loses_nothing),
		TEST(a_traced_worker_is_reaped_when_it_can_be),
		TEST(the_ward_is_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
