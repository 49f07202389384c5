/* SPDX-License-Identifier: MIT */
/*
 * The bystander's own process: it launches empty kernels, one after the other, and remembers how long each took.
 *
 * Runs in: a child of the drill, started by exec with a socket as descriptor 3. It pauses a little after each
 * kernel, so that it is no load; a stall that begins in a pause looks shorter by that much. Before an answer it
 * launches one more, so that there is always one that began after what was asked about. Leaves at the end of the
 * socket, or when CUDA fails.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/drill_child.h"
#include "cli/drill_gpu_worker.h"
#include "common/fd.h"

#define PAUSE_NS 50000L
#define KEPT	 65536U /* round trips: several seconds of them */

struct history {
	struct drill_span kept[KEPT];
	uint64_t count;
};

static void keep(struct history *history, uint64_t from_ns, uint64_t to_ns)
{
	history->kept[history->count++ % KEPT] = (struct drill_span){from_ns, to_ns};
}

/* The longest of those that overlap ASKED and, where this process did not get to launch any, the next one. */
static struct drill_span find_longest(const struct history *history, struct drill_span asked)
{
	uint64_t first = history->count > KEPT ? history->count - KEPT : 0;
	struct drill_span longest = {GW_UNKNOWN, GW_UNKNOWN};
	uint64_t most = 0;

	/* What began before the oldest one that is kept is forgotten. */
	if (first > 0 && history->kept[first % KEPT].from_ns > asked.from_ns)
		return longest;
	for (uint64_t i = first; i < history->count; i++) {
		const struct drill_span *span = &history->kept[i % KEPT];

		if (span->to_ns < asked.from_ns || span->to_ns - span->from_ns < most)
			continue;
		if (span->from_ns > asked.to_ns && longest.from_ns != GW_UNKNOWN)
			break;
		most = span->to_ns - span->from_ns;
		longest = *span;
	}
	return longest;
}

static bool round_trip(struct drill_gpu *gpu, struct history *history)
{
	uint64_t from = now_ns();

	if (drill_gpu_round_trip(gpu) != 0)
		return false;
	keep(history, from, now_ns());
	return true;
}

static bool answer(struct drill_gpu *gpu, struct history *history)
{
	struct drill_span span;

	if (recv(DRILL_CHILD_SOCKET, &span, sizeof(span), 0) != (ssize_t)sizeof(span) ||
	    !round_trip(gpu, history))
		return false;
	span = find_longest(history, span);
	return send(DRILL_CHILD_SOCKET, &span, sizeof(span), MSG_NOSIGNAL) >= 0;
}

static void run(struct drill_gpu *gpu, struct history *history)
{
	const struct timespec pause = {0, PAUSE_NS};
	struct pollfd fd = {.fd = DRILL_CHILD_SOCKET, .events = POLLIN};

	while (round_trip(gpu, history)) {
		if (ppoll(&fd, 1, &pause, NULL) > 0 && !answer(gpu, history))
			return;
	}
}

int command_drill_bystander(int argc, char **argv)
{
	static struct history history;
	struct drill_gpu gpu = {0};
	struct drill_hello hello = {0};
	struct gw_error error = {0};

	if (argc != 2)
		return CLI_USAGE;
	drill_gpu_choose(atoi(argv[1]));
	if (drill_gpu_start(&gpu, &error) < 0) {
		hello.code = error.code;
		(void)snprintf(hello.message, sizeof(hello.message), "%s", error.msg);
	}
	if (send(DRILL_CHILD_SOCKET, &hello, sizeof(hello), MSG_NOSIGNAL) < 0 || hello.code != 0)
		_exit(CLI_FAILED);
	run(&gpu, &history);
	_exit(CLI_OK);
}
