/* SPDX-License-Identifier: MIT */
/*
 * One datagram with descriptors beside it, over a SOCK_SEQPACKET socket: what the protocols of gpuward have
 * in common.
 *
 * Runs in: host, ward, worker. Knows nothing of what the bytes mean: wire.h and state_wire.h check that.
 * Invariant: a descriptor that is received is in the caller's array or closed. Read next: wire.h.
 */
#ifndef GPUWARD_COMMON_PACKET_H
#define GPUWARD_COMMON_PACKET_H

#include <stdbool.h>
#include <stddef.h>

/* Descriptors of one packet, at the most. */
#define PACKET_FDS_MAX 32

/* What packet_receive() took. */
struct packet {
	size_t bytes;
	size_t n_fds;
	bool too_much; /* it had more bytes or descriptors than there was room for */
	bool no_room;  /* this process has no room for its descriptors (RLIMIT_NOFILE) */
};

/*
 * Sends BYTES bytes with N_FDS descriptors (which stay the caller's). Never blocks on a non-blocking socket.
 * Returns 0 or -errno (-EAGAIN: full, -EPIPE: the peer is gone, -ETOOMANYREFS: too many descriptors of this
 * user are in flight).
 */
int packet_send(int socket, const void *data, size_t bytes, const int *fds, size_t n_fds);

/*
 * Receives one packet into DATA (BYTES bytes) and FDS (MAX_FDS, close-on-exec; unused ones are -1).
 * Returns 1, 0 at the end of the stream, or -errno. -ENOMEM or -ENOBUFS: nothing was taken.
 */
int packet_receive(int socket, void *data, size_t bytes, int *fds, size_t max_fds,
		   struct packet *ret_packet);

/* Closes the first COUNT of FDS and sets them to -1. */
void packet_close_fds(int *fds, size_t count);

#endif
