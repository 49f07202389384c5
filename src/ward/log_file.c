/* SPDX-License-Identifier: MIT */
#include "ward/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"

/* A successor is created, linked or renamed; permissions can come later than the name. */
#define FOLDER_EVENTS (IN_CREATE | IN_MOVED_TO | IN_ONLYDIR)
#define FILE_EVENTS   (IN_MODIFY | IN_ATTRIB)

static int watch_folder(const struct log_file *file)
{
	char path[PATH_MAX];

	memcpy(path, file->path, sizeof(path));
	return inotify_add_watch(file->notices_fd, dirname(path), FOLDER_EVENTS) < 0 ? -errno : 0;
}

/* An inode has one watch, however often it is asked for; the watch of the file before it ends. */
static int watch_file(struct log_file *file)
{
	int watch = inotify_add_watch(file->notices_fd, file->path, FILE_EVENTS);

	if (watch < 0)
		return -errno;
	if (file->watch >= 0 && file->watch != watch)
		(void)inotify_rm_watch(file->notices_fd, file->watch);
	file->watch = watch;
	return 0;
}

/* Opens what the path leads to now. Returns 1 if it is another file than before, 0, or -errno. */
static int follow_path(struct log_file *file)
{
	struct stat status;
	cleanup_fd int fd = -1;
	int result = watch_file(file);

	if (result == 0) {
		fd = open(file->path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		result = fd < 0 ? -errno : 0;
	}
	if (result == -ENOENT)
		return 0;
	if (result < 0)
		return result;
	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL;
	/* The number of an inode that is open here cannot be another file's. */
	if (file->fd >= 0 && status.st_dev == file->device && status.st_ino == file->inode)
		return 0;
	fd_close(file->fd);
	file->fd = fd_steal(&fd);
	file->device = status.st_dev;
	file->inode = status.st_ino;
	file->offset = 0;
	return 1;
}

int log_file_open(struct log_file *file, const char *path)
{
	struct stat status;
	size_t length = strlen(path);
	int result;

	*file = LOG_FILE_NONE;
	if (length >= sizeof(file->path))
		return -ENAMETOOLONG;
	memcpy(file->path, path, length + 1);
	file->notices_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (file->notices_fd < 0)
		return -errno;
	result = watch_folder(file);
	if (result == 0)
		result = follow_path(file);
	if (result == 1 && fstat(file->fd, &status) < 0)
		result = -errno;
	if (result == 1)
		file->offset = (uint64_t)status.st_size;
	if (result < 0)
		log_file_close(file);
	return result < 0 ? result : 0;
}

void log_file_close(struct log_file *file)
{
	fd_closep(&file->fd);
	fd_closep(&file->notices_fd);
	file->watch = -1;
}

void log_file_take_notices(struct log_file *file)
{
	char notices[4096];

	while (read(file->notices_fd, notices, sizeof(notices)) == (ssize_t)sizeof(notices))
		;
}

static ssize_t read_on(struct log_file *file, char *buffer, size_t capacity, bool *ret_anew)
{
	struct stat status;
	ssize_t got;

	if (fstat(file->fd, &status) < 0)
		return -errno;
	if ((uint64_t)status.st_size < file->offset)
		file->offset = 0;
	got = pread(file->fd, buffer, capacity, (off_t)file->offset);
	if (got < 0)
		return -errno;
	*ret_anew = got > 0 && file->offset == 0;
	file->offset += (uint64_t)got;
	return got;
}

ssize_t log_file_read(struct log_file *file, char *buffer, size_t capacity, bool *ret_anew)
{
	ssize_t result = 0;

	*ret_anew = false;
	/* What was written to the old file comes first. */
	if (file->fd >= 0)
		result = read_on(file, buffer, capacity, ret_anew);
	if (result != 0)
		return result;
	result = follow_path(file);
	return result == 1 ? read_on(file, buffer, capacity, ret_anew) : result;
}
