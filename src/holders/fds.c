/* SPDX-License-Identifier: MIT */
/*
 * A table of descriptors. Each is looked at with one statx() of its link, which follows to the open file itself:
 * no path is read, nothing is opened. AT_STATX_DONT_SYNC keeps a network or FUSE file system out of it, whose
 * server might not answer.
 *
 * Read next: look.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/look.h"

#define STATX_FLAGS (AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT)
#define BEAT_EVERY  512

static void look_at(struct look *look, int folder, const char *name, int32_t fd, int32_t tid,
		    struct finding *finding)
{
	struct scan_reference reference = {.tid = tid,
					   .held = tid ? SCAN_FD_OF_THREAD : SCAN_FD,
					   .fd = fd,
					   .count = 1,
					   .bytes = GW_UNKNOWN};
	struct statx file;

	/* One that was closed meanwhile is no loss. */
	if (statx(folder, name, STATX_FLAGS, STATX_TYPE | STATX_INO, &file) < 0)
		return;
	if (device_find(look->devices, &file, &reference.device, &reference.other_node))
		(void)finding_add(look, finding, &reference);
}

int64_t fds_look(struct look *look, int folder, int32_t tid, struct finding *finding)
{
	cleanup_fd int fd = openat(folder, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct folder entries = {.fd = fd, .buffer = look->entries, .room = sizeof(look->entries)};
	int64_t count = 0;
	const char *name;
	int32_t number;
	int code;

	if (fd < 0)
		return -errno;
	while ((code = folder_next(&entries, &number, &name)) > 0) {
		look_at(look, fd, name, number, tid, finding);
		if (++count % BEAT_EVERY == 0)
			look_beat(look);
	}
	look->descriptors += (uint64_t)count;
	return code < 0 ? code : count;
}
