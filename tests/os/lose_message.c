/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into a ward: one of its messages fails to be sent, as if the kernel had no memory.
 *
 * Runs in: the ward of a test; in other processes it does nothing. GPUWARD_TEST_LOSE is "TYPE FILE": the first
 * message of that type fails, and FILE is removed then, which tells the test, and that it has happened.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

__attribute__((visibility("default"))) ssize_t sendmsg(int socket, const struct msghdr *message,
						       int flags);

static int is_lost(const struct msghdr *message)
{
	const char *order = getenv("GPUWARD_TEST_LOSE");
	unsigned int wanted;
	uint32_t head[2];
	char file[200];

	if (!order || strcmp(program_invocation_short_name, "gpuward-ward") != 0 ||
	    sscanf(order, "%u %199s", &wanted, file) != 2 ||
	    message->msg_iov[0].iov_len < sizeof(head))
		return 0;
	memcpy(head, message->msg_iov[0].iov_base, sizeof(head));
	return head[1] == wanted && unlink(file) == 0;
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int);
	void *found = dlsym(RTLD_NEXT, "sendmsg");

	if (is_lost(message)) {
		errno = ENOMEM;
		return -1;
	}
	memcpy(&next, &found, sizeof(next));
	return next(socket, message, flags);
}
