/* SPDX-License-Identifier: MIT */
/*
 * The control thread of a worker: it sleeps on the ward's socket, the host's pidfd and SIGTERM, and passes
 * the ward's orders on to the main thread.
 *
 * Runs in: worker, its own thread; 0 wake-ups while nothing happens. The main thread can be inside a
 * kernel or the driver for ever, so it is this thread that ends the process: with _exit, since other
 * threads may hold any lock. The host is watched besides the ward because a ward can be stopped, and
 * then does not end its workers when the host dies.
 */
#include "worker/worker.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/fd.h"
#include "common/wire.h"

struct control {
	struct worker *worker;
	int signal_fd;
};

static int until(uint64_t deadline_ns)
{
	uint64_t now = now_ns();
	uint64_t left = deadline_ns > now ? deadline_ns - now : 0;

	/* More than poll() can count, which is 24 days, is for ever. */
	return left / 1000000U >= INT_MAX ? -1 : (int)((left + 999999U) / 1000000U);
}

static void answer_ping(void)
{
	struct wire_word pong;

	wire_header_init(&pong.header, WIRE_PONG, sizeof(pong));
	(void)wire_send(WIRE_WORKER_SOCKET, &pong, NULL, 0);
}

/* Out of its sleep for a task, if it is in one. */
static void call_main(struct worker *worker)
{
	atomic_store(&worker->attention, true);
	channel_wake_worker(worker->channel.shared);
}

/* What the ward wants. Anything unknown means that it is gone or not itself any more. Returns whether it is
 * the stop. */
static bool take_order(struct worker *worker)
{
	cleanup_free union wire_any *message = malloc(sizeof(*message));
	int received[WIRE_FDS_MAX];
	int result = message ? wire_receive(WIRE_WORKER_SOCKET, message, received) : 0;

	if (result <= 0)
		_exit(WORKER_EXIT_ALONE);
	switch (message->header.type) {
	case WIRE_STOP:
		return true;
	case WIRE_PING:
		answer_ping();
		return false;
	case WIRE_WARM:
		orders_give(worker, ORDER_WARM);
		return false;
	case WIRE_PROMOTE:
		orders_give(worker, ORDER_PROMOTE);
		return false;
	case WIRE_STATE:
		orders_give(worker, ORDER_STATE);
		call_main(worker);
		return false;
	default:
		_exit(WORKER_EXIT_ALONE);
	}
}

static void begin_stop(struct worker *worker, uint64_t *deadline_ns)
{
	if (*deadline_ns == GW_FOREVER)
		*deadline_ns = after_ns(worker->stop_deadline_ns);
	atomic_store(&worker->stop, true);
	orders_give(worker, ORDER_STOP);
	call_main(worker);
}

static void *control_run(void *argument)
{
	struct control control = *(struct control *)argument;
	uint64_t deadline_ns = GW_FOREVER;
	struct pollfd fds[] = {
		{.fd = WIRE_WORKER_SOCKET, .events = POLLIN},
		{.fd = control.signal_fd, .events = POLLIN},
		{.fd = WIRE_WORKER_HOST, .events = POLLIN},
	};

	free(argument);
	for (;;) {
		struct signalfd_siginfo info;
		bool stop = false;
		int ready = poll(fds, 3, until(deadline_ns));

		if (ready == 0)
			_exit(WORKER_EXIT_LATE);
		if (fds[2].revents)
			_exit(WORKER_EXIT_ALONE);
		if (fds[0].revents)
			stop = take_order(control.worker);
		if (fds[1].revents)
			stop |= read(control.signal_fd, &info, sizeof(info)) > 0;
		if (stop)
			begin_stop(control.worker, &deadline_ns);
	}
	return NULL;
}

int control_start(struct worker *worker)
{
	struct control *control = malloc(sizeof(*control));
	sigset_t mask;
	pthread_t thread;
	int result;

	if (!control)
		return -ENOMEM;
	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGTERM);
	control->worker = worker;
	control->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC);
	if (control->signal_fd < 0) {
		result = errno;
		free(control);
		return -result;
	}
	result = pthread_create(&thread, NULL, control_run, control);
	if (result != 0) {
		fd_close(control->signal_fd);
		free(control);
		return -result;
	}
	(void)pthread_detach(thread);
	return 0;
}
