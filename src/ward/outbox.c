/* SPDX-License-Identifier: MIT */
#include "ward/outbox.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "common/fd.h"
#include "common/futex.h"
#include "ward/worker_link.h"

/* When the kernel had no memory for a message: it does not say when it has again. */
#define RETRY_NS 50000000ULL

static void retry(struct loop_timer *timer)
{
	outbox_flush(timer->owner);
	worker_link_send_again(timer->owner);
}

void outbox_retry_later(struct ward *ward)
{
	loop_set_timer(&ward->retry_timer, now_ns() + RETRY_NS);
}

void outbox_init(struct ward *ward)
{
	ward->retry_timer = (struct loop_timer){.due = retry, .owner = ward};
	loop_add_timer(&ward->loop, &ward->retry_timer);
}

static void drop(struct slot *slot)
{
	struct slot_outbox *box = &slot->outbox;

	box->has_up = false;
	box->has_gone = false;
	box->has_failed = false;
}

/* The host looks at the count before it sleeps, and at the socket after it woke up. */
static void ring_bell(struct ward *ward)
{
	(void)atomic_fetch_add(&ward->page->ward_events, 1);
	pool_page_wake_host(ward->page);
}

static int send_one(struct ward *ward, const void *message, const int *fds, size_t n_fds)
{
	int result = wire_send(ward->host_socket, message, fds, n_fds);

	if (result == 0)
		ring_bell(ward);
	return result;
}

/* The message was filled when the worker said that it is ready; its place is known only now. */
static int send_up(struct slot *slot)
{
	struct process *process = slot->process;
	/* The last is missing where the process has ended since. */
	const int fds[] = {process->channel_fd, process->event_fd, process->spawned.process.pidfd};
	const size_t n_fds = fds[2] < 0 ? 2 : 3;
	int result;

	process->up->slot = slot->number;
	process->up->incarnation = process->incarnation;
	process->up->ready_ns = process->ready_ns;
	result = send_one(slot->ward, process->up, fds, n_fds);
	if (result == 0) {
		free(process->up);
		process->up = NULL;
	}
	return result;
}

/* Sends all of one slot, in order. Returns 0 or -errno. */
static int send_slot(struct slot *slot)
{
	struct slot_outbox *box = &slot->outbox;
	int result = 0;

	if (box->has_up) {
		result = send_up(slot);
		box->has_up = result < 0;
	}
	if (result == 0 && box->has_gone) {
		result = send_one(slot->ward, &box->gone, NULL, 0);
		box->has_gone = result < 0;
		if (result == 0)
			slot_gone_was_sent(slot);
	}
	if (result == 0 && box->has_failed) {
		result = send_one(slot->ward, &box->failed, NULL, 0);
		box->has_failed = result < 0;
	}
	return result;
}

static void watch_for_room(struct ward *ward, bool full)
{
	if (ward->host_is_full == full || ward->host_source.fd < 0)
		return;
	if (loop_change(&ward->loop, &ward->host_source, EPOLLIN | (full ? EPOLLOUT : 0U)) == 0)
		ward->host_is_full = full;
}

void outbox_flush(struct ward *ward)
{
	int result = 0;

	for (uint32_t i = 0; i < ward->n_slots && result == 0; i++) {
		struct slot *slot = &ward->slots[i];

		if (!ward->host_gone) {
			result = send_slot(slot);
		} else {
			bool had_gone = slot->outbox.has_gone;

			drop(slot);
			if (had_gone)
				slot_gone_was_sent(slot);
		}
	}
	watch_for_room(ward, result == -EAGAIN);
	/* -EPIPE and the like: the end of file tells, in its own time. */
	if (result == -ENOMEM || result == -ENOBUFS || result == -ETOOMANYREFS)
		outbox_retry_later(ward);
}

void outbox_up(struct slot *slot)
{
	slot->outbox.has_up = true;
	outbox_flush(slot->ward);
}

void outbox_gone(struct slot *slot, const struct process *process, const struct gw_exit *exit)
{
	struct wire_gone *gone = &slot->outbox.gone;

	if (slot->is_standby)
		return;
	*gone = (struct wire_gone){.slot = slot->number,
				   .incarnation = process->incarnation,
				   .was_ready = process->ready_ns > 0,
				   .exit = *exit};
	wire_header_init(&gone->header, WIRE_GONE, sizeof(*gone));
	slot->outbox.has_gone = true;
	outbox_flush(slot->ward);
}

void outbox_failed(struct slot *slot, const struct gw_error *error)
{
	struct wire_failed *failed = &slot->outbox.failed;

	if (slot->is_standby)
		return;
	*failed = (struct wire_failed){.slot = slot->number, .error = *error};
	wire_header_init(&failed->header, WIRE_FAILED, sizeof(*failed));
	slot->outbox.has_failed = true;
	outbox_flush(slot->ward);
}
