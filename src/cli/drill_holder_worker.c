/* SPDX-License-Identifier: MIT */
/*
 * A process that holds device memory and ends in the way that it is told: for `gpuward drill release`.
 *
 * Runs in: a child of the drill, started by exec with a socket as descriptor 3. It says hello when it
 * holds the memory, and then waits: for a byte on the socket, or for a signal. At the end of the
 * socket it leaves, so that nothing outlives the drill.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/drill.h"
#include "cli/drill_child.h"
#include "cli/drill_gpu_worker.h"
#include "common/fd.h"

struct holder {
	struct drill_gpu gpu;
	enum drill_way way;
	uint64_t bytes;
	uint64_t memory;
	int exported_fd;
};

/* Memory that outlives its process while somebody has the descriptor. */
static int export_memory(struct holder *holder)
{
	const struct cuda_allocation what = {.type = CUDA_MEMORY_PINNED,
					     .handle_types = CUDA_HANDLE_POSIX_FD,
					     .location = {CUDA_LOCATION_DEVICE, 0}};
	const struct cuda_door *door = &holder->gpu.door;
	uint64_t handle;
	int result = door->cuMemCreate(&handle, holder->bytes, &what, 0);

	if (result != 0)
		return result;
	return door->cuMemExportToShareableHandle(&holder->exported_fd, handle,
						  CUDA_HANDLE_POSIX_FD, 0);
}

static int take_memory(struct holder *holder)
{
	int result;

	if (holder->way == WAY_EXPORTED)
		return export_memory(holder);
	result = holder->gpu.door.cuMemAlloc_v2(&holder->memory, holder->bytes);
	if (result == 0)
		result = holder->gpu.door.cuMemsetD32_v2(holder->memory, 7, holder->bytes / 4);
	return result ? result : holder->gpu.door.cuCtxSynchronize();
}

static int say_hello(const struct drill_hello *hello, int fd)
{
	struct iovec part = {(void *)(uintptr_t)hello, sizeof(*hello)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *rights = &control.align;

		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(rights), &fd, sizeof(int));
	}
	return sendmsg(DRILL_CHILD_SOCKET, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* A child that never calls CUDA, as a data loader: it inherits every descriptor. */
static void fork_loader(void)
{
	char byte;

	if (fork() != 0)
		return;
	/* The drill closes its end when it has seen enough. */
	while (recv(DRILL_CHILD_SOCKET, &byte, 1, 0) > 0)
		continue;
	_exit(0);
}

static void end_cleanly(struct holder *holder)
{
	(void)holder->gpu.door.cuMemFree_v2(holder->memory);
	(void)holder->gpu.door.cuDevicePrimaryCtxReset_v2(0);
	_exit(0);
}

/* Waits for its end. */
static void wait_and_end(struct holder *holder, int signal_fd)
{
	struct pollfd fds[] = {{.fd = DRILL_CHILD_SOCKET, .events = POLLIN},
			       {.fd = signal_fd, .events = POLLIN}};
	struct drill_stamps stamps;

	while (poll(fds, 2, -1) < 0 && errno == EINTR)
		continue;
	if (fds[1].revents)
		end_cleanly(holder);
	if (holder->way == WAY_FAULT)
		(void)drill_gpu_fault(&holder->gpu, 4, &stamps);
	if (holder->way == WAY_EXIT)
		exit(0);
	_exit(0);
}

static int signals_open(void)
{
	sigset_t mask;

	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &mask, NULL);
	return signalfd(-1, &mask, SFD_CLOEXEC);
}

int command_drill_holder(int argc, char **argv)
{
	struct holder holder = {.exported_fd = -1};
	struct drill_hello hello = {0};
	struct gw_error error = {0};
	int signal_fd = signals_open();

	if (argc != 4)
		return CLI_USAGE;
	holder.way = (enum drill_way)atoi(argv[1]);
	holder.bytes = strtoull(argv[2], NULL, 10);
	drill_gpu_choose(atoi(argv[3]));
	if (drill_gpu_start(&holder.gpu, &error) < 0) {
		hello.code = error.code;
		(void)snprintf(hello.message, sizeof(hello.message), "%s", error.msg);
	} else {
		hello.result = take_memory(&holder);
	}
	if (holder.way == WAY_FORKED)
		fork_loader();
	if (say_hello(&hello, holder.exported_fd) < 0 || hello.code != 0 || hello.result != 0)
		_exit(CLI_FAILED);
	wait_and_end(&holder, signal_fd);
	return CLI_OK;
}
