/* SPDX-License-Identifier: MIT */
/*
 * Surviving device memory in a worker: the functions gw_state_*, and what the worker itself does for them.
 *
 * Runs in: worker, main thread, with the device's context current. Nothing here runs after a fault.
 * Read next: ../ward/state.h for the rules; state_link.h (the ward), state_memory.h (the driver).
 */
#ifndef GPUWARD_WORKER_STATE_H
#define GPUWARD_WORKER_STATE_H

#include <gpuward.h>

struct worker;

/* To be called before a function can call gw_state_*: from then on they know their worker. */
void state_begin(struct worker *worker);

/*
 * Maps all sealed state of the device that is not mapped yet, in advance, and lets go of what was dropped. For
 * a standby after its functions were prepared, and from then on whenever the ward says that there is news.
 * Returns 0, or the first failure; the rest was tried all the same, and what could not be mapped now is
 * mapped when a function asks for it.
 */
int state_take_news(struct worker *worker, struct gw_error *ret_error);

/* What the last -ESTALE of this process was about, since state_forget_stale(); or NULL. */
const char *state_stale_text(void);
void state_forget_stale(void);

#endif
