/* SPDX-License-Identifier: MIT */
/*
 * The sockets of surviving state: one request at a time from each worker, one answer to it.
 *
 * Runs in: ward; never waits. A client whose answer cannot be sent, or has to wait for another process, is
 * not read from: so what a worker can make the ward keep is one request and one answer.
 *
 *	socket is watched for	when
 *	input			it may ask
 *	room			its answer did not fit
 *	its end alone		its answer waits: for another client, or for memory of the kernel's
 *
 * Read next: state.h, state_request.c.
 */
#include "ward/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "common/fd.h"
#include "common/packet.h"
#include "ward/keep.h"
#include "ward/state_request.h"

/* When the kernel had no memory for a message: it does not say when it has again. */
#define RETRY_NS 50000000ULL

/* What a dead worker may have left to read. A child that it forked must not keep the ward busy. */
#define DRAIN_MAX 16

static void watch_as_needed(struct state_client *client, bool for_room)
{
	uint32_t events = EPOLLIN;

	if (client->source.fd < 0)
		return;
	if (client->broken || client->waits || client->answers)
		events = for_room ? EPOLLOUT : 0;
	/* It only changes what is there, and does not fail. */
	(void)loop_change(client->state->loop, &client->source, events);
}

/* ---- sending ---- */

static void send_answer(struct state_client *client)
{
	int fds[STATE_FDS_MAX];
	size_t n_fds = state_request_fds(client, fds);
	int result = packet_send(client->socket, &client->answer, client->answer.header.bytes, fds,
				 n_fds);

	/* Any other failure means that nobody reads it any more. */
	client->answers = result == -EAGAIN || result == -ENOMEM || result == -ENOBUFS ||
			  result == -ETOOMANYREFS;
	watch_as_needed(client, result == -EAGAIN);
	if (client->answers && result != -EAGAIN)
		loop_set_timer(&client->state->retry_timer, now_ns() + RETRY_NS);
}

void state_client_news(struct state_client *client)
{
	if (client->wants_news && !client->fenced && client->who.news)
		client->wants_news = client->who.news(client->who.owner) < 0;
}

static void on_retry(struct loop_timer *timer)
{
	struct state *state = timer->owner;

	for (uint32_t i = 0; i < STATE_CLIENTS_MAX; i++) {
		struct state_client *client = state->clients[i];

		if (client && client->answers)
			send_answer(client);
	}
}

/* ---- asking ---- */

static void run(struct state_client *client, const struct state_offer *offer)
{
	client->waits = !state_request_run(client, offer);
	if (client->waits && client->waits_since == 0)
		client->waits_since = ++client->state->n_waits;
	if (client->waits) {
		watch_as_needed(client, false);
		return;
	}
	client->waits_since = 0;
	client->answers = true;
	send_answer(client);
}

static struct state_client *first_waiting(const struct state *state, uint64_t after)
{
	struct state_client *first = NULL;

	for (uint32_t i = 0; i < STATE_CLIENTS_MAX; i++) {
		struct state_client *client = state->clients[i];

		if (client && client->waits && client->waits_since > after &&
		    (!first || client->waits_since < first->waits_since))
			first = client;
	}
	return first;
}

void state_run_waiting(struct state *state)
{
	struct state_client *client;
	uint64_t after = 0;

	while ((client = first_waiting(state, after))) {
		after = client->waits_since;
		run(client, NULL);
	}
}

/* Its socket stays, since the end of it is still to be seen. */
static void on_broken(struct state_client *client)
{
	void (*broken)(void *owner) = client->who.broken;

	client->broken = true;
	client->waits = client->answers = false;
	watch_as_needed(client, false);
	if (broken && !client->fenced)
		broken(client->who.owner);
}

static void on_closed(struct state_client *client)
{
	loop_remove(client->state->loop, &client->source);
	client->closed = true;
	client->waits = client->answers = false;
}

/* Takes one message. Returns whether there was one. */
static bool read_one(struct state_client *client)
{
	union state_any message;
	int fds[STATE_FDS_MAX];
	struct packet packet;
	int result = packet_receive(client->socket, &message, sizeof(message), fds, STATE_FDS_MAX,
				    &packet);

	if (result == -EAGAIN || result == -ENOMEM || result == -ENOBUFS)
		return false;
	if (result <= 0) {
		on_closed(client);
		return false;
	}
	if (packet.too_much || state_wire_check_request(&message, packet.bytes) < 0) {
		packet_close_fds(fds, STATE_FDS_MAX);
		on_broken(client);
		return false;
	}
	client->request = message.request;
	run(client, &(const struct state_offer){
			    .fds = fds, .n_fds = packet.n_fds, .no_room = packet.no_room});
	packet_close_fds(fds, STATE_FDS_MAX);
	state_run_waiting(client->state);
	return true;
}

/* ---- clients ---- */

static void destroy(struct state_client *client)
{
	struct state *state = client->state;

	loop_remove(state->loop, &client->source);
	fd_close(client->socket);
	fd_close(client->pidfd);
	state->clients[client->number] = NULL;
	free(client);
}

/* Nobody can touch what it had any more: the process is gone, and no copy of it holds its descriptors. */
static void release(struct state_client *client)
{
	struct state *state = client->state;

	state_request_release(client);
	destroy(client);
	state_run_waiting(state);
}

static void on_socket_ready(struct loop_source *source, uint32_t events)
{
	struct state_client *client = source->owner;

	/* Nobody is there to answer. What was said before the end is still read: it may have been a seal. */
	if (events & (EPOLLHUP | EPOLLERR)) {
		client->waits = client->answers = false;
		if (client->broken)
			on_closed(client);
		else
			(void)read_one(client);
	} else if (client->answers) {
		send_answer(client);
	} else if (events & EPOLLIN) {
		(void)read_one(client);
	}
}

/*
 * on_socket_ready() may have freed the client by then, through a callback of its owner's: so the look whether
 * it was the last that held a dead process is apart.
 */
static void on_gone_socket_ready(struct loop_source *source, uint32_t events)
{
	struct state_client *client = source->owner;

	on_socket_ready(source, events);
	if (client->closed)
		release(client);
}

int state_client_new(struct state *state, const struct state_who *who, int *socket,
		     struct state_client **ret_client)
{
	struct state_client *client;
	uint32_t number = 0;
	int result;

	while (number < STATE_CLIENTS_MAX && state->clients[number])
		number++;
	if (number == STATE_CLIENTS_MAX)
		return -EAGAIN;
	client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	client->state = state;
	client->who = *who;
	client->number = number;
	client->device = state_pieces_device(&state->pieces, who->device);
	client->socket = *socket;
	client->source = (struct loop_source){.fd = -1, .ready = on_socket_ready, .owner = client};
	client->pidfd =
		state->keep && who->process ? fcntl(who->process->pidfd, F_DUPFD_CLOEXEC, 3) : -1;
	result = state->keep && client->pidfd < 0 ? -errno : 0;
	if (result == 0)
		result = loop_add(state->loop, &client->source, *socket, EPOLLIN);
	if (result < 0) {
		fd_close(client->pidfd);
		free(client);
		return result;
	}
	*socket = -1;
	state->clients[number] = client;
	*ret_client = client;
	return 0;
}

void state_client_fence(struct state_client *client)
{
	if (!client || client->fenced)
		return;
	client->fenced = true;
	client->who.broken = NULL;
	client->who.news = NULL;
	if (client->waits)
		run(client, NULL);
}

void state_client_free(struct state_client *client)
{
	struct state *state;

	if (!client)
		return;
	state = client->state;
	state_client_fence(client);
	client->gone = true;
	client->waits = client->answers = false;
	client->source.ready = on_gone_socket_ready;
	for (int i = 0; i < DRAIN_MAX && !client->closed && !client->broken; i++) {
		if (!read_one(client))
			break;
		client->answers = false;
	}
	if (client->closed) {
		release(client);
		return;
	}
	watch_as_needed(client, false);
	state_request_drop_unfinished(client);
	state_run_waiting(state);
}

int state_new(const struct state_config *config, struct state **ret_state)
{
	struct state *state = calloc(1, sizeof(*state));
	int result;

	if (!state)
		return -ENOMEM;
	state->loop = config->loop;
	result = state_pieces_init(&state->pieces, config->devices, config->n_devices,
				   config->max_bytes, config->page);
	if (result < 0) {
		free(state);
		return result;
	}
	state->retry_timer = (struct loop_timer){.due = on_retry, .owner = state};
	loop_add_timer(state->loop, &state->retry_timer);
	*ret_state = state;
	return 0;
}

void state_free(struct state *state)
{
	if (!state)
		return;
	for (uint32_t i = 0; i < STATE_CLIENTS_MAX; i++) {
		if (state->clients[i])
			destroy(state->clients[i]);
	}
	keep_free(state->keep, state_pieces_are_gone(&state->pieces));
	state_pieces_done(&state->pieces);
	loop_remove_timer(state->loop, &state->retry_timer);
	free(state);
}
