/* SPDX-License-Identifier: MIT */
/*
 * Follows a regular file that grows: only what is added from now on counts. It may not be there yet, be
 * truncated, or be replaced by another file of its name.
 *
 * Runs in: ward. Never blocks, never polls: inotify tells of every change, and its descriptor is what an
 * event loop watches. A notice says only "look again", so one that was merged or dropped loses nothing.
 *
 *	watched        for                               why not one watch for all
 *	the file       it grew, it was truncated         its folder can be busy with other files
 *	its folder     a file of this name appeared      the file cannot tell of its successor
 *
 * Both watches are set before the first look, else a change between look and watch would wait for the
 * next one. Not seen: a file that is truncated and then outgrows its old length between two looks.
 * Read next: kernel_log.h.
 */
#ifndef GPUWARD_WARD_LOG_FILE_H
#define GPUWARD_WARD_LOG_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct log_file {
	int notices_fd; /* inotify: readable when there may be something to read */
	int watch;	/* of the file, or -1 */
	int fd;		/* -1 while there is no file */
	dev_t device;
	ino_t inode;
	uint64_t offset;
	char path[PATH_MAX];
};

/* So that log_file_close() can be called before or instead of log_file_open(). */
#define LOG_FILE_NONE ((struct log_file){.notices_fd = -1, .watch = -1, .fd = -1})

/*
 * Begins to follow PATH, from its end if there is such a file. Returns 0, or -errno: -ENOENT its folder is
 * not there, -EACCES, -EINVAL no regular file, -ENAMETOOLONG, -EMFILE or -ENOSPC no inotify left.
 */
int log_file_open(struct log_file *file, const char *path);
void log_file_close(struct log_file *file);

/* Takes the notices in, so that the descriptor is not readable until there are new ones. Then read to the
 * end: a notice is not given twice. */
void log_file_take_notices(struct log_file *file);

/*
 * Reads on. Returns the number of bytes, 0 at the end, or -errno: -EACCES and so on for a successor that
 * may not be read. *RET_ANEW: these bytes are the first of a file that begins anew.
 */
ssize_t log_file_read(struct log_file *file, char *buffer, size_t capacity, bool *ret_anew);

#endif
