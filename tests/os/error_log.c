/* SPDX-License-Identifier: MIT */
/*
 * Description: a worker's ward hears of a fault from the driver's log: once, with the task that runs, from any
 * thread; not of harmless failures, not from a forked child, not when this source is off; a ward that does
 * not read blocks nobody; a driver without the log is no failure.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fd.h"
#include "common/wire.h"
#include "gpu/cuda_abi.h"
#include "gpu/cuda_log.h"
#include "gpu/kernels_ptx.h"
#include "softgpu.h"
#include "worker/error_log.h"

/* What a child ends with when something is not as expected: its line. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "line %d: %s\n", __LINE__, #condition);              \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static void only_the_exact_form_is_a_result(void **state)
{
	static const struct {
		const char *text;
		int result;
	} rows[] = {
		{"Returning 710 (CUDA_ERROR_ASSERT) from cuCtxSynchronize", 710},
		{"Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemFree_v2", 1},
		{"Returning 0 (CUDA_SUCCESS) from cuInit", 0},
		{"Returning 710 (", 710},
		{"Sticky error detected", -1},
		{"", -1},
		{"Returning ", -1},
		{"Returning 710", -1},
		{"Returning 710 ", -1},
		{"Returning 710(", -1},
		{"Returning -710 (", -1},
		{"Returning  710 (", -1},
		{"Returning 7x0 (", -1},
		{"Returning 0000710 (", -1},
		{"Returning 4294968006 (", -1},
		{" Returning 710 (", -1},
		{"returning 710 (", -1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int result = cuda_log_result(rows[i].text, strlen(rows[i].text));

		if (result != rows[i].result)
			fail_msg("'%s': %d", rows[i].text, result);
	}
	/* The length counts, and no zero byte. */
	assert_int_equal(cuda_log_result("Returning 710 (", 14), -1);
}

/* A driver that only remembers who listens. */
static void (*callback)(void *data, int level, char *message, size_t length);
static void *callback_data;

static int remember(void (*function)(void *data, int level, char *message, size_t length),
		    void *data, struct cuda_log_callback **handle)
{
	(void)handle;
	callback = function;
	callback_data = data;
	return CUDA_SUCCESS;
}

static int refuse(void (*function)(void *data, int level, char *message, size_t length), void *data,
		  struct cuda_log_callback **handle)
{
	(void)function;
	(void)data;
	(void)handle;
	return CUDA_ERROR_NOT_SUPPORTED;
}

static void say(const char *text)
{
	char message[200];

	(void)snprintf(message, sizeof(message), "%s", text);
	callback(callback_data, 0, message, strlen(message));
}

static struct worker worker;

static void listen_to_fake(void)
{
	worker.detect = GW_DETECT_ERROR_LOG;
	worker.door.cuLogsRegisterCallback = remember;
	CHECK(error_log_start(&worker) == 0);
	CHECK(callback);
}

/* Starts BODY in a child whose ward is the caller. Returns the ward's end of the socket. */
static pid_t start_child(void (*body)(void), int *ret_socket)
{
	int sockets[2];
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		CHECK(dup2(sockets[1], WIRE_WORKER_SOCKET) == WIRE_WORKER_SOCKET);
		if (sockets[0] != WIRE_WORKER_SOCKET)
			fd_close(sockets[0]);
		if (sockets[1] != WIRE_WORKER_SOCKET)
			fd_close(sockets[1]);
		body();
		_exit(0);
	}
	fd_close(sockets[1]);
	*ret_socket = sockets[0];
	return pid;
}

static void end_child(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Runs BODY, and expects COUNT words (0 or 1) of RESULT and TASK. */
static void expect(void (*body)(void), int count, int result, uint64_t task)
{
	union wire_any message;
	int fds[WIRE_FDS_MAX];
	int socket;
	uint64_t before = now_ns();
	pid_t pid = start_child(body, &socket);

	for (int i = 0; i < count; i++) {
		assert_int_equal(wire_receive(socket, &message, fds), sizeof(message.fault));
		assert_int_equal(message.header.type, WIRE_FAULT);
		assert_int_equal(message.fault.source, GW_SOURCE_ERROR_LOG);
		assert_int_equal(message.fault.cuda, result);
		assert_int_equal(message.fault.task, task);
		assert_true(message.fault.noticed_ns >= before &&
			    message.fault.noticed_ns <= now_ns());
	}
	/* Its end, and nothing before it. */
	assert_int_equal(wire_receive(socket, &message, fds), 0);
	end_child(pid);
	fd_close(socket);
}

static void fail_in_many_ways(void)
{
	listen_to_fake();
	atomic_store(&worker.running_task, 7);
	say("Returning 201 (CUDA_ERROR_INVALID_CONTEXT) from cuCtxGetDevice");
	say("Returning 2 (CUDA_ERROR_OUT_OF_MEMORY) from cuMemAlloc_v2");
	say("Sticky error detected");
	errno = EXDEV;
	say("Returning 719 (CUDA_ERROR_LAUNCH_FAILED) from cuCtxSynchronize");
	CHECK(errno == EXDEV);
	atomic_store(&worker.running_task, 8);
	say("Returning 700 (CUDA_ERROR_ILLEGAL_ADDRESS) from cuCtxSynchronize");
}

static void the_first_fault_is_told_once(void **state)
{
	(void)state;
	expect(fail_in_many_ways, 1, 719, 7);
}

static void fail_in_a_forked_child(void)
{
	int status;
	pid_t pid;

	listen_to_fake();
	pid = fork();
	if (pid == 0) {
		say("Returning 719 (CUDA_ERROR_LAUNCH_FAILED) from cuCtxSynchronize");
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void a_forked_child_is_not_the_worker(void **state)
{
	(void)state;
	expect(fail_in_a_forked_child, 0, 0, 0);
}

static void be_switched_off(void)
{
	worker.door.cuLogsRegisterCallback = remember;
	worker.detect = GW_DETECT_KERNEL_LOG | GW_DETECT_NVML | GW_DETECT_RESULT_ONLY;
	CHECK(error_log_start(&worker) == 0);
	CHECK(!callback);
	worker.detect |= GW_DETECT_ERROR_LOG;
	worker.device = -1;
	CHECK(error_log_start(&worker) == 0);
	CHECK(!callback);
}

static void nobody_listens_where_it_is_off(void **state)
{
	(void)state;
	expect(be_switched_off, 0, 0, 0);
}

static void meet_older_drivers(void)
{
	worker.detect = GW_DETECT_ERROR_LOG;
	CHECK(error_log_start(&worker) == -EOPNOTSUPP);
	worker.door.cuLogsRegisterCallback = refuse;
	CHECK(error_log_start(&worker) == GW_EDRIVER);
}

static void a_driver_without_the_log_is_said(void **state)
{
	(void)state;
	expect(meet_older_drivers, 0, 0, 0);
}

static void fail_before_a_deaf_ward(void)
{
	listen_to_fake();
	while (send(WIRE_WORKER_SOCKET, "x", 1, MSG_DONTWAIT) == 1)
		;
	CHECK(errno == EAGAIN);
	say("Returning 719 (CUDA_ERROR_LAUNCH_FAILED) from cuCtxSynchronize");
}

/* The child ends, although its socket is never read. */
static void a_ward_that_does_not_read_blocks_nobody(void **state)
{
	int socket;
	pid_t pid = start_child(fail_before_a_deaf_ward, &socket);

	(void)state;
	end_child(pid);
	fd_close(socket);
}

static void fail_without_a_ward(void)
{
	listen_to_fake();
	CHECK(shutdown(WIRE_WORKER_SOCKET, SHUT_RDWR) == 0);
	say("Returning 719 (CUDA_ERROR_LAUNCH_FAILED) from cuCtxSynchronize");
}

static void a_ward_that_is_gone_raises_no_signal(void **state)
{
	(void)state;
	expect(fail_without_a_ward, 0, 0, 0);
}

static void *synchronize(void *unused)
{
	(void)unused;
	CHECK(worker.door.cuCtxSetCurrent(worker.context) == CUDA_SUCCESS);
	CHECK(worker.door.cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
	return NULL;
}

/* The emulated driver. The fault shows first in a thread of the function's own. */
static void trap(void)
{
	struct cuda_module *module;
	struct cuda_function *function;
	uint64_t memory;
	pthread_t thread;

	worker.detect = GW_DETECT_ERROR_LOG;
	atomic_store(&worker.running_task, 99);
	CHECK(cuda_open(&worker.door, NULL) == 0);
	CHECK(cuda_start_device(&worker.door, 0, &worker.context, NULL) == 0);
	CHECK(error_log_start(&worker) == 0);
	CHECK(worker.door.cuMemAlloc_v2(&memory, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(worker.door.cuModuleLoadData(&module, gpu_kernels_ptx) == CUDA_SUCCESS);
	CHECK(worker.door.cuModuleGetFunction(&function, module, "fault_trap") == CUDA_SUCCESS);
	CHECK(worker.door.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) ==
	      CUDA_SUCCESS);
	CHECK(pthread_create(&thread, NULL, synchronize, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(worker.door.cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED);
}

static void a_fault_of_the_device_is_told_from_any_thread(void **state)
{
	(void)state;
	soft_dir_new(NULL);
	expect(trap, 1, 719, 99);
	soft_dir_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_exact_form_is_a_result),
		cmocka_unit_test(the_first_fault_is_told_once),
		cmocka_unit_test(a_forked_child_is_not_the_worker),
		cmocka_unit_test(nobody_listens_where_it_is_off),
		cmocka_unit_test(a_driver_without_the_log_is_said),
		cmocka_unit_test(a_ward_that_does_not_read_blocks_nobody),
		cmocka_unit_test(a_ward_that_is_gone_raises_no_signal),
		cmocka_unit_test(a_fault_of_the_device_is_told_from_any_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
