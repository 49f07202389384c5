/* SPDX-License-Identifier: MIT */
/*
 * The part of the pool's page in which the ward says what surviving state there is.
 *
 * Runs in: ward (writes), host (reads, without a lock or a message). No worker can reach it. Pages are taken
 * when they are touched. Read next: pool_page.h, ../lib/state.c.
 */
#ifndef GPUWARD_COMMON_STATE_PAGE_H
#define GPUWARD_COMMON_STATE_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpuward.h>

/* One piece. `sequence` is odd while the ward writes it. */
struct state_page_entry {
	_Atomic uint32_t sequence;
	uint32_t reserved;
	struct gw_state_info info; /* status 0: none */
};

/* Whether state outlives the pool. */
enum state_page_kept {
	STATE_PAGE_ENDS = 0, /* with the pool: nobody asked for more */
	STATE_PAGE_KEPT = 1, /* by a keeper */
	STATE_PAGE_LOST = 2, /* not any more, although it was asked for */
};

struct state_page {
	_Atomic uint32_t kept; /* enum state_page_kept */
	_Atomic uint32_t pieces;
	_Atomic uint32_t high; /* entries from here on were never used */
	_Atomic uint64_t bytes;
	struct state_page_entry entries[GW_STATES_MAX];
};

/*
 * Ward: writes entry NUMBER. Host: reads it, or says no where the ward was just writing it, or died at it.
 *
 *	ward				host
 *	sequence 7: odd
 *	half of the entry		sees 7, or sees 6 and then 8: what it read does not count
 *	sequence 8
 */
static inline void state_page_put(struct state_page *page, uint32_t number,
				  const struct gw_state_info *info)
{
	struct state_page_entry *entry = &page->entries[number];
	uint32_t sequence = atomic_load_explicit(&entry->sequence, memory_order_relaxed);

	atomic_store_explicit(&entry->sequence, sequence + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	entry->info = *info;
	atomic_store_explicit(&entry->sequence, sequence + 2, memory_order_release);
}

static inline bool state_page_get(struct state_page *page, uint32_t number,
				  struct gw_state_info *ret_info)
{
	struct state_page_entry *entry = &page->entries[number];
	uint32_t sequence = atomic_load_explicit(&entry->sequence, memory_order_acquire);

	*ret_info = entry->info;
	atomic_thread_fence(memory_order_acquire);
	return sequence % 2 == 0 &&
	       atomic_load_explicit(&entry->sequence, memory_order_relaxed) == sequence;
}

static inline void state_page_put_sums(struct state_page *page, uint32_t pieces, uint64_t bytes,
				       uint32_t high)
{
	atomic_store(&page->pieces, pieces);
	atomic_store(&page->bytes, bytes);
	atomic_store(&page->high, high);
}

#endif
