/* SPDX-License-Identifier: MIT */
#include "worker/state_link.h"

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "common/packet.h"

void state_talk_begin(struct state_talk *talk, enum state_wire_type type, uint64_t piece)
{
	memset(&talk->request, 0, sizeof(talk->request));
	state_wire_header(&talk->request.header, type, sizeof(talk->request));
	talk->request.piece = piece;
	talk->n_out = 0;
	talk->fds_out[0] = talk->fds_out[1] = -1;
	for (uint32_t i = 0; i < STATE_FDS_MAX; i++)
		talk->fds[i] = -1;
	memset(&talk->answer, 0, STATE_ANSWER_BYTES(0));
}

void state_talk_end(struct state_talk *talk)
{
	packet_close_fds(talk->fds, STATE_FDS_MAX);
}

static int say_lost(struct gw_error *ret_error)
{
	return err_own(ret_error, GW_EWARDLOST, "the ward has ended: there is nobody to ask");
}

/* The answer, as it comes. Returns 0, GW_EWARDLOST, GW_EPROTOCOL, -EMFILE. */
static int receive(const struct state_link *link, union state_any *message, int *fds,
		   struct gw_error *ret_error)
{
	struct packet packet;
	int result = packet_receive(link->socket, message, sizeof(*message), fds, STATE_FDS_MAX,
				    &packet);

	if (result <= 0)
		return say_lost(ret_error);
	if (packet.too_much || state_wire_check_answer(message, packet.bytes) < 0) {
		packet_close_fds(fds, STATE_FDS_MAX);
		return err_own(ret_error, GW_EPROTOCOL, "the ward's answer breaks the rules");
	}
	return packet.no_room ? -EMFILE : 0;
}

/* Each entry has the descriptors that it speaks of. */
static bool fds_are_there(const struct state_answer *answer, const int *fds)
{
	uint32_t wanted = 0;

	for (uint32_t i = 0; i < answer->count; i++)
		wanted += answer->entries[i].n_fds;
	return wanted <= STATE_FDS_MAX && (wanted == 0 || fds[wanted - 1] >= 0);
}

static int take_answer(struct state_link *link, struct state_talk *talk, struct gw_error *ret_error)
{
	union state_any message;
	int result = receive(link, &message, talk->fds, ret_error);

	if (result < 0 && result != -EMFILE)
		return result;
	memcpy(&talk->answer, &message.answer, message.header.bytes);
	if (talk->answer.number != link->number)
		return err_own(ret_error, GW_EPROTOCOL, "the ward answers what was not asked");
	if (result == 0 && !fds_are_there(&talk->answer, talk->fds))
		return err_own(ret_error, GW_EPROTOCOL, "the ward's answer lacks a descriptor");
	return result;
}

int state_link_ask(struct state_link *link, struct state_talk *talk, struct gw_error *ret_error)
{
	int result;

	talk->request.number = ++link->number;
	result = packet_send(link->socket, &talk->request, sizeof(talk->request), talk->fds_out,
			     talk->n_out);
	if (result == -EPIPE || result == -ECONNRESET)
		return say_lost(ret_error);
	if (result < 0)
		return err_os(ret_error, -result, "cannot ask the ward");
	result = take_answer(link, talk, ret_error);
	if (result == -EMFILE)
		return err_os(ret_error, EMFILE, "no room for the descriptors of state");
	if (result == 0 && talk->answer.error.code < 0) {
		if (ret_error)
			*ret_error = talk->answer.error;
		result = talk->answer.error.code;
	}
	if (result < 0)
		state_talk_end(talk);
	return result;
}
