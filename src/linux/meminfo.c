/* SPDX-License-Identifier: MIT */
#include "linux/meminfo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fd.h"

/* memory.stat of today has 2 KiB, and /proc/meminfo 1.5 KiB. */
#define TEXT_MAX 16384

/* Returns false where the file is not there, or longer than its text can be. */
static bool read_text(const char *path, char text[TEXT_MAX])
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got = fd < 0 ? -1 : 0;

	while (fd >= 0 && length < TEXT_MAX - 1) {
		got = read(fd, text + length, TEXT_MAX - 1 - length);
		if (got <= 0)
			break;
		length += (size_t)got;
	}
	text[length] = '\0';
	return got == 0;
}

/* The number behind KEY at the beginning of a line of TEXT. */
static bool find_number(const char *text, const char *key, uint64_t *ret_number)
{
	size_t length = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		char *end;

		line += *line == '\n';
		if (strncmp(line, key, length) != 0)
			continue;
		errno = 0;
		*ret_number = strtoull(line + length, &end, 10);
		return errno == 0 && end != line + length;
	}
	return false;
}

static bool of_machine(const char *root, char text[TEXT_MAX], uint64_t *ret_bytes)
{
	char path[PATH_MAX];
	uint64_t kib;

	(void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (!read_text(path, text) || !find_number(text, "MemAvailable:", &kib) ||
	    kib > UINT64_MAX / 1024)
		return false;
	*ret_bytes = kib * 1024;
	return true;
}

static bool read_value(const char *folder, const char *name, char text[TEXT_MAX],
		       uint64_t *ret_value)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
	       read_text(path, text) && find_number(text, "", ret_value);
}

/* What the group of FOLDER has left; false where it has no limit ("max" is no number). */
static bool of_group(const char *folder, char text[TEXT_MAX], uint64_t *ret_bytes)
{
	uint64_t limit, used;
	uint64_t cache[2] = {0, 0};
	char path[PATH_MAX];

	if (!read_value(folder, "memory.max", text, &limit) ||
	    !read_value(folder, "memory.current", text, &used))
		return false;
	(void)snprintf(path, sizeof(path), "%.4000s/memory.stat", folder);
	if (read_text(path, text)) {
		(void)find_number(text, "inactive_file ", &cache[0]);
		(void)find_number(text, "active_file ", &cache[1]);
	}
	for (int i = 0; i < 2; i++)
		used -= cache[i] < used ? cache[i] : used;
	*ret_bytes = used < limit ? limit - used : 0;
	return true;
}

/* The folder of this process's group, in a container that of the groups that it sees. */
static bool find_group(const char *root, char text[TEXT_MAX], char folder[PATH_MAX])
{
	const char *line;
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	if (!read_text(path, text))
		return false;
	line = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
	if (!line)
		return false;
	line += *line == '\n';
	line += strlen("0::");
	return snprintf(folder, PATH_MAX, "%s/sys/fs/cgroup%.*s", root, (int)strcspn(line, "\n"),
			line) < PATH_MAX;
}

int meminfo_available(const char *root, uint64_t *ret_bytes)
{
	cleanup_free char *text = malloc(TEXT_MAX);
	uint64_t least = UINT64_MAX;
	char folder[PATH_MAX];
	uint64_t bytes;
	size_t top;

	if (!text)
		return -ENOENT;
	if (of_machine(root, text, &bytes))
		least = bytes;
	if (find_group(root, text, folder)) {
		top = strlen(root) + strlen("/sys/fs/cgroup");
		/* A group is limited by those above it too. */
		while (strlen(folder) >= top) {
			if (of_group(folder, text, &bytes) && bytes < least)
				least = bytes;
			*strrchr(folder, '/') = '\0';
		}
	}
	if (least == UINT64_MAX)
		return -ENOENT;
	*ret_bytes = least;
	return 0;
}
