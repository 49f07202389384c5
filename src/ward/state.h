/* SPDX-License-Identifier: MIT */
/*
 * Surviving device memory of one pool: who may have which piece, and what happens to it when a worker ends.
 *
 * Runs in: ward; its one thread. A client is one worker process, from its start until it is certainly gone:
 *
 *	state_client_new()	the process was started
 *	state_client_fence()	it is declared dead: from here on nothing that it asks changes anything
 *	state_client_free()	it was reaped: what it had passes on
 *
 * Between the last two its kernels may still write to what it has mapped (measured: up to 31 ms after
 * SIGKILL, and always before the process could be reaped), so nobody else gets that in between:
 *
 *	worker A			ward			worker B
 *	writes piece, is killed		fence A
 *	(kernels still write)					map piece: waits
 *	is gone				free A -> answers B	rolls back to the last commit, goes on
 *
 * Where A has forked, the child holds A's descriptors of the GPU, and so keeps A's kernels alive beyond A.
 * It holds A's end of the socket too: what A had passes on only after that is closed as well.
 *
 * A commit is one step here, in the ward, so that it is atomic whatever happens to the worker:
 *
 *	worker			ward			if the worker ends here, the next one
 *	writes W, waits for GPU				copies C to W: the old epoch
 *	COMMIT			-			copies C to W: the old epoch
 *				epoch + 1, COPYING	copies W to C: the new epoch
 *	copies W to C					copies W to C: the new epoch
 *	SETTLE			READY			copies C to W: the new epoch, as W and C are equal
 *	writes W again
 *
 * (W is the working copy, C the committed one.) W is whole in the middle of it because all kernels had ended
 * when the worker asked, and it writes W again only after SETTLE was answered; a worker that is fenced in
 * between ends itself rather than return to a function that would write.
 *
 * Trust: a worker is an adversary. It can spoil what is its own to write; it cannot make the ward wait, grow,
 * or give one worker's writable memory to another. What its descriptors are the ward does not know: a
 * worker that imports nonsense gets an error from its driver.
 * Read next: state_request.c for what is answered, state_piece.h for what is kept.
 */
#ifndef GPUWARD_WARD_STATE_H
#define GPUWARD_WARD_STATE_H

#include <stdint.h>

#include <gpuward.h>

#include "common/state_page.h"
#include "linux/loop.h"
#include "linux/procref.h"

struct state;
struct state_client;

struct state_config {
	struct loop *loop;
	struct state_page *page;
	const int32_t *devices; /* the pool's, in its order */
	uint32_t n_devices;
	uint64_t max_bytes; /* per device; 0: no limit */
};

/* Returns 0 and *RET_STATE, or -ENOMEM. Loop and page outlive it. */
int state_new(const struct state_config *config, struct state **ret_state);

/* Ends all pieces, and all clients that are left. NULL is fine. */
void state_free(struct state *state);

/*
 * State is to outlive the pool of HOST (a pidfd that outlives it) under NAME, and what there is is taken over. KEPT is called once, later:
 * ERROR is NULL when it is here, or says why it cannot be had. No client before that.
 * Returns 0, or a negative code with the text: KEPT is not called then.
 */
int state_keep(struct state *state, const char *name, int host,
	       void (*kept)(void *owner, const struct gw_error *error), void *owner,
	       struct gw_error *ret_error);

/* The pool's device NUMBER is the one that ID names, in whatever order a host numbers them. Until this is known
 * its clients wait, in a pool whose state is kept. */
void state_name_device(struct state *state, int32_t number, const char *id);

/* Who a client is. */
struct state_who {
	int32_t device; /* the pool's number, or -1 */
	int32_t pid;
	/* The process, for a keeper, which waits for its end; may be NULL where state ends with the pool. */
	const struct procref *process;
	/* Called when the worker broke the rules, unless it is fenced. It may free the client. */
	void (*broken)(void *owner);
	/* Called to tell the worker that there is more for it to take, once until it takes all (NULL: it is not
	 * told). Returns 0, or a negative code: then it is called again when there is even more. */
	int (*news)(void *owner);
	void *owner;
};

/* A new client at the other end of *SOCKET, which is taken on success. Returns 0 or -errno: -EAGAIN there are
 * too many clients, -ENOMEM, and those of epoll_ctl(). */
int state_client_new(struct state *state, const struct state_who *who, int *socket,
		     struct state_client **ret_client);

/* From this call on nothing that the process asks changes anything. NULL is fine. */
void state_client_fence(struct state_client *client);

/* The process is gone for certain. NULL is fine. The client is not the caller's any more. */
void state_client_free(struct state_client *client);

#endif
