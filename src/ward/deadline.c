/* SPDX-License-Identifier: MIT */
#include "ward/deadline.h"

#include <stdatomic.h>

#include "common/fd.h"

/* How often to look at the least for tasks that wait behind another. One of them is noticed this late at
 * worst; the task that runs is not rounded. */
#define LOOK_MIN_NS 5000000ULL

/* What one look at a slot finds. */
struct view {
	uint32_t completed; /* the worker's word */
	uint32_t in_flight;
	uint64_t began_ns; /* the worker's word */
};

enum look {
	LOOK_GOOD,
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
	struct channel *channel = (struct channel *)(uintptr_t)slot->process->channel;
	struct pool_page_slot *page = &slot->ward->page->slots[slot->number];
	uint32_t submitted;

	*ret_view = (struct view){.completed = atomic_load(&channel->completed),
				  .began_ns = atomic_load(&channel->running_since_ns)};
	if (atomic_load(&page->incarnation) != slot->process->incarnation)
		return ret_view->completed == 0;
	submitted = atomic_load(&page->submitted);
	ret_view->in_flight = submitted - ret_view->completed;
	return ret_view->in_flight <= CHANNEL_DEPTH;
}

uint32_t deadline_completed(const struct slot *slot)
{
	struct view view;

	return slot->process->channel && read_view(slot, &view) ? view.completed : 0;
}

/*
 * The host takes in what was completed before this line, and nothing after it:
 *
 *	ward                              worker                    host
 *	reads completed = 5               completes entry 5
 *	fence = 5                                                   reads completed = 6, then fence = 5:
 *	                                                            takes in 5, and runs the next again
 *
 * A host that read `completed` before the fence was there took in what had been completed by then.
 */
void deadline_fence(const struct slot *slot)
{
	struct pool_page_slot *page = &slot->ward->page->slots[slot->number];
	struct channel *channel = (struct channel *)(uintptr_t)slot->process->channel;
	uint32_t completed = channel ? atomic_load(&channel->completed) : 0;

	atomic_store(&page->fence, ((uint64_t)slot->process->incarnation + 1) << 32 | completed);
}

static uint64_t allowed_ns(const struct slot *slot, uint32_t number)
{
	struct pool_page_slot *page = &slot->ward->page->slots[slot->number];

	return atomic_load(&page->deadline_ns[number % CHANNEL_DEPTH]);
}

/* When the entry at the head began, kept from the first look at which it was there. */
static uint64_t head_since(struct watch *watch, const struct view *view, uint64_t now)
{
	if (watch->running && watch->head == view->completed)
		return watch->since_ns;
	watch->running = true;
	watch->head = view->completed;
	/*
	 * It was not the head at the last look, and it is now. A time between the two is believed. Any
	 * other means that it has not begun (0), or is a lie; then now counts. The answer is kept: a
	 * worker that moves its hint all the time gains nothing.
	 */
	if (view->began_ns > 0 && view->began_ns >= watch->looked_ns && view->began_ns <= now)
		watch->since_ns = view->began_ns;
	else
		watch->since_ns = now;
	return watch->since_ns;
}

static void lower(uint64_t *next_ns, uint64_t from_ns, uint64_t allowed_ns)
{
	if (allowed_ns > 0 && allowed_ns < GW_FOREVER - from_ns && from_ns + allowed_ns < *next_ns)
		*next_ns = from_ns + allowed_ns;
}

/* Those that wait can begin at any time from now. */
static void look_at_waiting(const struct slot *slot, const struct view *view, uint64_t now,
			    uint64_t *next_ns)
{
	for (uint32_t i = 1; i < view->in_flight; i++) {
		uint64_t allowed = allowed_ns(slot, view->completed + i);

		if (allowed > 0)
			lower(next_ns, now, allowed > LOOK_MIN_NS ? allowed : LOOK_MIN_NS);
	}
}

/* Looks at one slot; lowers *NEXT_NS to when it has to be looked at again. */
static enum look look_at(struct slot *slot, uint64_t now, uint64_t *next_ns)
{
	struct watch *watch = &slot->process->watch;
	uint64_t allowed, due = GW_FOREVER;
	struct view view;

	if (!read_view(slot, &view))
		return LOOK_BROKEN;
	if (view.in_flight == 0) {
		watch->running = false;
		watch->looked_ns = now;
		return LOOK_GOOD;
	}
	allowed = allowed_ns(slot, view.completed);
	lower(&due, head_since(watch, &view, now), allowed);
	watch->looked_ns = now;
	/* The entry's place may have been used again since: then the deadline was another's. */
	if (due <= now && atomic_load(&slot->process->channel->completed) == view.completed)
		return LOOK_OVERDUE;
	lower(next_ns, watch->since_ns, allowed);
	look_at_waiting(slot, &view, now, next_ns);
	return LOOK_GOOD;
}

static bool is_watched(const struct slot *slot)
{
	return slot->process && slot->process->channel &&
	       (slot->state == SLOT_READY || slot->state == SLOT_STOPPING);
}

static void judge(struct slot *slot, uint64_t now, uint64_t *next_ns)
{
	static const struct cause late = {.end = GW_END_DEADLINE, .source = GW_SOURCE_DEADLINE};
	static const struct cause liar = {.end = GW_END_PROTOCOL,
					  .source = GW_SOURCE_PROTOCOL,
					  .what = "it completed more tasks than it was given"};

	switch (look_at(slot, now, next_ns)) {
	case LOOK_OVERDUE:
		slot_happens(slot, EVENT_TASK_DEADLINE, &late);
		break;
	case LOOK_BROKEN:
		slot_happens(slot, EVENT_PROTOCOL_ERROR, &liar);
		break;
	case LOOK_GOOD:
		break;
	}
}

/* Returns when to look again. */
static uint64_t look_at_all(struct ward *ward)
{
	uint64_t now = now_ns();
	uint64_t next_ns = GW_FOREVER;

	for (uint32_t i = 0; i < ward->n_slots; i++) {
		if (is_watched(&ward->slots[i]))
			judge(&ward->slots[i], now, &next_ns);
	}
	return next_ns;
}

/*
 * Looks, and says when it looks next. The host compares that with every task that it hands over:
 *
 *	ward                                  host
 *	looks: nothing is due before T
 *	                                      hands over a task that is due before T
 *	                                      reads next_look: still an early time, no kick
 *	next_look = T
 *	looks once more: finds it             (after this line it would have read T, and kicked)
 *
 * Each side writes first and reads then, so one of the two sees the other.
 */
static void look(struct ward *ward)
{
	uint64_t next_ns = look_at_all(ward);
	uint64_t again_ns;

	atomic_store(&ward->page->next_look_ns, next_ns);
	again_ns = look_at_all(ward);
	if (again_ns < next_ns) {
		next_ns = again_ns;
		atomic_store(&ward->page->next_look_ns, next_ns);
	}
	loop_set_timer(&ward->look_timer, next_ns);
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

void deadline_begin(struct ward *ward)
{
	atomic_store(&ward->page->next_look_ns, GW_FOREVER);
}

void deadline_kick(struct ward *ward)
{
	look(ward);
}
