/* SPDX-License-Identifier: MIT */
#include "ward/worker_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/fd.h"
#include "ward/outbox.h"
#include "ward/recovery.h"
#include "ward/slot.h"
#include "ward/turn.h"
#include "ward/ward.h"

/* A worker sends a few. A grandchild that holds its socket must not keep the ward busy. */
#define DRAIN_MAX 16

static const struct cause garbage = {.end = GW_END_PROTOCOL,
				     .source = GW_SOURCE_PROTOCOL,
				     .what = "it sent a message that breaks the rules"};

static void fill_up(const struct process *process, const struct wire_ready *ready,
		    struct wire_up *up)
{
	wire_header_init(&up->header, WIRE_UP, sizeof(*up));
	up->pid = process->spawned.process.pid;
	up->device = process->device;
	up->output_bytes = process->ward->open.output_bytes;
	up->started_ns = process->spawned.process.started_ns;
	up->n_functions = ready->n_functions;
	memcpy(up->functions, ready->functions, sizeof(up->functions));
}

static void on_ready(struct process *process, const struct wire_ready *ready)
{
	static const struct cause no_memory = {.end = GW_END_STOPPED, .source = GW_SOURCE_PROTOCOL};
	static const struct cause twice = {.end = GW_END_PROTOCOL,
					   .source = GW_SOURCE_PROTOCOL,
					   .what = "it said twice that it is ready"};
	bool first = slot_is_starting(process->slot);

	if (first && !process->up)
		process->up = calloc(1, sizeof(*process->up));
	if (first && !process->up) {
		slot_happens(process->slot, EVENT_KILL_REQUEST, &no_memory);
		return;
	}
	if (first)
		fill_up(process, ready, process->up);
	slot_happens(process->slot, EVENT_READY_MSG, &twice);
}

static void on_fault(struct process *process, const struct wire_fault *fault)
{
	const struct cause cause = {.end = GW_END_CUDA,
				    .source = fault->source,
				    .cuda = fault->cuda,
				    .xid = -1,
				    .task = fault->task};

	slot_happens(process->slot, EVENT_FAULT, &cause);
}

/* What a worker says ends up in front of people: no byte of it may steer a terminal. */
static void make_printable(char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < ' ' || c == 0x7f)
			*text = '?';
	}
}

static void on_start_failed(struct process *process, const struct wire_start_failed *message)
{
	const struct cause cause = {
		.end = GW_END_START, .source = GW_SOURCE_RESULT, .what = process->start_error.msg};

	if (slot_is_starting(process->slot)) {
		process->start_error = message->error;
		make_printable(process->start_error.msg);
		slot_happens(process->slot, EVENT_START_FAILED_MSG, &cause);
	} else {
		slot_happens(process->slot, EVENT_START_FAILED_MSG, &garbage);
	}
}

static void on_primed(struct process *process)
{
	if (process->slot->state == SLOT_STARTING)
		slot_happens(process->slot, EVENT_PRIMED_MSG, NULL);
	else
		slot_happens(process->slot, EVENT_PROTOCOL_ERROR, &garbage);
}

/* Its context is up: the next process of the device has its turn. */
static void on_context(struct process *process, const struct wire_context *context)
{
	if (process->slot->state != SLOT_WARMING || process->has_context) {
		slot_happens(process->slot, EVENT_PROTOCOL_ERROR, &garbage);
		return;
	}
	memcpy(process->pci, context->pci, sizeof(process->pci));
	make_printable(process->pci);
	state_name_device(process->ward->state, process->device,
			  context->uuid[0] ? context->uuid : process->pci);
	signs_error_log(process->ward, context->error_log);
	process->has_context = true;
	ward_settle(process->ward);
}

static void on_no_room(struct process *process)
{
	if (process->slot->state == SLOT_WARMING && !process->has_context)
		turn_no_room(process->slot);
	else
		slot_happens(process->slot, EVENT_PROTOCOL_ERROR, &garbage);
}

/* The worker's program was linked to another build of the library. */
static void on_other_version(struct process *process, const struct wire_header *header)
{
	const struct cause cause = {.end = GW_END_START,
				    .source = GW_SOURCE_PROTOCOL,
				    .what = process->start_error.msg};

	if (!slot_is_starting(process->slot)) {
		slot_happens(process->slot, EVENT_PROTOCOL_ERROR, &garbage);
		return;
	}
	(void)err_own(&process->start_error, GW_EVERSION,
		      "the worker is linked to gpuward %s (layout %u), the ward is %s (layout %u): "
		      "install both from the same build",
		      header->version, header->layout, GW_VERSION_TEXT, WIRE_LAYOUT);
	make_printable(process->start_error.msg);
	slot_happens(process->slot, EVENT_PROTOCOL_ERROR, &cause);
}

static void on_message(struct process *process, const union wire_any *message)
{
	switch (message->header.type) {
	case WIRE_PRIMED:
		on_primed(process);
		break;
	case WIRE_CONTEXT:
		on_context(process, &message->context);
		break;
	case WIRE_NO_ROOM:
		on_no_room(process);
		break;
	case WIRE_READY:
		on_ready(process, &message->ready);
		break;
	case WIRE_FAULT:
		on_fault(process, &message->fault);
		break;
	case WIRE_PONG:
		process->pinged_ns = 0;
		break;
	case WIRE_START_FAILED:
		on_start_failed(process, &message->start_failed);
		break;
	default:
		slot_happens(process->slot, EVENT_PROTOCOL_ERROR, &garbage);
		break;
	}
}

/* What a fenced process says changes nothing; when it knew of its fault is for the record. */
static void on_late_message(struct process *process, const union wire_any *message)
{
	if (message->header.type != WIRE_FAULT)
		return;
	process_note(process, message->fault.source, NULL);
	recovery_spoke(process, -1);
}

/* After the end of the stream the socket is readable for ever: it is not watched any more. */
static void on_end(struct process *process)
{
	loop_remove(&process->ward->loop, &process->socket_source);
	if (!process->is_leaving)
		slot_happens(process->slot, EVENT_SOCKET_EOF, NULL);
}

/* Returns whether there was something. */
static bool take_result(struct process *process, int result, const union wire_any *message)
{
	if (result == -EAGAIN || result == -ENOMEM || result == -ENOBUFS)
		return false; /* the loop tells again */
	if (result <= 0 && result != GW_EVERSION && result != GW_EPROTOCOL && result != -EMFILE) {
		on_end(process);
		return false;
	}
	if (process->is_leaving && result > 0)
		on_late_message(process, message);
	else if (process->is_leaving)
		loop_remove(&process->ward->loop, &process->socket_source);
	else if (result > 0)
		on_message(process, message);
	else if (result == GW_EVERSION)
		on_other_version(process, &message->header);
	else
		slot_happens(process->slot, EVENT_PROTOCOL_ERROR, &garbage);
	return true;
}

bool worker_link_read(struct process *process)
{
	union wire_any message;
	int fds[WIRE_FDS_MAX];
	int result = wire_receive(process->socket, &message, fds);

	for (size_t i = 0; i < WIRE_FDS_MAX; i++)
		fd_close(fds[i]);
	return take_result(process, result, &message);
}

void worker_link_drain(struct process *process)
{
	for (int i = 0; i < DRAIN_MAX && process->socket_source.fd >= 0; i++) {
		if (!worker_link_read(process))
			return;
	}
}

static int send_word(struct process *process, enum wire_type type)
{
	struct wire_word word;

	wire_header_init(&word.header, type, sizeof(word));
	return wire_send(process->socket, &word, NULL, 0);
}

bool worker_link_try(struct process *process, enum wire_type type)
{
	return send_word(process, type) == 0;
}

static uint32_t bit_of(int type)
{
	return 1U << (type - WIRE_STOP);
}

static void send_all(struct process *process)
{
	for (int type = WIRE_STOP; type <= WIRE_PROMOTE; type++) {
		int result;

		if (!(process->unsent & bit_of(type)))
			continue;
		result = send_word(process, (enum wire_type)type);
		if (result == -ENOMEM || result == -ENOBUFS || result == -EAGAIN)
			outbox_retry_later(process->ward);
		else
			process->unsent &= ~bit_of(type); /* or it has ended, which tells itself */
	}
}

void worker_link_send(struct process *process, enum wire_type type)
{
	process->unsent |= bit_of(type);
	send_all(process);
}

void worker_link_send_again(struct ward *ward)
{
	for (uint32_t i = 0; i < ward->n_slots; i++) {
		if (ward->slots[i].process)
			send_all(ward->slots[i].process);
	}
	for (uint32_t i = 0; i < ward->n_standbys; i++) {
		if (ward->standbys[i].process)
			send_all(ward->standbys[i].process);
	}
}
