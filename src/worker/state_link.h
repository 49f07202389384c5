/* SPDX-License-Identifier: MIT */
/*
 * The worker's end of the socket about surviving state: asks one thing and waits for its answer.
 *
 * Runs in: worker, main thread; waits for as long as the ward takes to answer.
 * Read next: ../common/state_wire.h.
 */
#ifndef GPUWARD_WORKER_STATE_LINK_H
#define GPUWARD_WORKER_STATE_LINK_H

#include <stdint.h>

#include "common/state_wire.h"

struct state_link {
	int socket;
	uint64_t number; /* of the last request */
};

/* What is asked, and what came back. */
struct state_talk {
	struct state_request request;
	int fds_out[2];
	uint32_t n_out;
	struct state_answer answer;
	int fds[STATE_FDS_MAX]; /* in the order of the entries; close what is not -1 */
};

/* Sets TALK up for a request of TYPE about PIECE (or 0). */
void state_talk_begin(struct state_talk *talk, enum state_wire_type type, uint64_t piece);

/* Closes the descriptors that are left. */
void state_talk_end(struct state_talk *talk);

/*
 * Asks. Returns 0 when the ward has done it; the ward's own refusal; GW_EWARDLOST; GW_EPROTOCOL; or -EMFILE: it
 * is done, but this process has no room for the descriptors.
 */
int state_link_ask(struct state_link *link, struct state_talk *talk, struct gw_error *ret_error);

#endif
