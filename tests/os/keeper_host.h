/* SPDX-License-Identifier: MIT */
/*
 * What tests of kept state share: pools with a state_name, hosts that can be killed, and questions to the keeper.
 *
 * Runs in: host, the test's own process. Each fails the test where something is not as it should be.
 */
#ifndef TESTS_OS_KEEPER_HOST_H
#define TESTS_OS_KEEPER_HOST_H

#include <stdint.h>
#include <sys/types.h>

#include <gpuward.h>

#include "common/keep_wire.h"
#include "state_host.h"

/* An emulated machine, which has its keepers; and a folder of the test's own as XDG_RUNTIME_DIR, which stays empty. */
void keeper_world(const char *settings);
/* All state is removed, the keepers are gone, and no device memory is in use. */
void keeper_world_done(void);

/* A pool of one worker on DEVICE whose state is kept as NAME. */
struct gw_pool *keeper_pool(const char *name, int32_t device);
/* On device 0, with a hot standby. */
struct gw_pool *keeper_pool_hot(const char *name);
/* The first, which may fail. */
int keeper_try_pool(const char *name, int32_t device, struct gw_pool **ret_pool,
		    struct gw_error *ret_error);

/* What the keeper of NAME says when it is looked at, and its pieces; returns whether there is one. */
struct keeper_view {
	struct keep_welcome welcome;
	struct keep_piece pieces[16];
	uint32_t n_pieces;
};
bool keeper_look(const char *name, struct keeper_view *ret_view);

/* Removes PIECE, "" all; returns the keeper's word. */
int keeper_remove(const char *name, const char *piece, struct gw_error *ret_error);
void keeper_hold_for(const char *name, uint64_t ns);

/* Waits until the keeper PID is gone, and reaps it if it is this process's. */
void keeper_wait_gone(int32_t pid);

/* Kills the pool's ward, and its worker with it; the pool is closed. */
void keeper_lose_ward(struct gw_pool *pool);

#endif
