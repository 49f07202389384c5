/* SPDX-License-Identifier: MIT */
#include "ward/worker_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/fd.h"
#include "ward/ward.h"

/* A worker sends one or two. A grandchild that holds its socket must not keep the ward busy. */
#define DRAIN_MAX 16

static const struct cause garbage = {.end = GW_END_PROTOCOL,
				     .source = GW_SOURCE_PROTOCOL,
				     .what = "it sent a message that breaks the rules"};

static struct wire_up *make_up(const struct slot *slot, const struct wire_ready *ready)
{
	struct wire_up *up = calloc(1, sizeof(*up));

	if (!up)
		return NULL;
	wire_header_init(&up->header, WIRE_UP, sizeof(*up));
	up->slot = slot->number;
	up->incarnation = slot->incarnation;
	up->pid = slot->spawned.process.pid;
	up->device = slot->device;
	up->output_bytes = slot->ward->open.output_bytes;
	up->started_ns = slot->spawned.process.started_ns;
	up->ready_ns = now_ns();
	up->n_functions = ready->n_functions;
	memcpy(up->functions, ready->functions, sizeof(up->functions));
	return up;
}

static void on_ready(struct slot *slot, const struct wire_ready *ready)
{
	static const struct cause no_memory = {.end = GW_END_STOPPED, .source = GW_SOURCE_PROTOCOL};
	static const struct cause twice = {.end = GW_END_PROTOCOL,
					   .source = GW_SOURCE_PROTOCOL,
					   .what = "it said twice that it is ready"};

	slot->announced = make_up(slot, ready);
	if (!slot->announced) {
		slot_happens(slot, EVENT_KILL_REQUEST, &no_memory);
		return;
	}
	slot_happens(slot, EVENT_READY_MSG, &twice);
	free(slot->announced);
	slot->announced = NULL;
}

static void on_fault(struct slot *slot, const struct wire_fault *fault)
{
	const struct cause cause = {.end = GW_END_CUDA,
				    .source = GW_SOURCE_RESULT,
				    .cuda = fault->cuda,
				    .task = fault->task};

	slot_happens(slot, EVENT_FAULT_MSG, &cause);
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

static void on_start_failed(struct slot *slot, const struct wire_start_failed *message)
{
	const struct cause cause = {
		.end = GW_END_START, .source = GW_SOURCE_RESULT, .what = slot->start_error.msg};

	if (slot->state == SLOT_STARTING) {
		slot->start_error = message->error;
		make_printable(slot->start_error.msg);
		slot_happens(slot, EVENT_START_FAILED_MSG, &cause);
	} else {
		slot_happens(slot, EVENT_START_FAILED_MSG, &garbage);
	}
}

/* The worker's program was linked to another build of the library. */
static void on_other_version(struct slot *slot, const struct wire_header *header)
{
	const struct cause cause = {
		.end = GW_END_START, .source = GW_SOURCE_PROTOCOL, .what = slot->start_error.msg};

	if (slot->state != SLOT_STARTING) {
		slot_happens(slot, EVENT_PROTOCOL_ERROR, &garbage);
		return;
	}
	(void)err_own(&slot->start_error, GW_EVERSION,
		      "the worker is linked to gpuward %s (layout %u), the ward is %s (layout %u): "
		      "install both from the same build",
		      header->version, header->layout, GW_VERSION_TEXT, WIRE_LAYOUT);
	make_printable(slot->start_error.msg);
	slot_happens(slot, EVENT_PROTOCOL_ERROR, &cause);
}

static void on_message(struct slot *slot, const union wire_any *message)
{
	switch (message->header.type) {
	case WIRE_READY:
		on_ready(slot, &message->ready);
		break;
	case WIRE_FAULT:
		on_fault(slot, &message->fault);
		break;
	case WIRE_START_FAILED:
		on_start_failed(slot, &message->start_failed);
		break;
	default:
		slot_happens(slot, EVENT_PROTOCOL_ERROR, &garbage);
		break;
	}
}

/* After the end of the stream the socket is readable for ever: it is not watched any more. */
static void on_end(struct slot *slot)
{
	loop_remove(&slot->ward->loop, &slot->socket_source);
	slot_happens(slot, EVENT_SOCKET_EOF, NULL);
}

bool worker_link_read(struct slot *slot)
{
	union wire_any message;
	int fds[WIRE_FDS_MAX];
	int result;

	result = wire_receive(slot->socket, &message, fds);
	for (size_t i = 0; i < WIRE_FDS_MAX; i++)
		fd_close(fds[i]);
	if (result == -EAGAIN || result == -ENOMEM || result == -ENOBUFS)
		return false; /* the loop tells again */
	if (result == GW_EVERSION)
		on_other_version(slot, &message.header);
	else if (result == GW_EPROTOCOL || result == -EMFILE)
		slot_happens(slot, EVENT_PROTOCOL_ERROR, &garbage);
	else if (result > 0)
		on_message(slot, &message);
	else
		on_end(slot);
	return result > 0 || result == GW_EVERSION || result == GW_EPROTOCOL || result == -EMFILE;
}

void worker_link_drain(struct slot *slot)
{
	int socket = slot->socket_source.fd;

	/* A message can put the next process, with its own socket, in the slot. */
	for (int i = 0; i < DRAIN_MAX && socket >= 0 && slot->socket_source.fd == socket; i++) {
		if (!worker_link_read(slot))
			return;
	}
}

void worker_link_send_stop(struct slot *slot)
{
	struct wire_word stop;

	wire_header_init(&stop.header, WIRE_STOP, sizeof(stop));
	/* A worker whose socket is full or closed does not hear it: the stop deadline is for that. */
	(void)wire_send(slot->socket, &stop, NULL, 0);
}
