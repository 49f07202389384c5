/* SPDX-License-Identifier: MIT */
#include "ward/leaving.h"

#include <sys/epoll.h>

#include "common/fd.h"
#include "ward/outbox.h"
#include "ward/ward.h"

static void tell(struct slot *slot)
{
	struct leaving *leaving = &slot->leaving;
	struct gw_exit exit;

	report_fill(&exit, &leaving->facts);
	leaving->told = true;
	outbox_left(slot, leaving->incarnation, &exit);
}

static void on_exit_ready(struct loop_source *source, uint32_t events)
{
	struct slot *slot = source->owner;
	struct leaving *leaving = &slot->leaving;
	bool told = leaving->told;

	(void)events;
	leaving->facts.reaped = procref_wait(&leaving->spawned.process, now_ns() + PROCREF_REAP_NS,
					     &leaving->facts.ended) == 1;
	leaving->facts.gone_ns = now_ns();
	loop_set_timer(&leaving->timer, GW_FOREVER);
	loop_remove(&slot->ward->loop, &leaving->exit_source);
	spawn_done(&leaving->spawned);
	if (!told)
		tell(slot);
	ward_check_end(slot->ward);
}

static void kill_it(struct leaving *leaving)
{
	leaving->killed = true;
	(void)procref_signal(&leaving->spawned.process, SIGKILL);
	loop_set_timer(&leaving->timer, now_ns() + SLOT_KILL_DEADLINE_NS);
}

/* First the grace has passed, then the time in which SIGKILL should have worked. */
static void on_timer(struct loop_timer *timer)
{
	struct slot *slot = timer->owner;
	struct leaving *leaving = &slot->leaving;

	if (!leaving->killed) {
		if (leaving->facts.cause.end == GW_END_UNKNOWN)
			leaving->facts.cause =
				(struct cause){.end = GW_END_PROTOCOL,
					       .source = GW_SOURCE_PROTOCOL,
					       .what = "it closed its socket and did not end"};
		kill_it(leaving);
		return;
	}
	leaving->facts.stuck = true;
	tell(slot);
	ward_check_end(slot->ward);
}

void leaving_init(struct slot *slot)
{
	struct leaving *leaving = &slot->leaving;

	leaving->spawned = SPAWNED_NONE;
	leaving->exit_source =
		(struct loop_source){.fd = -1, .ready = on_exit_ready, .owner = slot};
	leaving->timer = (struct loop_timer){.due = on_timer, .owner = slot};
	loop_add_timer(&slot->ward->loop, &leaving->timer);
}

void leaving_done(struct slot *slot)
{
	loop_remove(&slot->ward->loop, &slot->leaving.exit_source);
	spawn_done(&slot->leaving.spawned);
}

bool leaving_is_free(const struct slot *slot)
{
	return slot->leaving.spawned.process.pidfd < 0 && !slot->outbox.has_left &&
	       !slot->outbox.up && !slot->outbox.has_gone;
}

bool leaving_is_untold(const struct slot *slot)
{
	return slot->leaving.spawned.process.pidfd >= 0 && !slot->leaving.told;
}

void leaving_take(struct slot *slot, bool kill)
{
	struct leaving *leaving = &slot->leaving;

	leaving->incarnation = slot->incarnation;
	leaving->killed = false;
	leaving->told = false;
	leaving->facts = (struct report_facts){.slot = slot->number,
					       .pid = slot->spawned.process.pid,
					       .device = slot->device,
					       .was_ready = slot->ready_ns > 0,
					       .cause = slot->cause,
					       .started_ns = slot->spawned.process.started_ns,
					       .noticed_ns = slot->noticed_ns,
					       .gone_ns = GW_UNKNOWN};
	loop_move(&slot->ward->loop, &slot->exit_source, &leaving->exit_source, EPOLLIN);
	leaving->spawned = slot->spawned;
	slot->spawned = SPAWNED_NONE;
	slot_end_process(slot);
	fd_closep(&slot->channel_fd);
	fd_closep(&slot->event_fd);
	if (kill)
		kill_it(leaving);
	else
		loop_set_timer(&leaving->timer, now_ns() + SLOT_GRACE_NS);
}
