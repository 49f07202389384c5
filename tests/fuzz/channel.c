/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the host's reading of results, with any bytes as what a worker wrote into its channel.
 *
 * Each input is a head (tasks handed over, what the worker says it has completed) and a list of writes
 * into the results, with looks of the host between them. collect.c is the product's; the pool around it
 * is only as much as it uses. What comes out is checked against the promises of pool.h: each task ends at
 * most once, in order, with a length within its room and a text that ends; a worker that broke the rules
 * is reported once, and not read any more. Built with libFuzzer or with replay.c.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/pool.h"

#define ROOM   64U /* of each task's output */
#define AGAIN  0xffU
#define OUTPUT (CHANNEL_DEPTH * ROOM)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct channel channel;
static uint8_t output[OUTPUT];
static struct gw_task tasks[CHANNEL_DEPTH];
static struct slot slot;
static struct link link_of_slot;
static struct gw_pool pool;
static struct pool_page page;
static unsigned int kills;
static uint32_t ended;

static void require(bool condition)
{
	if (!condition)
		abort();
}

/* ---- what collect.c calls ---- */

void orders_kill(struct gw_pool *of, struct wire_kill kill, int pidfd)
{
	require(of == &pool && kill.slot == 0 && kill.reason == GW_END_PROTOCOL && pidfd == -1);
	kills++;
}

void task_end(struct gw_task *task, enum gw_outcome_kind kind)
{
	const struct gw_outcome *outcome = &task->outcome;
	const char *end = memchr(outcome->message, 0, sizeof(outcome->message));

	require(kills == 0);
	require(task == &tasks[ended] && task->state == TASK_IN_FLIGHT);
	require(outcome->output_bytes <= ROOM);
	require(outcome->output == output + task->output_offset);
	require((kind == GW_DONE) == (outcome->value == 0));
	require(end != NULL);
	for (const char *c = outcome->message; c < end; c++)
		require((unsigned char)*c >= ' ' && *c != 0x7f);
	task->state = TASK_ENDED;
	ended++;
}

/* ---- the target ---- */

static void begin(uint32_t submitted)
{
	memset(&channel, 0, sizeof(channel));
	memset(tasks, 0, sizeof(tasks));
	kills = 0;
	ended = 0;
	link_of_slot = (struct link){.references = 1,
				     .event_fd = -1,
				     .map = {.shared = &channel,
					     .output = output,
					     .output_bytes = sizeof(output),
					     .bytes = sizeof(channel)}};
	slot = (struct slot){.link = &link_of_slot,
			     .pidfd = -1,
			     .device = -1,
			     .submitted = submitted,
			     .in_flight = submitted};
	pool = (struct gw_pool){.n_slots = 1, .slots = &slot, .ward_socket = -1, .page = &page};
	for (uint32_t i = 0; i < submitted; i++) {
		tasks[i] = (struct gw_task){.pool = &pool,
					    .state = TASK_IN_FLIGHT,
					    .link = &link_of_slot,
					    .output_offset = i * ROOM,
					    .output_capacity_bytes = ROOM};
		slot.tasks[i] = &tasks[i];
	}
}

static void look(void)
{
	uint32_t said = atomic_load(&channel.completed);
	bool was_distrusted = slot.distrusted;
	bool news = collect_has_news(&pool);
	bool any = collect_all(&pool);

	require(!any || news);
	require(slot.taken <= slot.submitted && ended == slot.taken);
	require(slot.in_flight == slot.submitted - slot.taken);
	require(kills <= 1 && slot.distrusted == (kills == 1));
	require(was_distrusted ? !any : slot.distrusted || slot.taken == said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint32_t completed;

	if (bytes < 5)
		return 0;
	begin(data[0]);
	memcpy(&completed, data + 1, sizeof(completed));
	atomic_store(&channel.completed, completed);
	for (size_t i = 5; i + 4 <= bytes; i += 4) {
		size_t offset = (size_t)(data[i] | data[i + 1] << 8);

		if (data[i + 3] == AGAIN) {
			look();
			(void)atomic_fetch_add(&channel.completed, data[i + 2]);
			continue;
		}
		for (size_t j = 0; j < data[i + 3] && offset + j < sizeof(channel.results); j++)
			((uint8_t *)channel.results)[offset + j] = data[i + 2];
	}
	look();
	return 0;
}
