/* SPDX-License-Identifier: MIT */
#include "ward/standby.h"

#include <string.h>

#include "ward/ward.h"

/* The further the better. */
static struct slot *best(const struct ward *ward, int32_t device)
{
	struct slot *found = NULL;

	for (uint32_t i = 0; i < ward->n_standbys; i++) {
		struct slot *standby = &ward->standbys[i];

		if (standby->device != device ||
		    !(slot_is_starting(standby) || standby->state == SLOT_READY))
			continue;
		if (!found || standby->state > found->state)
			found = standby;
	}
	return found;
}

_Static_assert(SLOT_STARTING < SLOT_PRIMED && SLOT_PRIMED < SLOT_WARMING &&
		       SLOT_WARMING < SLOT_READY,
	       "the order of the states is the order of a start");

enum slot_state standby_take(struct slot *slot)
{
	struct slot *standby = best(slot->ward, slot->device);
	enum slot_state state;

	if (!standby)
		return SLOT_EMPTY;
	state = standby->state;
	slot->process = standby->process;
	slot->process->slot = slot;
	slot_happens(standby, EVENT_ADOPTED, NULL);
	return state;
}

/* A worker of its device may still need it. */
static bool is_wanted(const struct slot *standby)
{
	const struct ward *ward = standby->ward;

	for (uint32_t i = 0; i < ward->n_slots; i++) {
		const struct slot *slot = &ward->slots[i];

		if (slot->device == standby->device && slot->state != SLOT_FAILED)
			return true;
	}
	return false;
}

/* It would hold memory of the device for nobody. */
static void end_unwanted(struct slot *standby)
{
	static const struct cause unwanted = {.end = GW_END_STOPPED, .source = GW_SOURCE_REQUEST};

	if (slot_is_starting(standby) || standby->state == SLOT_READY ||
	    standby->state == SLOT_BACKOFF)
		slot_happens(standby, EVENT_STOP, &unwanted);
}

bool standby_may_start(const struct slot *standby)
{
	const struct ward *ward = standby->ward;

	if (!is_wanted(standby))
		return false;
	for (uint32_t i = 0; i < ward->n_slots; i++) {
		const struct slot *slot = &ward->slots[i];

		if (slot->device == standby->device &&
		    (slot->state == SLOT_EMPTY || slot_is_starting(slot)))
			return false;
	}
	return true;
}

void standby_refill(struct ward *ward)
{
	for (uint32_t i = 0; i < ward->n_standbys; i++) {
		struct slot *standby = &ward->standbys[i];

		if (!is_wanted(standby))
			end_unwanted(standby);
		else if (standby->state == SLOT_EMPTY && standby_may_start(standby))
			slot_happens(standby, EVENT_START, NULL);
	}
}

bool standby_count(const struct ward *ward, struct pool_page_report *report)
{
	struct pool_page_standbys now = {0};

	for (uint32_t i = 0; i < ward->n_standbys; i++) {
		const struct slot *standby = &ward->standbys[i];

		now.hot += standby->state == SLOT_READY;
		now.primed += standby->state == SLOT_PRIMED;
		now.failed += standby->state == SLOT_FAILED ||
			      (standby->state == SLOT_EMPTY && !is_wanted(standby));
		now.no_room += standby->state == SLOT_PRIMED && standby->no_room;
	}
	now.starting = ward->n_standbys - now.hot - now.primed - now.failed;
	if (memcmp(&now, &report->standbys, sizeof(now)) == 0)
		return false;
	report->standbys = now;
	return true;
}
