/* SPDX-License-Identifier: MIT */
/*
 * The memory that only host and ward share. No worker can reach it, so its words can be trusted as far
 * as the two trust each other: they are the same user's, started by the same program.
 *
 * Runs in: host (makes it), ward. It carries three things: the ward's bell (there is news on the
 * socket), the ward's life (a robust word that the kernel changes when the ward dies, so that a host
 * thread that sleeps on it wakes up), and the deadlines of the tasks in the channels, which the ward
 * enforces and no worker may change. Read next: ../ward/deadline.c and ../lib/wait.c.
 */
#ifndef GPUWARD_COMMON_POOL_PAGE_H
#define GPUWARD_COMMON_POOL_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

#include "common/channel.h"

#define POOL_PAGE_MAGIC 0x65676170U /* "page" */

/* What the host has handed to one worker. */
struct pool_page_slot {
	_Atomic uint32_t submitted;   /* as in the channel, but out of the worker's reach */
	_Atomic uint32_t incarnation; /* which channel it speaks of */
	_Atomic uint64_t deadline_ns[CHANNEL_DEPTH]; /* per entry: allowed duration, 0 = none */
};

struct pool_page {
	uint32_t magic;
	uint32_t layout;			   /* CHANNEL_LAYOUT */
	_Alignas(64) _Atomic uint32_t ward_events; /* ward: +1 after each message to the host */
	/* The ward's robust word: its thread id while it lives, FUTEX_OWNER_DIED set by the kernel at its
	 * death. 0 before it has started. The host sets FUTEX_WAITERS before it sleeps on it. */
	_Atomic uint32_t ward_life;
	/* When the ward looks at the deadlines next; GW_FOREVER: not at all. Set by the ward. The host lowers
	 * it, and then says so by WIRE_KICK, where a task that it hands over could be late before that. */
	_Atomic uint64_t next_look_ns;
	_Alignas(64) struct pool_page_slot slots[GW_WORKERS_MAX];
};

/*
 * Host, after it has handed over a task that is late at DUE_NS at the earliest: true when the ward would
 * look too late, and has to be told (WIRE_KICK). One kick is enough for all that is due later.
 */
static inline bool pool_page_lower_look(struct pool_page *page, uint64_t due_ns)
{
	uint64_t next = atomic_load(&page->next_look_ns);

	while (due_ns < next) {
		if (atomic_compare_exchange_weak(&page->next_look_ns, &next, due_ns))
			return true;
	}
	return false;
}

#endif
