/* SPDX-License-Identifier: MIT */
#include "worker/state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/wire.h"
#include "worker/error_log.h"
#include "worker/state_self.h"
#include "worker/worker.h"

/* The functions of the interface have no argument that would say whose they are. */
static struct state_self only;

void state_begin(struct worker *worker)
{
	only.worker = worker;
	only.thread = gettid();
	only.link.socket = WIRE_WORKER_STATE;
	only.memory.door = &worker->door;
}

/* ---- what more than one function does ---- */

static int take_news(struct state_self *self, struct gw_error *ret_error);

/* The ward keeps what it thinks is mapped here. */
static int tell_unmapped(struct state_self *self, struct gw_error *ret_error)
{
	for (uint32_t i = self->table.count; i > 0; i--) {
		struct state_local *local = &self->table.locals[i - 1];
		int result = 0;

		if (!local->unmapped)
			continue;
		result = state_ask(self, STATE_UNMAP, local->entry.piece, ret_error);
		if (result < 0)
			return result;
		state_table_remove(&self->table, local);
	}
	self->owes = false;
	return 0;
}

int state_enter(struct state_self **ret_self, struct gw_error *ret_error)
{
	if (!only.worker)
		return err_own(ret_error, -ENOTSUP,
			       "surviving state is for workers: call this in a function that "
			       "gw_worker_run() runs");
	if (only.worker->device < 0)
		return err_own(ret_error, -ENOTSUP,
			       "this pool has no devices, and so no device memory to survive");
	if (gettid() != only.thread)
		return err_own(ret_error, -EPERM,
			       "gw_state_* are for the worker's main thread: no other thread, and "
			       "no forked child");
	if (only.busy)
		return err_own(ret_error, -EPERM,
			       "a signal handler cannot call gw_state_*: it interrupted another "
			       "call of them");
	only.busy = true;
	*ret_self = &only;
	/* What cannot be mapped in advance is no failure of the call that is on its way. */
	if (orders_take(only.worker, ORDER_STATE))
		(void)take_news(&only, NULL);
	return only.owes ? tell_unmapped(&only, ret_error) : 0;
}

void state_leave(struct state_self **self)
{
	if (*self)
		(*self)->busy = false;
}

struct state_local *state_find(struct state_self *self, const char *name,
			       struct gw_error *ret_error)
{
	struct state_local *local = name ? state_table_by_name(&self->table, name) : NULL;

	if (!local)
		(void)err_own(ret_error, -ENOENT, "this worker has no state '%s' mapped",
			      name ? name : "");
	return local;
}

int state_ask(struct state_self *self, enum state_wire_type type, uint64_t piece,
	      struct gw_error *ret_error)
{
	struct state_talk talk;

	state_talk_begin(&talk, type, piece);
	return state_link_ask(&self->link, &talk, ret_error);
}

static int set_name(struct state_talk *talk, const char *name, struct gw_error *ret_error)
{
	/* One that is too long has no end there, and is no good name. */
	if (name)
		memcpy(talk->request.name, name, strnlen(name, sizeof(talk->request.name)));
	if (!name || !state_wire_name_is_good(talk->request.name))
		return err_own(ret_error, -EINVAL,
			       "the name of a piece of state is 1 to %d printable characters "
			       "without spaces",
			       GW_NAME_MAX - 1);
	return 0;
}

/* Whether the caller's structure is one that this library knows. */
static int check_info(const struct gw_state_info *info, struct gw_error *ret_error)
{
	if (info && info->size < offsetof(struct gw_state_info, address))
		return err_own(ret_error, -EINVAL,
			       "set .size of struct gw_state_info to its sizeof");
	return 0;
}

static void fill_info(const struct state_entry *entry, size_t size, struct gw_state_info *ret_info)
{
	struct gw_state_info info = {
		.size = size,
		.address = entry->address,
		.bytes = entry->bytes,
		.held_bytes = STATE_HELD_BYTES(entry->kind, entry->copy_bytes),
		.epoch = entry->epoch,
		.task = entry->task,
		.device = entry->device,
		.kind = entry->kind,
		.status = entry->status,
		.owner_pid = entry->owner_pid,
	};

	memcpy(info.name, entry->name, sizeof(info.name));
	memcpy(ret_info, &info, size < sizeof(info) ? size : sizeof(info));
}

/* Unmaps LOCAL, and says so to the ward, now or at the next call. */
static int let_go(struct state_self *self, struct state_local *local, struct gw_error *ret_error)
{
	int result = state_memory_detach(&self->memory, local, ret_error);

	if (result < 0)
		return result;
	local->wanted = false;
	local->unmapped = true;
	self->owes = true;
	return tell_unmapped(self, ret_error);
}

/* ---- create ---- */

/* Who uses the memory, after the driver said that there is no more. */
static int explain_no_room(struct state_self *self, const struct state_entry *entry,
			   struct gw_error *ret_error)
{
	uint64_t held = STATE_HELD_BYTES(entry->kind, entry->copy_bytes);
	struct state_talk talk;
	size_t free_bytes = 0;
	size_t total_bytes = 0;

	state_talk_begin(&talk, STATE_USAGE, 0);
	if (state_link_ask(&self->link, &talk, NULL) < 0)
		talk.answer.error.msg[0] = '\0';
	(void)self->memory.door->cuMemGetInfo_v2(&free_bytes, &total_bytes);
	return err_set(ret_error, -ENOMEM, GW_DOMAIN_CUDA, CUDA_ERROR_OUT_OF_MEMORY,
		       "state '%.20s' needs %llu MiB, device %d has %zu MiB left; state has: %s",
		       entry->name, (unsigned long long)(held >> 20), entry->device,
		       free_bytes >> 20, talk.answer.error.msg);
}

static int offer(struct state_self *self, const struct state_local *local, int fds[2],
		 struct gw_error *ret_error)
{
	struct state_talk talk;
	int result;

	state_talk_begin(&talk, STATE_OFFER, local->entry.piece);
	talk.n_out = STATE_COPIES(local->entry.kind);
	memcpy(talk.fds_out, fds, sizeof(talk.fds_out));
	result = state_link_ask(&self->link, &talk, ret_error);
	fd_closep(&fds[0]);
	fd_closep(&fds[1]);
	return result;
}

/* After the ward has a name and an address for LOCAL. */
static int make(struct state_self *self, struct state_local *local, struct gw_error *ret_error)
{
	int fds[2] = {-1, -1};
	struct gw_error error = {0};
	int result = state_memory_make(&self->memory, local, fds, &error);

	if (result == 0) {
		result = offer(self, local, fds, &error);
		if (result < 0)
			(void)state_memory_detach(&self->memory, local, NULL);
	}
	if (result == 0)
		return 0;
	(void)state_ask(self, STATE_UNMAP, local->entry.piece, NULL);
	if (error.domain == GW_DOMAIN_CUDA && error.native == CUDA_ERROR_OUT_OF_MEMORY)
		return explain_no_room(self, &local->entry, ret_error);
	if (ret_error)
		*ret_error = error;
	return result;
}

static int check_kind(const struct state_self *self, const char *name, enum gw_state_kind kind,
		      struct gw_error *ret_error)
{
	if (kind != GW_STATE_SEALED && kind != GW_STATE_MUTABLE)
		return err_own(ret_error, -EINVAL, "%d is no kind of state", (int)kind);
	if (kind == GW_STATE_MUTABLE && state_memory_has_mps(&self->memory))
		return err_own(ret_error, -ENOTSUP,
			       "state '%s' cannot be mutable: this worker is a client of an MPS "
			       "server, where the end of a process does not prove that its kernels "
			       "have ended; run the pool without MPS, or use sealed state",
			       name);
	return 0;
}

static int reserve(struct state_self *self, struct state_talk *talk, const char *name,
		   uint64_t bytes, enum gw_state_kind kind, struct gw_error *ret_error)
{
	int result;

	state_talk_begin(talk, STATE_RESERVE, 0);
	talk->request.bytes = bytes;
	talk->request.kind = kind;
	result = set_name(talk, name, ret_error);
	if (result == 0)
		result = check_kind(self, name, kind, ret_error);
	if (result == 0)
		result = state_memory_round(&self->memory, name, bytes, &talk->request.copy_bytes,
					    ret_error);
	if (result == 0 && state_table_reserve(&self->table, 1) < 0)
		result = err_os(ret_error, ENOMEM, "no memory to keep state '%s'", name);
	if (result == 0)
		result = state_link_ask(&self->link, talk, ret_error);
	if (result == 0 && talk->answer.count != 1)
		result = err_own(ret_error, GW_EPROTOCOL, "the ward names no address");
	return result;
}

int gw_state_create(const char *name, uint64_t bytes, enum gw_state_kind kind,
		    uint64_t *ret_address, struct gw_error *ret_error)
{
	struct state_local local = {.wanted = true};
	cleanup_leave struct state_self *self = NULL;
	struct state_talk talk;
	int result = state_enter(&self, ret_error);

	if (result == 0 && !ret_address)
		result = err_own(ret_error, -EINVAL,
				 "gw_state_create has nowhere to put the "
				 "address");
	if (result == 0)
		result = reserve(self, &talk, name, bytes, kind, ret_error);
	if (result < 0)
		return result;
	local.entry = talk.answer.entries[0];
	result = make(self, &local, ret_error);
	if (result < 0)
		return result;
	if (kind == GW_STATE_MUTABLE)
		local.entry.status = GW_STATE_READY;
	state_table_add(&self->table, &local);
	*ret_address = local.entry.address;
	return 0;
}

/* ---- map ---- */

/* What the last worker left in a mutable piece is brought in order: forth or back. */
static int recover(struct state_self *self, struct state_local *local, bool redo,
		   struct gw_error *ret_error)
{
	struct state_local *const locals[] = {local};
	int result = state_memory_shadow(&self->memory, local, ret_error);

	if (result < 0)
		return result;
	if (redo) {
		state_finish_commit(self, locals, 1, local->entry.piece);
		local->entry.status = GW_STATE_READY;
		return 0;
	}
	result = state_copy_all(self, locals, 1, true, ret_error);
	state_memory_unshadow(&self->memory, local);
	return result;
}

/* Maps what ENTRY says, with its descriptors. Tells the ward where that fails. */
static int attach(struct state_self *self, const struct state_entry *entry, const int *fds,
		  bool wanted, struct gw_error *ret_error)
{
	struct state_local local = {.entry = *entry, .wanted = wanted};
	struct gw_error error = {0};
	int result = 0;

	if (state_table_reserve(&self->table, 1) < 0)
		result = err_os(&error, ENOMEM, "no memory to keep state '%s'", entry->name);
	error_log_expect(true);
	if (result == 0)
		result = state_memory_attach(&self->memory, &local, fds, &error);
	error_log_expect(false);
	if (result == 0 && entry->kind == GW_STATE_MUTABLE) {
		result = recover(self, &local, entry->act == STATE_DO_REDO, &error);
		if (result < 0)
			(void)state_memory_detach(&self->memory, &local, NULL);
	}
	if (result < 0) {
		result = state_tell_refused(self, entry, &error);
		if (ret_error)
			*ret_error = error;
		return result;
	}
	state_table_add(&self->table, &local);
	return 0;
}

/* Asks the ward for a piece, and maps it where it is not mapped yet. Returns 0 with *RET_LOCAL, which can be
 * NULL: the ward thinks that it is mapped here. */
static int ask_and_attach(struct state_self *self, struct state_talk *talk,
			  struct state_local **ret_local, struct gw_error *ret_error)
{
	const struct state_entry *entry = &talk->answer.entries[0];
	int result = state_link_ask(&self->link, talk, ret_error);

	if (result == 0 && talk->answer.count != 1)
		result = err_own(ret_error, GW_EPROTOCOL, "the ward names no state");
	if (result == 0 && entry->n_fds > 0)
		result = attach(self, entry, talk->fds, true, ret_error);
	state_talk_end(talk);
	if (result == 0)
		*ret_local = state_table_by_piece(&self->table, entry->piece);
	return result;
}

/* Maps a piece that no function here has yet. */
static int map_from_ward(struct state_self *self, const char *name, enum gw_state_access access,
			 struct state_local **ret_local, struct gw_error *ret_error)
{
	struct state_local *local = NULL;
	struct state_talk talk;
	int result;

	state_talk_begin(&talk, STATE_MAP, 0);
	talk.request.access = access;
	result = set_name(&talk, name, ret_error);
	if (result == 0)
		result = ask_and_attach(self, &talk, &local, ret_error);
	/* An unmap of which the ward could not be told. */
	if (result == 0 && !local)
		result = state_ask(self, STATE_UNMAP, talk.answer.entries[0].piece, ret_error);
	if (result == 0 && !local)
		result = ask_and_attach(self, &talk, &local, ret_error);
	if (result < 0)
		return result;
	if (!local)
		return err_own(ret_error, GW_EPROTOCOL,
			       "the ward thinks that state '%s' is mapped here", name);
	local->wanted = true;
	*ret_local = local;
	return 0;
}

int gw_state_map(const char *name, enum gw_state_access access, struct gw_state_info *ret_info,
		 struct gw_error *ret_error)
{
	struct state_local *local;
	cleanup_leave struct state_self *self = NULL;
	int result = state_enter(&self, ret_error);

	if (result == 0 && access != GW_STATE_READ && access != GW_STATE_WRITE)
		result = err_own(ret_error, -EINVAL, "%d is no access to state", (int)access);
	if (result == 0)
		result = check_info(ret_info, ret_error);
	if (result < 0)
		return result;
	local = name ? state_table_by_name(&self->table, name) : NULL;
	if (!local)
		result = map_from_ward(self, name, access, &local, ret_error);
	else if (access == GW_STATE_WRITE && local->entry.kind == GW_STATE_SEALED &&
		 local->entry.status == GW_STATE_READY)
		result = err_own(ret_error, -EACCES,
				 "state '%s' is sealed: it can be mapped for reading only", name);
	if (result == 0 && ret_info)
		fill_info(&local->entry, ret_info->size, ret_info);
	return result;
}

/* ---- seal, unmap, drop ---- */

int gw_state_seal(const char *name, struct gw_error *ret_error)
{
	struct state_local *local;
	cleanup_leave struct state_self *self = NULL;
	int result = state_enter(&self, ret_error);

	if (result < 0)
		return result;
	local = state_find(self, name, ret_error);
	if (!local)
		return -ENOENT;
	if (local->entry.kind != GW_STATE_SEALED)
		return err_own(ret_error, -EINVAL, "state '%s' is mutable: commit it", name);
	if (local->entry.status == GW_STATE_READY)
		return 0;
	/* First nobody can write it any more, then others see it. */
	result = state_memory_wait(&self->memory, ret_error);
	if (result == 0)
		result = state_memory_protect(&self->memory, local, ret_error);
	if (result == 0)
		result = state_ask(self, STATE_SEAL, local->entry.piece, ret_error);
	if (result < 0)
		return result;
	local->entry.status = GW_STATE_READY;
	local->entry.owner_pid = -1;
	return 0;
}

int gw_state_unmap(const char *name, struct gw_error *ret_error)
{
	struct state_local *local;
	cleanup_leave struct state_self *self = NULL;
	int result = state_enter(&self, ret_error);

	if (result < 0)
		return result;
	local = state_find(self, name, ret_error);
	if (!local)
		return -ENOENT;
	result = state_memory_wait(&self->memory, ret_error);
	return result < 0 ? result : let_go(self, local, ret_error);
}

int gw_state_drop(const char *name, struct gw_error *ret_error)
{
	struct state_local *local;
	cleanup_leave struct state_self *self = NULL;
	struct state_talk talk;
	int result = state_enter(&self, ret_error);

	if (result < 0)
		return result;
	state_talk_begin(&talk, STATE_DROP, 0);
	result = set_name(&talk, name, ret_error);
	if (result < 0)
		return result;
	local = state_table_by_name(&self->table, name);
	if (local)
		result = state_memory_wait(&self->memory, ret_error);
	if (result == 0)
		result = state_link_ask(&self->link, &talk, ret_error);
	/* It was dropped before, and could not be unmapped then. */
	if (result == -ENOENT && local)
		return let_go(self, local, ret_error);
	if (result < 0 || talk.answer.count != 1)
		return result;
	local = state_table_by_piece(&self->table, talk.answer.entries[0].piece);
	return local ? let_go(self, local, ret_error)
		     : state_ask(self, STATE_UNMAP, talk.answer.entries[0].piece, ret_error);
}

/* ---- list ---- */

int gw_state_list(struct gw_state_info *ret_infos, uint32_t n, struct gw_error *ret_error)
{
	uint8_t *next = (uint8_t *)ret_infos;
	cleanup_leave struct state_self *self = NULL;
	struct state_talk talk;
	uint64_t from = 0;
	int count = 0;
	int result = state_enter(&self, ret_error);

	if (result == 0 && n > 0 && !ret_infos)
		result = err_own(ret_error, -EINVAL, "gw_state_list has nowhere to put the list");
	if (result == 0 && n > 0)
		result = check_info(ret_infos, ret_error);
	while (result == 0) {
		state_talk_begin(&talk, STATE_LIST, from);
		result = state_link_ask(&self->link, &talk, ret_error);
		for (uint32_t i = 0; result == 0 && i < talk.answer.count; i++) {
			if ((uint32_t)count++ >= n)
				continue;
			fill_info(&talk.answer.entries[i], ret_infos->size, (void *)next);
			next += ret_infos->size;
		}
		if (result < 0 || talk.answer.next <= from)
			break;
		from = talk.answer.next;
	}
	return result < 0 ? result : count;
}

/* ---- in advance ---- */

static int take_entry(struct state_self *self, const struct state_entry *entry, const int *fds,
		      struct gw_error *ret_error)
{
	struct state_local *local = state_table_by_piece(&self->table, entry->piece);

	if (entry->act == STATE_DO_UNMAP)
		return local ? let_go(self, local, ret_error)
			     : state_ask(self, STATE_UNMAP, entry->piece, ret_error);
	if (entry->act == STATE_DO_MAP && !local)
		return attach(self, entry, fds, false, ret_error);
	return 0;
}

static int take_news(struct state_self *self, struct gw_error *ret_error)
{
	struct state_talk talk;
	int first = 0;
	int result;

	do {
		const int *fds = talk.fds;

		state_talk_begin(&talk, STATE_NEXT, 0);
		result = state_link_ask(&self->link, &talk, first < 0 ? NULL : ret_error);
		if (result < 0)
			return first < 0 ? first : result;
		for (uint32_t i = 0; i < talk.answer.count; i++) {
			const struct state_entry *entry = &talk.answer.entries[i];

			result = take_entry(self, entry, fds, first < 0 ? NULL : ret_error);
			first = first < 0 ? first : result;
			fds += entry->n_fds;
		}
		state_talk_end(&talk);
	} while (talk.answer.more);
	return first;
}

int state_take_news(struct worker *worker, struct gw_error *ret_error)
{
	cleanup_leave struct state_self *self = &only;

	if (worker->device < 0)
		return 0;
	self->busy = true;
	return take_news(self, ret_error);
}
