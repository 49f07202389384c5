/* SPDX-License-Identifier: MIT */
#include "ward/leaving.h"

#include <stdio.h>
#include <unistd.h>

#include "common/fd.h"
#include "ward/recovery.h"
#include "ward/slot.h"
#include "ward/turn.h"
#include "ward/ward.h"
#include "ward/worker_link.h"

/* How long, and how often, to try to reap a process that somebody traces. */
#define REAP_NS	      10000000000ULL
#define REAP_AGAIN_NS 20000000ULL

static void unlink_process(struct process *process)
{
	struct process **place = &process->ward->leaving;

	while (*place != process)
		place = &(*place)->next;
	*place = process->next;
}

static void finish(struct process *process)
{
	struct ward *ward = process->ward;
	struct slot *slot = process->slot;

	unlink_process(process);
	process_free(process);
	slot_left(slot);
	turn_device_changed(ward);
	ward_check_end(ward);
}

static void on_reap_timer(struct loop_timer *timer)
{
	struct process *process = timer->owner;
	struct procref_end end;

	if (procref_reap(&process->spawned.process, &end) != 0 ||
	    now_ns() >= process->reap_until_ns)
		finish(process);
	else
		loop_set_timer(timer, now_ns() + REAP_AGAIN_NS);
}

/* Its pidfd is readable for good, and the tracer's letting go is no event. */
static void reap_later(struct process *process)
{
	loop_remove(&process->ward->loop, &process->exit_source);
	process->reap_until_ns = now_ns() + REAP_NS;
	process->timer.due = on_reap_timer;
	loop_set_timer(&process->timer, now_ns() + REAP_AGAIN_NS);
}

static void on_exit_ready(struct loop_source *source, uint32_t events)
{
	struct process *process = source->owner;
	struct gw_exit exit;

	(void)events;
	worker_link_drain(process);
	process_end(process, &exit);
	recovery_gone(process, &exit);
	signs_gone(process);
	if (process->reaped)
		finish(process);
	else
		reap_later(process);
}

/* SIGKILL should have worked by now. */
static void on_timer(struct loop_timer *timer)
{
	struct process *process = timer->owner;

	process->stuck = true;
	recovery_stuck(process);
	slot_is_stuck(process->slot);
	ward_check_end(process->ward);
}

void leaving_take(struct process *process)
{
	process->is_leaving = true;
	process->slot->n_leaving++;
	process->exit_source.ready = on_exit_ready;
	process->timer = (struct loop_timer){.due = on_timer, .owner = process};
	loop_add_timer(&process->ward->loop, &process->timer);
	process->next = process->ward->leaving;
	process->ward->leaving = process;
}

void leaving_kill(struct process *process)
{
	/* It may have ended by itself just now: then there is nobody to get it. */
	(void)procref_signal(&process->spawned.process, SIGKILL);
	loop_set_timer(&process->timer, slot_kill_deadline(process->ward));
}

void leaving_bury(struct process *process)
{
	if (process->reaped) {
		process_free(process);
		return;
	}
	leaving_take(process);
	reap_later(process);
}

bool leaving_is_over(const struct ward *ward)
{
	for (const struct process *process = ward->leaving; process; process = process->next) {
		if (!process->stuck)
			return false;
	}
	return true;
}

struct process *leaving_of(const struct slot *slot)
{
	struct process *process = slot->ward->leaving;

	while (process && process->slot != slot)
		process = process->next;
	return process;
}

struct process *leaving_find(const struct ward *ward, int32_t pid)
{
	struct process *process = ward->leaving;

	while (process && process->spawned.process.pid != pid)
		process = process->next;
	return process;
}

void leaving_done(struct ward *ward)
{
	while (ward->leaving) {
		struct process *process = ward->leaving;

		ward->leaving = process->next;
		process_free(process);
	}
}
