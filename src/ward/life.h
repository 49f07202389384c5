/* SPDX-License-Identifier: MIT */
/*
 * The ward's word of life: a word of shared memory that the kernel itself changes when the ward dies,
 * however it dies, and that wakes a host thread which sleeps on it.
 *
 * Runs in: ward. The kernel keeps a list of robust futexes for each thread and goes through it when the
 * thread ends: a word in the list that holds the thread's id gets FUTEX_OWNER_DIED, and where
 * FUTEX_WAITERS was set, *one* sleeper is woken (a host with several wakes the others itself).
 *
 * The list's node lies in private memory, the word in the shared page; the kernel adds one fixed offset
 * to the node's address to find the word, so the offset is the distance between the two.
 *
 * Invariant: the thread that calls life_begin() uses no other robust mutex, since a thread has but one
 * list. Source: set_robust_list(2); handle_futex_death() in kernel/futex/core.c.
 */
#ifndef GPUWARD_WARD_LIFE_H
#define GPUWARD_WARD_LIFE_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>

struct life {
	struct robust_list_head head;
	struct robust_list node;
};

/* Ties WORD to the life of the calling thread. LIFE must stay in place until the thread ends.
 * Returns 0 or -errno. */
int life_begin(struct life *life, _Atomic uint32_t *word);

#endif
