/* SPDX-License-Identifier: MIT */
#include "holders/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/fd.h"

/* As getdents64() writes them; the C library has no such struct under this name. */
struct entry {
	uint64_t inode;
	int64_t offset;
	unsigned short bytes;
	unsigned char type;
	char name[];
};

/* A number of at most nine digits, as pids and descriptors are. */
static bool parse_number(const char *name, int32_t *ret_number)
{
	int32_t number = 0;
	int digits = 0;

	for (; name[digits]; digits++) {
		if (name[digits] < '0' || name[digits] > '9' || digits == 9)
			return false;
		number = number * 10 + (name[digits] - '0');
	}
	*ret_number = number;
	return digits > 0;
}

int folder_next(struct folder *folder, int32_t *ret_number, const char **ret_name)
{
	for (;;) {
		const struct entry *entry;

		if (folder->at == folder->filled) {
			long got =
				syscall(SYS_getdents64, folder->fd, folder->buffer, folder->room);

			if (got < 0)
				return -errno;
			if (got == 0)
				return 0;
			folder->filled = (size_t)got;
			folder->at = 0;
		}
		entry = (const struct entry *)(const void *)(folder->buffer + folder->at);
		folder->at += entry->bytes;
		if (!parse_number(entry->name, ret_number))
			continue;
		*ret_name = entry->name;
		return 1;
	}
}

ssize_t folder_read_file(int at, const char *name, char *text, size_t bytes)
{
	cleanup_fd int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t length = 0;

	if (fd < 0)
		return -errno;
	while (length < bytes - 1) {
		ssize_t got = read(fd, text + length, bytes - 1 - length);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		length += (size_t)got;
	}
	text[length] = '\0';
	return (ssize_t)length;
}

ssize_t folder_read_once(int at, const char *name, char *text, size_t bytes)
{
	cleanup_fd int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	ssize_t got;

	if (fd < 0)
		return -errno;
	do {
		got = read(fd, text, bytes - 1);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	text[got] = '\0';
	return got;
}

ssize_t folder_read_link(int at, const char *name, char *text, size_t bytes)
{
	ssize_t length = readlinkat(at, name, text, bytes - 1);

	if (length < 0)
		return -errno;
	text[length] = '\0';
	return length;
}
