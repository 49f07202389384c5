/* SPDX-License-Identifier: MIT */
/*
 * Hands pending tasks to workers that have room, the least loaded first, and takes tasks back from
 * long queues for workers that have nothing to do.
 *
 * Runs in: host, under the pool's lock. A task that was handed over can be withdrawn until its worker
 * claims it: one compare-and-exchange decides. Read next: collect.c.
 */
#include "lib/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "common/fd.h"

static uint32_t pending_number(const struct gw_task *task)
{
	return task->device == GW_ANY_DEVICE ? task->pool->n_pending_lists - 1 : task->device_index;
}

static struct list *pending_list(struct gw_task *task)
{
	return &task->pool->pending[pending_number(task)];
}

const struct slot *dispatch_hopeless(const struct gw_pool *pool, uint32_t number)
{
	bool any_device = number == pool->n_pending_lists - 1;
	const struct slot *last = NULL;

	for (uint32_t i = 0; i < pool->n_slots; i++) {
		const struct slot *slot = &pool->slots[i];

		if (!any_device && slot->device != pool->devices[number])
			continue;
		if (!slot->failed)
			return NULL;
		last = slot;
	}
	return last;
}

int dispatch_check(const struct gw_task *task, struct gw_error *ret_error)
{
	const struct slot *slot = dispatch_hopeless(task->pool, pending_number(task));

	if (!slot)
		return 0;
	if (ret_error)
		*ret_error = slot->failure;
	return GW_EPOOLFAILED;
}

void dispatch_enqueue(struct gw_task *task)
{
	task->state = TASK_PENDING;
	list_push_back(pending_list(task), &task->queue);
}

void dispatch_enqueue_front(struct gw_task *task)
{
	task->state = TASK_PENDING;
	list_push_front(pending_list(task), &task->queue);
}

static bool slot_fits(const struct slot *slot, const struct gw_task *task)
{
	return task->device == GW_ANY_DEVICE || task->device == slot->device;
}

static bool slot_serves(const struct slot *slot, const struct gw_task *task)
{
	return slot->link && !slot->distrusted && slot_fits(slot, task) &&
	       slot->link->function_of_name[task->name] >= 0;
}

/* True when every worker that could run the task is there, and none offers its function. */
static bool nobody_offers(const struct gw_pool *pool, const struct gw_task *task)
{
	for (uint32_t i = 0; i < pool->n_slots; i++) {
		const struct slot *slot = &pool->slots[i];

		if (slot->failed || !slot_fits(slot, task))
			continue;
		if (!slot->link || slot->distrusted || slot_serves(slot, task))
			return false;
	}
	return true;
}

static bool slot_has_room(const struct gw_pool *pool, const struct slot *slot)
{
	return slot->submitted - slot->taken < pool->options.queue_depth;
}

static struct slot *least_loaded(struct gw_pool *pool, const struct gw_task *task)
{
	struct slot *best = NULL;

	for (uint32_t i = 0; i < pool->n_slots; i++) {
		struct slot *slot = &pool->slots[i];

		if (!slot_serves(slot, task) || !slot_has_room(pool, slot))
			continue;
		if (!best || slot->in_flight < best->in_flight)
			best = slot;
		if (best->in_flight == 0)
			break;
	}
	return best;
}

/* Room for the output in the channel of the worker that will write it. */
static int take_output_room(struct gw_task *task, struct link *link)
{
	int result;

	if (task->output_capacity_bytes == 0)
		return 0;
	result = arena_alloc(&link->outputs, task->output_capacity_bytes, &task->output_offset);
	if (result < 0)
		return result;
	task->link = link;
	link->references++;
	return 0;
}

/*
 * Tells the ward about a deadline, if it would look too late by itself.
 *
 *	host                              ward
 *	stores the entry's deadline       computes its next look
 *	                                  stores next_look
 *	due before next_look: kick        looks once more, goes to sleep
 *
 * Each side writes first and reads then, so one of the two sees the other.
 */
static void arm_deadline(struct gw_pool *pool, uint64_t deadline_ns)
{
	uint64_t now = now_ns();

	if (deadline_ns < GW_FOREVER - now && pool_page_lower_look(pool->page, now + deadline_ns))
		orders_kick(pool);
}

static void publish(struct gw_pool *pool, struct slot *slot, struct gw_task *task, int function)
{
	struct pool_page_slot *watched = &pool->page->slots[slot - pool->slots];
	uint32_t number = slot->submitted;
	struct channel_entry entry = {
		.function = (uint32_t)function,
		.task = task->number,
		.input_offset = task->input_offset,
		.input_bytes = task->input_bytes,
		.output_offset = task->output_offset,
		.output_capacity_bytes = task->output_capacity_bytes,
		.attempt = task->outcome.attempts,
	};

	slot->tasks[number % CHANNEL_DEPTH] = task;
	slot->submitted++;
	slot->in_flight++;
	/* The ward must never see a worker complete more than the host has submitted: first the page. */
	atomic_store_explicit(&watched->deadline_ns[number % CHANNEL_DEPTH], task->deadline_ns,
			      memory_order_relaxed);
	atomic_store(&watched->submitted, slot->submitted);
	channel_push(slot->link->map.shared, number, &entry);
	if (pool->leader && !slot->watched)
		wait_kick_leader(pool);
	if (task->deadline_ns > 0)
		arm_deadline(pool, task->deadline_ns);
}

/* What stays in the queue needs another push: nothing may be under way that brings one. */
static void note_shortage(struct gw_pool *pool, int result)
{
	if (result == -ENOSPC) {
		pool->crowded = true;
		return;
	}
	pool->starved = true;
	if (pool->polled)
		wait_look_again(pool);
}

static void lose_task(struct gw_task *task)
{
	list_remove(&task->queue);
	(void)snprintf(task->outcome.message, sizeof(task->outcome.message),
		       "no worker offers this function any more");
	task_end(task, GW_LOST);
}

/* Gives the task to a worker that serves it. Returns 0; -ENOSPC when the worker's output room is full,
 * -ENOMEM. */
static int hand_over(struct gw_pool *pool, struct slot *slot, struct gw_task *task)
{
	int function = slot->link->function_of_name[task->name];
	int result = take_output_room(task, slot->link);

	if (result < 0) {
		note_shortage(pool, result);
		return result;
	}
	list_remove(&task->queue);
	task->state = TASK_IN_FLIGHT;
	task->slot = (uint32_t)(slot - pool->slots);
	task->entry = slot->submitted;
	publish(pool, slot, task, function);
	return 0;
}

static void dispatch_list(struct gw_pool *pool, struct list *list)
{
	struct list_node *node;

	while ((node = list_first(list))) {
		struct gw_task *task = list_item(node, struct gw_task, queue);
		struct slot *slot = least_loaded(pool, task);

		if (!slot && nobody_offers(pool, task))
			lose_task(task);
		else if (!slot || hand_over(pool, slot, task) < 0)
			return;
	}
}

bool dispatch_withdraw(struct gw_task *task)
{
	struct gw_pool *pool = task->pool;
	struct slot *slot = &pool->slots[task->slot];

	if (!slot->link || !channel_withdraw(slot->link->map.shared, task->entry))
		return false;
	slot->tasks[task->entry % CHANNEL_DEPTH] = NULL;
	slot->in_flight--;
	task_release_output(task);
	return true;
}

/* The youngest task in VICTIM's queue that SLOT may run instead, taken back. */
static struct gw_task *take_back(struct slot *victim, const struct slot *slot)
{
	for (uint32_t n = victim->submitted; n != victim->taken; n--) {
		struct gw_task *task = victim->tasks[(n - 1) % CHANNEL_DEPTH];

		if (task && slot_serves(slot, task) && dispatch_withdraw(task))
			return task;
	}
	return NULL;
}

static struct slot *longest_queue(struct gw_pool *pool)
{
	struct slot *longest = NULL;

	for (uint32_t i = 0; i < pool->n_slots; i++) {
		struct slot *slot = &pool->slots[i];

		if (slot->link && slot->in_flight > 1 &&
		    (!longest || slot->in_flight > longest->in_flight))
			longest = slot;
	}
	return longest;
}

static bool slot_is_idle(const struct slot *slot)
{
	return slot->link && !slot->distrusted && slot->in_flight == 0;
}

static void even_out(struct gw_pool *pool)
{
	for (uint32_t i = 0; i < pool->n_slots; i++) {
		struct slot *slot = &pool->slots[i];
		struct slot *victim;
		struct gw_task *task;

		if (!slot_is_idle(slot))
			continue;
		victim = longest_queue(pool);
		if (!victim)
			return;
		task = take_back(victim, slot);
		if (!task)
			continue;
		dispatch_enqueue_front(task);
		(void)hand_over(pool, slot, task);
	}
}

void dispatch_all(struct gw_pool *pool)
{
	pool->starved = false;
	pool->crowded = false;
	for (uint32_t i = 0; i < pool->n_pending_lists; i++)
		dispatch_list(pool, &pool->pending[i]);
	if (pool->n_slots > 1)
		even_out(pool);
}
