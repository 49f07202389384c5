/* SPDX-License-Identifier: MIT */
/*
 * Reading folders and small files of /proc with as few system calls as possible.
 *
 * Runs in: the scan's threads. Folders of /proc that are read here (/proc itself, fd, task) have numbers as names;
 * everything else in them is passed over.
 */
#ifndef GPUWARD_HOLDERS_FOLDER_H
#define GPUWARD_HOLDERS_FOLDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A folder that is being read; `buffer` is the caller's. */
struct folder {
	int fd;
	char *buffer;
	size_t room;
	size_t filled;
	size_t at;
};

/*
 * The next entry whose name is a number. Returns 1, *RET_NUMBER and *RET_NAME, which is valid until the next
 * call; 0 at the end; -errno.
 */
int folder_next(struct folder *folder, int32_t *ret_number, const char **ret_name);

/*
 * Reads the file NAME below the folder AT, up to BYTES - 1 bytes, and ends the text with NUL.
 * Returns how many were read (a text of BYTES - 1 may have been cut), or -errno.
 */
ssize_t folder_read_file(int at, const char *name, char *text, size_t bytes);

/*
 * The same with one read only, for files that the kernel writes at once: stat, status, fdinfo, wchan, cgroup. A text
 * that does not fit is cut.
 */
ssize_t folder_read_once(int at, const char *name, char *text, size_t bytes);

/* The text of the link NAME below the folder AT, cut to BYTES. Returns its length or -errno. */
ssize_t folder_read_link(int at, const char *name, char *text, size_t bytes);

#endif
