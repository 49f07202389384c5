/* SPDX-License-Identifier: MIT */
/*
 * Preloaded into the subject: one allocation of one of its processes fails, as the page orders.
 *
 * Runs in: host, ward and worker, and in libc's own functions, since they allocate through the same
 * four. Counts over all processes of a role, so that exactly one allocation fails in a run.
 * Invariant: a process that is not in the order's role never notices. Read next: page.h.
 */
#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* glibc's own, under the names that do not lead back here. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

#define VISIBLE __attribute__((visibility("default")))

static struct ladder_page *page; /* NULL: nothing fails here */

static enum ladder_role own_role(void)
{
	if (getenv("GPUWARD_WORKER"))
		return LADDER_WORKER;
	return strcmp(program_invocation_short_name, "gpuward-ward") == 0 ? LADDER_WARD
									  : LADDER_HOST;
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv(LADDER_PAGE_ENV);
	void *memory;
	int fd;

	if (!path)
		return;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	memory = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (memory != MAP_FAILED && ((struct ladder_page *)memory)->role == own_role())
		page = memory;
}

static bool fails(void)
{
	if (!page || atomic_fetch_add(&page->seen, 1) + 1 != page->place)
		return false;
	errno = ENOMEM;
	return true;
}

VISIBLE void *malloc(size_t bytes)
{
	return fails() ? NULL : __libc_malloc(bytes);
}

VISIBLE void *calloc(size_t count, size_t bytes)
{
	return fails() ? NULL : __libc_calloc(count, bytes);
}

VISIBLE void *realloc(void *old, size_t bytes)
{
	return fails() ? NULL : __libc_realloc(old, bytes);
}

VISIBLE void *reallocarray(void *old, size_t count, size_t bytes)
{
	size_t total;

	if (__builtin_mul_overflow(count, bytes, &total)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(old, total);
}
