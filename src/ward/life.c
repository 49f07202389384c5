/* SPDX-License-Identifier: MIT */
#include "ward/life.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

int life_begin(struct life *life, _Atomic uint32_t *word)
{
	uint32_t thread = (uint32_t)syscall(SYS_gettid);
	uint32_t seen = atomic_load(word);

	life->node.next = &life->head.list;
	life->head.list.next = &life->node;
	life->head.futex_offset = (long)((intptr_t)word - (intptr_t)&life->node);
	life->head.list_op_pending = NULL;
	/*
	 * The list first, then the word:
	 *
	 *	word, then list                   list, then word
	 *	word = thread                     list is known to the kernel
	 *	killed here: the word says        killed here: the word is still 0, and the host
	 *	"alive" for ever                  knows that the ward never started
	 */
	if (syscall(SYS_set_robust_list, &life->head, sizeof(life->head)) < 0)
		return -errno;
	/* The host may have announced a sleeper already. */
	while (!atomic_compare_exchange_weak(word, &seen, (seen & FUTEX_WAITERS) | thread))
		continue;
	return 0;
}
