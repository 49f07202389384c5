/* SPDX-License-Identifier: MIT */
#include "ward/process.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "common/fd.h"
#include "ward/slot.h"
#include "ward/ward.h"

void process_note(struct process *process, uint32_t source, const struct cause *why)
{
	uint64_t now = now_ns();

	if (process->noticed_ns == 0)
		process->noticed_ns = now;
	if (source != GW_SOURCE_UNKNOWN && source < GW_SOURCES && process->spoke_ns[source] == 0)
		process->spoke_ns[source] = now;
	if (why && process->cause.end == GW_END_UNKNOWN)
		process->cause = *why;
}

static struct report_facts facts_of(const struct process *process)
{
	return (struct report_facts){.slot = process->slot->number,
				     .pid = process->spawned.process.pid,
				     .device = process->device,
				     .was_ready = process->ready_ns > 0,
				     .cause = process->cause,
				     .stuck = process->stuck,
				     .reaped = process->died,
				     .ended = process->end,
				     .started_ns = process->spawned.process.started_ns,
				     .noticed_ns = process->noticed_ns,
				     .gone_ns = GW_UNKNOWN};
}

void process_tell(const struct process *process, struct gw_exit *ret_exit)
{
	const struct report_facts facts = facts_of(process);

	report_fill(ret_exit, &facts);
}

void process_end(struct process *process, struct gw_exit *ret_exit)
{
	struct report_facts facts;
	int result;

	process_note(process, GW_SOURCE_DEATH, NULL);
	facts = facts_of(process);
	result = procref_wait(&process->spawned.process, now_ns() + PROCREF_REAP_NS, &facts.ended);
	process->reaped = result != 0;
	if (result == 0)
		result = procref_peek(&process->spawned.process, &facts.ended);
	facts.reaped = result == 1;
	facts.gone_ns = now_ns();
	report_fill(ret_exit, &facts);
}

static void unmap_channel(struct process *process)
{
	if (process->channel)
		(void)munmap((void *)(uintptr_t)process->channel, sizeof(struct channel));
	process->channel = NULL;
}

void process_fence(struct process *process)
{
	state_client_fence(process->state);
	free(process->up);
	process->up = NULL;
	unmap_channel(process);
	fd_closep(&process->channel_fd);
	fd_closep(&process->event_fd);
}

void process_free(struct process *process)
{
	struct loop *loop = &process->ward->loop;

	process_fence(process);
	loop_remove(loop, &process->socket_source);
	loop_remove(loop, &process->exit_source);
	loop_remove_timer(loop, &process->timer);
	fd_close(process->socket);
	state_client_free(process->state);
	spawn_done(&process->spawned);
	free(process);
}
