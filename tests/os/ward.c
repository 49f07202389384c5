/* SPDX-License-Identifier: MIT */
/*
 * Description: the ward announces a worker that is ready, tells how each one ended once it is gone,
 * starts the next, gives up what cannot start, ends everything when host or ward die, and leaves no
 * process and no descriptor behind, whatever a worker does.
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

#include "common/fd.h"
#include "common/futex.h"
#include "ward_host.h"

static struct host host;

static void start(const char *behaviour)
{
	host_init(&host, behaviour);
	assert_int_equal(host_start(&host), 0);
}

/* The next message must be of this type. */
static void expect(enum wire_type type)
{
	assert_int_equal(host_receive(&host), type);
}

static void close_and_finish(void)
{
	host_send(&host, WIRE_CLOSE);
	assert_int_equal(host_wait_ward(&host), 0);
	host_done(&host);
}

static void wait_until_gone(int32_t pid)
{
	uint64_t late = now_ns() + 15 * SECOND;

	while (kill(pid, 0) == 0) {
		assert_true(now_ns() < late);
		(void)poll(NULL, 0, 1);
	}
}

static const struct gw_exit *expect_gone(uint32_t end)
{
	const struct gw_exit *exit = &host.message.gone.exit;

	expect(WIRE_GONE);
	assert_int_equal(exit->end, end);
	assert_true(exit->started_ns <= exit->noticed_ns);
	assert_true(exit->noticed_ns <= exit->gone_ns);
	assert_int_equal(exit->xid, -1);
	assert_int_equal(exit->device, -1);
	assert_true(strlen(exit->text) > 20);
	/* It is really gone: a pid that was reaped takes no signal. One that was replaced goes soon. */
	if (exit->gone_ns == GW_UNKNOWN)
		wait_until_gone(exit->pid);
	else
		assert_true(exit->gone_ns <= now_ns());
	assert_int_equal(kill(exit->pid, 0), -1);
	return exit;
}

/* ---- a good life ---- */

static void a_ready_worker_is_announced(void **state)
{
	const struct wire_up *up = &host.message.up;
	struct channel_map map;

	(void)state;
	start("ready");
	expect(WIRE_UP);
	assert_int_equal(up->slot, 0);
	assert_int_equal(up->incarnation, 0);
	assert_int_equal(up->device, -1);
	assert_int_equal(up->n_functions, 1);
	assert_string_equal(up->functions[0], "echo");
	assert_true(up->started_ns <= up->ready_ns);
	assert_int_equal(kill(up->pid, 0), 0);
	assert_int_equal(channel_map(&map, host.fds[0], 4096), 0);
	channel_unmap(&map);
	assert_true(host.fds[1] >= 0);
	/* The bell comes after the message. */
	for (;;) {
		uint32_t seen = pool_page_announce_sleeper(host.page);

		if (atomic_load(&host.page->ward_events) > 0)
			break;
		assert_int_equal(futex_wait(&host.page->ward_life, seen, now_ns() + 15 * SECOND),
				 0);
	}
	close_and_finish();
}

static void many_workers_close_in_order(void **state)
{
	(void)state;
	host_init(&host, "ready");
	host.open.workers = 6;
	assert_int_equal(host_start(&host), 0);
	for (int i = 0; i < 6; i++)
		expect(WIRE_UP);
	host_send(&host, WIRE_CLOSE);
	for (int i = 0; i < 6; i++)
		assert_int_equal(expect_gone(GW_END_STOPPED)->source, GW_SOURCE_REQUEST);
	assert_int_equal(host_wait_ward(&host), 0);
	host_done(&host);
}

static void sigterm_closes_too(void **state)
{
	(void)state;
	start("ready");
	expect(WIRE_UP);
	assert_int_equal(procref_signal(&host.ward.process, SIGHUP), 0);
	assert_int_equal(procref_signal(&host.ward.process, SIGTERM), 0);
	(void)expect_gone(GW_END_STOPPED);
	assert_int_equal(host_wait_ward(&host), 0);
	host_done(&host);
}

static void the_environment_names_slot_and_device(void **state)
{
	(void)state;
	assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "GPU-aaa,5,7", 1), 0);
	host_init(&host, "shows-environment");
	host.open.n_devices = 2;
	host.open.devices[0] = 2;
	host.open.devices[1] = 0;
	host.open.workers = 2;
	host.open.spin_ns = 9;
	assert_int_equal(host_start(&host), 0);
	assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
	for (int i = 0; i < 2; i++) {
		const struct wire_up *up = &host.message.up;
		bool first;

		expect(WIRE_UP);
		first = up->slot == 0;
		assert_int_equal(up->device, first ? 2 : 0);
		assert_string_equal(up->functions[0], first ? "3:0:0:2:9:500000000:0:0:0"
							    : "3:1:0:0:9:500000000:0:0:0");
		assert_string_equal(up->functions[1],
				    first ? "PCI_BUS_ID/7" : "PCI_BUS_ID/GPU-aaa");
	}
	close_and_finish();
}

static void the_hosts_own_program_can_be_the_worker(void **state)
{
	(void)state;
	host_init(&host, "ready");
	host.program_fd = open(TEST_WORKER, O_PATH | O_CLOEXEC);
	host.open.command_count = 0;
	host.open.command_bytes = 0;
	host.open.max_start_failures = 1;
	assert_int_equal(host_start(&host), 0);
	/* Without a behaviour it exits with 96: so it ran. */
	assert_int_equal(expect_gone(GW_END_START)->value, 96);
	expect(WIRE_FAILED);
	close_and_finish();
}

/* ---- ends of a worker ---- */

static void a_crash_is_told_and_the_next_one_starts(void **state)
{
	const struct gw_exit *exit;

	(void)state;
	start("crashes-once");
	expect(WIRE_UP);
	exit = expect_gone(GW_END_SIGNAL);
	assert_int_equal(exit->value, SIGSEGV);
	assert_int_equal(exit->source, GW_SOURCE_DEATH);
	assert_int_equal(exit->cuda, -1);
	assert_int_equal(host.message.gone.was_ready, 1);
	assert_non_null(strstr(exit->text, "SIGSEGV"));
	expect(WIRE_UP);
	assert_int_equal(host.message.up.incarnation, 1);
	close_and_finish();
}

static void check_fault(const char *behaviour)
{
	const struct gw_exit *exit;

	start(behaviour);
	expect(WIRE_UP);
	exit = expect_gone(GW_END_CUDA);
	assert_int_equal(exit->cuda, 700);
	assert_int_equal(exit->value, 700);
	assert_int_equal(exit->source, GW_SOURCE_RESULT);
	assert_non_null(strstr(exit->text, "CUDA error 700 CUDA_ERROR_ILLEGAL_ADDRESS in task 17"));
	close_and_finish();
}

static void a_fault_is_told_with_its_name(void **state)
{
	(void)state;
	check_fault("faults");
	check_fault("faults-and-stays");
}

static void check_protocol(const char *behaviour, bool was_ready)
{
	host_init(&host, behaviour);
	host.open.max_start_failures = 1;
	assert_int_equal(host_start(&host), 0);
	if (was_ready)
		expect(WIRE_UP);
	assert_int_equal(expect_gone(GW_END_PROTOCOL)->source, GW_SOURCE_PROTOCOL);
	close_and_finish();
}

static void a_worker_that_breaks_the_rules_is_killed(void **state)
{
	(void)state;
	check_protocol("garbage", false);
	check_protocol("garbage-lengths", false);
	check_protocol("foreign-message", false);
	check_protocol("ready-twice", true);
}

static void a_worker_that_hangs_up_is_killed(void **state)
{
	(void)state;
	start("hangs-up");
	expect(WIRE_UP);
	assert_non_null(strstr(expect_gone(GW_END_PROTOCOL)->text, "closed its socket"));
	close_and_finish();
}

static void send_kill(uint32_t incarnation, uint32_t reason)
{
	struct wire_kill kill = {.slot = 0, .incarnation = incarnation, .reason = reason};

	wire_header_init(&kill.header, WIRE_KILL, sizeof(kill));
	assert_int_equal(wire_send(host.socket, &kill, NULL, 0), 0);
}

static void a_kill_hits_the_incarnation_that_is_meant(void **state)
{
	(void)state;
	start("ready");
	expect(WIRE_UP);
	send_kill(7, GW_END_STOPPED); /* not that one */
	send_kill(0, GW_END_STOPPED);
	assert_int_equal(expect_gone(GW_END_STOPPED)->source, GW_SOURCE_REQUEST);
	expect(WIRE_UP);
	assert_int_equal(host.message.up.incarnation, 1);
	send_kill(0, GW_END_STOPPED); /* gone already: its successor lives */
	send_kill(1, GW_END_PROTOCOL);
	(void)expect_gone(GW_END_PROTOCOL);
	assert_int_equal(host.message.gone.incarnation, 1);
	expect(WIRE_UP);
	close_and_finish();
}

static void a_deaf_worker_is_killed_after_the_stop_deadline(void **state)
{
	uint64_t began;

	(void)state;
	host_init(&host, "deaf");
	host.open.stop_deadline_ns = 50 * MILLISECOND;
	assert_int_equal(host_start(&host), 0);
	expect(WIRE_UP);
	began = now_ns();
	close_and_finish();
	assert_in_range(now_ns() - began, 50 * MILLISECOND, 3 * SECOND);
}

/* ---- starts that fail ---- */

/* The slot is given up after exactly ENDS processes; returns why. */
static const struct gw_error *expect_given_up(int ends)
{
	for (int i = 0; i < ends; i++) {
		(void)expect_gone(GW_END_START);
		assert_int_equal(host.message.gone.was_ready, 0);
	}
	expect(WIRE_FAILED);
	assert_int_equal(host.message.failed.slot, 0);
	return &host.message.failed.error;
}

static void a_worker_that_dies_at_start_is_given_up(void **state)
{
	const struct gw_error *error;

	(void)state;
	start("dies");
	error = expect_given_up(3);
	assert_int_equal(error->code, GW_EPOOLFAILED);
	assert_non_null(strstr(error->msg, "exited with code 3 before it was ready"));
	assert_non_null(strstr(error->msg, "3 starts"));
	close_and_finish();
}

static void a_worker_that_is_never_ready_is_given_up(void **state)
{
	const struct gw_error *error;

	(void)state;
	host_init(&host, "mute");
	host.open.start_deadline_ns = 20 * MILLISECOND;
	host.open.max_start_failures = 2;
	assert_int_equal(host_start(&host), 0);
	error = expect_given_up(2);
	assert_int_equal(error->code, -ETIMEDOUT);
	assert_non_null(strstr(error->msg, "start deadline"));
	close_and_finish();
}

static void the_workers_own_reason_is_preferred(void **state)
{
	const struct gw_error *error;

	(void)state;
	start("no-driver"); /* no try helps */
	error = expect_given_up(1);
	assert_int_equal(error->code, GW_EDRIVER);
	assert_int_equal(error->native, 803);
	assert_string_equal(error->msg, "the driver does not match");
	close_and_finish();

	start("no-library");
	error = expect_given_up(1);
	assert_int_equal(error->code, GW_EDRIVER);
	assert_int_equal(error->native, ENOENT);
	close_and_finish();

	start("no-memory"); /* the next try may */
	error = expect_given_up(3);
	assert_int_equal(error->code, -ENOMEM);
	assert_int_equal(error->domain, GW_DOMAIN_CUDA);
	close_and_finish();
}

static void a_worker_of_another_version_is_given_up(void **state)
{
	const struct gw_error *error;

	(void)state;
	start("other-version");
	error = expect_given_up(1);
	assert_int_equal(error->code, GW_EVERSION);
	assert_non_null(strstr(error->msg, "9.9.9"));
	assert_non_null(strstr(error->msg, GW_VERSION_TEXT));
	close_and_finish();
}

static void check_program(const char *program, int code, int ends)
{
	const struct gw_error *error;

	host_init(&host, "ready");
	host_set_command(&host, program, "ready");
	assert_int_equal(host_start(&host), 0);
	error = expect_given_up(ends);
	assert_int_equal(error->code, code);
	assert_int_equal(error->domain, GW_DOMAIN_OS);
	assert_non_null(strstr(error->msg, program));
	close_and_finish();
}

static void a_program_that_cannot_run_is_given_up_at_once(void **state)
{
	char path[] = "/tmp/gpuward-ward-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(write(fd, "words", 5), 5);
	(void)close(fd);
	check_program("/nowhere/at/all", -ENOENT, 1);
	check_program("gpuward-no-such-program", -ENOENT, 0);
	check_program(path, -EACCES, 1);
	assert_int_equal(chmod(path, 0700), 0);
	check_program(path, -ENOEXEC, 1);
	(void)unlink(path);
}

static void a_device_outside_the_share_is_given_up_at_once(void **state)
{
	const struct gw_error *error;

	(void)state;
	assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "4,5", 1), 0);
	host_init(&host, "ready");
	host.open.n_devices = 1;
	host.open.devices[0] = 2;
	assert_int_equal(host_start(&host), 0);
	assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
	error = expect_given_up(0);
	assert_int_equal(error->code, -ENODEV);
	assert_non_null(strstr(error->msg, "CUDA_VISIBLE_DEVICES=4,5"));
	close_and_finish();
}

/* For every hard limit of descriptors (the ward takes all it may): either it works, or there is one clear
 * error. A shell sets it, since a hard limit cannot be raised again. */
static void too_few_descriptors_are_a_failed_start(void **state)
{
	int ready = 0, refused = 0;

	(void)state;
	for (int limit = 10; limit < 26; limit++) {
		char script[512];
		const char *argv[] = {"/bin/sh", "-c", script, NULL};
		int type;

		(void)snprintf(script, sizeof(script), "ulimit -n %d && exec %s", limit, TEST_WARD);
		host_init(&host, "ready");
		host.open.max_start_failures = 2;
		host.ward_argv = argv;
		assert_int_equal(host_start(&host), 0);
		do {
			type = host_receive(&host);
		} while (type == WIRE_GONE);
		ready += type == WIRE_UP;
		refused += type == WIRE_FAILED;
		assert_true(type == WIRE_UP || type == WIRE_FAILED || type == 0);
		host_send(&host, WIRE_CLOSE);
		/* 127: not even the ward itself could be started. */
		assert_in_range(host_wait_ward(&host), 0, 127);
		host_done(&host);
	}
	assert_true(ready > 0);
	assert_true(refused > 2);
}

/* ---- deadlines ---- */

/* Hands an entry to the worker, as the host's library does. */
static void hand_over(struct channel *channel, uint32_t number, uint32_t function,
		      uint64_t deadline_ns)
{
	const struct channel_entry entry = {.function = function, .task = number + 1};
	struct pool_page_slot *slot = &host.page->slots[0];

	atomic_store(&slot->deadline_ns[number % CHANNEL_DEPTH], deadline_ns);
	atomic_store(&slot->submitted, number + 1);
	channel_push(channel, number, &entry);
	if (deadline_ns > 0 && pool_page_lower_look(host.page, now_ns() + deadline_ns))
		host_send(&host, WIRE_KICK);
}

/* This worker hears no request to stop. */
static void start_working(void)
{
	host_init(&host, "works");
	host.open.stop_deadline_ns = 20 * MILLISECOND;
	assert_int_equal(host_start(&host), 0);
}

static void take_up(struct channel_map *map)
{
	expect(WIRE_UP);
	assert_int_equal(channel_map(map, host.fds[0], 4096), 0);
	atomic_store(&host.page->slots[0].submitted, 0);
	atomic_store(&host.page->slots[0].incarnation, host.message.up.incarnation);
}

static void expect_late(uint64_t began, uint64_t allowed_ns)
{
	const struct gw_exit *exit = expect_gone(GW_END_DEADLINE);

	assert_int_equal(exit->source, GW_SOURCE_DEADLINE);
	assert_in_range(exit->noticed_ns - began, allowed_ns, allowed_ns + SECOND);
}

static void a_task_that_takes_too_long_costs_its_worker(void **state)
{
	struct channel_map map;
	uint64_t began;

	(void)state;
	start_working();
	take_up(&map);
	for (uint32_t i = 0; i < 5; i++)
		hand_over(map.shared, i, 0, i % 2 * 10 * SECOND);
	began = now_ns();
	hand_over(map.shared, 5, 1, 60 * MILLISECOND);
	expect_late(began, 60 * MILLISECOND);
	channel_unmap(&map);

	/* The next one, which is stopped and never begins. */
	take_up(&map);
	assert_true(host.message.up.pid > 1);
	assert_int_equal(kill(host.message.up.pid, SIGSTOP), 0);
	began = now_ns();
	hand_over(map.shared, 0, 0, 40 * MILLISECOND);
	expect_late(began, 40 * MILLISECOND);
	channel_unmap(&map);
	expect(WIRE_UP);
	close_and_finish();
}

static void a_worker_cannot_postpone_its_deadline(void **state)
{
	struct channel_map map;
	uint64_t began;

	(void)state;
	host_init(&host, "postpones");
	host.open.stop_deadline_ns = 20 * MILLISECOND;
	assert_int_equal(host_start(&host), 0);
	take_up(&map);
	began = now_ns();
	hand_over(map.shared, 0, 1, 80 * MILLISECOND);
	/* It claims to have begun up to a moment before it had the task: to its own loss. */
	expect_late(began, 40 * MILLISECOND);
	channel_unmap(&map);
	close_and_finish();
}

static void a_worker_that_completes_too_much_is_killed(void **state)
{
	struct channel_map map;

	(void)state;
	start("lies");
	take_up(&map);
	host_send(&host, WIRE_KICK);
	(void)expect_gone(GW_END_PROTOCOL);
	channel_unmap(&map);
	close_and_finish();
}

static void wait_completed(struct channel *channel, uint32_t count)
{
	for (int i = 0; atomic_load(&channel->completed) < count && i < 15000; i++)
		(void)poll(NULL, 0, 1);
	assert_int_equal(atomic_load(&channel->completed), count);
}

static unsigned long wakeups(int32_t pid)
{
	unsigned long count = 0;
	char path[64], line[128];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		(void)sscanf(line, "voluntary_ctxt_switches: %lu", &count);
	(void)fclose(file);
	return count;
}

static void the_ward_rests_once_no_deadline_is_left(void **state)
{
	struct channel_map map;
	unsigned long before;

	(void)state;
	start_working();
	take_up(&map);
	assert_true(atomic_load(&host.page->next_look_ns) == GW_FOREVER);
	hand_over(map.shared, 0, 0, 100 * MILLISECOND);
	/* One look at the kick, one when it could have been late, and no other. */
	for (int i = 0; atomic_load(&host.page->next_look_ns) != GW_FOREVER && i < 3000; i++)
		(void)poll(NULL, 0, 5);
	assert_true(atomic_load(&host.page->next_look_ns) == GW_FOREVER);
	(void)poll(NULL, 0, 30);
	before = wakeups(host.ward.process.pid);
	(void)poll(NULL, 0, 200);
	assert_int_equal(wakeups(host.ward.process.pid), before);
	channel_unmap(&map);
	close_and_finish();
}

/* A short deadline is kept beside a long one, whether it waits in the same queue or comes later; and a
 * long one costs no looks in between. */
static void a_short_deadline_is_kept_beside_a_long_one(void **state)
{
	struct channel_map map;
	unsigned long before;
	uint64_t began;

	(void)state;
	start_working();
	take_up(&map);
	hand_over(map.shared, 0, 0, 3600 * SECOND);
	wait_completed(map.shared, 1);
	(void)poll(NULL, 0, 30);
	before = wakeups(host.ward.process.pid);
	(void)poll(NULL, 0, 200);
	assert_int_equal(wakeups(host.ward.process.pid), before);
	began = now_ns();
	hand_over(map.shared, 1, 1, 50 * MILLISECOND);
	hand_over(map.shared, 2, 0, 3600 * SECOND);
	expect_late(began, 50 * MILLISECOND);
	channel_unmap(&map);

	/* The entry at the head has no deadline of its own. */
	take_up(&map);
	hand_over(map.shared, 0, 1, 0);
	hand_over(map.shared, 1, 1, 10 * MILLISECOND);
	(void)poll(NULL, 0, 100);
	assert_int_equal(kill(host.message.up.pid, 0), 0); /* that one waits, and is not late */
	channel_unmap(&map);
	close_and_finish();
}

/* Much time after a task with a deadline the next one begins: that time does not count against it. */
static void time_at_rest_does_not_count(void **state)
{
	struct channel_map map;

	(void)state;
	start_working();
	take_up(&map);
	hand_over(map.shared, 0, 0, 3600 * SECOND); /* no look for an hour */
	for (uint32_t i = 1; i < 8; i++) {
		(void)poll(NULL, 0, 30);
		hand_over(map.shared, i, 0, 20 * MILLISECOND);
	}
	wait_completed(map.shared, 8);
	assert_int_equal(kill(host.message.up.pid, 0), 0);
	channel_unmap(&map);
	close_and_finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, host_remember_world, host_check_world)
		TEST(a_ready_worker_is_announced),
		TEST(many_workers_close_in_order),
		TEST(sigterm_closes_too),
		TEST(the_environment_names_slot_and_device),
		TEST(the_hosts_own_program_can_be_the_worker),
		TEST(a_crash_is_told_and_the_next_one_starts),
		TEST(a_fault_is_told_with_its_name),
		TEST(a_worker_that_breaks_the_rules_is_killed),
		TEST(a_worker_that_hangs_up_is_killed),
		TEST(a_kill_hits_the_incarnation_that_is_meant),
		TEST(a_deaf_worker_is_killed_after_the_stop_deadline),
		TEST(a_worker_that_dies_at_start_is_given_up),
		TEST(a_worker_that_is_never_ready_is_given_up),
		TEST(the_workers_own_reason_is_preferred),
		TEST(a_worker_of_another_version_is_given_up),
		TEST(a_program_that_cannot_run_is_given_up_at_once),
		TEST(a_device_outside_the_share_is_given_up_at_once),
		TEST(too_few_descriptors_are_a_failed_start),
		TEST(a_task_that_takes_too_long_costs_its_worker),
		TEST(a_worker_cannot_postpone_its_deadline),
		TEST(a_worker_that_completes_too_much_is_killed),
		TEST(the_ward_rests_once_no_deadline_is_left),
		TEST(a_short_deadline_is_kept_beside_a_long_one),
		TEST(time_at_rest_does_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
