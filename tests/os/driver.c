/* SPDX-License-Identifier: MIT */
/*
 * Description: doors, probe, device files and Xid lines on the emulated GPU, all together: a child brings
 * a device up through the CUDA door and faults; the probe sees its memory and its Xid, the kernel log
 * names its pid; a driver that hangs or mismatches gives its error. This process never loads a driver.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
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
#include "gpu/nvml_abi.h"
#include "gpu/xid.h"
#include "probe/client.h"
#include "softgpu.h"

#define MS 1000000ULL

static struct probe probe;
static struct gw_error error;
static int pipe_up[2];	  /* the child says that it is up */
static int pipe_fault[2]; /* the parent says that it may fault */

static void one_device(void)
{
	soft_dir_new(NULL);
	probe = PROBE_NONE;
	memset(&error, 0, sizeof(error));
	assert_int_equal(probe_open(NULL, 0, &probe, &error), 0);
}

static int tear_down(void **state)
{
	struct pollfd ended = {.fd = probe.child.process.pidfd, .events = POLLIN};

	(void)state;
	if (probe.socket < 0 && probe.child.process.pidfd >= 0)
		(void)poll(&ended, 1, 2000);
	probe_close(&probe);
	soft_dir_free();
	assert_false(dl_cuda_is_loaded());
	return 0;
}

/* The child: a device, word to the parent, a trap, the result as exit code. Never returns. */
static void __attribute__((noreturn)) run_worker(void)
{
	struct cuda_door door;
	struct cuda_context *context;
	struct cuda_module *module;
	struct cuda_function *function;
	struct gw_error failure;
	char byte = 'u';

	if (cuda_open(&door, &failure) < 0 || cuda_start_device(&door, 0, &context, &failure) < 0) {
		printf("%s\n", failure.msg);
		_exit(1);
	}
	if (!dl_cuda_is_loaded() || door.cuModuleLoadData(&module, gpu_kernels_ptx) ||
	    door.cuModuleGetFunction(&function, module, "fault_trap"))
		_exit(2);
	if (write(pipe_up[1], &byte, 1) != 1 || read(pipe_fault[0], &byte, 1) != 1)
		_exit(3);
	if (door.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL))
		_exit(4);
	_exit(door.cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED ? 42 : 5);
}

static pid_t start_worker(void)
{
	char byte;
	pid_t pid;

	assert_int_equal(pipe(pipe_up), 0);
	assert_int_equal(pipe(pipe_fault), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		run_worker();
	fd_closep(&pipe_up[1]);
	fd_closep(&pipe_fault[0]);
	assert_int_equal(read(pipe_up[0], &byte, 1), 1);
	return pid;
}

static void end_worker(pid_t pid)
{
	int status;

	assert_int_equal(write(pipe_fault[1], "f", 1), 1);
	fd_closep(&pipe_fault[1]);
	fd_closep(&pipe_up[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
}

static void the_probe_sees_a_worker(void **state)
{
	struct probe_device device;
	struct probe_memory before;
	struct probe_memory during;
	struct probe_processes processes;
	pid_t pid;

	(void)state;
	one_device();
	assert_int_equal(probe_ask_device(&probe, 0, &device, &error), 0);
	assert_true(device.total_bytes > 1000);
	assert_true(strncmp(device.uuid, "GPU-", 4) == 0);
	assert_int_equal(probe_ask_memory(&probe, 0, &before, &error), 0);
	assert_true(nodes_have_gpu());
	pid = start_worker();
	assert_int_equal(probe_ask_memory(&probe, 0, &during, &error), 0);
	assert_true(during.used_bytes > before.used_bytes);
	assert_int_equal(probe_ask_processes(&probe, 0, &processes, &error), 0);
	assert_int_equal(processes.count, 1);
	assert_int_equal(processes.list[0].pid, pid);
	end_worker(pid);
	assert_int_equal(probe_ask_processes(&probe, 0, &processes, &error), 0);
	assert_int_equal(processes.count, 0);
}

/* Finds the first report in the log of the machine. */
static bool find_report(struct xid_line *line)
{
	char *text = soft_text("kmsg");
	bool found = false;

	for (char *at = text; at && *at && !found;
	     at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
		struct kmsg_record record;
		size_t offset = 0;

		found = kmsg_parse(at, strlen(at), &record) == 0 &&
			xid_parse_record(&record, &offset, line);
	}
	free(text);
	return found;
}

static void a_fault_is_seen_in_both_places(void **state)
{
	struct pollfd ready;
	struct probe_event event;
	struct xid_line line;
	struct xid_pci pci;
	pid_t pid;
	int code;

	(void)state;
	one_device();
	assert_int_equal(probe_watch(&probe, &error), 0);
	pid = start_worker();
	end_worker(pid);
	assert_true(find_report(&line));
	assert_true(line.have & XID_HAVE_PID && line.have & XID_HAVE_NUMBER);
	assert_int_equal(line.pid, pid);
	assert_int_equal(line.number, 43);
	ready = (struct pollfd){.fd = probe.socket, .events = POLLIN};
	assert_int_equal(poll(&ready, 1, 5000), 1);
	code = probe_next_event(&probe, &event, &error);
	assert_int_equal(code, 1);
	assert_int_equal(event.error.code, 0);
	assert_int_equal(event.xid.xid, 43);
	assert_true(xid_pci_parse(event.xid.pci, strlen(event.xid.pci), &pci) > 0);
	assert_true(xid_pci_equal(&pci, &line.pci));
}

static void a_hung_nvml_costs_the_deadline(void **state)
{
	struct probe_memory memory;

	(void)state;
	one_device();
	probe.deadline_ns = 300 * MS;
	assert_int_equal(probe_ask_memory(&probe, 0, &memory, &error), 0);
	soft_setting("nvml_hang=1\n");
	assert_int_equal(probe_ask_memory(&probe, 0, &memory, &error), GW_EDRIVER);
	assert_string_equal(error.msg, "driver does not answer (0.300 s)");
	soft_setting("");
}

static void a_mismatch_says_what_to_do(void **state)
{
	struct probe_driver driver;

	(void)state;
	one_device();
	soft_setting("mismatch=1\n");
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), GW_EDRIVER);
	assert_int_equal(error.native, NVML_ERROR_LIB_RM_VERSION_MISMATCH);
	soft_setting("");
	assert_int_equal(probe_ask_driver(&probe, &driver, &error), 0);
	assert_int_equal(driver.device_count, 1);
	assert_string_equal(driver.driver, "580.159.04");
}

static void a_lost_device_is_said(void **state)
{
	struct probe_memory memory;

	(void)state;
	one_device();
	assert_int_equal(probe_ask_memory(&probe, 0, &memory, &error), 0);
	soft_setting("lost=0\n");
	assert_int_equal(probe_ask_memory(&probe, 0, &memory, &error), -ENODEV);
	assert_non_null(strstr(error.msg, "fallen off the bus"));
	soft_setting("");
}

#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_probe_sees_a_worker),	      CASE(a_fault_is_seen_in_both_places),
		CASE(a_hung_nvml_costs_the_deadline), CASE(a_mismatch_says_what_to_do),
		CASE(a_lost_device_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
