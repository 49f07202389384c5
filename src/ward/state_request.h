/* SPDX-License-Identifier: MIT */
/*
 * What the ward answers to a worker that asks about surviving state: the rules, without the sockets.
 *
 * Runs in: ward. Each request is carried out in one step, and either changes what it says or nothing.
 * Read next: state.h for the rules, state.c for the sockets, ../common/state_wire.h for the messages.
 */
#ifndef GPUWARD_WARD_STATE_REQUEST_H
#define GPUWARD_WARD_STATE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/state_wire.h"
#include "linux/loop.h"
#include "ward/state.h"
#include "ward/state_piece.h"

struct keep;

struct state_client {
	struct state *state;
	struct state_who who;
	uint32_t number; /* its place in state->clients */
	int device;	 /* index in the pool's list, or -1 */
	int socket;
	int pidfd; /* of the process, where state is kept; -1 */
	struct loop_source source;
	bool fenced;
	bool gone;	      /* the process is; a child that it forked may hold its descriptors */
	bool closed;	      /* nobody holds the other end of the socket any more */
	bool broken;	      /* it broke the rules: it is not listened to any more */
	uint32_t place;	      /* pieces before this one were told, where they are sealed */
	bool wants_news;      /* it has taken all there was, and was not told of more */
	bool waits;	      /* `request` is answered later */
	uint64_t waits_since; /* order among those that wait */
	bool answers;	      /* `answer` was not sent yet */
	struct state_request request;
	struct state_answer answer;
};

struct state {
	struct loop *loop;
	struct loop_timer retry_timer; /* the kernel had no memory for a message */
	struct state_pieces pieces;
	struct state_client *clients[STATE_CLIENTS_MAX];
	uint64_t n_waits;
	struct keep *keep; /* NULL: state ends with the pool */
	void (*kept)(void *owner, const struct gw_error *error);
	void *kept_owner;
};

/* What came with a request. */
struct state_offer {
	int *fds; /* the handler takes what it wants to keep */
	size_t n_fds;
	bool no_room; /* there were more, for which the ward had no room */
};

/*
 * Carries out client->request and fills client->answer. Returns false when the answer has to wait, until
 * something changes: then it is to be called again, without an offer.
 */
bool state_request_run(struct state_client *client, const struct state_offer *offer);

/* What the client has passes on to others, and what it was making is dropped. */
void state_request_release(struct state_client *client);

/* The process is gone, but its client stays: ends what nobody else can be using. */
void state_request_drop_unfinished(struct state_client *client);

/* The descriptors that go with client->answer; at most STATE_FDS_MAX. Returns their number. */
size_t state_request_fds(struct state_client *client, int fds[STATE_FDS_MAX]);

/* state.c: something has changed: those that wait get another look, in the order in which they came. */
void state_run_waiting(struct state *state);

/* state.c: CLIENT is to be told that STATE_NEXT has something for it. */
void state_client_news(struct state_client *client);

#endif
