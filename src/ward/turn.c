/* SPDX-License-Identifier: MIT */
#include "ward/turn.h"

#include <errno.h>

#include "common/err.h"
#include "ward/leaving.h"
#include "ward/ward.h"

static bool makes_context(const struct slot *slot, int32_t device)
{
	return slot->device == device && slot->state == SLOT_WARMING && !slot->process->has_context;
}

static bool is_taken(const struct ward *ward, int32_t device)
{
	for (uint32_t i = 0; i < ward->n_slots; i++) {
		if (makes_context(&ward->slots[i], device))
			return true;
	}
	for (uint32_t i = 0; i < ward->n_standbys; i++) {
		if (makes_context(&ward->standbys[i], device))
			return true;
	}
	return false;
}

static bool waits(const struct slot *slot)
{
	return slot->state == SLOT_PRIMED && !slot->no_room;
}

void turn_give(struct ward *ward)
{
	for (uint32_t i = 0; i < ward->n_slots; i++) {
		struct slot *slot = &ward->slots[i];

		if (waits(slot) && !is_taken(ward, slot->device))
			slot_happens(slot, EVENT_TURN, NULL);
	}
	for (uint32_t i = 0; i < ward->n_standbys && ward->open.standby == GW_STANDBY_HOT; i++) {
		struct slot *slot = &ward->standbys[i];

		if (waits(slot) && !is_taken(ward, slot->device))
			slot_happens(slot, EVENT_TURN, NULL);
	}
}

/* Whether memory of the device comes back by itself soon. */
static bool somebody_leaves(const struct ward *ward, int32_t device)
{
	for (const struct process *process = ward->leaving; process; process = process->next) {
		if (process->device == device && !process->stuck)
			return true;
	}
	return false;
}

void turn_no_room(struct slot *slot)
{
	struct process *process = slot->process;
	const struct cause full = {
		.end = GW_END_START, .source = GW_SOURCE_RESULT, .what = process->start_error.msg};

	if (slot->is_standby || somebody_leaves(slot->ward, slot->device)) {
		slot->no_room = true;
		slot_happens(slot, EVENT_NO_ROOM_MSG, NULL);
		return;
	}
	(void)err_set(&process->start_error, -ENOMEM, GW_DOMAIN_CUDA, 2,
		      "device %d has no memory left for a context: see who uses it, or give the "
		      "pool fewer workers",
		      slot->device);
	slot_happens(slot, EVENT_KILL_REQUEST, &full);
}

void turn_try_again(struct slot *slot)
{
	slot->no_room = false;
	loop_set_timer(&slot->timer, GW_FOREVER);
	ward_settle(slot->ward);
}

void turn_device_changed(struct ward *ward)
{
	for (uint32_t i = 0; i < ward->n_slots; i++)
		ward->slots[i].no_room = false;
	for (uint32_t i = 0; i < ward->n_standbys; i++)
		ward->standbys[i].no_room = false;
	ward_settle(ward);
}
