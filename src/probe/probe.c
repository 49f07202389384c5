/* SPDX-License-Identifier: MIT */
/*
 * gpuward-probe: the only process that loads NVML. It answers one request after the other on the socket
 * that it was started with, descriptor 3, and ends when that socket does.
 *
 * Runs in: probe. Never changes anything on a GPU, never writes to standard output. Any call of NVML
 * can hang with the driver; so nobody waits for this process: the other side has a deadline and
 * kills it. Three threads, which share only the socket, whose messages are whole:
 *
 *	main     takes requests, calls NVML, answers
 *	watcher  sees the end of the socket even while main hangs in the driver, and ends the process
 *	events   started by PROBE_WATCH: waits in NVML for Xids, sends them without blocking
 *
 * Invariant: each request has exactly one reply. Read next: probe_wire.h, answer.c.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/err.h"
#include "probe/answer.h"
#include "probe/probe_wire.h"

/* The other side is gone: there is nobody to tell, and NVML may hang in another thread. */
static void *watch_socket(void *unused)
{
	struct pollfd socket = {.fd = PROBE_SOCKET, .events = POLLRDHUP};

	(void)unused;
	while (poll(&socket, 1, -1) < 0 && errno == EINTR)
		;
	_exit(0);
}

static int start_thread(void *(*body)(void *), void *argument)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int failure = pthread_attr_init(&attributes);

	if (failure)
		return -failure;
	failure = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (!failure)
		failure = pthread_create(&thread, &attributes, body, argument);
	(void)pthread_attr_destroy(&attributes);
	return -failure;
}

static void *send_events(void *argument)
{
	struct probe_reply event;
	struct answer *answer = argument;
	uint64_t dropped = 0;

	do {
		answer_next_event(answer, &event);
		event.xid.dropped = event.error.code == 0 ? dropped : 0;
		if (send(PROBE_SOCKET, &event, probe_reply_bytes(PROBE_XID),
			 MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			dropped++;
		else
			dropped = 0;
	} while (event.error.code == 0);
	return NULL;
}

/* One thread for events, however often they are asked for. */
static void start_watch(struct answer *answer, struct probe_reply *reply)
{
	static bool started;
	int code;

	if (started || answer_watch(answer, &reply->error) < 0)
		return;
	code = start_thread(send_events, answer);
	if (code < 0)
		(void)err_os(&reply->error, -code, "cannot start the thread for events");
	else
		started = true;
}

static bool send_reply(const struct probe_reply *reply)
{
	while (send(PROBE_SOCKET, reply, probe_reply_bytes(reply->kind), MSG_NOSIGNAL) < 0) {
		if (errno != EINTR)
			return false;
	}
	return true;
}

/* Takes one request and answers it. Returns false when the socket is at its end. */
static bool serve(struct answer *answer)
{
	static struct probe_reply reply;
	union {
		struct probe_request request;
		char bytes[sizeof(struct probe_request) + 1]; /* a longer message shows */
	} message;
	struct probe_request request = {.kind = PROBE_WATCH, .ticket = UINT64_MAX};
	ssize_t got = recv(PROBE_SOCKET, &message, sizeof(message), 0);
	int code;

	if (got < 0 && errno == EINTR)
		return true;
	if (got <= 0)
		return false;
	code = probe_take_request(&message, (size_t)got, &request);
	if (code == GW_EPROTOCOL)
		return false;
	reply = (struct probe_reply){.magic = PROBE_MAGIC,
				     .layout = PROBE_LAYOUT,
				     .kind = request.kind,
				     .ticket = request.ticket};
	/* Another layout: the other side sees ours in the empty reply, and says so. */
	if (code == 0 && request.kind == PROBE_WATCH)
		start_watch(answer, &reply);
	else if (code == 0)
		answer_request(answer, &request, &reply);
	return send_reply(&reply);
}

static bool is_socket(int fd)
{
	int type = 0;
	socklen_t bytes = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET;
}

int main(void)
{
	struct answer answer = {0};

	if (!is_socket(PROBE_SOCKET)) {
		(void)fputs("gpuward-probe: started by gpuward itself, with a socket as descriptor "
			    "3; it does nothing by hand\n",
			    stderr);
		return 125;
	}
	if (start_thread(watch_socket, NULL) < 0)
		return 125;
	while (serve(&answer))
		;
	/* No destructor of NVML, which could hang: the kernel closes everything. */
	_exit(0);
}
