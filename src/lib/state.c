/* SPDX-License-Identifier: MIT */
/*
 * The host's view of surviving device memory: a table that the ward keeps in the pool's page.
 *
 * Runs in: host, any thread; no lock and no message. Read next: ../common/state_page.h, ../ward/state_piece.c.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "common/fd.h"
#include "lib/pool.h"

/* The ward writes an entry in well under a microsecond, unless it was stopped or killed in the middle. */
#define TRIES 1000

void state_stat(const struct gw_pool *pool, struct gw_pool_stat *stat)
{
	stat->state_pieces = atomic_load(&pool->page->states.pieces);
	stat->state_bytes = atomic_load(&pool->page->states.bytes);
}

/* Whether there is a piece in entry NUMBER. */
static bool read_entry(struct state_page *states, uint32_t number, struct gw_state_info *ret_info)
{
	for (int i = 0; i < TRIES; i++) {
		if (state_page_get(states, number, ret_info))
			return ret_info->status != 0;
		cpu_pause();
	}
	return false;
}

int gw_pool_states(struct gw_pool *pool, struct gw_state_info *ret_infos, uint32_t n)
{
	int result = pool_check_owner(pool, NULL);
	uint8_t *next = (uint8_t *)ret_infos;
	struct state_page *states;
	uint32_t high;
	int count = 0;

	if (result < 0)
		return result;
	if (n > 0 && (!ret_infos || ret_infos->size < offsetof(struct gw_state_info, address)))
		return -EINVAL;
	states = &pool->page->states;
	high = atomic_load(&states->high);
	for (uint32_t i = 0; i < high && i < GW_STATES_MAX; i++) {
		struct gw_state_info info;
		size_t size;

		if (!read_entry(states, i, &info) || (uint32_t)count++ >= n)
			continue;
		size = ret_infos->size;
		info.size = size;
		memcpy(next, &info, size < sizeof(info) ? size : sizeof(info));
		next += size;
	}
	return count;
}
