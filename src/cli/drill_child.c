/* SPDX-License-Identifier: MIT */
#include "cli/drill_child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"

#define HELLO_DEADLINE_MS 30000
#define END_DEADLINE_NS	  30000000000ULL

static int start(const char *const *argv, const char *const *envp, struct drill_child *child,
		 struct gw_error *ret_error)
{
	extern char **environ;
	int sockets[2];
	struct spawn spec = {.program = "/proc/self/exe",
			     .program_fd = -1,
			     .argv = argv,
			     .envp = envp ? envp : (const char *const *)environ,
			     .fds = &sockets[1],
			     .n_fds = 1,
			     .flags = SPAWN_PDEATHSIG | SPAWN_NEW_GROUP};
	int result;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
		return err_os(ret_error, errno, "cannot make a socket");
	child->socket = sockets[0];
	result = spawn(&spec, &child->process, ret_error);
	fd_close(sockets[1]);
	return result;
}

static int receive_hello(struct drill_child *child, struct drill_hello *ret_hello)
{
	struct iovec part = {ret_hello, sizeof(*ret_hello)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	struct pollfd fd = {.fd = child->socket, .events = POLLIN};
	struct cmsghdr *rights;

	if (poll(&fd, 1, HELLO_DEADLINE_MS) == 0)
		return -ETIMEDOUT;
	if (recvmsg(child->socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*ret_hello))
		return -EIO;
	rights = CMSG_FIRSTHDR(&message);
	if (rights && rights->cmsg_type == SCM_RIGHTS)
		memcpy(&child->passed_fd, CMSG_DATA(rights), sizeof(int));
	ret_hello->message[sizeof(ret_hello->message) - 1] = '\0';
	return 0;
}

int drill_child_start(const char *const *argv, const char *const *envp, struct drill_child *child,
		      struct drill_hello *ret_hello, struct gw_error *ret_error)
{
	int result = start(argv, envp, child, ret_error);

	if (result < 0)
		return result;
	result = receive_hello(child, ret_hello);
	if (result == -ETIMEDOUT)
		return err_set(ret_error, GW_EDRIVER, GW_DOMAIN_OS, ETIMEDOUT,
			       "CUDA does not answer (%d s)", HELLO_DEADLINE_MS / 1000);
	if (result < 0)
		return err_own(ret_error, -EIO, "the drill's process %s ended too early", argv[1]);
	if (ret_hello->code != 0)
		return err_own(ret_error, ret_hello->code, "%s", ret_hello->message);
	return 0;
}

void drill_child_stop(struct drill_child *child)
{
	struct procref_end end;

	fd_closep(&child->passed_fd);
	fd_closep(&child->socket);
	if (child->process.process.pidfd >= 0) {
		(void)procref_signal(&child->process.process, SIGKILL);
		(void)procref_wait(&child->process.process, now_ns() + END_DEADLINE_NS, &end);
	}
	spawn_done(&child->process);
}
