/* SPDX-License-Identifier: MIT */
#include "softgpu_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/kernels_ptx.h"

void child_need(long result, long wanted, const char *call, const char *file, int line)
{
	if (result == wanted)
		return;
	(void)fprintf(stderr, "%s:%d: %s gave %ld, not %ld\n", file, line, call, result, wanted);
	_exit(CHILD_BAD_CALL);
}

pid_t child_start(int (*function)(void *argument), void *argument)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(function(argument));
	if (pid < 0)
		perror("fork");
	return pid;
}

int child_end(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -1000;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int child_run(int (*function)(void *argument), void *argument)
{
	return child_end(child_start(function, argument));
}

void child_context(int device)
{
	struct cuda_context *context = NULL;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
}

struct cuda_function *child_kernel(const char *name)
{
	static struct cuda_module *module;
	struct cuda_function *function = NULL;

	if (!module)
		OK(cuModuleLoadData(&module, gpu_kernels_ptx));
	OK(cuModuleGetFunction(&function, module, name));
	return function;
}

int child_launch(struct cuda_function *function, void **parameters)
{
	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL);
}

void child_fill(uint64_t address, uint64_t count, uint32_t seed)
{
	void *parameters[] = {&address, &count, &seed};

	OK(child_launch(child_kernel("fill"), parameters));
	OK(cuCtxSynchronize());
}

uint64_t child_check(uint64_t address, uint64_t count, uint32_t seed)
{
	uint64_t bad = 0;
	uint64_t bad_at = 0;
	void *parameters[] = {&address, &count, &seed, &bad_at};

	OK(cuMemAlloc_v2(&bad_at, sizeof(bad)));
	OK(cuMemsetD8_v2(bad_at, 0, sizeof(bad)));
	OK(child_launch(child_kernel("check"), parameters));
	OK(cuMemcpyDtoH_v2(&bad, bad_at, sizeof(bad)));
	OK(cuMemFree_v2(bad_at));
	return bad;
}

void pipe_open(struct signal_pipe *pipe)
{
	child_need(pipe2(pipe->fds, O_CLOEXEC), 0, "pipe2", __FILE__, __LINE__);
}

void pipe_send(const struct signal_pipe *pipe)
{
	child_need(write(pipe->fds[1], "x", 1), 1, "write", __FILE__, __LINE__);
}

int pipe_wait(const struct signal_pipe *pipe)
{
	char byte;

	return (int)read(pipe->fds[0], &byte, 1);
}

void pipe_close(struct signal_pipe *pipe)
{
	(void)close(pipe->fds[0]);
	(void)close(pipe->fds[1]);
}

void socket_send_fd(int socket, int fd)
{
	char byte = 'x';
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	child_need(sendmsg(socket, &message, 0), 1, "sendmsg", __FILE__, __LINE__);
}

int socket_receive_fd(int socket)
{
	char byte;
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	int fd = -1;

	child_need(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1, "recvmsg", __FILE__, __LINE__);
	if (message.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	return fd;
}
