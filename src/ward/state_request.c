/* SPDX-License-Identifier: MIT */
#include "ward/state_request.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "common/err.h"
#include "common/fd.h"
#include "ward/state_kept.h"
#include "ward/state_text.h"

#define FUSE_SUPER_MAGIC 0x65735546

/* ---- answers ---- */

static struct gw_error *error_of(struct state_client *client)
{
	return &client->answer.error;
}

static void add_entry(struct state_client *client, const struct state_piece *piece,
		      enum state_wire_act act)
{
	struct state_pieces *pieces = &client->state->pieces;
	struct state_entry *entry = &client->answer.entries[client->answer.count++];
	bool mapped = act == STATE_DO_MAP || act == STATE_DO_REDO;

	*entry = (struct state_entry){
		.piece = state_piece_number(pieces, piece),
		.address = piece->address,
		.bytes = piece->bytes,
		.copy_bytes = piece->copy_bytes,
		.epoch = piece->epoch,
		.task = piece->task,
		.device = pieces->devices[piece->device].number,
		.kind = piece->kind,
		.status = piece->status,
		.owner_pid = piece->owner_pid,
		.act = act,
		.n_fds = mapped ? STATE_COPIES(piece->kind) : 0,
	};
	memcpy(entry->name, piece->name, sizeof(entry->name));
}

size_t state_request_fds(struct state_client *client, int fds[STATE_FDS_MAX])
{
	size_t count = 0;

	for (uint32_t i = 0; i < client->answer.count; i++) {
		const struct state_entry *entry = &client->answer.entries[i];
		const struct state_piece *piece =
			state_piece_by_number(&client->state->pieces, entry->piece);

		for (uint32_t copy = 0; piece && copy < entry->n_fds; copy++)
			fds[count++] = piece->fds[copy];
	}
	return count;
}

/* The piece that the request names by number and that is this client's to write; or NULL with the error. */
static struct state_piece *own_piece(struct state_client *client)
{
	struct state_piece *piece =
		state_piece_by_number(&client->state->pieces, client->request.piece);

	if (piece && piece->owner == client->number)
		return piece;
	(void)err_own(error_of(client), -ENOENT, "this worker does not have this state to write");
	return NULL;
}

static struct state_piece *named_piece(struct state_client *client)
{
	struct state_pieces *pieces = &client->state->pieces;
	struct state_piece *piece =
		state_piece_by_name(pieces, (uint32_t)client->device, client->request.name);
	const struct state_piece *elsewhere =
		state_piece_by_name(pieces, pieces->n_devices, client->request.name);

	if (!piece)
		(void)err_own(error_of(client), -ENOENT, "there is no state '%s' on device %d%s%s",
			      client->request.name, client->who.device,
			      elsewhere ? ": the one that is kept is of " : "",
			      elsewhere ? elsewhere->home : "");
	return piece;
}

/* ---- making and sealing ---- */

static bool on_reserve(struct state_client *client, const struct state_offer *offer)
{
	const struct state_request *request = &client->request;
	const struct state_plan plan = {.name = request->name,
					.bytes = request->bytes,
					.copy_bytes = request->copy_bytes,
					.kind = request->kind,
					.device = (uint32_t)client->device,
					.client = client->number,
					.pid = client->who.pid};
	struct state_piece *piece;

	(void)offer;
	if (state_piece_make(&client->state->pieces, &plan, &piece, error_of(client)) == 0)
		add_entry(client, piece, STATE_LOOK);
	return true;
}

/*
 * Device memory is a character device, or a file in the emulation. Nothing else is kept: a socket could keep
 * itself alive, and the last close of a file of a user's own file system waits for that user.
 */
static bool may_be_memory(int fd)
{
	struct stat status;
	struct statfs system;

	if (fstat(fd, &status) < 0)
		return false;
	if (S_ISCHR(status.st_mode))
		return true;
	return S_ISREG(status.st_mode) && fstatfs(fd, &system) == 0 &&
	       system.f_type != FUSE_SUPER_MAGIC;
}

static int check_offer(const struct state_piece *piece, const struct state_offer *offer,
		       struct gw_error *ret_error)
{
	struct rlimit limit = {0};

	if (offer->no_room) {
		(void)getrlimit(RLIMIT_NOFILE, &limit);
		return err_own(ret_error, GW_ELIMIT,
			       "the ward has no descriptor left for state '%s': its limit is %llu "
			       "(ulimit -Hn)",
			       piece->name, (unsigned long long)limit.rlim_cur);
	}
	if (piece->status != GW_STATE_MAKING || piece->fds[0] >= 0)
		return err_own(ret_error, -EALREADY, "state '%s' is made already", piece->name);
	if (offer->n_fds != STATE_COPIES(piece->kind))
		return err_own(ret_error, GW_EPROTOCOL, "state '%s' came with %zu descriptors",
			       piece->name, offer->n_fds);
	for (size_t i = 0; i < offer->n_fds; i++) {
		if (!may_be_memory(offer->fds[i]))
			return err_own(ret_error, GW_EPROTOCOL,
				       "what came for state '%s' is no device memory", piece->name);
	}
	return 0;
}

static bool on_offer(struct state_client *client, const struct state_offer *offer)
{
	struct state_piece *piece = own_piece(client);

	if (!piece || (offer && check_offer(piece, offer, error_of(client)) < 0))
		return true;
	/* Without an offer it was taken before, and has waited for the keeper. */
	for (size_t i = 0; offer && i < offer->n_fds; i++)
		piece->fds[i] = fd_steal(&offer->fds[i]);
	if (piece->kind == GW_STATE_MUTABLE && piece->fds[0] >= 0) {
		if (!state_kept_piece(client, piece))
			return false;
		piece->status = GW_STATE_READY;
	}
	state_piece_changed(&client->state->pieces, piece);
	return true;
}

static void tell_all(struct state *state, const struct state_piece *piece)
{
	for (uint32_t i = 0; i < STATE_CLIENTS_MAX; i++) {
		struct state_client *client = state->clients[i];

		if (client && client->device == (int)piece->device)
			state_client_news(client);
	}
}

/* Others are told of it when they ask what is new: they look from this place on again. */
static void look_again(struct state *state, const struct state_piece *piece)
{
	uint32_t place = (uint32_t)(piece - state->pieces.all);

	for (uint32_t i = 0; i < STATE_CLIENTS_MAX; i++) {
		struct state_client *client = state->clients[i];

		if (client && client->place > place)
			client->place = place;
	}
}

static bool on_seal(struct state_client *client, const struct state_offer *offer)
{
	struct state_pieces *pieces = &client->state->pieces;
	struct state_piece *piece = own_piece(client);

	(void)offer;
	if (!piece)
		return true;
	if (piece->kind != GW_STATE_SEALED || piece->fds[0] < 0) {
		(void)err_own(error_of(client), -EINVAL, "state '%s' cannot be sealed",
			      piece->name);
		return true;
	}
	if (!state_kept_piece(client, piece))
		return false;
	piece->status = GW_STATE_READY;
	state_piece_own(pieces, piece, STATE_NOBODY, -1);
	look_again(client->state, piece);
	tell_all(client->state, piece);
	return true;
}

/* ---- mapping ---- */

/*
 * The last copy of the socket is closed, though the loop has not come to that yet:
 *
 *	a child of dead worker A ends		worker B, an instant later, asks for what A had
 *	both lie in the loop: if B's request comes first, A's end is still to be waited for, and no refusal
 */
static bool has_hung_up(const struct state_client *client)
{
	struct pollfd fd = {.fd = client->socket, .events = POLLIN};

	return poll(&fd, 1, 0) > 0 && (fd.revents & POLLHUP);
}

static bool refuse_busy(struct state_client *client, const struct state_piece *piece,
			const struct state_client *other)
{
	if (other->gone)
		(void)err_own(error_of(client), -EBUSY,
			      "worker pid %d, which had state '%s', is gone, but a process that it "
			      "forked still has its descriptors and may keep its kernels running: "
			      "end that process",
			      other->who.pid, piece->name);
	else
		(void)err_own(error_of(client), -EBUSY, "worker pid %d has state '%s'",
			      other->who.pid, piece->name);
	return true;
}

static bool map_sealed(struct state_client *client, struct state_piece *piece)
{
	bool has = state_clients_has(&piece->mapped, client->number);

	state_clients_add(&piece->mapped, client->number);
	state_clients_add(&piece->wanted, client->number);
	state_clients_add(&piece->told, client->number);
	add_entry(client, piece, has ? STATE_HAVE_IT : STATE_DO_MAP);
	return true;
}

static bool map_mutable(struct state_client *client, struct state_piece *piece)
{
	bool copying = piece->status == GW_STATE_COPYING;

	if (!state_kept_own(client, piece))
		return false;
	state_clients_add(&piece->mapped, client->number);
	state_clients_add(&piece->wanted, client->number);
	state_piece_own(&client->state->pieces, piece, client->number, client->who.pid);
	add_entry(client, piece, copying ? STATE_DO_REDO : STATE_DO_MAP);
	return true;
}

static bool on_map(struct state_client *client, const struct state_offer *offer)
{
	struct state_piece *piece = named_piece(client);
	const struct state_client *owner = NULL;

	(void)offer;
	if (!piece)
		return true;
	if (piece->kind == GW_STATE_SEALED && client->request.access == GW_STATE_WRITE &&
	    piece->owner != client->number) {
		(void)err_own(error_of(client), -EACCES,
			      "state '%s' is sealed: it can be mapped for reading only",
			      piece->name);
		return true;
	}
	if (piece->owner == client->number) {
		add_entry(client, piece, STATE_HAVE_IT);
		return true;
	}
	if (piece->status == GW_STATE_MAKING)
		return false;
	if (piece->kind == GW_STATE_SEALED)
		return map_sealed(client, piece);
	if (piece->owner == STATE_NOBODY)
		return map_mutable(client, piece);
	owner = client->state->clients[piece->owner];
	if ((owner->gone && !has_hung_up(owner)) ||
	    !(owner->gone || owner->fenced || owner->closed))
		return refuse_busy(client, piece, owner);
	return false;
}

static bool on_unmap(struct state_client *client, const struct state_offer *offer)
{
	struct state_pieces *pieces = &client->state->pieces;
	struct state_piece *piece = state_piece_by_number(pieces, client->request.piece);

	(void)offer;
	if (piece && piece->owner == client->number)
		state_kept_disown(client->state, piece);
	if (piece && state_clients_has(&piece->mapped, client->number))
		state_piece_unmap(pieces, piece, client->number);
	return true;
}

static bool on_refused(struct state_client *client, const struct state_offer *offer)
{
	struct state_piece *piece =
		state_piece_by_number(&client->state->pieces, client->request.piece);

	/* First the text: the piece may end at once. */
	if (piece)
		(void)state_kept_explain(client->state, piece, error_of(client));
	return on_unmap(client, offer);
}

static bool on_drop(struct state_client *client, const struct state_offer *offer)
{
	struct state_piece *piece = named_piece(client);
	uint32_t other;

	(void)offer;
	if (!piece)
		return true;
	other = state_clients_other(&piece->wanted, client->number);
	if (other != STATE_NOBODY)
		return refuse_busy(client, piece, client->state->clients[other]);
	if (!state_kept_drop(client->state, piece))
		return false;
	/* The answer first: the piece may end at once. */
	add_entry(client, piece, STATE_DO_FORGET);
	tell_all(client->state, piece);
	state_piece_drop(&client->state->pieces, piece);
	return true;
}

/* ---- commits ---- */

/* Whether PIECE is meant by a request that names one, or with 0 all. */
static bool is_meant(struct state_client *client, const struct state_piece *piece)
{
	uint64_t number = client->request.piece;

	return piece->kind == GW_STATE_MUTABLE && piece->owner == client->number &&
	       piece->status != GW_STATE_MAKING &&
	       (number == 0 || number == state_piece_number(&client->state->pieces, piece));
}

/* Brings all that are meant from status FROM to status TO, or none of them. */
static bool step(struct state_client *client, uint32_t from, uint32_t to)
{
	struct state_pieces *pieces = &client->state->pieces;
	struct state_kept_step kept;
	struct state_piece *piece;
	uint32_t count = 0;

	state_kept_step_begin(&kept, to, client->request.task);
	for (uint32_t place = 0; (piece = state_piece_next(pieces, &place));) {
		if (!is_meant(client, piece))
			continue;
		count++;
		state_kept_step_add(&kept, client->state, piece);
		if (piece->status != from) {
			(void)err_own(error_of(client), GW_EPROTOCOL,
				      "state '%s' is at another step of its commit", piece->name);
			return true;
		}
	}
	if (count == 0)
		(void)err_own(error_of(client), -ENOENT,
			      "this worker does not have this state to commit");
	else if (!state_kept_step_send(&kept, client->state))
		return false;
	for (uint32_t place = 0; (piece = state_piece_next(pieces, &place));) {
		if (!is_meant(client, piece))
			continue;
		piece->status = to;
		piece->epoch += to == GW_STATE_COPYING;
		piece->task = to == GW_STATE_COPYING ? client->request.task : piece->task;
		state_piece_changed(pieces, piece);
	}
	return true;
}

static bool on_commit(struct state_client *client, const struct state_offer *offer)
{
	(void)offer;
	return step(client, GW_STATE_READY, GW_STATE_COPYING);
}

static bool on_settle(struct state_client *client, const struct state_offer *offer)
{
	(void)offer;
	return step(client, GW_STATE_COPYING, GW_STATE_READY);
}

/* ---- what there is ---- */

static bool on_list(struct state_client *client, const struct state_offer *offer)
{
	struct state_pieces *pieces = &client->state->pieces;
	uint64_t from = client->request.piece;
	uint32_t place = from < pieces->high ? (uint32_t)from : pieces->high;
	struct state_piece *piece;

	(void)offer;
	while (client->answer.count < STATE_BATCH && (piece = state_piece_next(pieces, &place))) {
		if (piece->device == (uint32_t)client->device)
			add_entry(client, piece, STATE_LOOK);
	}
	client->answer.next = place < pieces->high ? place : 0;
	return true;
}

/* Pieces that were dropped, and that this client still has mapped. */
static void add_dropped(struct state_client *client)
{
	struct state_pieces *pieces = &client->state->pieces;
	struct state_piece *piece;

	for (uint32_t place = 0;
	     client->answer.count < STATE_BATCH && (piece = state_piece_next(pieces, &place));) {
		if (piece->status == GW_STATE_DROPPED &&
		    state_clients_has(&piece->mapped, client->number))
			add_entry(client, piece, STATE_DO_UNMAP);
	}
}

static void add_sealed(struct state_client *client)
{
	struct state_pieces *pieces = &client->state->pieces;
	struct state_piece *piece;

	while (client->answer.count < STATE_BATCH &&
	       (piece = state_piece_next(pieces, &client->place))) {
		if (piece->kind != GW_STATE_SEALED || piece->status != GW_STATE_READY ||
		    piece->device != (uint32_t)client->device ||
		    state_clients_has(&piece->told, client->number))
			continue;
		state_clients_add(&piece->told, client->number);
		state_clients_add(&piece->mapped, client->number);
		add_entry(client, piece, STATE_DO_MAP);
	}
}

static bool on_next(struct state_client *client, const struct state_offer *offer)
{
	(void)offer;
	add_dropped(client);
	add_sealed(client);
	client->answer.more = client->answer.count == STATE_BATCH;
	client->wants_news = !client->answer.more;
	return true;
}

static bool on_usage(struct state_client *client, const struct state_offer *offer)
{
	_Static_assert(sizeof(client->answer.error.msg) >= STATE_TEXT_BYTES, "room for the text");

	(void)offer;
	state_text_usage(&client->state->pieces, (uint32_t)client->device,
			 client->answer.error.msg);
	return true;
}

/* ---- the whole ---- */

bool state_request_run(struct state_client *client, const struct state_offer *offer)
{
	static bool (*const handlers[])(struct state_client *, const struct state_offer *) = {
		[STATE_RESERVE] = on_reserve, [STATE_OFFER] = on_offer,
		[STATE_SEAL] = on_seal,	      [STATE_MAP] = on_map,
		[STATE_COMMIT] = on_commit,   [STATE_SETTLE] = on_settle,
		[STATE_UNMAP] = on_unmap,     [STATE_DROP] = on_drop,
		[STATE_LIST] = on_list,	      [STATE_NEXT] = on_next,
		[STATE_USAGE] = on_usage,     [STATE_REFUSED] = on_refused,
	};
	struct state_answer *answer = &client->answer;
	bool done = true;

	memset(answer, 0, STATE_ANSWER_BYTES(0));
	answer->number = client->request.number;
	if (client->fenced)
		(void)err_own(error_of(client), GW_EFENCED,
			      "this worker was replaced: nothing that it does counts any more");
	else if (client->device < 0)
		(void)err_own(error_of(client), -ENOTSUP,
			      "a worker without a device has no device memory");
	else
		done = state_kept_knows_device(client) &&
		       handlers[client->request.header.type](client, offer);
	state_wire_header(&answer->header, STATE_ANSWER, STATE_ANSWER_BYTES(answer->count));
	return done;
}

void state_request_release(struct state_client *client)
{
	struct state_pieces *pieces = &client->state->pieces;
	struct state_piece *piece;

	for (uint32_t place = 0; (piece = state_piece_next(pieces, &place));) {
		state_clients_remove(&piece->told, client->number);
		if (state_clients_has(&piece->mapped, client->number))
			state_piece_unmap(pieces, piece, client->number);
	}
}

void state_request_drop_unfinished(struct state_client *client)
{
	struct state_pieces *pieces = &client->state->pieces;
	struct state_piece *piece;

	for (uint32_t place = 0; (piece = state_piece_next(pieces, &place));) {
		if (piece->status == GW_STATE_MAKING && piece->owner == client->number)
			state_piece_drop(pieces, piece);
	}
}
