/* SPDX-License-Identifier: MIT */
/*
 * Description: the probe answers every question with what NVML says and marks what it does not say; a
 * driver that hangs costs the deadline and no more; a probe that dies, is missing or is no probe gives
 * one clear error; events come beside answers; nothing is left behind.
 *
 * NVML is a fake that the environment steers; the probe finds it through LD_LIBRARY_PATH.
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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "gpu/nvml_abi.h"
#include "probe/client.h"

#define MS 1000000ULL

static char folder[64];
static char library[128];
static struct probe probe;
static struct gw_error error;

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/gpuward-probe-XXXXXX");
	memset(&error, 0, sizeof(error));
	probe = PROBE_NONE;
	if (!mkdtemp(folder))
		return -1;
	(void)snprintf(library, sizeof(library), "%s/libnvidia-ml.so.1", folder);
	return setenv("LD_LIBRARY_PATH", folder, 1);
}

/* Whatever the test did, no child may be left. */
static int tear_down(void **state)
{
	(void)state;
	if (probe.child.process.pidfd >= 0 && probe.socket < 0) {
		struct pollfd ended = {.fd = probe.child.process.pidfd, .events = POLLIN};

		(void)poll(&ended, 1, 2000);
	}
	probe_close(&probe);
	(void)unlink(library);
	unsetenv("FAKE_NVML_INIT");
	unsetenv("FAKE_NVML_MEMORY");
	unsetenv("FAKE_NVML_XID");
	if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
		printf("a child is left\n");
		return -1;
	}
	return rmdir(folder);
}

static void install(const char *variable)
{
	const char *target = getenv(variable);

	assert_non_null(target);
	assert_int_equal(symlink(target, library), 0);
}

static void open_probe(const char *fake, uint64_t deadline_ns)
{
	if (fake)
		install(fake);
	assert_int_equal(probe_open(NULL, deadline_ns, &probe, &error), 0);
}

static void devices_are_described(void **state)
{
	struct probe_driver driver;
	struct probe_device device;

	(void)state;
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
	assert_string_equal(driver.driver, "580.159.04");
	assert_string_equal(driver.nvml, "13.580.159.04");
	assert_int_equal(driver.cuda, 13000);
	assert_int_equal(driver.device_count, 2);
	assert_int_equal(probe_ask_device(&probe, 0, &device, &error), 0);
	assert_string_equal(device.uuid, "GPU-fake-0");
	assert_string_equal(device.name, "Fake GPU");
	assert_string_equal(device.pci, "00000000:00:06.0");
	assert_int_equal(device.minor, 0);
	assert_int_equal(device.total_bytes, 1000);
	assert_int_equal(probe_ask_device(&probe, 1, &device, &error), 0);
	assert_int_equal(device.index, 1);
	assert_int_equal(device.minor, -1);
}

static void a_device_that_is_not_there_is_named(void **state)
{
	struct probe_device device;

	(void)state;
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_ask_device(&probe, 2, &device, &error), -ENODEV);
	assert_string_equal(error.msg, "there is no GPU number 2");
	assert_int_equal(error.domain, GW_DOMAIN_NVML);
	assert_int_equal(probe_ask_device(&probe, UINT32_MAX, &device, &error), -ENODEV);
	assert_int_equal(probe_ask_device(&probe, 0, &device, &error), 0);
}

static void memory_that_is_not_known_is_not_zero(void **state)
{
	struct probe_memory memory;

	(void)state;
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_ask_memory(&probe, 0, &memory, &error), 0);
	assert_int_equal(memory.total_bytes, 1000);
	assert_int_equal(memory.free_bytes, 300);
	assert_int_equal(memory.used_bytes, 650);
	assert_int_equal(memory.reserved_bytes, 50);
	assert_int_equal(probe_ask_memory(&probe, 1, &memory, &error), 0);
	assert_int_equal(memory.used_bytes, 701);
	assert_true(memory.reserved_bytes == GW_UNKNOWN);
}

static void processes_are_listed(void **state)
{
	struct probe_processes processes;

	(void)state;
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_ask_processes(&probe, 0, &processes, &error), 0);
	assert_int_equal(processes.count, 3);
	assert_int_equal(processes.total, 3);
	assert_int_equal(processes.list[1].pid, 101);
	assert_int_equal(processes.list[1].used_bytes, 11);
	assert_true(processes.list[2].used_bytes == GW_UNKNOWN);
	assert_int_equal(probe_ask_processes(&probe, 1, &processes, &error), -EACCES);
	assert_int_equal(error.native, NVML_ERROR_NO_PERMISSION);
}

static void recovery_action_may_be_unknown(void **state)
{
	enum probe_action action = PROBE_ACTION_NONE;

	(void)state;
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_ask_recovery(&probe, 0, &action, &error), 0);
	assert_int_equal(action, PROBE_ACTION_GPU_RESET);
	assert_int_equal(probe_ask_recovery(&probe, 1, &action, &error), 0);
	assert_int_equal(action, PROBE_ACTION_UNKNOWN);
}

static void a_hung_driver_costs_the_deadline_and_no_more(void **state)
{
	struct probe_memory memory;
	struct probe_driver driver;
	uint64_t begun_ns;
	uint64_t took_ns;

	(void)state;
	assert_int_equal(setenv("FAKE_NVML_MEMORY", "hang", 1), 0);
	open_probe("FAKE_NVML", 200 * MS);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
	begun_ns = now_ns();
	assert_int_equal(probe_ask_memory(&probe, 0, &memory, &error), GW_EDRIVER);
	took_ns = now_ns() - begun_ns;
	assert_string_equal(error.msg, "driver does not answer (0.200 s)");
	assert_in_range(took_ns, 200 * MS, 1000 * MS);
	begun_ns = now_ns();
	memset(&error, 0, sizeof(error));
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), GW_EDRIVER);
	assert_string_equal(error.msg, "driver does not answer (0.200 s)");
	assert_true(now_ns() - begun_ns < 100 * MS);
}

static void a_driver_that_hangs_at_its_start_is_the_same(void **state)
{
	struct probe_driver driver;

	(void)state;
	assert_int_equal(setenv("FAKE_NVML_INIT", "hang", 1), 0);
	open_probe("FAKE_NVML", 1000 * MS);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), GW_EDRIVER);
	assert_string_equal(error.msg, "driver does not answer (1 s)");
}

/* The watcher ends a probe that hangs in the driver when the asking side just goes away. */
static void a_hung_probe_ends_with_its_socket(void **state)
{
	const struct probe_request request = {
		.magic = PROBE_MAGIC, .layout = PROBE_LAYOUT, .kind = PROBE_DRIVER, .ticket = 1};
	struct pollfd ended;

	(void)state;
	assert_int_equal(setenv("FAKE_NVML_INIT", "hang", 1), 0);
	open_probe("FAKE_NVML", 0);
	assert_int_equal(write(probe.socket, &request, sizeof(request)), sizeof(request));
	fd_closep(&probe.socket);
	ended = (struct pollfd){.fd = probe.child.process.pidfd, .events = POLLIN};
	assert_int_equal(poll(&ended, 1, 5000), 1);
}

static void each_state_of_the_driver_has_its_error(void **state)
{
	struct probe_driver driver;

	(void)state;
	assert_int_equal(setenv("FAKE_NVML_INIT", "18", 1), 0);
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), GW_EDRIVER);
	assert_int_equal(error.native, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
	assert_non_null(strstr(error.msg, "reboot"));
	/* That was an answer: the probe lives. */
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), GW_EDRIVER);
	assert_true(probe.socket >= 0);
}

static void an_old_driver_is_an_answer(void **state)
{
	struct probe_driver driver;

	(void)state;
	open_probe("FAKE_NVML_OLD", 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), GW_EDRIVER);
	assert_non_null(strstr(error.msg, "too old"));
}

static void a_driver_that_comes_later_is_found(void **state)
{
	struct probe_driver driver;

	(void)state;
	open_probe(NULL, 0);
	if (probe_ask_driver(&probe, &driver, &error) == 0) {
		printf("this machine has a driver\n");
		skip();
	}
	assert_non_null(strstr(error.msg, "is not on this machine"));
	install("FAKE_NVML");
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
}

static void a_probe_that_is_killed_says_so(void **state)
{
	struct probe_driver driver;
	struct probe_event event;

	(void)state;
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
	assert_int_equal(kill(probe.child.process.pid, SIGKILL), 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), GW_EDRIVER);
	assert_non_null(strstr(error.msg, "killed by signal 9"));
	assert_int_equal(probe_next_event(&probe, &event, &error), GW_EDRIVER);
	assert_true(probe_reap(&probe));
}

static void a_stopped_probe_is_late(void **state)
{
	struct probe_driver driver;

	(void)state;
	open_probe("FAKE_NVML", 100 * MS);
	assert_int_equal(kill(probe.child.process.pid, SIGSTOP), 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), GW_EDRIVER);
	assert_string_equal(error.msg, "driver does not answer (0.100 s)");
}

static void events_come_beside_answers(void **state)
{
	struct probe_driver driver;
	struct probe_event event;
	struct pollfd ready;
	uint64_t begun_ns = now_ns();
	int code;

	(void)state;
	assert_int_equal(setenv("FAKE_NVML_XID", "43", 1), 0);
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_watch(&probe, &error), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
	while ((code = probe_next_event(&probe, &event, &error)) == 0) {
		ready = (struct pollfd){.fd = probe.socket, .events = POLLIN};
		assert_int_equal(poll(&ready, 1, 5000), 1);
	}
	assert_int_equal(code, 1);
	assert_int_equal(event.error.code, 0);
	assert_int_equal(event.xid.xid, 43);
	assert_int_equal(event.xid.device, 1);
	assert_string_equal(event.xid.pci, "00000000:00:07.0");
	assert_in_range(event.xid.at_ns, begun_ns, now_ns());
	assert_int_equal(probe_next_event(&probe, &event, &error), 0);
	/* The thread for events now waits in NVML; questions are answered all the same. */
	assert_int_equal(probe_watch(&probe, &error), 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
}

static void a_missing_program_is_named(void **state)
{
	(void)state;
	assert_int_equal(probe_open("/nowhere/gpuward-probe", 0, &probe, &error), -ENOENT);
	assert_non_null(strstr(error.msg, "cannot start /nowhere/gpuward-probe: No such file"));
	assert_int_equal(probe_open("/etc/passwd", 0, &probe, &error), -EACCES);
}

static void another_program_is_no_probe(void **state)
{
	struct probe_driver driver;

	(void)state;
	assert_int_equal(probe_open("/bin/true", 0, &probe, &error), 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), GW_EDRIVER);
	assert_non_null(strstr(error.msg, "exited with code 0"));
}

/* The child must hold nothing of ours, not even descriptors that are not close-on-exec. */
static void the_probe_inherits_no_descriptor(void **state)
{
	char path[64];
	char target[256];
	struct probe_driver driver;
	int leaked = fcntl(STDOUT_FILENO, F_DUPFD, 20);

	(void)state;
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
	for (int fd = 4; fd < 64; fd++) {
		(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)probe.child.process.pid,
			       fd);
		assert_int_equal(readlink(path, target, sizeof(target)), -1);
	}
	fd_closep(&leaked);
	assert_int_equal(getpgid(probe.child.process.pid), probe.child.process.pid);
}

static void closing_a_healthy_probe_reaps_it(void **state)
{
	struct probe_driver driver;
	uint64_t begun_ns;

	(void)state;
	open_probe("FAKE_NVML", 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
	begun_ns = now_ns();
	probe_close(&probe);
	assert_true(now_ns() - begun_ns < 400 * MS);
	assert_int_equal(probe.child.process.pidfd, -1);
	probe_close(&probe);
}

static void by_hand_it_only_explains_itself(void **state)
{
	char path[4096];
	int status;
	pid_t pid;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/gpuward-probe", getenv("GPUWARD_LIBEXEC"));
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		(void)dup2(null, STDERR_FILENO);
		(void)syscall(SYS_close_range, 3U, ~0U, 0U);
		(void)execl(path, path, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 125);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(devices_are_described),
		CASE(a_device_that_is_not_there_is_named),
		CASE(memory_that_is_not_known_is_not_zero),
		CASE(processes_are_listed),
		CASE(recovery_action_may_be_unknown),
		CASE(a_hung_driver_costs_the_deadline_and_no_more),
		CASE(a_driver_that_hangs_at_its_start_is_the_same),
		CASE(a_hung_probe_ends_with_its_socket),
		CASE(each_state_of_the_driver_has_its_error),
		CASE(an_old_driver_is_an_answer),
		CASE(a_driver_that_comes_later_is_found),
		CASE(a_probe_that_is_killed_says_so),
		CASE(a_stopped_probe_is_late),
		CASE(events_come_beside_answers),
		CASE(a_missing_program_is_named),
		CASE(another_program_is_no_probe),
		CASE(the_probe_inherits_no_descriptor),
		CASE(closing_a_healthy_probe_reaps_it),
		CASE(by_hand_it_only_explains_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
