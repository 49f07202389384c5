/* SPDX-License-Identifier: MIT */
/*
 * Takes in the results that workers have published, each exactly once.
 *
 * Runs in: host, under the pool's lock. Everything that is read here was written by a worker: each
 * word is read once into a local and checked. A worker that breaks the rules is not read any more, and
 * the ward is asked to end it; its tasks run again elsewhere when it is gone. Read next: news.c.
 */
#include "lib/pool.h"

#include <stdatomic.h>
#include <string.h>

static void distrust(struct gw_pool *pool, struct slot *slot)
{
	const struct wire_kill kill = {.slot = (uint32_t)(slot - pool->slots),
				       .incarnation = slot->incarnation,
				       .reason = GW_END_PROTOCOL};

	slot->distrusted = true;
	orders_kill(pool, kill, slot->pidfd);
}

/* A copy that the worker cannot change while it is looked at. */
static void read_result(struct channel_result *ret, const struct channel_result *shared)
{
	const volatile struct channel_result *from = shared;

	ret->value = from->value;
	ret->message_bytes = from->message_bytes;
	ret->output_bytes = from->output_bytes;
	ret->started_ns = from->started_ns;
	ret->ended_ns = from->ended_ns;
	if (ret->message_bytes > 0)
		memcpy(ret->message, shared->message, sizeof(ret->message));
}

static bool result_is_good(const struct channel_result *result, const struct gw_task *task)
{
	return result->output_bytes <= task->output_capacity_bytes &&
	       result->message_bytes < CHANNEL_MESSAGE_MAX;
}

/* A message is for people: what is not printable becomes '?'. */
static void copy_message(char *to, const struct channel_result *result)
{
	uint32_t bytes = result->message_bytes;

	for (uint32_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)result->message[i];

		to[i] = (char)(c < ' ' || c == 0x7f ? '?' : c);
	}
	to[bytes] = '\0';
}

static void finish(struct gw_task *task, const struct slot *slot,
		   const struct channel_result *result)
{
	struct gw_outcome *outcome = &task->outcome;

	outcome->value = result->value;
	outcome->device = slot->device;
	outcome->output_bytes = result->output_bytes;
	outcome->started_ns = result->started_ns;
	outcome->ended_ns = result->ended_ns;
	if (result->message_bytes > 0)
		copy_message(outcome->message, result);
	if (task->link)
		outcome->output = task->link->map.output + task->output_offset;
	task_end(task, result->value == 0 ? GW_DONE : GW_FAILED);
}

/* Returns false when the worker broke the rules. */
static bool take_entry(struct gw_pool *pool, struct slot *slot)
{
	uint32_t place = slot->taken % CHANNEL_DEPTH;
	struct gw_task *task = slot->tasks[place];
	struct channel_result result;

	if (task) {
		read_result(&result, &slot->link->map.shared->results[place]);
		if (!result_is_good(&result, task)) {
			distrust(pool, slot);
			return false;
		}
		slot->tasks[place] = NULL;
		slot->in_flight--;
		finish(task, slot, &result);
	}
	slot->taken++;
	return true;
}

/*
 * How many entries the worker has completed. What it completes after it was fenced does not count; a fence
 * that is behind what was taken in before it does not take that back. The order of the two reads is drawn
 * in ../ward/deadline.c.
 */
static uint32_t count_completed(const struct gw_pool *pool, const struct slot *slot)
{
	uint32_t completed = atomic_load(&slot->link->map.shared->completed);
	uint64_t fence = atomic_load(&pool->page->slots[slot - pool->slots].fence);

	if (fence >> 32 != (uint64_t)slot->incarnation + 1)
		return completed;
	return (int32_t)((uint32_t)fence - slot->taken) > 0 ? (uint32_t)fence : slot->taken;
}

static bool collect_slot(struct gw_pool *pool, struct slot *slot)
{
	uint32_t completed;
	bool any = false;

	if (!slot->link || slot->distrusted)
		return false;
	completed = count_completed(pool, slot);
	if (completed - slot->taken > slot->submitted - slot->taken) {
		distrust(pool, slot);
		return true;
	}
	while (slot->taken != completed && take_entry(pool, slot))
		any = true;
	return any;
}

bool collect_all(struct gw_pool *pool)
{
	bool any = false;

	for (uint32_t i = 0; i < pool->n_slots; i++)
		any |= collect_slot(pool, &pool->slots[i]);
	return any;
}

bool collect_has_news(const struct gw_pool *pool)
{
	for (uint32_t i = 0; i < pool->n_slots; i++) {
		const struct slot *slot = &pool->slots[i];

		if (slot->link && !slot->distrusted && count_completed(pool, slot) != slot->taken)
			return true;
	}
	return false;
}
