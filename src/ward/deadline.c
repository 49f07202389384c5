/* SPDX-License-Identifier: MIT */
#include "ward/deadline.h"

#include <stdatomic.h>

#include "common/fd.h"

/* The longest time between two looks, while deadlines are under way: a deadline that the ward has not
 * seen yet is noticed this late at worst. */
#define LOOK_NS 20000000ULL

/* What one look at a slot finds. */
struct view {
	uint32_t completed; /* the worker's word */
	uint32_t in_flight;
	uint64_t began_ns; /* the worker's word */
};

enum look {
	LOOK_NOTHING, /* no task with a deadline is under way */
	LOOK_ARMED,
	LOOK_OVERDUE,
	LOOK_BROKEN, /* the worker says what cannot be */
};

/*
 * Reads both counters. The worker's comes first:
 *
 *	submitted, then completed             completed, then submitted
 *	ward reads submitted = 5
 *	host hands over entry 5
 *	worker completes it                   whatever is completed at the first read was
 *	ward reads completed = 6:             submitted before, so the second read
 *	an honest worker looks broken         cannot be smaller
 *
 * The page speaks of this incarnation only after the host has seen it: before, nothing is in flight.
 */
static bool read_view(const struct slot *slot, struct view *ret_view)
{
	struct channel *channel = (struct channel *)(uintptr_t)slot->channel;
	struct pool_page_slot *page = &slot->ward->page->slots[slot->number];
	uint32_t submitted;

	*ret_view = (struct view){.completed = atomic_load(&channel->completed),
				  .began_ns = atomic_load(&channel->running_since_ns)};
	if (atomic_load(&page->incarnation) != slot->incarnation)
		return ret_view->completed == 0;
	submitted = atomic_load(&page->submitted);
	ret_view->in_flight = submitted - ret_view->completed;
	return ret_view->in_flight <= CHANNEL_DEPTH;
}

uint32_t deadline_completed(const struct slot *slot)
{
	struct view view;

	return slot->channel && read_view(slot, &view) ? view.completed : 0;
}

static uint64_t allowed_ns(const struct slot *slot, uint32_t number)
{
	struct pool_page_slot *page = &slot->ward->page->slots[slot->number];

	return atomic_load(&page->deadline_ns[number % CHANNEL_DEPTH]);
}

/* When the entry at the head began, kept from the first look at which it was there. */
static uint64_t head_since(struct slot_watch *watch, const struct view *view, uint64_t now)
{
	if (watch->running && watch->head == view->completed)
		return watch->since_ns;
	watch->running = true;
	watch->head = view->completed;
	/*
	 * It was not the head at the last look, and it is now. A time between the two is believed. Any
	 * other is left over from the entry before, or a lie; then now counts. The answer is kept:
	 * a worker that moves its hint all the time gains nothing.
	 */
	if (view->began_ns >= watch->looked_ns && view->began_ns <= now)
		watch->since_ns = view->began_ns;
	else
		watch->since_ns = now;
	return watch->since_ns;
}

static bool has_any_deadline(const struct slot *slot, const struct view *view)
{
	for (uint32_t i = 0; i < view->in_flight; i++) {
		if (allowed_ns(slot, view->completed + i) > 0)
			return true;
	}
	return false;
}

/* Looks at one slot; lowers *NEXT_NS to when its head is due. */
static enum look look_at(struct slot *slot, uint64_t now, uint64_t *next_ns)
{
	struct slot_watch *watch = &slot->watch;
	uint64_t allowed, due;
	struct view view;

	if (!read_view(slot, &view))
		return LOOK_BROKEN;
	if (view.in_flight == 0) {
		watch->running = false;
		watch->looked_ns = now;
		return LOOK_NOTHING;
	}
	allowed = allowed_ns(slot, view.completed);
	due = head_since(watch, &view, now) + allowed;
	watch->looked_ns = now;
	if (allowed == 0 || due < allowed)
		return has_any_deadline(slot, &view) ? LOOK_ARMED : LOOK_NOTHING;
	/* The entry's place may have been used again since: then the deadline was another's. */
	if (due <= now && atomic_load(&slot->channel->completed) == view.completed)
		return LOOK_OVERDUE;
	if (due < *next_ns)
		*next_ns = due;
	return LOOK_ARMED;
}

static bool is_watched(const struct slot *slot)
{
	return slot->channel && (slot->state == SLOT_READY || slot->state == SLOT_STOPPING);
}

/* Returns whether a task with a deadline is under way in the slot. */
static bool judge(struct slot *slot, uint64_t now, uint64_t *next_ns)
{
	static const struct cause late = {.end = GW_END_DEADLINE, .source = GW_SOURCE_DEADLINE};
	static const struct cause liar = {.end = GW_END_PROTOCOL,
					  .source = GW_SOURCE_PROTOCOL,
					  .what = "it completed more tasks than it was given"};

	switch (look_at(slot, now, next_ns)) {
	case LOOK_ARMED:
		return true;
	case LOOK_OVERDUE:
		slot_happens(slot, EVENT_TASK_DEADLINE, &late);
		return false;
	case LOOK_BROKEN:
		slot_happens(slot, EVENT_PROTOCOL_ERROR, &liar);
		return false;
	case LOOK_NOTHING:
		break;
	}
	return false;
}

static bool look_at_all(struct ward *ward)
{
	uint64_t now = now_ns();
	uint64_t next_ns = now + LOOK_NS;
	bool armed = false;

	for (uint32_t i = 0; i < ward->n_slots; i++) {
		if (is_watched(&ward->slots[i]) && judge(&ward->slots[i], now, &next_ns))
			armed = true;
	}
	loop_set_timer(&ward->look_timer, armed ? next_ns : GW_FOREVER);
	return armed;
}

/*
 * Looks, and goes to rest when there is nothing to look for:
 *
 *	ward                                  host
 *	finds nothing under way
 *	                                      hands a task over
 *	                                      armed is still 1: no kick
 *	armed = 0
 *	looks once more: finds it             (armed 0 -> 1 would have been a kick)
 *
 * Each side writes first and looks then, so one of the two sees the other.
 */
static void look(struct ward *ward)
{
	if (look_at_all(ward))
		return;
	atomic_store(&ward->page->deadlines_armed, 0);
	if (look_at_all(ward))
		atomic_store(&ward->page->deadlines_armed, 1);
}

static void on_timer(struct loop_timer *timer)
{
	look(timer->owner);
}

void deadline_init(struct ward *ward)
{
	ward->look_timer = (struct loop_timer){.due = on_timer, .owner = ward};
	loop_add_timer(&ward->loop, &ward->look_timer);
}

void deadline_kick(struct ward *ward)
{
	uint64_t now = now_ns();

	/* While the ward rested it did not look: what a worker says of that time is not believed. */
	if (ward->look_timer.due_ns == GW_FOREVER) {
		for (uint32_t i = 0; i < ward->n_slots; i++) {
			ward->slots[i].watch.looked_ns = now;
			ward->slots[i].watch.running = false;
		}
	}
	look(ward);
}
