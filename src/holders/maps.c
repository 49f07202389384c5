/* SPDX-License-Identifier: MIT */
/*
 * Mapped memory: a mapping holds its file open when every descriptor of it is closed.
 *
 * /proc/PID/maps shows the inode of the file, which does not tell whether it is a device. So each file that was not
 * met before is looked at once: through map_files, which follows to the file itself (with CAP_CHECKPOINT_RESTORE),
 * or, without that, at its path in the process's own tree, provided that the same inode lies there. What it is, is
 * kept: nearly all mappings of a machine are of the same few libraries.
 *
 * Runs in the second half: the kernel reads maps under the process's memory lock.
 *
 * Read next: parts.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fd.h"
#include "holders/parts.h"

struct mapping {
	uint64_t start;
	uint64_t end;
	struct device_inode file;
	const char *path; /* ends with NUL */
};

static bool take_hex(const char **at, char after, uint64_t *ret_value)
{
	char *end;

	errno = 0;
	*ret_value = strtoull(*at, &end, 16);
	if (end == *at || *end != after || errno)
		return false;
	*at = end + 1;
	return true;
}

/* "7f3ba000-7f3bb000 rw-s 00000000 00:06 317                     /dev/nvidiactl" */
static bool parse_line(const char *line, struct mapping *mapping)
{
	uint64_t major, minor, offset;
	char *end;

	if (!take_hex(&line, '-', &mapping->start) || !take_hex(&line, ' ', &mapping->end))
		return false;
	line = strchr(line, ' '); /* behind the permissions */
	if (!line)
		return false;
	line++;
	if (!take_hex(&line, ' ', &offset) || !take_hex(&line, ':', &major) ||
	    !take_hex(&line, ' ', &minor))
		return false;
	errno = 0;
	mapping->file = (struct device_inode){.major = (uint32_t)major,
					      .minor = (uint32_t)minor,
					      .inode = strtoull(line, &end, 10)};
	mapping->path = end + strspn(end, " ");
	return !errno && end != line;
}

static struct look_known *known_of(struct look *look, const struct device_inode *file)
{
	uint64_t hash =
		(file->inode * 0x9e3779b97f4a7c15ULL) ^ ((uint64_t)file->minor << 7) ^ file->major;

	return &look->known[(hash >> 20) % LOOK_KNOWN_MAX];
}

static bool by_map_files(struct look *look, const struct mapping *mapping, struct statx *ret_file)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "map_files/%" PRIx64 "-%" PRIx64, mapping->start,
		       mapping->end);
	return statx(look->folder, name, LOOK_STATX_FLAGS, STATX_TYPE | STATX_INO, ret_file) == 0;
}

static bool by_path(struct look *look, const struct mapping *mapping, struct statx *ret_file)
{
	char name[4096 + 8];

	if (mapping->path[0] != '/' ||
	    snprintf(name, sizeof(name), "root%s", mapping->path) >= (int)sizeof(name) ||
	    statx(look->folder, name, LOOK_STATX_FLAGS | AT_SYMLINK_NOFOLLOW,
		  STATX_TYPE | STATX_INO, ret_file) < 0)
		return false;
	return ret_file->stx_ino == mapping->file.inode &&
	       ret_file->stx_dev_major == mapping->file.major &&
	       ret_file->stx_dev_minor == mapping->file.minor;
}

/* A device by its name that could not be looked at: worth a word, and no more. */
static void count_unsure(struct look *look, const char *path)
{
	const char *name = strrchr(path, '/');
	struct scan_device device;

	if (!name || !device_find_name(name + 1, strcspn(name + 1, " "), &device))
		return;
	look->unseen.maps_unsure++;
	look->unseen.needs_checkpoint = true;
}

static void identify(struct look *look, const struct mapping *mapping, struct look_known *known)
{
	struct statx file;

	*known = (struct look_known){.file = mapping->file, .used = true};
	if (device_find_inode(look->devices, &mapping->file, &known->device)) {
		known->is_device = true;
		return;
	}
	if (by_map_files(look, mapping, &file) || by_path(look, mapping, &file))
		known->is_device =
			device_find(look->devices, &file, &known->device, &known->other_node);
	else
		count_unsure(look, mapping->path);
}

static void look_at_mapping(struct look *look, const struct mapping *mapping,
			    struct finding *finding)
{
	struct look_known *known = known_of(look, &mapping->file);
	struct scan_reference reference = {
		.held = SCAN_MAPPING, .fd = -1, .count = 1, .bytes = mapping->end - mapping->start};

	if (!known->used || memcmp(&known->file, &mapping->file, sizeof(known->file)) != 0)
		identify(look, mapping, known);
	if (!known->is_device)
		return;
	reference.device = known->device;
	reference.other_node = known->other_node;
	finding_count(look, finding, &reference);
}

static void look_at_line(struct look *look, const char *line, bool *has_ring,
			 struct finding *finding)
{
	struct mapping mapping;

	if (!parse_line(line, &mapping) || mapping.file.inode == 0)
		return;
	if (strcmp(mapping.path, "anon_inode:[io_uring]") == 0)
		*has_ring = true;
	else
		look_at_mapping(look, &mapping, finding);
}

/* Looks at the whole lines of look->text. Returns how many bytes of a line are left at its beginning. */
static size_t look_at_lines(struct look *look, size_t bytes, bool *has_ring,
			    struct finding *finding)
{
	char *line = look->text;
	char *end;

	while ((end = memchr(line, '\n', bytes))) {
		*end = '\0';
		look_at_line(look, line, has_ring, finding);
		bytes -= (size_t)(end + 1 - line);
		line = end + 1;
	}
	memmove(look->text, line, bytes);
	return bytes;
}

void maps_look(struct look *look, struct finding *finding)
{
	cleanup_fd int fd = openat(look->folder, "maps", O_RDONLY | O_CLOEXEC);
	bool has_ring = false;
	size_t left = 0;

	if (fd < 0) {
		if (errno == EACCES || errno == EPERM)
			finding->process.flags |= SCAN_MAPS_DENIED;
		return;
	}
	for (;;) {
		ssize_t got = read(fd, look->text + left, sizeof(look->text) - left);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EACCES || errno == EPERM))
			finding->process.flags |= SCAN_MAPS_DENIED;
		if (got <= 0)
			break;
		look_beat(look);
		left = look_at_lines(look, left + (size_t)got, &has_ring, finding);
		if (left == sizeof(look->text))
			left = 0; /* no line of the kernel's is that long */
	}
	if (has_ring && look->rings == 0)
		look->unseen.rings_unreachable++;
}
