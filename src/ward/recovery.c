/* SPDX-License-Identifier: MIT */
#include "ward/recovery.h"

#include <string.h>

#include "common/fd.h"
#include "ward/standby.h"
#include "ward/ward.h"

/* The record of recovery NUMBER, or NULL where it is not kept any more. */
static struct gw_recovery *find(struct ward *ward, uint64_t number)
{
	struct gw_recovery *kept = &ward->report.recoveries[number % GW_RECOVERIES_KEPT];

	return number < ward->report.n_recoveries && kept->number == number ? kept : NULL;
}

static void copy_spoke(struct gw_recovery *recovery, const struct process *process)
{
	for (size_t i = 0; i < GW_SOURCES; i++)
		recovery->spoke_ns[i] =
			process->spoke_ns[i] > 0 ? process->spoke_ns[i] : GW_UNKNOWN;
}

static void note_complete(struct ward *ward, struct gw_recovery *recovery)
{
	recovery->complete =
		recovery->exit.gone_ns != GW_UNKNOWN && recovery->ready_ns != GW_UNKNOWN;
	recovery_publish(ward);
}

void recovery_begin(struct slot *slot, struct process *process, const struct gw_exit *exit)
{
	struct ward *ward = slot->ward;
	uint64_t number = ward->report.n_recoveries;
	struct gw_recovery *recovery = &ward->report.recoveries[number % GW_RECOVERIES_KEPT];

	if (slot->is_standby || process->ready_ns == 0 || ward->closing)
		return;
	*recovery = (struct gw_recovery){.number = number,
					 .new_pid = -1,
					 .fenced_ns = now_ns(),
					 .ready_ns = GW_UNKNOWN,
					 .exit = *exit};
	copy_spoke(recovery, process);
	process->recovery = slot->recovery = number;
	ward->report.n_recoveries++;
	if (exit->source < GW_SOURCES)
		ward->report.noticed_by[exit->source]++;
	recovery_publish(ward);
}

void recovery_spoke(const struct process *process, int32_t xid)
{
	struct gw_recovery *recovery = find(process->ward, process->recovery);

	if (!recovery)
		return;
	copy_spoke(recovery, process);
	if (xid > 0 && recovery->exit.xid < 0)
		recovery->exit.xid = xid;
	recovery_publish(process->ward);
}

void recovery_stuck(const struct process *process)
{
	struct gw_recovery *recovery = find(process->ward, process->recovery);

	if (!recovery)
		return;
	process_tell(process, &recovery->exit);
	recovery_publish(process->ward);
}

void recovery_gone(const struct process *process, const struct gw_exit *exit)
{
	struct gw_recovery *recovery = find(process->ward, process->recovery);

	if (!recovery)
		return;
	recovery->exit.gone_ns = exit->gone_ns;
	copy_spoke(recovery, process);
	note_complete(process->ward, recovery);
}

void recovery_successor(struct slot *slot, enum slot_state state)
{
	struct gw_recovery *recovery = find(slot->ward, slot->recovery);

	if (!recovery)
		return;
	recovery->new_pid = slot->process->spawned.process.pid;
	if (state == SLOT_READY)
		recovery->standby = GW_STANDBY_HOT;
	else if (state == SLOT_PRIMED || state == SLOT_WARMING)
		recovery->standby = GW_STANDBY_PRIMED;
	else
		recovery->standby = GW_STANDBY_COLD;
	/* One that is ready is announced next, and nothing may come before that. */
	if (state != SLOT_READY)
		recovery_publish(slot->ward);
}

void recovery_ready(struct slot *slot)
{
	struct gw_recovery *recovery = find(slot->ward, slot->recovery);

	slot->recovery = GW_UNKNOWN;
	if (!recovery)
		return;
	recovery->ready_ns = now_ns();
	note_complete(slot->ward, recovery);
}

/* Returns whether anything is new. */
static bool count_workers(const struct ward *ward, struct pool_page_workers *workers)
{
	struct pool_page_workers now = {0};

	for (uint32_t i = 0; i < ward->n_slots; i++) {
		now.ready += ward->slots[i].state == SLOT_READY;
		now.failed += ward->slots[i].state == SLOT_FAILED;
	}
	now.starting = ward->n_slots - now.ready - now.failed;
	if (memcmp(&now, workers, sizeof(now)) == 0)
		return false;
	*workers = now;
	return true;
}

static bool count(struct ward *ward)
{
	bool workers = count_workers(ward, &ward->report.workers);

	return standby_count(ward, &ward->report) || workers;
}

void recovery_publish(struct ward *ward)
{
	if (!ward->page)
		return;
	(void)count(ward);
	pool_page_publish(ward->page, &ward->report);
}

void recovery_settle(struct ward *ward)
{
	if (ward->page && count(ward))
		pool_page_publish(ward->page, &ward->report);
}
