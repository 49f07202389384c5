/* SPDX-License-Identifier: MIT */
/*
 * A table of descriptors. Each is looked at with one statx() of its link, which follows to the open file itself:
 * no path is read, nothing is opened. AT_STATX_DONT_SYNC keeps a network or FUSE file system out of it, whose
 * server might not answer.
 *
 * Most descriptors need no more. Sockets need their fdinfo, for what is in flight; what has no type or lies on a
 * file system of the kernel's own can be an io_uring or a dma-buf, and its link says so.
 *
 * Read next: look.h, parts.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fd.h"
#include "holders/folder.h"
#include "holders/parts.h"

#define BEAT_EVERY 512

#define RING_LINK   "anon_inode:[io_uring]"
#define DMABUF_LINK "/dmabuf:"

/* The exporter of nvidia's kernel module, in the fdinfo of a dma-buf. */
#define DMABUF_EXPORTER "exp_name:\tnv_dmabuf\n"

static void look_at_dmabuf(struct look *look, int folder, const char *name,
			   const struct place *place, struct finding *finding)
{
	struct scan_reference reference = place->reference;
	uint64_t bytes;

	if (look_read_fdinfo(look, folder, name) < 0 || !strstr(look->text, DMABUF_EXPORTER))
		return;
	reference.device = (struct scan_device){.kind = SCAN_DMABUF, .minor = -1, .gpu_minor = -1};
	if (look_find_number(look->text, "size:", &bytes))
		reference.bytes = bytes;
	(void)finding_add(look, finding, &reference);
}

/*
 * Files of dma-bufs are regular ones on newer kernels, on a file system of their own without a device. Which
 * one that is shows at the first link of it, and the others are known not to be.
 */
static bool may_be_dmabuf(struct look *look, const struct statx *file)
{
	if (file->stx_dev_major != 0)
		return false;
	for (size_t i = 0; i < look->plain_count; i++) {
		if (look->plain[i] == file->stx_dev_minor)
			return false;
	}
	return true;
}

static void is_plain(struct look *look, const struct statx *file)
{
	if (look->plain_count < LOOK_PLAIN_MAX)
		look->plain[look->plain_count++] = file->stx_dev_minor;
}

static void look_at_link(struct look *look, int folder, int fds, const char *name,
			 const struct statx *file, const struct place *place,
			 struct finding *finding)
{
	char link[32]; /* the beginning decides */

	if (folder_read_link(fds, name, link, sizeof(link)) < 0)
		return;
	if (strcmp(link, RING_LINK) == 0)
		rings_look(look, folder, name, place, finding);
	else if (strncmp(link, DMABUF_LINK, strlen(DMABUF_LINK)) == 0)
		look_at_dmabuf(look, folder, name, place, finding);
	else if (S_ISREG(file->stx_mode))
		is_plain(look, file);
}

void fds_look_at(struct look *look, int folder, int fds, const char *name,
		 const struct place *place, struct finding *finding)
{
	struct scan_reference reference = place->reference;
	struct statx file;

	/* One that was closed meanwhile is no loss; to list them can be allowed where to follow them is not. */
	if (statx(fds, name, LOOK_STATX_FLAGS, STATX_TYPE | STATX_INO, &file) < 0) {
		look->links_denied |= errno == EACCES || errno == EPERM;
		return;
	}
	if (device_find(look->devices, &file, &reference.device, &reference.other_node)) {
		if (reference.held == SCAN_IN_FLIGHT)
			finding_count(look, finding, &reference);
		else
			(void)finding_add(look, finding, &reference);
	} else if (S_ISSOCK(file.stx_mode)) {
		if (!quiet_has_socket(look->quiet, file.stx_ino))
			sockets_look(look, folder, name, place, finding);
	} else if ((file.stx_mode & S_IFMT) == 0 ||
		   (S_ISREG(file.stx_mode) && may_be_dmabuf(look, &file))) {
		if (!quiet_is_anonymous(look->quiet, &file))
			look_at_link(look, folder, fds, name, &file, place, finding);
	}
}

int64_t fds_look(struct look *look, int folder, int32_t tid, struct finding *finding)
{
	cleanup_fd int fd = openat(folder, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct folder entries = {.fd = fd, .buffer = look->entries, .room = sizeof(look->entries)};
	struct place place = {.reference = {.tid = tid,
					    .held = tid ? SCAN_FD_OF_THREAD : SCAN_FD,
					    .count = 1,
					    .bytes = GW_UNKNOWN}};
	int64_t count = 0;
	const char *name;
	int code;

	if (fd < 0)
		return -errno;
	/*
	 * To try the numbers from 0 on instead of listing them takes longer: the listing is what puts their links
	 * into the kernel's cache.
	 */
	while ((code = folder_next(&entries, &place.reference.fd, &name)) > 0) {
		fds_look_at(look, folder, fd, name, &place, finding);
		if (++count % BEAT_EVERY == 0)
			look_beat(look);
	}
	look->descriptors += (uint64_t)count;
	return code < 0 ? code : count;
}
