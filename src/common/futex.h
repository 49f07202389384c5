/* SPDX-License-Identifier: MIT */
/*
 * Sleeping on words of shared memory, without a lock and without a descriptor.
 *
 * Runs in: host, ward and worker. The words live in memory that several processes map, so the calls
 * are the shared (not the private) kind. A wake-up without a reason is always possible: every caller
 * looks at its condition again in a loop. Read next: channel.h.
 */
#ifndef GPUWARD_COMMON_FUTEX_H
#define GPUWARD_COMMON_FUTEX_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* One word to sleep on, and the value that it had when the caller looked. */
struct futex_wait_word {
	_Atomic uint32_t *word;
	uint32_t seen;
};

/* Words in one futex_wait_any(): the kernel's limit. */
#define FUTEX_WORDS_MAX 128

/*
 * Sleeps while *WORD is SEEN, until DEADLINE_NS on CLOCK_MONOTONIC (GW_FOREVER: no deadline).
 * Returns 0 after a wake-up or when the value differs, -ETIMEDOUT, or -EINTR.
 */
int futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns);

/*
 * Sleeps while every word has the value that was seen. COUNT is 1 to FUTEX_WORDS_MAX.
 * Returns as futex_wait(), or -ENOSYS where the kernel (before 5.16) or a filter has no futex_waitv.
 */
int futex_wait_any(const struct futex_wait_word *words, size_t count, uint64_t deadline_ns);

/* Wakes everybody who sleeps on WORD. */
void futex_wake_all(_Atomic uint32_t *word);

#endif
