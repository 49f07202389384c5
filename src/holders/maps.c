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
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "common/fd.h"
#include "holders/lines.h"
#include "holders/parts.h"

#define BEAT_EVERY 256

struct mapping {
	uint64_t start;
	uint64_t end;
	struct device_inode file;
	const char *path; /* ends with NUL; NULL: to be asked for */
};

/* What PROCMAP_QUERY of Linux 6.11 takes and gives; the headers of older systems do not have it. */
struct query {
	uint64_t size;
	uint64_t flags;
	uint64_t address;
	uint64_t start;
	uint64_t end;
	uint64_t mapping_flags;
	uint64_t page_bytes;
	uint64_t offset;
	uint64_t inode;
	uint32_t major;
	uint32_t minor;
	uint32_t name_bytes;
	uint32_t build_id_bytes;
	uint64_t name;
	uint64_t build_id;
};

#define QUERY		_IOWR('f', 17, struct query)
#define QUERY_OR_NEXT	0x10
#define QUERY_OF_A_FILE 0x20

_Static_assert(sizeof(struct query) == 104, "the kernel's size");

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

static bool by_path(struct look *look, const struct mapping *mapping, const char *path,
		    struct statx *ret_file)
{
	char name[4096 + 8];

	if (path[0] != '/' || snprintf(name, sizeof(name), "root%s", path) >= (int)sizeof(name) ||
	    statx(look->folder, name, LOOK_STATX_FLAGS | AT_SYMLINK_NOFOLLOW,
		  STATX_TYPE | STATX_INO, ret_file) < 0)
		return false;
	return ret_file->stx_ino == mapping->file.inode &&
	       ret_file->stx_dev_major == mapping->file.major &&
	       ret_file->stx_dev_minor == mapping->file.minor;
}

/* What is done with the mappings of one process. */
struct maps {
	struct finding *finding;
	int fd; /* to ask for a path; -1 where it is known */
	bool has_ring;
};

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

/* The path of MAPPING, for which ROOM is where it is asked for; "" if that fails. */
static const char *find_path(const struct maps *maps, const struct mapping *mapping, char *room,
			     size_t bytes)
{
	struct query query = {.size = sizeof(query),
			      .flags = QUERY_OF_A_FILE,
			      .address = mapping->start,
			      .name = (uint64_t)(uintptr_t)room,
			      .name_bytes = (uint32_t)bytes};

	if (mapping->path)
		return mapping->path;
	if (ioctl(maps->fd, QUERY, &query) < 0 || query.start != mapping->start)
		return "";
	return room;
}

static void identify(struct look *look, const struct maps *maps, const struct mapping *mapping,
		     struct look_known *known)
{
	struct statx file = {0};
	const char *path = "";
	char room[4096] = "";
	bool seen;

	*known = (struct look_known){.file = mapping->file, .used = true};
	if (device_find_inode(look->devices, &mapping->file, &known->device)) {
		known->is_device = true;
		return;
	}
	seen = by_map_files(look, mapping, &file);
	if (!seen || (file.stx_mode & S_IFMT) == 0) {
		path = find_path(maps, mapping, room, sizeof(room));
		known->is_ring = strcmp(path, "anon_inode:[io_uring]") == 0;
		seen = seen || by_path(look, mapping, path, &file);
	}
	if (seen)
		known->is_device =
			device_find(look->devices, &file, &known->device, &known->other_node);
	else
		count_unsure(look, path);
}

static void look_at_mapping(struct look *look, struct maps *maps, const struct mapping *mapping)
{
	struct look_known *known = known_of(look, &mapping->file);
	struct scan_reference reference = {
		.held = SCAN_MAPPING, .fd = -1, .count = 1, .bytes = mapping->end - mapping->start};

	if (!known->used || memcmp(&known->file, &mapping->file, sizeof(known->file)) != 0)
		identify(look, maps, mapping, known);
	maps->has_ring |= known->is_ring;
	if (!known->is_device)
		return;
	reference.device = known->device;
	reference.other_node = known->other_node;
	finding_count(look, maps->finding, &reference);
}

static bool take_line(struct look *look, char *line, size_t length, void *argument)
{
	struct mapping mapping;

	(void)length;
	if (parse_line(line, &mapping) && mapping.file.inode != 0)
		look_at_mapping(look, argument, &mapping);
	return true;
}

/*
 * Asks for one mapping of a file after the other, which is faster than the text: no path is made. Returns 0; -ENOTTY
 * where the kernel cannot be asked, or another -errno.
 */
static int query_all(struct look *look, struct maps *maps)
{
	struct query query = {.size = sizeof(query)};
	unsigned int count = 0;

	for (;;) {
		struct mapping mapping;

		query.flags = QUERY_OR_NEXT | QUERY_OF_A_FILE;
		query.address = query.end;
		if (ioctl(maps->fd, QUERY, &query) < 0)
			return errno == ENOENT || errno == ESRCH ? 0 : -errno;
		mapping = (struct mapping){
			.start = query.start,
			.end = query.end,
			.file = {.major = query.major, .minor = query.minor, .inode = query.inode},
		};
		look_at_mapping(look, maps, &mapping);
		if (++count % BEAT_EVERY == 0)
			look_beat(look);
		if (query.end <= query.address)
			return 0;
	}
}

void maps_look(struct look *look, struct finding *finding)
{
	cleanup_fd int fd = openat(look->folder, "maps", O_RDONLY | O_CLOEXEC);
	struct maps maps = {.finding = finding, .fd = fd};
	int code = fd < 0 ? -errno : query_all(look, &maps);

	if (fd >= 0 && code < 0)
		code = lines_each(look, look->folder, "maps", '\n', take_line, &maps);
	if (code == -EACCES || code == -EPERM)
		finding->process.flags |= SCAN_MAPS_DENIED;
	if (maps.has_ring && look->rings == 0)
		look->unseen.rings_unreachable++;
}
