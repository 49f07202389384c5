/* SPDX-License-Identifier: MIT */
#include "common/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <gpuward.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000U),
				 .tv_nsec = (long)(ns % 1000000000U)};
}

int futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
	struct timespec deadline = to_timespec(deadline_ns);
	long result;

	/* FUTEX_WAIT_BITSET takes an absolute time, FUTEX_WAIT a relative one. */
	result =
		syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen,
			deadline_ns == GW_FOREVER ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
	if (result < 0 && errno != EAGAIN)
		return -errno;
	return 0;
}

/* The kernel's struct futex_waitv; older headers lack it. */
struct waitv {
	uint64_t value;
	uint64_t address;
	uint32_t flags;
	uint32_t reserved;
};

#define WAITV_SIZE_32 2U

int futex_wait_any(const struct futex_wait_word *words, size_t count, uint64_t deadline_ns)
{
	struct timespec deadline = to_timespec(deadline_ns);
	struct waitv list[FUTEX_WORDS_MAX];
	long result;

	if (count == 0 || count > FUTEX_WORDS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < count; i++)
		list[i] = (struct waitv){.value = words[i].seen,
					 .address = (uintptr_t)words[i].word,
					 .flags = WAITV_SIZE_32};
	result = syscall(SYS_futex_waitv, list, (unsigned int)count, 0U,
			 deadline_ns == GW_FOREVER ? NULL : &deadline, CLOCK_MONOTONIC);
	if (result < 0 && errno != EAGAIN)
		return -errno;
	return 0;
}

void futex_wake_all(_Atomic uint32_t *word)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
