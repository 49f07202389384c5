/* SPDX-License-Identifier: MIT */
#include "cli/drill_bystander.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/fd.h"

#define CONNECTIONS_ENV	   "CUDA_DEVICE_MAX_CONNECTIONS="
#define ANSWER_DEADLINE_MS 10000

static const struct drill_span unknown = {GW_UNKNOWN, GW_UNKNOWN};

/* This process's environment with one connection. Returns NULL where memory is gone. */
static const char **one_connection_environment(void)
{
	extern char **environ;
	size_t count = 0, at = 0;
	const char **copy;

	while (environ[count])
		count++;
	copy = calloc(count + 2, sizeof(*copy));
	if (!copy)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		if (strncmp(environ[i], CONNECTIONS_ENV, strlen(CONNECTIONS_ENV)) != 0)
			copy[at++] = environ[i];
	}
	copy[at] = CONNECTIONS_ENV "1";
	return copy;
}

int drill_bystander_start(struct drill *drill, bool one_connection, struct drill_child *bystander,
			  struct gw_error *ret_error)
{
	cleanup_free const char **environment = NULL;
	char device[16];
	const char *const argv[] = {"gpuward", DRILL_BYSTANDER, device, NULL};
	struct drill_hello hello = {0};
	struct gw_error error = {0};
	int result;

	if (one_connection)
		environment = one_connection_environment();
	(void)snprintf(device, sizeof(device), "%d", drill->options.device);
	result = drill_child_start(argv, environment, bystander, &hello, &error);
	if (result == 0)
		return 0;
	drill_child_stop(bystander);
	*bystander = DRILL_CHILD_NONE;
	if (error.code == GW_EDRIVER && error.native == ETIMEDOUT) {
		*ret_error = error;
		return result;
	}
	drill_note(drill, "no bystander, so its stall is not known: %s", error.msg);
	return 0;
}

struct drill_span drill_bystander_longest(struct drill_child *bystander, uint64_t from_ns,
					  uint64_t to_ns)
{
	struct drill_span span = {from_ns, to_ns};
	struct pollfd fd = {.fd = bystander->socket, .events = POLLIN};

	if (bystander->socket < 0 || from_ns == GW_UNKNOWN || to_ns == GW_UNKNOWN)
		return unknown;
	if (send(bystander->socket, &span, sizeof(span), MSG_NOSIGNAL) < 0)
		return unknown;
	/* What is late is not asked again: its answer would be taken for the next one. */
	if (poll(&fd, 1, ANSWER_DEADLINE_MS) != 1 ||
	    recv(bystander->socket, &span, sizeof(span), 0) != (ssize_t)sizeof(span)) {
		fd_closep(&bystander->socket);
		return unknown;
	}
	return span;
}
