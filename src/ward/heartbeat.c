/* SPDX-License-Identifier: MIT */
#include "ward/heartbeat.h"

#include "common/fd.h"
#include "ward/worker_link.h"

/* An answer is looked for this much sooner than it is due, so that silence is noticed after five quarters of
 * the time at most. */
#define LOOKS 4U

/* From its first message on a process has a thread that does nothing but answer, even while another one is in
 * the driver. A primed standby has no other deadline: stopped, it would be found when it is needed. */
static bool answers(const struct slot *slot)
{
	return slot->state == SLOT_PRIMED || slot->state == SLOT_WARMING ||
	       slot->state == SLOT_READY;
}

static void ask(struct slot *slot, uint64_t now)
{
	static const struct cause silent = {.end = GW_END_DEADLINE,
					    .source = GW_SOURCE_HEARTBEAT,
					    .what = "it did not answer the ward"};
	struct process *process = slot->process;

	if (!answers(slot))
		return;
	if (process->pinged_ns == 0) {
		if (worker_link_try(process, WIRE_PING))
			process->pinged_ns = now;
	} else if (now - process->pinged_ns >= slot->ward->open.heartbeat_ns) {
		slot_happens(slot, EVENT_FAULT, &silent);
	}
}

/*
 * The ward itself may have been stopped, or late: then the answers lie in the sockets, and a look at the clock
 * alone would kill every worker.
 *
 *	ward asks, is stopped for a second      the workers answer at once
 *	ward runs again: the timer is due,      so what lies in the sockets is taken
 *	and "no answer for a second"            before anybody is judged
 *
 * And with the ward all of the pool may have been stopped (a container is paused, a debugger holds it): those who
 * owe an answer could not give it. So the time by which the ward is late does not count; it is late on a busy
 * machine too, by little.
 */
static void look_at(struct slot *slot, uint64_t now, uint64_t late_ns)
{
	if (slot->process && slot->process->pinged_ns > 0)
		worker_link_drain(slot->process);
	if (slot->process && slot->process->pinged_ns > 0)
		slot->process->pinged_ns += late_ns;
	if (slot->process)
		ask(slot, now);
}

static void look_later(struct ward *ward)
{
	ward->heartbeat_due_ns = after_ns(ward->open.heartbeat_ns / LOOKS);
	loop_set_timer(&ward->heartbeat_timer, ward->heartbeat_due_ns);
}

static void on_timer(struct loop_timer *timer)
{
	struct ward *ward = timer->owner;
	uint64_t now = now_ns();
	uint64_t late_ns = now - ward->heartbeat_due_ns;

	for (uint32_t i = 0; i < ward->n_slots; i++)
		look_at(&ward->slots[i], now, late_ns);
	for (uint32_t i = 0; i < ward->n_standbys; i++)
		look_at(&ward->standbys[i], now, late_ns);
	if (!ward->closing)
		look_later(ward);
}

void heartbeat_init(struct ward *ward)
{
	ward->heartbeat_timer = (struct loop_timer){.due = on_timer, .owner = ward};
	loop_add_timer(&ward->loop, &ward->heartbeat_timer);
}

void heartbeat_begin(struct ward *ward)
{
	if (ward->open.heartbeat_ns > 0)
		look_later(ward);
}
