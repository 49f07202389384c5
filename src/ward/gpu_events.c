/* SPDX-License-Identifier: MIT */
/*
 * NVML's Xid events as a source of the ward's loop.
 *
 * Runs in: ward. The states, and what leads from one to the next:
 *
 *	PAUSE -- time is up, old probe is gone --> START -- "yes" --> IDLE <--------------- handed on --+
 *	  ^                                                            | event                          |
 *	  |                                                            v                                |
 *	  +-- from all of them: died, late, "no" --               PROCESSES -- list --> (MEMORY) -------+
 *
 * Read next: gpu_events.h.
 */
#include "ward/gpu_events.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "gpu/xid_result.h"

/* What one turn takes at most, so that a storm of Xids starves nobody. */
#define MESSAGES_MAX 32

/* So long gpu_events_close() waits for a killed probe. */
#define GONE_NS 500000000ULL

static uint64_t or_default(uint64_t value, uint64_t standard)
{
	return value ? value : standard;
}

static uint64_t deadline_of(const struct gpu_events *events)
{
	return events->state == GPU_EVENTS_START
		       ? or_default(events->start_ns, GPU_EVENTS_START_NS)
		       : or_default(events->deadline_ns, PROBE_DEADLINE_NS);
}

static void say(struct gpu_events *events, const struct gw_error *error)
{
	if (events->has_said && events->said.code == error->code &&
	    strcmp(events->said.msg, error->msg) == 0)
		return;
	events->said = *error;
	events->has_said = true;
	events->changed(events, error);
}

/* A source has a descriptor of its own, since the probe's are closed when it is given up. */
static int watch(struct gpu_events *events, struct loop_source *source, int fd)
{
	cleanup_fd int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int result;

	if (copy < 0)
		return -errno;
	result = loop_add(events->loop, source, copy, EPOLLIN);
	if (result == 0)
		(void)fd_steal(&copy);
	return result;
}

static void unwatch(struct gpu_events *events, struct loop_source *source)
{
	int fd = source->fd;

	loop_remove(events->loop, source);
	fd_close(fd);
}

/* Hands the first event on with what is known. Returns false if the owner has stopped all. */
static bool hand_on(struct gpu_events *events, const struct probe_memory *memory)
{
	const struct probe_xid *xid = &events->queue[events->first];
	struct gpu_event event = {
		.at_ns = xid->at_ns,
		.xid = (int32_t)xid->xid,
		.ends_process = xid_ends_process(xid->xid),
		.processes = events->has_processes ? &events->processes : NULL,
		.memory = memory,
	};

	memcpy(event.pci, xid->pci, sizeof(event.pci));
	events->first = (events->first + 1) % PROBE_EVENTS_MAX;
	events->count--;
	if (xid->xid <= INT32_MAX)
		events->event(events, &event);
	events->has_processes = false;
	return events->state != GPU_EVENTS_OFF;
}

/* The probe is given up already. Events that wait go on without an answer. */
static void lose(struct gpu_events *events, const struct gw_error *error)
{
	uint64_t now = now_ns();
	uint64_t most = or_default(events->pause_max_ns, GPU_EVENTS_PAUSE_MAX_NS);

	unwatch(events, &events->socket_source);
	/* It worked for longer than the last pause: this is a new failure. */
	if (events->heard_since_ns != GW_FOREVER && now - events->heard_since_ns > events->pause_ns)
		events->pause_ns = or_default(events->pause_min_ns, GPU_EVENTS_PAUSE_MIN_NS);
	events->state = GPU_EVENTS_PAUSE;
	events->heard_since_ns = GW_FOREVER;
	loop_set_timer(&events->timer, now + events->pause_ns);
	events->pause_ns = events->pause_ns < most / 2 ? events->pause_ns * 2 : most;
	events->has_processes = false;
	while (events->count > 0) {
		if (!hand_on(events, NULL))
			return;
	}
	say(events, error);
}

static void give_up(struct gpu_events *events, const struct gw_error *error)
{
	probe_give_up(&events->probe, error);
	lose(events, error);
}

/* Asks, or loses the probe. */
static void ask(struct gpu_events *events, enum gpu_events_state state, enum probe_kind kind)
{
	uint32_t device = kind == PROBE_WATCH ? 0 : events->queue[events->first].device;
	struct gw_error error = {0};

	events->state = state;
	loop_set_timer(&events->timer, now_ns() + deadline_of(events));
	if (probe_send(&events->probe, kind, device, &error) < 0)
		give_up(events, &error);
}

static void next_event(struct gpu_events *events)
{
	events->state = GPU_EVENTS_IDLE;
	loop_set_timer(&events->timer, GW_FOREVER);
	while (events->count > 0) {
		if (events->queue[events->first].device != PROBE_DEVICE_UNKNOWN) {
			ask(events, GPU_EVENTS_PROCESSES, PROBE_PROCESSES);
			return;
		}
		if (!hand_on(events, NULL))
			return;
	}
}

static void on_event(struct gpu_events *events, const struct probe_reply *reply)
{
	uint32_t last = (events->first + events->count) % PROBE_EVENTS_MAX;

	/* Then NVML gives no more of them. */
	if (reply->error.code < 0) {
		give_up(events, &reply->error);
		return;
	}
	events->dropped += reply->xid.dropped;
	if (events->count == PROBE_EVENTS_MAX) {
		events->dropped++;
		return;
	}
	events->queue[last] = reply->xid;
	events->count++;
	if (events->state == GPU_EVENTS_IDLE)
		next_event(events);
}

static void on_watch(struct gpu_events *events, const struct probe_reply *reply)
{
	static const struct gw_error works = {.code = 0};

	if (reply->error.code < 0) {
		give_up(events, &reply->error);
		return;
	}
	events->heard_since_ns = now_ns();
	events->state = GPU_EVENTS_IDLE;
	say(events, &works);
	if (events->state == GPU_EVENTS_IDLE)
		next_event(events);
}

static void on_processes(struct gpu_events *events, const struct probe_reply *reply)
{
	events->has_processes = reply->error.code == 0;
	if (events->has_processes)
		events->processes = reply->processes;
	if (events->has_processes && events->needs_memory)
		ask(events, GPU_EVENTS_MEMORY, PROBE_MEMORY);
	else if (hand_on(events, NULL))
		next_event(events);
}

static void on_memory(struct gpu_events *events, const struct probe_reply *reply)
{
	if (hand_on(events, reply->error.code == 0 ? &reply->memory : NULL))
		next_event(events);
}

static void on_message(struct gpu_events *events, const struct probe_reply *reply)
{
	struct gw_error error = {0};

	if (reply->kind == PROBE_XID) {
		on_event(events, reply);
	} else if (reply->ticket != events->probe.ticket) {
		(void)err_own(&error, GW_EPROTOCOL, "the probe answers what it was not asked");
		give_up(events, &error);
	} else if (events->state == GPU_EVENTS_START && reply->kind == PROBE_WATCH) {
		on_watch(events, reply);
	} else if (events->state == GPU_EVENTS_PROCESSES && reply->kind == PROBE_PROCESSES) {
		on_processes(events, reply);
	} else if (events->state == GPU_EVENTS_MEMORY && reply->kind == PROBE_MEMORY) {
		on_memory(events, reply);
	} else {
		(void)err_own(&error, GW_EPROTOCOL, "the probe answers what it was not asked");
		give_up(events, &error);
	}
}

static bool has_probe(const struct gpu_events *events)
{
	return events->state > GPU_EVENTS_PAUSE;
}

static void take_messages(struct gpu_events *events)
{
	struct probe_reply reply;
	struct gw_error error = {0};
	int code = 1;

	for (int i = 0; i < MESSAGES_MAX && code == 1 && has_probe(events); i++) {
		code = probe_take(&events->probe, &reply, &error);
		if (code == 1)
			on_message(events, &reply);
	}
	if (code < 0) {
		lose(events, &error);
	} else if (has_probe(events) && events->probe.hung_up) {
		/* How it ended is known in a moment; if not, this is as good as an answer that is late. */
		unwatch(events, &events->socket_source);
		loop_set_timer(&events->timer, now_ns() + deadline_of(events));
	}
}

static void socket_ready(struct loop_source *source, uint32_t flags)
{
	(void)flags;
	take_messages(source->owner);
}

/*
 * The process has ended. It is not watched any more, whether it can be reaped or not: somebody may trace it,
 * and its pidfd would be readable all that time.
 */
static void exit_ready(struct loop_source *source, uint32_t flags)
{
	struct gpu_events *events = source->owner;

	(void)flags;
	unwatch(events, source);
	if (has_probe(events))
		take_messages(events);
	else
		(void)probe_reap(&events->probe);
}

static int start(struct gpu_events *events, struct gw_error *ret_error)
{
	int code = probe_open(events->program, 0, &events->probe, ret_error);

	if (code < 0)
		return code;
	code = watch(events, &events->exit_source, events->probe.child.process.pidfd);
	if (code == 0)
		code = watch(events, &events->socket_source, events->probe.socket);
	if (code < 0) {
		struct gw_error error = {0};

		(void)err_os(&error, -code, "the probe cannot be watched");
		probe_give_up(&events->probe, &error);
		if (ret_error)
			*ret_error = error;
		return code;
	}
	events->heard_since_ns = GW_FOREVER;
	ask(events, GPU_EVENTS_START, PROBE_WATCH);
	return 0;
}

/* The pause is over. While the old process is there the driver hangs, and a new one would hang too. */
static void try_again(struct gpu_events *events)
{
	struct gw_error error = {0};

	if (events->probe.child.process.pidfd >= 0 && !probe_reap(&events->probe)) {
		loop_set_timer(&events->timer, now_ns() + events->pause_ns);
		return;
	}
	unwatch(events, &events->exit_source);
	if (start(events, &error) < 0)
		lose(events, &error);
}

static void timer_due(struct loop_timer *timer)
{
	struct gpu_events *events = timer->owner;
	struct gw_error error = {0};

	if (events->state == GPU_EVENTS_PAUSE) {
		try_again(events);
	} else if (has_probe(events) && events->probe.hung_up) {
		(void)err_own(&error, GW_EDRIVER, "the probe process closed its socket");
		give_up(events, &error);
	} else if (has_probe(events)) {
		(void)probe_late(&events->probe, deadline_of(events), &error);
		lose(events, &error);
	}
}

int gpu_events_open(struct gpu_events *events, struct loop *loop, struct gw_error *ret_error)
{
	int code;

	events->loop = loop;
	events->probe = PROBE_NONE;
	events->socket_source =
		(struct loop_source){.fd = -1, .ready = socket_ready, .owner = events};
	events->exit_source = (struct loop_source){.fd = -1, .ready = exit_ready, .owner = events};
	events->timer = (struct loop_timer){.due = timer_due, .owner = events};
	events->pause_ns = or_default(events->pause_min_ns, GPU_EVENTS_PAUSE_MIN_NS);
	loop_add_timer(loop, &events->timer);
	code = start(events, ret_error);
	if (code < 0)
		gpu_events_close(events);
	return code;
}

void gpu_events_stop(struct gpu_events *events)
{
	static const struct gw_error stopped = {.code = -ECANCELED, .msg = "the ward has stopped"};

	if (!events->loop || events->state == GPU_EVENTS_OFF)
		return;
	events->state = GPU_EVENTS_OFF;
	events->count = 0;
	loop_set_timer(&events->timer, GW_FOREVER);
	unwatch(events, &events->socket_source);
	if (events->probe.socket >= 0)
		probe_give_up(&events->probe, &stopped);
}

void gpu_events_close(struct gpu_events *events)
{
	struct procref_end end;

	if (!events->loop)
		return;
	gpu_events_stop(events);
	unwatch(events, &events->socket_source);
	unwatch(events, &events->exit_source);
	(void)procref_wait(&events->probe.child.process, now_ns() + GONE_NS, &end);
	probe_close(&events->probe);
}
