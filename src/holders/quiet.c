/* SPDX-License-Identifier: MIT */
#include "holders/quiet.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/fd.h"

#define ANSWER_BYTES 32768
#define TCP_STATE(n) (1U << (n))
#define ESTABLISHED  1

bool quiet_kernel_is_from(long major, long minor)
{
	struct utsname kernel;
	long is_major, is_minor;
	char *end;

	if (uname(&kernel) < 0)
		return false;
	is_major = strtol(kernel.release, &end, 10);
	is_minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
	return is_major > major || (is_major == major && is_minor >= minor);
}

/* Since Linux 5.16 an io_uring has an inode of its own. */
static void read_anonymous(struct quiet *quiet)
{
	cleanup_fd int fd = eventfd(0, EFD_CLOEXEC);

	quiet->has_anonymous =
		fd >= 0 && quiet_kernel_is_from(5, 16) &&
		statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &quiet->anonymous) == 0;
}

bool quiet_is_anonymous(const struct quiet *quiet, const struct statx *file)
{
	return quiet->has_anonymous && file->stx_ino == quiet->anonymous.stx_ino &&
	       file->stx_dev_major == quiet->anonymous.stx_dev_major &&
	       file->stx_dev_minor == quiet->anonymous.stx_dev_minor;
}

/* Asks for all connected ones with the length of their queues. */
static bool ask(int socket)
{
	struct {
		struct nlmsghdr header;
		struct unix_diag_req question;
	} message = {
		.header = {.nlmsg_len = sizeof(message),
			   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
		.question = {.sdiag_family = AF_UNIX,
			     .udiag_states = TCP_STATE(ESTABLISHED),
			     .udiag_show = UDIAG_SHOW_RQLEN},
	};

	return send(socket, &message, sizeof(message), 0) == (ssize_t)sizeof(message);
}

static bool add(struct quiet *quiet, uint32_t *room, uint32_t inode)
{
	if (quiet->count == *room) {
		uint32_t wider = *room ? *room * 2 : 1024;
		uint32_t *grown = reallocarray(quiet->sockets, wider, sizeof(*grown));

		if (!grown)
			return false;
		quiet->sockets = grown;
		*room = wider;
	}
	quiet->sockets[quiet->count++] = inode;
	return true;
}

/*
 * A stream carries descriptors only beside data. The two other kinds can have an empty message with some, which the
 * length of the queue does not show.
 */
static bool is_quiet(const struct nlmsghdr *header)
{
	const struct unix_diag_msg *socket = NLMSG_DATA(header);
	const struct nlattr *one = (const struct nlattr *)(socket + 1);
	size_t left = header->nlmsg_len - NLMSG_LENGTH(sizeof(*socket));

	if (socket->udiag_type != SOCK_STREAM)
		return false;
	while (left >= sizeof(*one) && one->nla_len >= sizeof(*one) && one->nla_len <= left) {
		size_t step = NLA_ALIGN(one->nla_len);
		struct unix_diag_rqlen lengths;

		if ((one->nla_type & NLA_TYPE_MASK) == UNIX_DIAG_RQLEN &&
		    one->nla_len >= NLA_HDRLEN + sizeof(lengths)) {
			memcpy(&lengths, (const char *)one + NLA_HDRLEN, sizeof(lengths));
			return lengths.udiag_rqueue == 0;
		}
		if (step >= left)
			break;
		left -= step;
		one = (const struct nlattr *)(const void *)((const char *)one + step);
	}
	return false;
}

/* The message behind HEADER, with *BYTES left from there on. They begin at multiples of 4. */
static const struct nlmsghdr *next_message(const struct nlmsghdr *header, size_t *bytes)
{
	size_t step = NLMSG_ALIGN(header->nlmsg_len);

	*bytes -= step < *bytes ? step : *bytes;
	return (const struct nlmsghdr *)(const void *)((const char *)header + step);
}

/* Returns false at the end of the answer. */
static bool take_answer(struct quiet *quiet, uint32_t *room, const char *answer, size_t bytes)
{
	const struct nlmsghdr *header = (const struct nlmsghdr *)(const void *)answer;

	for (; NLMSG_OK(header, bytes); header = next_message(header, &bytes)) {
		const struct unix_diag_msg *socket = NLMSG_DATA(header);

		if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
		    header->nlmsg_len < NLMSG_LENGTH(sizeof(*socket)))
			return false;
		if (is_quiet(header) && !add(quiet, room, socket->udiag_ino))
			return false;
	}
	return true;
}

static int ascending(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

void quiet_read(struct quiet *quiet)
{
	cleanup_fd int socket_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	_Alignas(struct nlmsghdr) char answer[ANSWER_BYTES];
	uint32_t room = 0;
	ssize_t got;

	*quiet = (struct quiet){0};
	read_anonymous(quiet);
	if (socket_fd < 0 || !ask(socket_fd))
		return;
	/* The kernel answers in the call itself, so there is nothing to wait for. */
	while ((got = recv(socket_fd, answer, sizeof(answer), MSG_DONTWAIT)) > 0) {
		if (!take_answer(quiet, &room, answer, (size_t)got))
			break;
	}
	if (quiet->count > 0)
		qsort(quiet->sockets, quiet->count, sizeof(*quiet->sockets), ascending);
}

void quiet_done(struct quiet *quiet)
{
	free(quiet->sockets);
	*quiet = (struct quiet){0};
}

bool quiet_has_socket(const struct quiet *quiet, uint64_t inode)
{
	uint32_t key = (uint32_t)inode;

	return inode <= UINT32_MAX && quiet->count > 0 &&
	       bsearch(&key, quiet->sockets, quiet->count, sizeof(key), ascending);
}
