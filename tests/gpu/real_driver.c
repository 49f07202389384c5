/* SPDX-License-Identifier: MIT */
/*
 * Description: on a real GPU, device files, CUDA door, probe and kernel log agree with each other: the same
 * versions and amounts, a worker's pid in NVML's list, and a trap's Xid with that pid in /dev/kmsg and
 * as an event. Skipped where there is no real GPU; what needs a readable kernel log says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "gpu/cuda.h"
#include "gpu/dl.h"
#include "gpu/kernels_ptx.h"
#include "gpu/nodes.h"
#include "gpu/xid.h"
#include "probe/client.h"

#define SECOND 1000000000ULL

static struct probe probe;
static struct gw_error error;

static int set_up(void **state)
{
	(void)state;
	probe = PROBE_NONE;
	return probe_open(NULL, 20 * SECOND, &probe, &error);
}

static int tear_down(void **state)
{
	(void)state;
	probe_close(&probe);
	return dl_cuda_is_loaded() ? -1 : 0;
}

/* Brings device 0 up, says so, waits for a byte, traps. Exits with 42 if all went as it should. */
static void __attribute__((noreturn)) run_worker(int up, int go)
{
	struct cuda_door door;
	struct cuda_context *context;
	struct cuda_module *module;
	struct cuda_function *function;
	struct gw_error failure;
	size_t amounts[2];

	if (cuda_open(&door, &failure) < 0 || cuda_start_device(&door, 0, &context, &failure) < 0) {
		printf("%s\n", failure.msg);
		_exit(1);
	}
	if (door.cuMemGetInfo_v2(&amounts[0], &amounts[1]) ||
	    door.cuModuleLoadData(&module, gpu_kernels_ptx) ||
	    door.cuModuleGetFunction(&function, module, "fault_trap"))
		_exit(2);
	if (write(up, amounts, sizeof(amounts)) != (ssize_t)sizeof(amounts) ||
	    read(go, amounts, 1) != 1)
		_exit(3);
	if (door.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL))
		_exit(4);
	_exit(door.cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED ? 42 : 5);
}

struct worker {
	pid_t pid;
	int go;
	size_t total_bytes;
};

static void start_worker(struct worker *worker)
{
	size_t amounts[2];
	int up[2];
	int go[2];

	assert_int_equal(pipe2(up, O_CLOEXEC), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	worker->pid = fork();
	assert_true(worker->pid >= 0);
	if (worker->pid == 0)
		run_worker(up[1], go[0]);
	(void)close(up[1]);
	(void)close(go[0]);
	assert_int_equal(read(up[0], amounts, sizeof(amounts)), sizeof(amounts));
	(void)close(up[0]);
	worker->go = go[1];
	worker->total_bytes = amounts[1];
}

static void end_worker(struct worker *worker)
{
	int status;

	assert_int_equal(write(worker->go, "g", 1), 1);
	(void)close(worker->go);
	assert_int_equal(waitpid(worker->pid, &status, 0), worker->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
}

static void sources_agree_on_the_machine(void **state)
{
	struct nodes nodes;
	struct probe_driver driver;
	struct probe_device device;
	struct xid_pci pci;
	struct xid_pci node_pci;

	(void)state;
	assert_int_equal(nodes_read("", &nodes, &error), 0);
	assert_int_equal(nodes_check(&nodes, &error), 0);
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
	printf("driver %s, NVML %s, CUDA %d, %u devices\n", driver.driver, driver.nvml, driver.cuda,
	       driver.device_count);
	if (nodes.driver_version[0])
		assert_string_equal(driver.driver, nodes.driver_version);
	assert_int_equal(probe_ask_device(&probe, 0, &device, &error), 0);
	printf("%s %s %s, /dev/nvidia%d\n", device.name, device.uuid, device.pci, device.minor);
	assert_true(xid_pci_parse(device.pci, strlen(device.pci), &pci) > 0);
	for (size_t i = 0; i < nodes.gpu_count; i++) {
		if (nodes.gpus[i].minor != device.minor)
			continue;
		assert_true(xid_pci_parse(nodes.gpus[i].pci, strlen(nodes.gpus[i].pci), &node_pci) >
			    0);
		assert_true(xid_pci_equal(&pci, &node_pci));
		/* In a virtual machine the kernel's text can hide the UUID behind question marks. */
		if (!strchr(nodes.gpus[i].uuid, '?'))
			assert_string_equal(nodes.gpus[i].uuid, device.uuid);
	}
}

static void the_probe_sees_a_worker(void **state)
{
	struct probe_memory memory;
	struct probe_processes processes;
	struct worker worker;
	bool listed = false;

	(void)state;
	start_worker(&worker);
	assert_int_equal(probe_ask_memory(&probe, 0, &memory, &error), 0);
	assert_true(memory.total_bytes >= worker.total_bytes);
	assert_true(memory.used_bytes > 100U << 20);
	assert_int_equal(probe_ask_processes(&probe, 0, &processes, &error), 0);
	for (uint32_t i = 0; i < processes.count; i++)
		listed = listed || processes.list[i].pid == (uint32_t)worker.pid;
	assert_true(listed);
	end_worker(&worker);
}

/* Reads the kernel log until a report names PID or five seconds are over. */
static bool await_report(int log, pid_t pid, struct xid_line *ret_line)
{
	static struct xid_join join;
	uint64_t until_ns = now_ns() + 5 * SECOND;
	struct pollfd ready = {.fd = log, .events = POLLIN};
	struct kmsg_record record;
	struct xid_line line;
	char text[8192];

	while (now_ns() < until_ns) {
		size_t offset = 0;
		ssize_t got;

		if (poll(&ready, 1, 100) < 1)
			continue;
		got = read(log, text, sizeof(text));
		if (got < 0 && errno == EPIPE)
			xid_join_overrun(&join);
		if (got < 0 || kmsg_parse(text, (size_t)got, &record) < 0)
			continue;
		xid_join_saw(&join, record.sequence);
		while (xid_parse_record(&record, &offset, &line)) {
			if (xid_join_feed(&join, &line, ret_line) && ret_line->pid == pid)
				return true;
		}
	}
	return false;
}

static void a_trap_is_named_in_the_kernel_log(void **state)
{
	cleanup_fd int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct worker worker;
	struct xid_line line;

	(void)state;
	if (log < 0) {
		printf("/dev/kmsg cannot be read here\n");
		skip();
	}
	assert_true(lseek(log, 0, SEEK_END) >= 0);
	start_worker(&worker);
	end_worker(&worker);
	assert_true(await_report(log, worker.pid, &line));
	printf("Xid %u, pid %d, name %s: %s\n", line.number, line.pid, line.name, line.rest);
	assert_int_equal(line.number, 43);
	assert_true(line.have & XID_HAVE_CHANNEL);
	assert_true(line.have & XID_HAVE_NAME);
}

static void a_trap_is_an_event(void **state)
{
	struct pollfd ready;
	struct probe_event event;
	struct probe_driver driver;
	struct worker worker;

	(void)state;
	assert_int_equal(probe_watch(&probe, &error), 0);
	start_worker(&worker);
	end_worker(&worker);
	ready = (struct pollfd){.fd = probe.socket, .events = POLLIN};
	assert_int_equal(poll(&ready, 1, 5000), 1);
	assert_int_equal(probe_next_event(&probe, &event, &error), 1);
	assert_int_equal(event.error.code, 0);
	printf("event: Xid %u on device %u (%s)\n", event.xid.xid, event.xid.device, event.xid.pci);
	assert_int_equal(event.xid.xid, 43);
	/* Questions are answered while the other thread waits in NVML. */
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(sources_agree_on_the_machine),
		CASE(the_probe_sees_a_worker),
		CASE(a_trap_is_named_in_the_kernel_log),
		CASE(a_trap_is_an_event),
	};

	if (nodes_emulated() || !nodes_have_gpu()) {
		printf("skipped: there is no real GPU here\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
