/* SPDX-License-Identifier: MIT */
#include "cli/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fd.h"

/* Where the bytes go. */
struct target {
	char path[PATH_MAX];	  /* with links followed */
	char temporary[PATH_MAX]; /* beside it; "" where it is written directly */
	int fd;
	mode_t mode;
};

static mode_t new_mode(void)
{
	mode_t mask = umask(0);

	(void)umask(mask);
	return 0666 & ~mask;
}

/* The folder of PATH and a name of our own. */
static int name_temporary(struct target *target)
{
	const char *slash = strrchr(target->path, '/');
	int folder = slash ? (int)(slash - target->path + 1) : 0;
	int length = snprintf(target->temporary, sizeof(target->temporary), "%.*s.gpuward-XXXXXX",
			      folder, target->path);

	return length < (int)sizeof(target->temporary) ? 0 : -ENAMETOOLONG;
}

static int open_temporary(struct target *target)
{
	int result = name_temporary(target);

	if (result == 0)
		target->fd = mkostemp(target->temporary, O_CLOEXEC);
	if (result == 0 && target->fd < 0)
		result = -errno;
	if (result < 0)
		target->temporary[0] = '\0';
	return result;
}

static int open_target(struct target *target, const char *path)
{
	struct stat status;

	*target = (struct target){.fd = -1, .mode = new_mode()};
	if (strlen(path) >= sizeof(target->path))
		return -ENAMETOOLONG;
	if (stat(path, &status) < 0) {
		if (errno != ENOENT || path[0] == '\0')
			return -errno;
		(void)memcpy(target->path, path, strlen(path) + 1);
		/* "no/such/" is no file's name. */
		return path[strlen(path) - 1] == '/' ? -EISDIR : open_temporary(target);
	}
	if (S_ISDIR(status.st_mode))
		return -EISDIR;
	if (!S_ISREG(status.st_mode)) {
		target->fd = open(path, O_WRONLY | O_CLOEXEC);
		return target->fd < 0 ? -errno : 0;
	}
	if (!realpath(path, target->path) || access(target->path, W_OK) < 0)
		return -errno;
	target->mode = status.st_mode & 07777;
	return open_temporary(target);
}

/* Beyond the limit the kernel would end the process by SIGXFSZ, and the new file would stay. */
static int check_limit(size_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes ? -EFBIG : 0;
}

static int write_all(int fd, const char *data, size_t bytes)
{
	while (bytes > 0) {
		ssize_t done = write(fd, data, bytes);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		data += done;
		bytes -= (size_t)done;
	}
	return 0;
}

/* Ends what open_target() began: the new file takes the place, or goes. */
static int settle(struct target *target, int result)
{
	if (result == 0 && target->temporary[0] && fchmod(target->fd, target->mode) < 0)
		result = -errno;
	/* Some file systems tell only here that there was no room. */
	if (target->fd >= 0 && close(target->fd) < 0 && result == 0)
		result = -errno;
	if (result == 0 && target->temporary[0] && rename(target->temporary, target->path) < 0)
		result = -errno;
	if (result < 0 && target->temporary[0])
		(void)unlink(target->temporary);
	return result;
}

static int explain(const char *path, int result, struct gw_error *ret_error)
{
	return result < 0 ? err_os(ret_error, -result, "cannot write '%.150s'", path) : 0;
}

int replace_check(const char *path, struct gw_error *ret_error)
{
	struct target target;
	int result = open_target(&target, path);

	fd_close(target.fd);
	if (target.temporary[0])
		(void)unlink(target.temporary);
	return explain(path, result, ret_error);
}

int replace_write(const char *path, const void *data, size_t bytes, struct gw_error *ret_error)
{
	struct target target;
	int result = open_target(&target, path);

	if (result == 0 && target.temporary[0])
		result = check_limit(bytes);
	if (result == 0)
		result = write_all(target.fd, data, bytes);
	return explain(path, settle(&target, result), ret_error);
}
