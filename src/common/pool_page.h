/* SPDX-License-Identifier: MIT */
/*
 * The memory that only host and ward share. No worker can reach it, so its words can be trusted as far
 * as the two trust each other: they are the same user's, started by the same program.
 *
 * Runs in: host (makes it), ward; others of the same user may look at it. It carries: the count of the
 * ward's messages (there is news on the socket), the ward's life (a robust word that the kernel changes when
 * the ward dies), the deadlines of the tasks in the channels, which the ward enforces and no worker may
 * change, how much each fenced worker had completed, and what ward and host tell of their work to whoever
 * looks (`gpuward pools`), which no socket and no answer of theirs is needed for.
 *
 * One word for all that can wake the host, besides its channels: each word of a sleep on several costs
 * the kernel a tenth of a microsecond. It is the word of life, whose bit FUTEX_WAITERS says that a
 * thread of the host (its leader, one at a time) sleeps on it or is about to:
 *
 *	host's leader                        ward, or another thread of the host
 *	sets FUTEX_WAITERS                   ward_events + 1, or moves `kick`
 *	looks at both once more              clears FUTEX_WAITERS; it was set: wakes
 *	sleeps while the word is as it was
 *
 * Each side writes first and reads then: either the leader sees the news, or the other side the bit, and
 * then the word is not as it was. The kernel wakes at the ward's death where the bit is set, and the
 * leader looks for FUTEX_OWNER_DIED where it was not. Read next: ../ward/deadline.c and ../lib/wait.c.
 */
#ifndef GPUWARD_COMMON_POOL_PAGE_H
#define GPUWARD_COMMON_POOL_PAGE_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <gpuward.h>

#include "common/channel.h"
#include "common/futex.h"
#include "common/state_page.h"

#define POOL_PAGE_MAGIC	      0x65676170U /* "page" */
#define POOL_PAGE_LAYOUT      3U
#define POOL_PAGE_NAME	      "gpuward-pool" /* of the memory's descriptor, in host and ward */
#define POOL_PAGE_VERSION_MAX 16U

/* What the host has handed to one worker. */
struct pool_page_slot {
	_Atomic uint32_t submitted;   /* as in the channel, but out of the worker's reach */
	_Atomic uint32_t incarnation; /* which channel it speaks of */
	/* Ward: (incarnation + 1) << 32 | entries that it had completed when it was fenced. The host takes
	 * in no result of that incarnation beyond them. */
	_Atomic uint64_t fence;
	_Atomic uint64_t deadline_ns[CHANNEL_DEPTH]; /* per entry: allowed duration, 0 = none */
};

/* How many standbys are how far. */
struct pool_page_standbys {
	uint32_t hot;
	uint32_t primed;
	uint32_t starting;
	uint32_t failed;
	uint32_t no_room; /* of the primed ones */
};

/* How many workers are how far. */
struct pool_page_workers {
	uint32_t ready;
	uint32_t starting;
	uint32_t failed;
};

/* What the ward tells of its work: statistics, and the last recoveries. */
struct pool_page_report {
	uint64_t n_recoveries;
	uint64_t noticed_by[GW_SOURCES];
	uint64_t kernel_log_lost;
	int32_t source_error[GW_SOURCES];
	struct pool_page_standbys standbys;
	struct pool_page_workers workers;
	struct gw_recovery recoveries[GW_RECOVERIES_KEPT]; /* number n at n % GW_RECOVERIES_KEPT */
};

/* What the host tells: what it asked for, which does not change, and its counters. */
struct pool_page_host {
	int32_t pid; /* in its own pid namespace */
	uint32_t workers;
	uint32_t standbys;
	uint32_t standby; /* enum gw_standby */
	uint32_t n_devices;
	int32_t devices[GW_WORKERS_MAX];
	uint64_t opened_ns;
	char state_name[GW_NAME_MAX];
	/* Of struct gw_pool_stat, as of the last change of each. Relaxed: none of them speaks of the others. */
	_Alignas(64) _Atomic uint64_t tasks_pending;
	_Atomic uint64_t tasks_done;
	_Atomic uint64_t input_bytes;
	_Atomic uint64_t output_bytes;
	_Atomic uint64_t attempts_failed;
	_Atomic uint64_t tasks_poisoned;
	_Atomic uint32_t exit_sequence; /* odd while the host writes last_exit */
	struct gw_exit last_exit;
};

/* The first words are the same in every layout. */
struct pool_page {
	uint32_t magic;
	uint32_t layout; /* POOL_PAGE_LAYOUT */
	uint64_t
		bytes; /* sizeof(struct pool_page): a layout that nobody counted is seen all the same */
	char version[POOL_PAGE_VERSION_MAX];	   /* GW_VERSION_TEXT */
	_Alignas(64) _Atomic uint32_t ward_events; /* ward: +1 after each message to the host */
	/* The ward's robust word: its thread id while it lives, FUTEX_OWNER_DIED set by the kernel at its
	 * death. No thread id before it has started. FUTEX_WAITERS as drawn above. */
	_Atomic uint32_t ward_life;
	/* When the ward looks at the deadlines next; GW_FOREVER: not at all. Set by the ward. The host lowers
	 * it, and then says so by WIRE_KICK, where a task that it hands over could be late before that. */
	_Atomic uint64_t next_look_ns;
	_Alignas(64) struct pool_page_slot slots[GW_WORKERS_MAX];
	/*
	 * Two reports, of which the one at report_number % 2 is whole. The ward writes the other one and then
	 * moves the number; it may be stopped or die at any instruction:
	 *
	 *	reader                            ward
	 *	number = 6: copies reports[0]     writes reports[1], number = 7
	 *	number is 7: tries again          writes reports[0]: the copy can be torn
	 */
	_Alignas(64) _Atomic uint32_t report_number;
	struct pool_page_report reports[2];
	_Alignas(64) struct pool_page_host host;
	_Alignas(64) struct state_page states;
};

/* Host: makes PAGE, which is all zero, one of this build. */
static inline void pool_page_init(struct pool_page *page)
{
	page->magic = POOL_PAGE_MAGIC;
	page->layout = POOL_PAGE_LAYOUT;
	page->bytes = sizeof(*page);
	memcpy(page->version, GW_VERSION_TEXT, sizeof(GW_VERSION_TEXT));
}

/* Anybody: whether PAGE is of this build's layout. */
static inline bool pool_page_is_known(const struct pool_page *page)
{
	return page->magic == POOL_PAGE_MAGIC && page->layout == POOL_PAGE_LAYOUT &&
	       page->bytes == sizeof(*page);
}

/* Host: shows one of its counters. */
static inline void pool_page_show(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

/* Host: shows how the last worker ended. The order is that of state_page_put(). */
static inline void pool_page_put_exit(struct pool_page *page, const struct gw_exit *last_exit)
{
	struct pool_page_host *host = &page->host;
	uint32_t sequence = atomic_load_explicit(&host->exit_sequence, memory_order_relaxed);

	atomic_store_explicit(&host->exit_sequence, sequence + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	host->last_exit = *last_exit;
	atomic_store_explicit(&host->exit_sequence, sequence + 2, memory_order_release);
}

/* Anybody: a whole one, or false where the host is just writing it, or died at it. */
static inline bool pool_page_get_exit(const struct pool_page *page, struct gw_exit *ret_exit)
{
	const struct pool_page_host *host = &page->host;
	uint32_t sequence = atomic_load_explicit(&host->exit_sequence, memory_order_acquire);

	*ret_exit = host->last_exit;
	atomic_thread_fence(memory_order_acquire);
	return sequence % 2 == 0 &&
	       atomic_load_explicit(&host->exit_sequence, memory_order_relaxed) == sequence;
}

/* Ward: shows REPORT. The last number is seen by all who see a byte of what is written now. */
static inline void pool_page_publish(struct pool_page *page, const struct pool_page_report *report)
{
	uint32_t next = atomic_load(&page->report_number) + 1;

	atomic_thread_fence(memory_order_release);
	page->reports[next % 2] = *report;
	atomic_store(&page->report_number, next);
}

/* Anybody: a whole report, or false where the ward has published another one meanwhile. */
static inline bool pool_page_try_report(const struct pool_page *page,
					struct pool_page_report *ret_report)
{
	uint32_t number = atomic_load(&page->report_number);

	*ret_report = page->reports[number % 2];
	atomic_thread_fence(memory_order_acquire);
	return atomic_load(&page->report_number) == number;
}

/* Host: a whole report. Tries again only where the ward has published another one meanwhile. */
static inline void pool_page_report(const struct pool_page *page,
				    struct pool_page_report *ret_report)
{
	while (!pool_page_try_report(page, ret_report))
		continue;
}

/* Ward, after it has counted a message; a thread of the host that wants the leader to look again. */
static inline void pool_page_wake_host(struct pool_page *page)
{
	if (atomic_fetch_and(&page->ward_life, ~(uint32_t)FUTEX_WAITERS) & FUTEX_WAITERS)
		futex_wake_all(&page->ward_life);
}

/* Host's leader, before it sleeps: the value to sleep on. What woke it before may be news again. */
static inline uint32_t pool_page_announce_sleeper(struct pool_page *page)
{
	return atomic_fetch_or(&page->ward_life, FUTEX_WAITERS) | FUTEX_WAITERS;
}

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
