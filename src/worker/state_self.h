/* SPDX-License-Identifier: MIT */
/*
 * What the files of surviving state in a worker share: the one state of this process, and the steps that more
 * than one of the functions takes.
 *
 * Runs in: worker, main thread. Read next: state.c, state_commit.c.
 */
#ifndef GPUWARD_WORKER_STATE_SELF_H
#define GPUWARD_WORKER_STATE_SELF_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker/state_link.h"
#include "worker/state_memory.h"
#include "worker/state_table.h"

struct worker;

struct state_self {
	struct worker *worker; /* NULL: no worker */
	pid_t thread;	       /* of its main thread, in this process and no copy of it */
	struct state_link link;
	struct state_memory memory;
	struct state_table table;
	bool owes; /* the ward was not told yet of all that is unmapped */
	/*
	 * A call is on its way. A signal handler that makes another one would take its answer:
	 *
	 *	commit: asks the ward
	 *	        handler: asks, and receives the answer to the commit
	 *	commit: waits for ever, or finds the handler's answer and cannot know whether it counts
	 */
	volatile sig_atomic_t busy;
};

/* The state of this process, where gw_state_* may be called; takes news in. Returns 0, -ENOTSUP, -EPERM,
 * GW_EWARDLOST, GW_EPROTOCOL. The variable that is filled is a cleanup_leave one, and NULL before. */
int state_enter(struct state_self **ret_self, struct gw_error *ret_error);

/* Ends the call of gw_state_* that state_enter() began. NULL is fine. */
void state_leave(struct state_self **self);

#define cleanup_leave __attribute__((cleanup(state_leave)))

/* The piece NAME that is mapped here; or NULL with -ENOENT. */
struct state_local *state_find(struct state_self *self, const char *name,
			       struct gw_error *ret_error);

/* Asks about PIECE what needs no more than a number, and has no more than success for an answer. */
int state_ask(struct state_self *self, enum state_wire_type type, uint64_t piece,
	      struct gw_error *ret_error);

/*
 * ENTRY was not mapped here, for ERROR: tells the ward. Returns the code; ERROR is -ESTALE then, with what there is to
 * do, where the driver does not take what a pool before has left.
 */
int state_tell_refused(struct state_self *self, const struct state_entry *entry,
		       struct gw_error *error);

/*
 * Makes the working copies of COUNT locals from the committed ones (BACK), or the other way, and waits.
 * Their committed copies are mapped already.
 */
int state_copy_all(struct state_self *self, struct state_local *const *locals, uint32_t count,
		   bool back, struct gw_error *ret_error);

/* After the commit counts: the copy, and the end of the commit. Leaves the process where that fails. */
void state_finish_commit(struct state_self *self, struct state_local *const *locals, uint32_t count,
			 uint64_t piece);

#endif
