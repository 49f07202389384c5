/* SPDX-License-Identifier: MIT */
/*
 * Surviving state that the driver does not take: a keeper's, made on another machine, by another instance of the
 * driver, or before a reset of the GPU.
 *
 * Runs in: worker, main thread. That is no fault of this process, which can do without that piece: it lives on, and
 * the function that asked for it is told what there is to do.
 * Read next: ../ward/state_kept.h, whose word it is.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpu/faults.h"
#include "worker/state.h"
#include "worker/state_self.h"

static struct gw_error stale;

/* Where a fault of the process or a lack of memory speaks, that is the reason. */
static bool is_refusal(const struct state_self *self, const struct gw_error *error)
{
	int result = (int)error->native;

	return error->domain == GW_DOMAIN_CUDA && result != CUDA_ERROR_OUT_OF_MEMORY &&
	       gw_cuda_class(result) != GW_FAULT_POISONED && self->memory.bytes > 0;
}

int state_tell_refused(struct state_self *self, const struct state_entry *entry,
		       struct gw_error *error)
{
	struct gw_error reason = {0};
	int result = (int)error->native;
	size_t used;

	if (!is_refusal(self, error)) {
		(void)state_ask(self, STATE_UNMAP, entry->piece, NULL);
		return error->code;
	}
	if (state_ask(self, STATE_REFUSED, entry->piece, &reason) != -ESTALE)
		return error->code;
	used = strlen(reason.msg);
	(void)snprintf(reason.msg + used, sizeof(reason.msg) - used, " (CUDA result %d)", result);
	stale = reason;
	*error = reason;
	return -ESTALE;
}

const char *state_stale_text(void)
{
	return stale.code < 0 ? stale.msg : NULL;
}

void state_forget_stale(void)
{
	stale.code = 0;
}
