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

#include "holders/lines.h"
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

struct maps {
	struct finding *finding;
	bool has_ring;
};

static bool take_line(struct look *look, char *line, size_t length, void *argument)
{
	struct maps *maps = argument;
	struct mapping mapping;

	(void)length;
	if (!parse_line(line, &mapping) || mapping.file.inode == 0)
		return true;
	if (strcmp(mapping.path, "anon_inode:[io_uring]") == 0)
		maps->has_ring = true;
	else
		look_at_mapping(look, &mapping, maps->finding);
	return true;
}

void maps_look(struct look *look, struct finding *finding)
{
	struct maps maps = {.finding = finding};
	int code = lines_each(look, look->folder, "maps", '\n', take_line, &maps);

	if (code == -EACCES || code == -EPERM)
		finding->process.flags |= SCAN_MAPS_DENIED;
	if (maps.has_ring && look->rings == 0)
		look->unseen.rings_unreachable++;
}
