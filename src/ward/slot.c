/* SPDX-License-Identifier: MIT */
#include "ward/slot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/fd.h"
#include "ward/deadline.h"
#include "ward/leaving.h"
#include "ward/outbox.h"
#include "ward/recovery.h"
#include "ward/standby.h"
#include "ward/turn.h"
#include "ward/ward.h"
#include "ward/worker_link.h"

/* What the actions get. */
struct happening {
	enum slot_state next;	   /* by the table */
	const struct cause *cause; /* or NULL */
};

static void note(struct slot *slot, const struct happening *what)
{
	process_note(slot->process, what->cause ? what->cause->source : GW_SOURCE_UNKNOWN,
		     what->cause);
}

static struct tally_limits limits_of(const struct ward *ward)
{
	return (struct tally_limits){.restart_min_ns = ward->open.restart_min_ns,
				     .restart_max_ns = ward->open.restart_max_ns,
				     .max_start_failures = ward->open.max_start_failures,
				     .max_quick_deaths = ward->open.max_quick_deaths};
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

/* The last words about a slot: what failed, and how often. */
static void say_failed(struct slot *slot)
{
	struct gw_error *error = &slot->failure;
	const struct tally *tally = &slot->tally;
	size_t used;

	if (tally->quick_deaths > 0 && tally->failed_starts == 0)
		(void)err_own(error, GW_EPOOLFAILED,
			      "worker %u died %u time%s in a row without completing a task, and is "
			      "not started again",
			      slot->number, tally->quick_deaths,
			      tally->quick_deaths == 1 ? "" : "s");
	used = strlen(error->msg);
	if (tally->failed_starts > 1)
		(void)snprintf(error->msg + used, sizeof(error->msg) - used,
			       " (%u starts in a row failed)", tally->failed_starts);
	outbox_failed(slot, error);
}

/* Whether the next process may start: not before the host knows of the end of the last one, and not where
 * the driver seems to hang. */
static bool can_start(const struct slot *slot)
{
	return !slot->outbox.has_gone && slot->n_leaving < SLOT_LEAVING_MAX;
}

static enum slot_state start_now(struct slot *slot);

/* Where a slot goes that has no process any more, and is still wanted. */
static enum slot_state go_on(struct slot *slot, const struct tally_run *run)
{
	const struct tally_limits limits = limits_of(slot->ward);
	struct tally_verdict verdict = tally_count(&slot->tally, &limits, run);

	loop_set_timer(&slot->timer, GW_FOREVER);
	if (slot->ward->closing)
		return SLOT_EMPTY;
	if (verdict.give_up) {
		say_failed(slot);
		return SLOT_FAILED;
	}
	slot->next_start_ns = after_ns(verdict.pause_ns);
	if (verdict.pause_ns == 0 && can_start(slot))
		return start_now(slot);
	/* Otherwise slot_gone_was_sent() or slot_left() does it. */
	if (can_start(slot))
		loop_set_timer(&slot->timer, slot->next_start_ns);
	return SLOT_BACKOFF;
}

static void start_deadline(struct slot *slot)
{
	loop_set_timer(&slot->timer, after_ns(slot->ward->open.start_deadline_ns));
}

/* The process is ready: the host hears of it if this is a worker's slot. */
static void announce(struct slot *slot)
{
	struct process *process = slot->process;

	loop_set_timer(&slot->timer, GW_FOREVER);
	slot->no_room = false;
	process->ready_ns = now_ns();
	if (slot->is_standby)
		return;
	/* First the worker, then the host: both wake up at the same time. */
	if (process->standby) {
		process->promoted_ns = now_ns();
		worker_link_send(process, WIRE_PROMOTE);
	}
	recovery_ready(slot);
	outbox_up(slot);
}

/* A standby's process goes on here from where it is. */
static enum slot_state adopt(struct slot *slot, enum slot_state state)
{
	slot->process->incarnation = slot->n_started++;
	recovery_successor(slot, state);
	if (state == SLOT_READY)
		announce(slot);
	else if (state == SLOT_PRIMED)
		loop_set_timer(&slot->timer, GW_FOREVER);
	else
		start_deadline(slot);
	return state;
}

static enum slot_state start_now(struct slot *slot)
{
	enum slot_state taken = slot->is_standby ? SLOT_EMPTY : standby_take(slot);
	struct tally_run run = {0};

	slot->no_room = false;
	if (taken != SLOT_EMPTY)
		return adopt(slot, taken);
	if (slot->is_standby && !standby_may_start(slot))
		return SLOT_EMPTY;
	if (process_start(slot, &slot->process, &slot->failure) == 0) {
		slot->n_started++;
		recovery_successor(slot, SLOT_STARTING);
		start_deadline(slot);
		return SLOT_STARTING;
	}
	run.hopeless = is_hopeless(&slot->failure);
	return go_on(slot, &run);
}

static enum slot_state do_ignore(struct slot *slot, const struct happening *what)
{
	(void)what;
	return slot->state;
}

static enum slot_state do_start(struct slot *slot, const struct happening *what)
{
	(void)what;
	return start_now(slot);
}

/* Its turn, which turn.c gives, can take as long as others need. */
static enum slot_state do_queue(struct slot *slot, const struct happening *what)
{
	slot->process->primed_ns = now_ns();
	loop_set_timer(&slot->timer, slot->no_room ? now_ns() + TURN_AGAIN_NS : GW_FOREVER);
	return what->next;
}

static enum slot_state do_warm(struct slot *slot, const struct happening *what)
{
	slot->process->primed_ns = 0;
	worker_link_send(slot->process, WIRE_WARM);
	start_deadline(slot);
	return what->next;
}

uint64_t slot_kill_deadline(const struct ward *ward)
{
	uint64_t pinned_bytes =
		ward->open.flags & GW_POOL_PINNED ? ward->input_bytes + ward->open.output_bytes : 0;

	return now_ns() + SLOT_KILL_DEADLINE_NS +
	       (pinned_bytes >> 30) * SLOT_KILL_PINNED_NS_PER_GIB;
}

/* The cause is in the event; a cause that was known before stands. */
static enum slot_state do_kill(struct slot *slot, const struct happening *what)
{
	note(slot, what);
	/* It may have ended by itself just now: then there is nobody to get it, and EXITED follows. */
	(void)procref_signal(&slot->process->spawned.process, SIGKILL);
	loop_set_timer(&slot->timer, slot_kill_deadline(slot->ward));
	return what->next;
}

static enum slot_state do_announce(struct slot *slot, const struct happening *what)
{
	announce(slot);
	return what->next;
}

static enum slot_state do_ask(struct slot *slot, const struct happening *what)
{
	note(slot, what);
	worker_link_send(slot->process, WIRE_STOP);
	loop_set_timer(&slot->timer, after_ns(slot->ward->open.stop_deadline_ns));
	return what->next;
}

static enum slot_state do_grace(struct slot *slot, const struct happening *what)
{
	note(slot, what);
	loop_set_timer(&slot->timer, now_ns() + SLOT_GRACE_NS);
	return what->next;
}

/* Since when a process is as far as it is to come; 0: it is not. A standby that is primed may have to stay so
 * for months, and has not failed to start when something kills it then. */
static uint64_t good_since(const struct slot *slot)
{
	const struct process *process = slot->process;

	return slot->is_standby && process->primed_ns > 0 ? process->primed_ns : process->ready_ns;
}

/* How the process did that is at its end. A worker that the host could not use counts as one that never got
 * ready; what the host knows of its trusted counter bounds what it says of its work. */
static struct tally_run run_of(const struct slot *slot)
{
	const struct process *process = slot->process;
	uint64_t since_ns = good_since(slot);
	bool ready = since_ns > 0 && process->cause.end != GW_END_START;

	return (struct tally_run){.ready = ready,
				  .worked = ready && !slot->is_standby &&
					    deadline_completed(slot) > 0,
				  .blameless = process->cause.end == GW_END_STOPPED,
				  .ready_ns = ready ? now_ns() - since_ns : 0};
}

/* From here on nothing of it counts. */
static void fence(struct slot *slot)
{
	if (slot->process->ready_ns > 0 && !slot->is_standby)
		deadline_fence(slot);
	slot->outbox.has_up = false;
	process_fence(slot->process);
}

static enum slot_state do_replace(struct slot *slot, const struct happening *what)
{
	struct process *process = slot->process;
	enum slot_state next;
	struct tally_run run;
	struct gw_exit exit;

	note(slot, what);
	run = run_of(slot);
	if (!run.ready)
		slot->failure = process->start_error;
	fence(slot);
	slot->process = NULL;
	process_tell(process, &exit);
	recovery_begin(slot, process, &exit);
	leaving_take(process);
	outbox_gone(slot, process, &exit);
	next = go_on(slot, &run);
	/* A signal to many threads takes longer than a promotion, and nothing waits for this one. */
	leaving_kill(process);
	return next;
}

static enum slot_state do_follow(struct slot *slot, const struct happening *what)
{
	const struct happening grace = {.next = SLOT_STOPPING, .cause = what->cause};
	struct procref_end end;

	process_note(slot->process, GW_SOURCE_DEATH, NULL);
	/* Its memory and its descriptors go one after the other; how it ended is known before they do. */
	if (procref_peek(&slot->process->spawned.process, &end) != 1)
		return do_grace(slot, &grace);
	slot->process->died = true;
	slot->process->end = end;
	return do_replace(slot, what);
}

/* A worker's slot has the process now. One that was as far as it was to come has served its purpose: those that
 * died before it count no more. */
static enum slot_state do_give(struct slot *slot, const struct happening *what)
{
	if (good_since(slot) > 0)
		slot->tally = (struct tally){0};
	slot->process = NULL;
	slot->no_room = false;
	loop_set_timer(&slot->timer, GW_FOREVER);
	return what->next;
}

/* Why the start failed, in the best words that there are: the worker's, the exec's, the report's. */
static void explain_failed_start(struct slot *slot, const struct gw_exit *exit)
{
	struct process *process = slot->process;
	struct gw_error error;

	if (process->start_error.code != 0)
		slot->failure = process->start_error;
	else if (spawn_failure(&process->spawned, slot->ward->program, &error) < 0)
		slot->failure = error;
	else
		(void)err_own(&slot->failure,
			      exit->source == GW_SOURCE_DEADLINE ? -ETIMEDOUT : GW_EPOOLFAILED,
			      "%s", exit->text);
}

static enum slot_state do_settle(struct slot *slot, const struct happening *what)
{
	struct process *process = slot->process;
	struct tally_run run = run_of(slot);
	struct gw_exit exit;

	(void)what;
	fence(slot);
	process_end(process, &exit);
	recovery_begin(slot, process, &exit);
	recovery_gone(process, &exit);
	if (!run.ready)
		explain_failed_start(slot, &exit);
	run.blameless = exit.end == GW_END_STOPPED;
	run.hopeless = !run.ready && is_hopeless(&slot->failure);
	signs_gone(process);
	outbox_gone(slot, process, &exit);
	slot->process = NULL;
	leaving_bury(process);
	return go_on(slot, &run);
}

static enum slot_state do_give_up(struct slot *slot, const struct happening *what)
{
	const struct process *process = slot->process ? slot->process : leaving_of(slot);
	int32_t pid = process ? process->spawned.process.pid : -1;
	struct gw_error error;

	loop_set_timer(&slot->timer, GW_FOREVER);
	(void)err_own(
		&error, GW_EPOOLFAILED,
		"worker %u (pid %d) does not end after SIGKILL: it is blocked in the driver or "
		"another part of the kernel; see /proc/%d/stack",
		slot->number, pid, pid);
	outbox_failed(slot, &error);
	return what->next;
}

static enum slot_state do_bury(struct slot *slot, const struct happening *what)
{
	struct process *process = slot->process;
	struct gw_exit exit;

	process_end(process, &exit);
	outbox_gone(slot, process, &exit);
	slot->process = NULL;
	leaving_bury(process);
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
		[ACTION_QUEUE] = do_queue,	 [ACTION_WARM] = do_warm,
		[ACTION_ANNOUNCE] = do_announce, [ACTION_ASK] = do_ask,
		[ACTION_GRACE] = do_grace,	 [ACTION_KILL] = do_kill,
		[ACTION_REPLACE] = do_replace,	 [ACTION_FOLLOW] = do_follow,
		[ACTION_GIVE] = do_give,	 [ACTION_SETTLE] = do_settle,
		[ACTION_GIVE_UP] = do_give_up,	 [ACTION_BURY] = do_bury,
		[ACTION_REST] = do_rest,
	};
	struct slot_step step = slot_table_step(slot->state, event);
	const struct happening what = {.next = step.next, .cause = cause};

	slot->ward->depth++;
	slot->state = actions[step.action](slot, &what);
	slot->ward->depth--;
	ward_settle(slot->ward);
}

static void wake_from_backoff(struct slot *slot)
{
	if (slot->state == SLOT_BACKOFF && can_start(slot))
		loop_set_timer(&slot->timer, slot->next_start_ns);
}

void slot_gone_was_sent(struct slot *slot)
{
	wake_from_backoff(slot);
}

void slot_left(struct slot *slot)
{
	slot->n_leaving--;
	wake_from_backoff(slot);
}

void slot_is_stuck(struct slot *slot)
{
	if (slot->n_leaving >= SLOT_LEAVING_MAX)
		slot_happens(slot, EVENT_KILL_DEADLINE, NULL);
}

bool slot_is_starting(const struct slot *slot)
{
	return slot->state == SLOT_STARTING || slot->state == SLOT_PRIMED ||
	       slot->state == SLOT_WARMING;
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

	if (slot->state == SLOT_PRIMED)
		turn_try_again(slot);
	else if (slot_is_starting(slot))
		slot_happens(slot, EVENT_START_DEADLINE, &too_late);
	else if (slot->state == SLOT_STOPPING)
		slot_happens(slot, EVENT_STOP_DEADLINE, &let_go);
	else if (slot->state == SLOT_KILLING)
		slot_happens(slot, EVENT_KILL_DEADLINE, NULL);
	else if (slot->state == SLOT_BACKOFF)
		slot_happens(slot, EVENT_BACKOFF_TIMER, NULL);
}

void slot_init(struct slot *slot, struct ward *ward, uint32_t number, bool is_standby)
{
	uint32_t n_devices = ward->open.n_devices;

	*slot = (struct slot){.ward = ward,
			      .number = number,
			      .device = -1,
			      .is_standby = is_standby,
			      .state = SLOT_EMPTY,
			      .recovery = GW_UNKNOWN};
	if (n_devices > 0)
		slot->device = ward->open.devices[number % n_devices];
	slot->timer = (struct loop_timer){.due = on_timer, .owner = slot};
	loop_add_timer(&ward->loop, &slot->timer);
}

void slot_done(struct slot *slot)
{
	if (slot->process)
		process_free(slot->process);
	slot->process = NULL;
}
