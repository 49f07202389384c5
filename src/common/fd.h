/* SPDX-License-Identifier: MIT */
/*
 * Descriptors, time and cleanup attributes that every folder uses.
 *
 * Runs in: every process. Never logs, never exits. A descriptor that is made here is close-on-exec
 * from birth, since a descriptor that leaks into a child is the very thing that keeps GPU memory
 * alive. Read next: err.h.
 */
#ifndef GPUWARD_COMMON_FD_H
#define GPUWARD_COMMON_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Closes FD unless it is negative. Keeps errno. */
void fd_close(int fd);

/* Closes *FD and sets it to -1: for the cleanup attribute. */
void fd_closep(int *fd);

/* For the cleanup attribute on a pointer from malloc(). */
void freep(void *pointer);

#define cleanup_fd   __attribute__((cleanup(fd_closep)))
#define cleanup_free __attribute__((cleanup(freep)))

/* Gives the value of *FD to the caller and leaves -1 behind. */
static inline int fd_steal(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/*
 * Makes a memfd of BYTES bytes, close-on-exec, that can be sealed. Sparse: pages are taken when they
 * are touched. Returns the descriptor or -errno; -EFBIG when RLIMIT_FSIZE forbids the size (the
 * kernel would send SIGXFSZ, so the limit is read first).
 */
int fd_new_memory(const char *name, uint64_t bytes);

/* Sets O_NONBLOCK. Returns 0 or -errno. */
int fd_set_nonblocking(int fd);

/* Now on CLOCK_MONOTONIC, in nanoseconds. */
uint64_t now_ns(void);

/* The time PERIOD_NS from now, or GW_FOREVER where no clock gets there: periods come from users. */
uint64_t after_ns(uint64_t period_ns);

/* Tells the processor that the caller spins. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
