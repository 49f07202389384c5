/* SPDX-License-Identifier: MIT */
/*
 * Descriptors in flight: sent through a unix socket, and not received yet. No table has them; the kernel keeps
 * them until they are received or the receiving socket goes.
 *
 * fdinfo of the receiving socket tells how many there are. What they are is seen by taking a duplicate of that
 * socket (pidfd_getfd) and reading its first message with MSG_PEEK, which gives descriptors of our own to the same
 * files and leaves the message where it is; they are closed at once. What cannot be seen is counted: messages
 * behind the first one that has descriptors, and connections that were not accepted.
 *
 * Left alone are sockets where a peek would change something for their owner: those with a peek offset, which a
 * peek moves, and those with an error waiting, which a read takes away.
 *
 * Read next: parts.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fd.h"
#include "holders/parts.h"

#define MESSAGE_FDS_MAX 253 /* SCM_MAX_FD of the kernel */
#define SCM_PIDFD_TYPE	0x04
#define PIDFD_OF_THREAD O_EXCL /* PIDFD_THREAD, since Linux 6.9 */

/* A duplicate of descriptor FD of the present process, or of its thread TID. Returns it or -errno. */
static int duplicate(struct look *look, int32_t tid, int fd)
{
	cleanup_fd int pidfd = -1;
	char name[32];
	int copy;

	pidfd = (int)syscall(SYS_pidfd_open, tid ? tid : look->pid, tid ? PIDFD_OF_THREAD : 0);
	if (pidfd < 0)
		return -errno;
	/* The number could have passed on between the folder and the pidfd: then the folder is dead. */
	(void)snprintf(name, sizeof(name), "task/%d", tid ? tid : look->pid);
	if (faccessat(look->folder, name, F_OK, 0) < 0)
		return -ESRCH;
	copy = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	return copy < 0 ? -errno : copy;
}

/* May this socket be peeked at without a trace? */
static bool is_harmless(int socket)
{
	struct pollfd events = {.fd = socket, .events = POLLIN};
	socklen_t bytes = sizeof(int);
	int value = -1;

	if (getsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &value, &bytes) == 0 && value >= 0)
		return false;
	bytes = sizeof(value);
	if (getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &value, &bytes) == 0 && value)
		return false; /* it has connections and no messages */
	return poll(&events, 1, 0) > 0 && (events.revents & POLLIN) && !(events.revents & POLLERR);
}

/* Looks at the descriptors of one control message and closes them. Returns how many there were. */
static unsigned int look_at_all(struct look *look, const struct cmsghdr *message,
				const struct place *place, struct finding *finding)
{
	size_t count = (message->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	cleanup_fd int folder = openat(look->proc, "self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_fd int fds = -1;

	if (folder >= 0)
		fds = openat(folder, "fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < count; i++) {
		char name[16];
		int fd;

		memcpy(&fd, CMSG_DATA(message) + i * sizeof(int), sizeof(int));
		(void)snprintf(name, sizeof(name), "%d", fd);
		if (fds >= 0)
			fds_look_at(look, folder, fds, name, place, finding);
		fd_close(fd);
	}
	return fds >= 0 ? (unsigned int)count : 0;
}

static void close_pidfd(const struct cmsghdr *message)
{
	int fd;

	if (message->cmsg_len < CMSG_LEN(sizeof(int)))
		return;
	memcpy(&fd, CMSG_DATA(message), sizeof(int));
	fd_close(fd);
}

/* Peeks at the first message of our SOCKET. Returns how many descriptors of it were seen. */
static unsigned int peek(struct look *look, int socket, const struct place *place,
			 struct finding *finding)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(MESSAGE_FDS_MAX * sizeof(int)) + 256];
	} control;
	struct iovec data = {.iov_base = look->text, .iov_len = sizeof(look->text)};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	unsigned int seen = 0;

	if (recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
		return 0;
	for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
		if (one->cmsg_level != SOL_SOCKET)
			continue;
		if (one->cmsg_type == SCM_RIGHTS)
			seen += look_at_all(look, one, place, finding);
		else if (one->cmsg_type == SCM_PIDFD_TYPE)
			close_pidfd(one);
	}
	return seen;
}

/* Our own copy of the socket: another one that was in flight, or a duplicate. -EPERM where that is not allowed. */
static int get_socket(struct look *look, const char *name, const struct place *place)
{
	int fd = (int)strtol(name, NULL, 10);

	if (place->depth > 0)
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return look->own_proc ? duplicate(look, place->reference.tid, fd) : -EPERM;
}

static void count_denied(struct look *look, int error)
{
	/* Ended, or closed: nothing is in flight there any more. */
	if (error == ESRCH || error == EBADF)
		return;
	look->unseen.sockets_denied++;
	look->unseen.needs_ptrace |= error == EPERM && look->own_proc;
}

void sockets_look(struct look *look, int folder, const char *name, const struct place *place,
		  struct finding *finding)
{
	struct place inner = *place;
	cleanup_fd int socket = -1;
	uint64_t count = 0;
	unsigned int seen = 0;

	if (look_read_fdinfo(look, folder, name) < 0 ||
	    !look_find_number(look->text, "scm_fds:", &count) || count == 0)
		return;
	socket = get_socket(look, name, place);
	if (socket < 0) {
		count_denied(look, -socket);
		return;
	}
	inner.reference.held = SCAN_IN_FLIGHT;
	inner.depth++;
	if (inner.depth <= PLACE_DEPTH_MAX && is_harmless(socket))
		seen = peek(look, socket, &inner, finding);
	if (seen < count)
		look->unseen.in_flight_hidden += (uint32_t)(count - seen);
}
