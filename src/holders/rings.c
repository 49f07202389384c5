/* SPDX-License-Identifier: MIT */
/*
 * Files that are registered with an io_uring: the ring keeps them open when their descriptors are closed.
 *
 * The ring's fdinfo has them as paths, the only thing that the kernel tells about them:
 *
 *	UserFiles:	3
 *	    0: /dev/nvidiactl
 *	    2: /tmp/some file
 *
 * The path is one in the process's own tree, so it is looked up from the process's root, and the number of what
 * lies there decides. Where nothing lies there any more, the name has to do. The kernel leaves the list out while
 * the ring is in use; it is asked again then, a few times.
 *
 * Read next: parts.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/parts.h"

#define TRIES_MAX 20
#define FILES_MAX 4096U /* that are looked up, of one ring */

/* The part behind the last slash. */
static bool find_by_name(const char *path, struct scan_device *ret_device)
{
	const char *name = strrchr(path, '/');

	return name && device_find_name(name + 1, strlen(name + 1), ret_device);
}

static bool find_by_path(struct look *look, int root, const char *path,
			 struct scan_reference *reference)
{
	struct statx file;

	if (path[0] != '/' || !path[1])
		return false;
	if (root >= 0 && statx(root, path + 1, LOOK_STATX_FLAGS | AT_SYMLINK_NOFOLLOW,
			       STATX_TYPE | STATX_INO, &file) == 0)
		return device_find(look->devices, &file, &reference->device,
				   &reference->other_node);
	return !look->devices->emulated && find_by_name(path, &reference->device);
}

/* "    0: /dev/nvidia0": the path, or NULL at the end of the list. */
static const char *path_of(const char *line)
{
	const char *at = line + strspn(line, " ");
	size_t digits = strspn(at, "0123456789");

	if (at == line || digits == 0 || at[digits] != ':' || at[digits + 1] != ' ')
		return NULL;
	return at + digits + 2;
}

/* LIST is the text behind the line "UserFiles:", and is changed. Returns how many files it has. */
static uint64_t look_at_list(struct look *look, char *list, const struct place *place,
			     struct finding *finding)
{
	/* A ring in flight is our own for a moment, but its paths are of whoever registered them. */
	cleanup_fd int root = openat(look->folder, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	uint64_t count = 0;
	char *line = list;

	while (*line) {
		struct scan_reference reference = place->reference;
		size_t length = strcspn(line, "\n");
		char *next = line + length + (line[length] == '\n');
		const char *path;

		line[length] = '\0';
		path = path_of(line);
		if (!path)
			break;
		count++;
		if (reference.held != SCAN_IN_FLIGHT)
			reference.held = SCAN_IO_URING;
		if (count <= FILES_MAX && find_by_path(look, root, path, &reference))
			finding_count(look, finding, &reference);
		if (count % 64 == 0)
			look_beat(look);
		line = next;
	}
	return count;
}

/*
 * Since Linux 6.16 a list that is there is complete, and one without a line is of empty slots. Up to 6.12 empty
 * slots have lines too; between them an empty list can mean either, and is taken as not readable.
 */
static bool lists_are_whole(void)
{
	struct utsname kernel;
	long major, minor;
	char *end;

	if (uname(&kernel) < 0)
		return false;
	major = strtol(kernel.release, &end, 10);
	minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
	return major > 6 || (major == 6 && minor >= 16);
}

/* Reads the list once. Returns whether it was complete, or there is none to read. */
static bool read_list(struct look *look, int folder, const char *name, const struct place *place,
		      struct finding *finding)
{
	uint64_t files;
	char *list;

	if (look_read_fdinfo(look, folder, name) < 0)
		return true;
	list = strstr(look->text, "\nUserFiles:");
	if (!list || !look_find_number(look->text, "UserFiles:", &files))
		return false;
	if (files == 0)
		return true;
	list = strchr(list + 1, '\n');
	return list && (look_at_list(look, list + 1, place, finding) > 0 || lists_are_whole());
}

void rings_look(struct look *look, int folder, const char *name, const struct place *place,
		struct finding *finding)
{
	look->rings++;
	for (int i = 0; i < TRIES_MAX; i++) {
		if (read_list(look, folder, name, place, finding))
			return;
		(void)sched_yield();
	}
	look->unseen.rings_busy++;
}
