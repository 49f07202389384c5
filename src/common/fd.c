/* SPDX-License-Identifier: MIT */
#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		(void)close(fd);
	errno = saved;
}

void fd_closep(int *fd)
{
	fd_close(*fd);
	*fd = -1;
}

void freep(void *pointer)
{
	void **target = pointer;

	free(*target);
	*target = NULL;
}

int fd_new_memory(const char *name, uint64_t bytes)
{
	struct rlimit limit;
	int fd;

	if (bytes > INT64_MAX)
		return -EFBIG;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
		return -EFBIG;
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0) {
		int error = errno;

		fd_close(fd);
		return -error;
	}
	return fd;
}

int fd_set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

uint64_t after_ns(uint64_t period_ns)
{
	uint64_t now = now_ns();

	return period_ns > UINT64_MAX - now ? UINT64_MAX : now + period_ns;
}
