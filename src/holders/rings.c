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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fd.h"
#include "holders/lines.h"
#include "holders/parts.h"

#define TRIES_MAX 20

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

/*
 * Since Linux 6.16 a list that is there is complete, and one without a line is of empty slots. Up to 6.12 empty
 * slots have lines too; between them an empty list can mean either, and is taken as not readable.
 */
static bool lists_are_whole(void)
{
	return quiet_kernel_is_from(6, 16);
}

/* A list that is being read. */
struct ring {
	const struct place *place;
	struct finding *finding;
	int root;	/* the process's */
	bool in_list;	/* behind the line "UserFiles:" */
	bool has_list;	/* there was that line */
	uint64_t slots; /* that it speaks of */
	uint64_t lines; /* that were in the list */
};

static bool take_line(struct look *look, char *line, size_t length, void *argument)
{
	struct ring *ring = argument;
	struct scan_reference reference = ring->place->reference;
	const char *path = ring->in_list ? path_of(line) : NULL;

	(void)length;
	if (look_find_number(line, "UserFiles:", &ring->slots)) {
		ring->in_list = ring->has_list = true;
		return true;
	}
	/* Behind the list is nothing that is wanted. */
	if (!path)
		return !ring->in_list;
	ring->lines++;
	if (reference.held != SCAN_IN_FLIGHT)
		reference.held = SCAN_IO_URING;
	if (find_by_path(look, ring->root, path, &reference))
		finding_count(look, ring->finding, &reference);
	return true;
}

/* Reads the list once. Returns whether it was complete, or there is none to read. */
static bool read_list(struct look *look, int folder, const char *name, const struct place *place,
		      struct finding *finding)
{
	/* A ring in flight is our own for a moment, but its paths are of whoever registered them. */
	cleanup_fd int root = openat(look->folder, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct ring ring = {.place = place, .finding = finding, .root = root};
	char path[32];

	(void)snprintf(path, sizeof(path), "fdinfo/%s", name);
	if (lines_each(look, folder, path, '\n', take_line, &ring) < 0)
		return true;
	return ring.has_list && (ring.slots == 0 || ring.lines > 0 || lists_are_whole());
}

void rings_look(struct look *look, int folder, const char *name, const struct place *place,
		struct finding *finding)
{
	look->rings++;
	/* A list that was not complete has added nothing: it had no line. */
	for (int i = 0; i < TRIES_MAX; i++) {
		if (read_list(look, folder, name, place, finding))
			return;
		(void)sched_yield();
	}
	look->unseen.rings_busy++;
}
