/* SPDX-License-Identifier: MIT */
/*
 * What the ward orders, from the control thread to the main thread.
 *
 * Runs in: worker. The control thread reads the ward's socket, since the main thread can be inside a kernel
 * for ever; the main thread waits here only while it has nothing else to do. Bits and a descriptor: the
 * bits are set before the descriptor is written, and looked at after it was read, so that no order is
 * missed, and two of a kind are one. Read next: control.c, worker.c.
 */
#include "worker/worker.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "worker/state.h"

int orders_init(struct worker *worker)
{
	worker->order_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return worker->order_fd < 0 ? -errno : 0;
}

void orders_give(struct worker *worker, enum order order)
{
	const uint64_t one = 1;

	(void)atomic_fetch_or(&worker->orders, (uint32_t)order);
	/* A full counter is readable already. */
	(void)!write(worker->order_fd, &one, sizeof(one));
}

bool orders_take(struct worker *worker, enum order order)
{
	return atomic_fetch_and(&worker->orders, ~(uint32_t)order) & (uint32_t)order;
}

enum order orders_wait(struct worker *worker, enum order wanted)
{
	struct pollfd fds[] = {{.fd = worker->order_fd, .events = POLLIN}};

	for (;;) {
		uint64_t count;

		if (atomic_load(&worker->orders) & ORDER_STOP)
			return ORDER_STOP;
		if (orders_take(worker, wanted))
			return wanted;
		/* It lets go of state that was dropped, and maps what was sealed. */
		if (orders_take(worker, ORDER_STATE))
			(void)state_take_news(worker, NULL);
		if (poll(fds, 1, -1) > 0)
			(void)!read(worker->order_fd, &count, sizeof(count));
	}
}
