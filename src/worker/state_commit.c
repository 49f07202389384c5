/* SPDX-License-Identifier: MIT */
/*
 * Commits of mutable state, and the way back to the last one.
 *
 * Runs in: worker, main thread. Everything that can fail is done before the ward is asked: from its answer on
 * the commit counts, and a process that cannot end it leaves, so that the next one does (drawn in
 * ../ward/state.h). Read next: state_memory.h.
 */
#include <errno.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"
#include "common/wire.h"
#include "gpu/faults.h"
#include "worker/state_self.h"
#include "worker/worker.h"

/*
 * The working copy must stay as it is until the next process has made the committed one from it:
 *
 *	commit counts		returned to the function instead
 *	copy fails, or the	function writes the working copy
 *	ward says: fenced	next process copies that to the committed one: no epoch that ever was
 *
 * So no function runs here any more.
 */
_Noreturn static void leave(const struct state_self *self, const struct gw_error *error)
{
	struct wire_fault fault = {.source = GW_SOURCE_RESULT,
				   .cuda = (int)error->native,
				   .task = atomic_load(&self->worker->running_task),
				   .noticed_ns = now_ns()};

	if (error->domain != GW_DOMAIN_CUDA)
		_exit(WORKER_EXIT_ALONE);
	wire_header_init(&fault.header, WIRE_FAULT, sizeof(fault));
	(void)wire_send(WIRE_WORKER_SOCKET, &fault, NULL, 0);
	_exit(WORKER_EXIT_FAULT);
}

int state_copy_all(struct state_self *self, struct state_local *const *locals, uint32_t count,
		   bool back, struct gw_error *ret_error)
{
	int result = 0;

	for (uint32_t i = 0; i < count && result == 0; i++)
		result = state_memory_copy(&self->memory, locals[i], back, ret_error);
	if (result == 0)
		result = state_memory_wait(&self->memory, ret_error);
	/* What was queued before the failure would fault on what is unmapped then. */
	if (result < 0)
		(void)state_memory_wait(&self->memory, NULL);
	return result;
}

static void unshadow_all(struct state_self *self, struct state_local *const *locals, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		state_memory_unshadow(&self->memory, locals[i]);
}

static int shadow_all(struct state_self *self, struct state_local *const *locals, uint32_t count,
		      struct gw_error *ret_error)
{
	int result = 0;

	for (uint32_t i = 0; i < count && result == 0; i++)
		result = state_memory_shadow(&self->memory, locals[i], ret_error);
	if (result < 0)
		unshadow_all(self, locals, count);
	return result;
}

void state_finish_commit(struct state_self *self, struct state_local *const *locals, uint32_t count,
			 uint64_t piece)
{
	struct gw_error error = {0};

	if (state_copy_all(self, locals, count, false, &error) < 0)
		leave(self, &error);
	unshadow_all(self, locals, count);
	if (state_ask(self, STATE_SETTLE, piece, &error) < 0)
		leave(self, &error);
}

/* Chooses the pieces that NAME means: one, or with NULL all that are mutable. */
static int choose(struct state_self *self, const char *name, uint32_t *ret_count,
		  struct gw_error *ret_error)
{
	struct state_local **chosen = self->table.chosen;
	uint32_t count = 0;

	if (name) {
		struct state_local *local = state_find(self, name, ret_error);

		if (!local)
			return -ENOENT;
		if (local->entry.kind != GW_STATE_MUTABLE)
			return err_own(ret_error, -EINVAL, "state '%s' is not mutable", name);
		chosen[count++] = local;
	}
	for (uint32_t i = 0; !name && i < self->table.count; i++) {
		if (self->table.locals[i].entry.kind == GW_STATE_MUTABLE)
			chosen[count++] = &self->table.locals[i];
	}
	if (count == 0)
		return err_own(ret_error, -ENOENT, "this worker has no mutable state mapped");
	*ret_count = count;
	return 0;
}

/* An answer that does not come leaves it open whether the commit counts. */
static int ask_to_commit(struct state_self *self, uint64_t piece, struct gw_error *ret_error)
{
	struct state_talk talk;
	struct gw_error error = {0};
	int result;

	state_talk_begin(&talk, STATE_COMMIT, piece);
	talk.request.task = atomic_load(&self->worker->running_task);
	result = state_link_ask(&self->link, &talk, &error);
	if (result == GW_EWARDLOST || result == GW_EPROTOCOL)
		leave(self, &error);
	if (result < 0 && ret_error)
		*ret_error = error;
	return result;
}

static int commit(struct state_self *self, struct state_local *const *locals, uint32_t count,
		  uint64_t piece, struct gw_error *ret_error)
{
	int result = state_memory_wait(&self->memory, ret_error);

	if (result == 0)
		result = shadow_all(self, locals, count, ret_error);
	if (result < 0)
		return result;
	result = ask_to_commit(self, piece, ret_error);
	if (result < 0) {
		unshadow_all(self, locals, count);
		return result;
	}
	state_finish_commit(self, locals, count, piece);
	for (uint32_t i = 0; i < count; i++) {
		locals[i]->entry.epoch++;
		locals[i]->entry.task = atomic_load(&self->worker->running_task);
	}
	return 0;
}

static int roll_back(struct state_self *self, struct state_local *const *locals, uint32_t count,
		     struct gw_error *ret_error)
{
	int result = state_memory_wait(&self->memory, ret_error);

	if (result == 0)
		result = shadow_all(self, locals, count, ret_error);
	if (result < 0)
		return result;
	result = state_copy_all(self, locals, count, true, ret_error);
	unshadow_all(self, locals, count);
	return result;
}

int gw_state_commit(const char *name, struct gw_error *ret_error)
{
	cleanup_leave struct state_self *self = NULL;
	uint32_t count = 0;
	int result = state_enter(&self, ret_error);

	if (result == 0)
		result = choose(self, name, &count, ret_error);
	if (result < 0)
		return result;
	return commit(self, self->table.chosen, count,
		      name ? self->table.chosen[0]->entry.piece : 0, ret_error);
}

int gw_state_roll_back(const char *name, struct gw_error *ret_error)
{
	cleanup_leave struct state_self *self = NULL;
	uint32_t count = 0;
	int result = state_enter(&self, ret_error);

	if (result == 0)
		result = choose(self, name, &count, ret_error);
	return result < 0 ? result : roll_back(self, self->table.chosen, count, ret_error);
}
