/* SPDX-License-Identifier: MIT */
/*
 * Description: device memory of the emulated GPU lives exactly as long as a descriptor of the process
 * that made it, or of the memory itself, exists anywhere; and NVML charges it to whom the real one does.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../softgpu.h"
#include "../softgpu_calls.h"
#include "gpu/nvml_abi.h"

#define MIB	 (1ULL << 20)
#define OVERHEAD (530 * MIB) /* cuInit and one context */

/* What the parent and its children share; set before they are started. */
static struct signal_pipe ready;
static struct signal_pipe go;
static int sockets[2];
static struct nvml_device *gpu;

static int set_up(void **state)
{
	(void)state;
	soft_dir_new(NULL);
	assert_int_equal(nvmlInit_v2(), 0);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &gpu), 0);
	pipe_open(&ready);
	pipe_open(&go);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pipe_close(&ready);
	pipe_close(&go);
	(void)close(sockets[0]);
	(void)close(sockets[1]);
	soft_dir_free();
	assert_int_equal(nvmlShutdown(), 0);
	return 0;
}

/* What NVML says of PID: its bytes, or 0 when it is not listed. */
static uint64_t listed(pid_t pid)
{
	struct nvml_process processes[32];
	unsigned int count = 32;

	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, processes), 0);
	for (unsigned int i = 0; i < count; i++) {
		if (processes[i].pid == (uint32_t)pid)
			return processes[i].used_bytes;
	}
	return 0;
}

static unsigned int listed_count(void)
{
	unsigned int count = 0;
	int result = nvmlDeviceGetComputeRunningProcesses_v3(gpu, &count, NULL);

	assert_true(result == 0 || result == NVML_ERROR_INSUFFICIENT_SIZE);
	return count;
}

/* Until it is killed; returns for the compiler's sake only. */
static int sleep_for_ever(void)
{
	while (pause() < 0)
		;
	return CHILD_BAD_CALL;
}

static int hold_memory(void *argument)
{
	uint64_t memory;

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&memory, 64 * MIB));
	pipe_send(&ready);
	return sleep_for_ever();
}

static void killed_process_gives_memory_back_before_it_is_reaped(void **state)
{
	siginfo_t info;
	pid_t pid;

	(void)state;
	pid = child_start(hold_memory, NULL);
	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(soft_used_bytes(0), OVERHEAD + 64 * MIB);
	assert_int_equal(listed(pid), OVERHEAD + 64 * MIB);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(soft_used_bytes(0), 0);
	assert_int_equal(listed_count(), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
}

/* Closes the device files of this process whose link contains none of KEEP. */
static void close_devices_but(const char *keep)
{
	for (int fd = 3; fd < 256; fd++) {
		char path[64];
		char link[300] = "";

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, link, sizeof(link) - 1) > 0 && strstr(link, "/dev/nvidia") &&
		    (!keep || !strstr(link, keep)))
			(void)close(fd);
	}
}

/* Forks after CUDA is up; the child never calls CUDA and keeps only some descriptors. */
static int fork_keeper(void *argument)
{
	const char *const *keep = argument;
	uint64_t memory;
	pid_t orphan;

	child_context(0);
	OK(cuMemAlloc_v2(&memory, 64 * MIB));
	orphan = fork();
	if (orphan == 0) {
		close_devices_but(*keep);
		(void)close(go.fds[1]);
		pipe_send(&ready);
		(void)pipe_wait(&go);
		_exit(0);
	}
	return sleep_for_ever();
}

/* Kills the maker; says whether its memory stayed, LISTED as its. Then the orphan ends. */
static bool memory_stays_with(const char *keep, uint64_t listed_bytes)
{
	pid_t pid = child_start(fork_keeper, &keep);
	bool stays;

	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	stays = soft_used_bytes(0) == OVERHEAD + 64 * MIB;
	if (stays)
		assert_int_equal(listed(pid), listed_bytes);
	else
		assert_int_equal(soft_used_bytes(0), 0);
	/* End of file lets the orphan go. */
	(void)close(go.fds[1]);
	pipe_close(&ready);
	(void)close(go.fds[0]);
	pipe_open(&ready);
	pipe_open(&go);
	soft_wait_unused();
	return stays;
}

static void any_inherited_descriptor_keeps_memory(void **state)
{
	(void)state;
	assert_true(memory_stays_with("/dev/nvidiactl", OVERHEAD + 64 * MIB));
	assert_true(memory_stays_with("/dev/nvidia0", OVERHEAD + 64 * MIB));
	/* Held, and nobody is named. */
	assert_true(memory_stays_with("/dev/nvidia-uvm", 0));
	assert_false(memory_stays_with(NULL, 0));
}

/* The same, but the child runs another program: the descriptors are close-on-exec. */
static int fork_exec(void *argument)
{
	uint64_t memory;

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&memory, 64 * MIB));
	if (fork() == 0) {
		(void)dup2(go.fds[0], 0);
		(void)dup2(ready.fds[1], 1);
		(void)execlp("sh", "sh", "-c", "echo; exec cat >/dev/null", (char *)NULL);
		_exit(1);
	}
	return sleep_for_ever();
}

static void descriptors_are_closed_by_exec(void **state)
{
	pid_t pid;

	(void)state;
	pid = child_start(fork_exec, NULL);
	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(soft_used_bytes(0), OVERHEAD + 64 * MIB);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	assert_int_equal(soft_used_bytes(0), 0);
}

static void *wait_for_ever(void *argument)
{
	(void)argument;
	(void)sleep_for_ever();
	return NULL;
}

static int end_leader(void *argument)
{
	pthread_t thread;
	uint64_t memory;

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&memory, 64 * MIB));
	NEED(pthread_create(&thread, NULL, wait_for_ever, NULL), 0);
	pipe_send(&ready);
	pthread_exit(NULL);
	return 0;
}

static void zombie_leader_keeps_memory(void **state)
{
	pid_t pid;

	(void)state;
	pid = child_start(end_leader, NULL);
	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(soft_used_bytes(0), OVERHEAD + 64 * MIB);
	assert_int_equal(listed(pid), OVERHEAD + 64 * MIB);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	assert_int_equal(soft_used_bytes(0), 0);
}

static const struct cuda_allocation shareable = {.type = CUDA_MEMORY_PINNED,
						 .handle_types = CUDA_HANDLE_POSIX_FD,
						 .location = {.type = CUDA_LOCATION_DEVICE}};
static const struct cuda_access_range writable = {.location = {.type = CUDA_LOCATION_DEVICE},
						  .flags = CUDA_ACCESS_READWRITE};

static uint64_t map(uint64_t handle)
{
	uint64_t address;

	OK(cuMemAddressReserve(&address, 4 * MIB, 0, 0x700000000000, 0));
	OK(cuMemMap(address, 4 * MIB, 0, handle, 0));
	OK(cuMemSetAccess(address, 4 * MIB, &writable, 1));
	return address;
}

/* Fills exportable memory, sends its descriptor away, and ends by a fault of its own. */
static int export_and_fault(void *argument)
{
	uint64_t handle;
	int fd;

	(void)argument;
	child_context(0);
	OK(cuMemCreate(&handle, 4 * MIB, &shareable, 0));
	child_fill(map(handle), MIB, 9);
	OK(cuMemExportToShareableHandle(&fd, handle, CUDA_HANDLE_POSIX_FD, 0));
	socket_send_fd(sockets[1], fd);
	OK(child_launch(child_kernel("fault_trap"), NULL));
	NEED(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
	return 0;
}

static int import_and_check(void *argument)
{
	int fd = *(int *)argument;
	uint64_t handle;

	child_context(0);
	OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CUDA_HANDLE_POSIX_FD));
	(void)close(fd);
	NEED((long)child_check(map(handle), MIB, 9), 0);
	/* Charged to the importer, as the maker is gone. */
	NEED((long)(soft_used_bytes(0) / MIB), 534);
	return 0;
}

static void exported_memory_survives_its_maker(void **state)
{
	char path[64];
	char link[300] = "";
	int fd;

	(void)state;
	assert_int_equal(child_run(export_and_fault, NULL), 0);
	/* In flight only. */
	assert_int_equal(soft_used_bytes(0), 4 * MIB);
	assert_int_equal(listed_count(), 0);
	fd = socket_receive_fd(sockets[0]);
	assert_true(fd >= 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_true(readlink(path, link, sizeof(link) - 1) > 0);
	assert_non_null(strstr(link, "dev/nvidiactl"));
	assert_int_equal(soft_used_bytes(0), 4 * MIB);
	assert_int_equal(child_run(import_and_check, &fd), 0);
	assert_int_equal(child_run(import_and_check, &fd), 0);
	assert_int_equal(soft_used_bytes(0), 4 * MIB);
	assert_int_equal(close(fd), 0);
	assert_int_equal(soft_used_bytes(0), 0);
}

static int import_nonsense(void *argument)
{
	uint64_t handle;
	int fd = ready.fds[0];

	(void)argument;
	OK(cuInit(0));
	NEED(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CUDA_HANDLE_POSIX_FD),
	     CUDA_ERROR_UNKNOWN);
	NEED(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)-1, CUDA_HANDLE_POSIX_FD),
	     CUDA_ERROR_UNKNOWN);
	return 0;
}

static void other_descriptors_are_no_memory(void **state)
{
	(void)state;
	assert_int_equal(child_run(import_nonsense, NULL), 0);
}

static int ipc_export(void *argument)
{
	struct cuda_ipc_memory handle;
	uint64_t memory;

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&memory, 64 * MIB));
	child_fill(memory, MIB, 3);
	OK(cuIpcGetMemHandle(&handle, memory));
	NEED(cuIpcOpenMemHandle_v2(&memory, handle, CUDA_IPC_LAZY_PEER_ACCESS),
	     CUDA_ERROR_INVALID_CONTEXT);
	NEED(write(sockets[1], &handle, sizeof(handle)), sizeof(handle));
	return sleep_for_ever();
}

static int ipc_import(void *argument)
{
	struct cuda_ipc_memory handle;
	uint64_t memory;

	(void)argument;
	child_context(0);
	NEED(read(sockets[0], &handle, sizeof(handle)), sizeof(handle));
	OK(cuIpcOpenMemHandle_v2(&memory, handle, CUDA_IPC_LAZY_PEER_ACCESS));
	pipe_send(&ready);
	NEED(pipe_wait(&go), 1);
	NEED((long)child_check(memory, MIB, 3), 0);
	OK(cuIpcCloseMemHandle(memory));
	pipe_send(&ready);
	NEED(pipe_wait(&go), 1);
	return 0;
}

static void ipc_bytes_move_to_the_importer(void **state)
{
	pid_t exporter;
	pid_t importer;

	(void)state;
	exporter = child_start(ipc_export, NULL);
	importer = child_start(ipc_import, NULL);
	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(listed(exporter), OVERHEAD + 64 * MIB);
	assert_int_equal(listed(importer), OVERHEAD);
	assert_int_equal(kill(exporter, SIGKILL), 0);
	assert_int_equal(child_end(exporter), -SIGKILL);
	assert_int_equal(listed(exporter), 0);
	assert_int_equal(listed(importer), OVERHEAD + 64 * MIB);
	pipe_send(&go);
	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(listed(importer), OVERHEAD);
	pipe_send(&go);
	assert_int_equal(child_end(importer), 0);
}

/* A process whose pid is 1 where it lives; its parent, outside, tells its pid outside. */
static int use_namespace(void *argument)
{
	pid_t pid;

	(void)argument;
	if (unshare(CLONE_NEWPID) < 0)
		return 77;
	pid = child_start(hold_memory, NULL);
	NEED(write(sockets[1], &pid, sizeof(pid)), sizeof(pid));
	return child_end(pid) == -SIGKILL ? 0 : 1;
}

static void nvml_tells_the_pid_outside_of_a_namespace(void **state)
{
	pid_t outside;
	pid_t pid;

	(void)state;
	pid = child_start(use_namespace, NULL);
	(void)close(sockets[1]);
	sockets[1] = -1;
	if (read(sockets[0], &outside, sizeof(outside)) != sizeof(outside)) {
		assert_int_equal(child_end(pid), 77);
		print_message("skipped: no right to make a pid namespace\n");
		skip();
	}
	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(listed(outside), OVERHEAD + 64 * MIB);
	assert_int_equal(listed_count(), 1);
	assert_int_equal(kill(outside, SIGKILL), 0);
	assert_int_equal(child_end(pid), 0);
}

static int endless(void *argument)
{
	uint64_t stop;
	void *spin[] = {&stop};

	(void)argument;
	child_context(0);
	OK(cuMemAlloc_v2(&stop, 4));
	OK(cuMemsetD32_v2(stop, 0, 1));
	OK(child_launch(child_kernel("spin"), spin));
	pipe_send(&ready);
	return cuCtxSynchronize();
}

static int quick_work(void *argument)
{
	(void)argument;
	child_context(0);
	OK(child_launch(child_kernel("nop"), NULL));
	OK(cuCtxSynchronize());
	return 0;
}

static void endless_kernel_is_killed_and_others_go_on(void **state)
{
	pid_t pid;
	int status;

	(void)state;
	pid = child_start(endless, NULL);
	assert_int_equal(pipe_wait(&ready), 1);
	assert_int_equal(child_run(quick_work, NULL), 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(child_end(pid), -SIGKILL);
	assert_int_equal(soft_used_bytes(0), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(killed_process_gives_memory_back_before_it_is_reaped),
		TEST(any_inherited_descriptor_keeps_memory),
		TEST(descriptors_are_closed_by_exec),
		TEST(zombie_leader_keeps_memory),
		TEST(exported_memory_survives_its_maker),
		TEST(other_descriptors_are_no_memory),
		TEST(ipc_bytes_move_to_the_importer),
		TEST(nvml_tells_the_pid_outside_of_a_namespace),
		TEST(endless_kernel_is_killed_and_others_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
