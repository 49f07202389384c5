/* SPDX-License-Identifier: MIT */
#include "common/packet.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "common/fd.h"

int packet_send(int socket, const void *data, size_t bytes, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * PACKET_FDS_MAX)];
	} control = {0};
	struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};

	if (n_fds > PACKET_FDS_MAX)
		return -EINVAL;
	if (n_fds > 0) {
		struct cmsghdr *rights;

		packet.msg_control = control.bytes;
		packet.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		rights = CMSG_FIRSTHDR(&packet);
		rights->cmsg_level = SOL_SOCKET;
		rights->cmsg_type = SCM_RIGHTS;
		rights->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(rights), fds, sizeof(int) * n_fds);
	}
	while (sendmsg(socket, &packet, MSG_NOSIGNAL) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

/* Takes the descriptors of HEADER into FDS, and closes those that are more than MAX_FDS. */
static void take_fds(struct msghdr *header, int *fds, size_t max_fds, struct packet *packet)
{
	for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
		size_t count;

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
			if (packet->n_fds < max_fds) {
				fds[packet->n_fds++] = fd;
			} else {
				packet->too_much = true;
				fd_close(fd);
			}
		}
	}
}

int packet_receive(int socket, void *data, size_t bytes, int *fds, size_t max_fds,
		   struct packet *ret_packet)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * (PACKET_FDS_MAX + 1))];
	} control;
	struct iovec part = {.iov_base = data, .iov_len = bytes};
	struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};
	struct packet packet = {0};
	ssize_t got;

	if (max_fds > PACKET_FDS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < max_fds; i++)
		fds[i] = -1;
	/* Room for one more than is wanted: so a cut control message means that this process has no room. */
	header.msg_controllen = CMSG_SPACE(sizeof(int) * (max_fds + 1));
	/* A peer that ended without reading all is told of once (ECONNRESET), before its last words. */
	do {
		got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
	} while (got < 0 && (errno == EINTR || errno == ECONNRESET));
	if (got < 0)
		return -errno;
	take_fds(&header, fds, max_fds, &packet);
	packet.bytes = (size_t)got;
	packet.too_much = packet.too_much || (header.msg_flags & MSG_TRUNC);
	packet.no_room = header.msg_flags & MSG_CTRUNC;
	if (got == 0)
		packet_close_fds(fds, max_fds);
	*ret_packet = packet;
	return got > 0;
}

void packet_close_fds(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		fd_closep(&fds[i]);
}
