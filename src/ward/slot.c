/* SPDX-License-Identifier: MIT */
#include "ward/slot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/fd.h"
#include "ward/deadline.h"
#include "ward/outbox.h"
#include "ward/ward.h"
#include "ward/worker_link.h"

/* What the actions get. */
struct happening {
	enum slot_state next;	   /* by the table */
	const struct cause *cause; /* or NULL */
};

/* The first cause counts. */
static void note_cause(struct slot *slot, const struct cause *cause)
{
	if (slot->noticed_ns == 0)
		slot->noticed_ns = now_ns();
	if (cause && slot->cause.end == GW_END_UNKNOWN)
		slot->cause = *cause;
}

static struct tally_limits limits_of(const struct ward *ward)
{
	return (struct tally_limits){.restart_min_ns = ward->open.restart_min_ns,
				     .restart_max_ns = ward->open.restart_max_ns,
				     .max_start_failures = ward->open.max_start_failures};
}

/* Errors of a start that come back however often it is tried. */
static bool is_hopeless(const struct gw_error *error)
{
	switch (error->code) {
	/* The worker's program offers functions that cannot be, or does not begin with gw_is_worker(). */
	case -EINVAL:
	case -ENOENT:
	case -EACCES:
	case -ENOEXEC:
	case -ENOTDIR:
	case -ELOOP:
	case -E2BIG:
	case -ENODEV:
	case GW_EVERSION:
	case GW_ENOFUNCTION:
		return true;
	case GW_EDRIVER:
		/* The driver's library is not there; or the driver says that this node does not work. */
		if (error->domain == GW_DOMAIN_OS)
			return error->native == ENOENT;
		return error->domain == GW_DOMAIN_CUDA &&
		       gw_cuda_class((int)error->native) == GW_FAULT_NODE;
	default:
		return false;
	}
}

static void say_how_often(struct slot *slot)
{
	struct gw_error *error = &slot->start_error;
	size_t used = strlen(error->msg);

	if (slot->tally.failed_starts > 1)
		(void)snprintf(error->msg + used, sizeof(error->msg) - used,
			       " (%u starts in a row failed)", slot->tally.failed_starts);
}

/* Where a slot goes that has no process any more, and is still wanted. */
static enum slot_state go_on(struct slot *slot, const struct tally_run *run)
{
	const struct tally_limits limits = limits_of(slot->ward);
	struct tally_verdict verdict = tally_count(&slot->tally, &limits, run);

	if (verdict.give_up) {
		say_how_often(slot);
		outbox_failed(slot, &slot->start_error);
		return SLOT_FAILED;
	}
	slot->next_start_ns = after_ns(verdict.pause_ns);
	/* Otherwise slot_gone_was_sent() does it. */
	if (!slot->outbox.has_gone)
		loop_set_timer(&slot->timer, slot->next_start_ns);
	return SLOT_BACKOFF;
}

static enum slot_state do_ignore(struct slot *slot, const struct happening *what)
{
	(void)what;
	return slot->state;
}

static enum slot_state do_start(struct slot *slot, const struct happening *what)
{
	struct gw_error error = {0};
	struct tally_run run = {0};

	(void)what;
	if (slot_start_process(slot, &error) == 0) {
		loop_set_timer(&slot->timer, after_ns(slot->ward->open.start_deadline_ns));
		return SLOT_STARTING;
	}
	slot->start_error = error;
	run.hopeless = is_hopeless(&error);
	return go_on(slot, &run);
}

/* The cause is in the event; a cause that was known before stands. */
static enum slot_state do_kill(struct slot *slot, const struct happening *what)
{
	note_cause(slot, what->cause);
	/* It may have ended by itself just now: then there is nobody to get it, and EXITED follows. */
	(void)procref_signal(&slot->spawned.process, SIGKILL);
	loop_set_timer(&slot->timer, now_ns() + SLOT_KILL_DEADLINE_NS);
	return what->next;
}

static enum slot_state do_announce(struct slot *slot, const struct happening *what)
{
	struct wire_up *up = slot->announced;

	slot->announced = NULL;
	slot->ready_ns = up->ready_ns;
	loop_set_timer(&slot->timer, GW_FOREVER);
	outbox_up_take(slot, up);
	return what->next;
}

static enum slot_state do_ask(struct slot *slot, const struct happening *what)
{
	note_cause(slot, what->cause);
	worker_link_send_stop(slot);
	loop_set_timer(&slot->timer, after_ns(slot->ward->open.stop_deadline_ns));
	return what->next;
}

static enum slot_state do_grace(struct slot *slot, const struct happening *what)
{
	note_cause(slot, what->cause);
	loop_set_timer(&slot->timer, now_ns() + SLOT_GRACE_NS);
	return what->next;
}

/* What the host knows of the trusted counter bounds what the worker says of its work. */
static bool has_worked(const struct slot *slot)
{
	return slot->ready_ns > 0 && deadline_completed(slot) > 0;
}

/* A worker that the host could not use counts as one that never got ready. */
static bool was_useful(const struct slot *slot)
{
	return slot->ready_ns > 0 && slot->cause.end != GW_END_START;
}

/* Whether the next process may start now, by the tally, which then counts this one's end. */
static bool may_replace(struct slot *slot)
{
	const struct tally_limits limits = limits_of(slot->ward);
	struct tally tally = slot->tally;
	struct tally_run run = {.ready = was_useful(slot),
				.worked = has_worked(slot),
				.blameless = slot->cause.end == GW_END_STOPPED,
				.ready_ns = now_ns() - slot->ready_ns};
	struct tally_verdict verdict = tally_count(&tally, &limits, &run);

	if (slot->ward->closing || !leaving_is_free(slot) || verdict.give_up ||
	    verdict.pause_ns > 0)
		return false;
	slot->tally = tally;
	return true;
}

static enum slot_state do_replace(struct slot *slot, const struct happening *what)
{
	const struct happening kill = {.next = SLOT_KILLING, .cause = what->cause};

	note_cause(slot, what->cause);
	if (!may_replace(slot))
		return do_kill(slot, &kill);
	leaving_take(slot, true);
	return do_start(slot, what);
}

static enum slot_state do_follow(struct slot *slot, const struct happening *what)
{
	const struct happening grace = {.next = SLOT_STOPPING, .cause = what->cause};

	note_cause(slot, what->cause);
	if (!may_replace(slot))
		return do_grace(slot, &grace);
	leaving_take(slot, false);
	return do_start(slot, what);
}

/* Reaps the process and queues the message about it. */
static void tell_end(struct slot *slot, struct gw_exit *ret_exit)
{
	struct report_facts facts = {.slot = slot->number,
				     .pid = slot->spawned.process.pid,
				     .device = slot->device,
				     .was_ready = slot->ready_ns > 0,
				     .cause = slot->cause,
				     .started_ns = slot->spawned.process.started_ns};

	if (slot->noticed_ns == 0)
		slot->noticed_ns = now_ns();
	facts.reaped =
		procref_wait(&slot->spawned.process, now_ns() + PROCREF_REAP_NS, &facts.ended) == 1;
	facts.noticed_ns = slot->noticed_ns;
	facts.gone_ns = now_ns();
	report_fill(ret_exit, &facts);
	outbox_gone(slot, ret_exit);
}

/* Why the start failed, in the best words that there are: the worker's, the exec's, the report's. */
static void explain_failed_start(struct slot *slot, const struct gw_exit *exit)
{
	struct gw_error error;

	if (slot->start_error.code != 0)
		return;
	if (spawn_failure(&slot->spawned, slot->ward->program, &error) < 0)
		slot->start_error = error;
	else
		(void)err_own(&slot->start_error,
			      exit->source == GW_SOURCE_DEADLINE ? -ETIMEDOUT : GW_EPOOLFAILED,
			      "%s", exit->text);
}

/* The device memory of the one before was not back yet. The next start waits for its end, since the
 * message about this one does. */
static bool lacked_room(const struct slot *slot)
{
	const struct gw_error *error = &slot->start_error;

	return slot->beside && error->domain == GW_DOMAIN_CUDA &&
	       gw_cuda_class((int)error->native) == GW_FAULT_RESOURCES;
}

static enum slot_state do_settle(struct slot *slot, const struct happening *what)
{
	struct tally_run run = {.ready = was_useful(slot), .worked = has_worked(slot)};
	struct gw_exit exit;

	(void)what;
	loop_set_timer(&slot->timer, GW_FOREVER);
	tell_end(slot, &exit);
	if (!run.ready)
		explain_failed_start(slot, &exit);
	slot_end_process(slot);
	if (!slot->outbox.has_gone)
		slot_gone_was_sent(slot);
	if (slot->ward->closing)
		return SLOT_EMPTY;
	run.blameless = exit.end == GW_END_STOPPED || (!run.ready && lacked_room(slot));
	run.hopeless = !run.ready && is_hopeless(&slot->start_error);
	run.ready_ns = run.ready ? exit.gone_ns - slot->ready_ns : 0;
	return go_on(slot, &run);
}

static enum slot_state do_give_up(struct slot *slot, const struct happening *what)
{
	struct gw_error error;

	(void)err_own(
		&error, GW_EPOOLFAILED,
		"worker %u (pid %d) does not end after SIGKILL: it is blocked in the driver or "
		"another part of the kernel; see /proc/%d/stack",
		slot->number, slot->spawned.process.pid, slot->spawned.process.pid);
	outbox_failed(slot, &error);
	return what->next;
}

static enum slot_state do_bury(struct slot *slot, const struct happening *what)
{
	struct gw_exit exit;

	tell_end(slot, &exit);
	slot_end_process(slot);
	if (!slot->outbox.has_gone)
		slot_gone_was_sent(slot);
	return what->next;
}

static enum slot_state do_rest(struct slot *slot, const struct happening *what)
{
	loop_set_timer(&slot->timer, GW_FOREVER);
	return what->next;
}

void slot_happens(struct slot *slot, enum slot_event event, const struct cause *cause)
{
	static enum slot_state (*const actions[SLOT_ACTIONS])(struct slot *,
							      const struct happening *) = {
		[ACTION_IGNORE] = do_ignore,	 [ACTION_START] = do_start,
		[ACTION_ANNOUNCE] = do_announce, [ACTION_ASK] = do_ask,
		[ACTION_GRACE] = do_grace,	 [ACTION_KILL] = do_kill,
		[ACTION_REPLACE] = do_replace,	 [ACTION_FOLLOW] = do_follow,
		[ACTION_SETTLE] = do_settle,	 [ACTION_GIVE_UP] = do_give_up,
		[ACTION_BURY] = do_bury,	 [ACTION_REST] = do_rest,
	};
	struct slot_step step = slot_table_step(slot->state, event);
	const struct happening what = {.next = step.next, .cause = cause};

	slot->state = actions[step.action](slot, &what);
	ward_check_end(slot->ward);
}

void slot_gone_was_sent(struct slot *slot)
{
	/* Kept until here: the message before, WIRE_UP, carries them. */
	if (slot->spawned.process.pidfd < 0) {
		fd_closep(&slot->channel_fd);
		fd_closep(&slot->event_fd);
	}
	if (slot->state == SLOT_BACKOFF)
		loop_set_timer(&slot->timer, slot->next_start_ns);
}

/* The one timer of a slot means something else in each state. */
static void on_timer(struct loop_timer *timer)
{
	static const struct cause too_late = {
		.end = GW_END_START,
		.source = GW_SOURCE_DEADLINE,
		.what = "it was not ready when the start deadline ran out"};
	static const struct cause let_go = {.end = GW_END_PROTOCOL,
					    .source = GW_SOURCE_PROTOCOL,
					    .what = "it closed its socket and did not end"};
	struct slot *slot = timer->owner;

	if (slot->state == SLOT_STARTING)
		slot_happens(slot, EVENT_START_DEADLINE, &too_late);
	else if (slot->state == SLOT_STOPPING)
		slot_happens(slot, EVENT_STOP_DEADLINE, &let_go);
	else if (slot->state == SLOT_KILLING)
		slot_happens(slot, EVENT_KILL_DEADLINE, NULL);
	else if (slot->state == SLOT_BACKOFF)
		slot_happens(slot, EVENT_BACKOFF_TIMER, NULL);
}

/*
 * The process has ended. What it said before lies in the socket, and tells why:
 *
 *	epoll: pidfd readable, and the socket too, in any order
 *	settled at once:      "exited with code 1"
 *	socket read first:    "died of CUDA error 700"
 */
static void on_exit_ready(struct loop_source *source, uint32_t events)
{
	struct slot *slot = source->owner;
	int pidfd = slot->spawned.process.pidfd;

	(void)events;
	worker_link_drain(slot);
	/* What it said may have put its successor in the slot; it is leaving then, and tells there. */
	if (slot->spawned.process.pidfd == pidfd)
		slot_happens(slot, EVENT_EXITED, NULL);
}

static void on_socket_ready(struct loop_source *source, uint32_t events)
{
	(void)events;
	(void)worker_link_read(source->owner);
}

void slot_init(struct slot *slot, struct ward *ward, uint32_t number)
{
	uint32_t n_devices = ward->open.n_devices;

	*slot = (struct slot){.ward = ward,
			      .number = number,
			      .device = -1,
			      .state = SLOT_EMPTY,
			      .spawned = SPAWNED_NONE,
			      .socket = -1,
			      .state_socket = -1,
			      .channel_fd = -1,
			      .event_fd = -1};
	if (n_devices > 0)
		slot->device = ward->open.devices[number % n_devices];
	slot->socket_source =
		(struct loop_source){.fd = -1, .ready = on_socket_ready, .owner = slot};
	slot->exit_source = (struct loop_source){.fd = -1, .ready = on_exit_ready, .owner = slot};
	slot->timer = (struct loop_timer){.due = on_timer, .owner = slot};
	loop_add_timer(&ward->loop, &slot->timer);
	leaving_init(slot);
}

void slot_done(struct slot *slot)
{
	leaving_done(slot);
	slot_end_process(slot);
	fd_closep(&slot->channel_fd);
	fd_closep(&slot->event_fd);
	free(slot->outbox.up);
	free(slot->announced);
	slot->outbox.up = NULL;
	slot->announced = NULL;
}
